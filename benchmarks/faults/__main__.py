"""The long campaign: everything that goes wrong, over and over, and what came of it.

    python -m benchmarks.faults [--sections kills,files,run_files,environments,disks,answers] [--seed 0]

Kills at random instants, fuzzed files, fuzzed run files, unruly environments, full disks and hostile answers are put to
the product in forked processes that are watched over; whatever may never happen is counted, and each failing case is
listed with its seed and number (`--sections S --case N` plays it again). Sections are merged into the one result file
as they end. The status is 1 where anything was counted. Linux only.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import shutil
import sys
import tempfile
import traceback
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.faults.endings import INTOLERABLE, ROOT
from benchmarks.faults.section import Section, play_section
from benchmarks.result_file import write_result

SECTIONS = {
    "kills": "benchmarks.faults.kills:Kills",
    "files": "benchmarks.faults.files:Files",
    "run_files": "benchmarks.faults.run_files:RunFiles",
    "environments": "benchmarks.faults.environments:Environments",
    "disks": "benchmarks.faults.disks:Disks",
    "answers": "benchmarks.faults.answers:Answers",
}
"""Class of each section; loaded in the process that plays it."""
RESULT = ROOT / "benchmarks" / "results" / "faults.json"
BUDGET_SECONDS = 900.0


def main() -> None:
    options = _parse()
    content = _read(options.write)
    import groupwise.training.loop  # noqa: F401  once, for all the processes that are forked from here

    for name in options.sections:
        content["sections"][name] = _in_a_process(name, options)
        _complete(content, options)
        if options.case is None:
            write_result(content, options.write)
    print(json.dumps({"totals": content["totals"]}, indent=2))
    wrong = {kind: sum(content["sections"][name][kind] for name in options.sections) for kind in INTOLERABLE}
    sys.exit(1 if any(wrong.values()) else 0)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", type=_names, default=list(SECTIONS), help="some of them, with commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, help="cases of each section, instead of the full campaign's")
    parser.add_argument("--case", type=int, help="only this case; nothing is written")
    parser.add_argument("--budget", type=float, default=BUDGET_SECONDS, help="seconds that a section may take")
    parser.add_argument("--processes", type=int, default=2, help="cases that are played at a time")
    parser.add_argument("--write", type=Path, default=RESULT, help="the result, as JSON")
    return parser.parse_args()


def _names(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in SECTIONS:
            raise argparse.ArgumentTypeError(f"there is no section {name!r}; choose from {', '.join(SECTIONS)}")
    return names


def _read(path: Path) -> dict[str, Any]:
    """The result so far, to which sections are added."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {"sections": {}, **content}


def _complete(content: dict[str, Any], options: argparse.Namespace) -> None:
    """Say what all sections come to, and what they were played with."""
    sections = {name: content["sections"][name] for name in SECTIONS if name in content["sections"]}
    totals = {kind: sum(section[kind] for section in sections.values()) for kind in INTOLERABLE}
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "reasoning_gym"))
    content.clear()
    content |= {
        "command": "python -m benchmarks.faults",
        "machine": f"{platform.system()}, {platform.machine()}, {options.processes} processes",
        "packages": f"Python {platform.python_version()}, {packages}",
        "means": INTOLERABLE,
        "totals": totals | {"cases": sum(section["cases"] for section in sections.values())},
        "sections": sections,
    }


def _in_a_process(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Play a section in a process of its own: what it imports and limits is not the next one's."""
    folder = Path(tempfile.mkdtemp(prefix=f"faults-{name}-"))
    try:
        child = os.fork()
        if not child:
            _play(name, options, folder)
        if os.waitpid(child, 0)[1] != 0:
            raise RuntimeError(f"the section {name} could not be played; see above")
        result: dict[str, Any] = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        return result
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _play(name: str, options: argparse.Namespace, folder: Path) -> None:
    status = 1
    try:
        module, _, kind = SECTIONS[name].partition(":")
        make: type[Section] = getattr(importlib.import_module(module), kind)
        section = make(seed=options.seed, folder=folder, count=options.count)
        result = play_section(section, processes=options.processes, budget=options.budget, only=options.case)
        write_result(result, folder / "result.json")
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
