"""Hold the credit of every method against true advantages, in many circumstances.

    python -m benchmarks.lab [--updates 100] [--processes 8] [--write benchmarks/results/lab.json]

First every method of the catalogue in three circumstances; then, with one dial turned at a time, those whose credit was
found there to differ between steps or tokens, beside GRPO and RLOO. The same options give the same numbers, however
many processes share the work.

    python -m benchmarks.lab --methods rloo pav --only none [--write lab_of_two.json]

With `--methods` these are measured in the circumstances of the dials that `--only` names ("none" = as they are), and
the file is added to; what the same methods gave there before is replaced. Each study names the command that made it.
"""

from __future__ import annotations

import argparse
import json
import platform
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.lab.circumstances import list_sweeps, list_tables
from benchmarks.lab.studies import add_study, find_finer, study_all
from benchmarks.result_file import write_result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=100, help="how often the groups of a circumstance are drawn")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--only", nargs="*", help="dials that are turned; all otherwise")
    parser.add_argument("--world", help="the lake or the corridor; both otherwise")
    parser.add_argument("--methods", nargs="*", help="measure these alone")
    parser.add_argument("--write", type=Path, help="write the result as JSON")
    options = parser.parse_args()
    began = time.monotonic()
    tables, sweeps = (
        [replace(place, condition=replace(place.condition, updates=options.updates)) for place in listed]
        for listed in (list_tables(), list_sweeps())
    )
    chosen = [
        place
        for place in ([*tables, *sweeps] if options.methods else sweeps)
        if (options.only is None or place.dial in options.only) and options.world in (None, place.world)
    ]
    command = shlex.join(["python", "-m", "benchmarks.lab", *sys.argv[1:]])
    result: dict[str, Any] = {
        "command": command,
        "machine": f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}",
        "processes": options.processes,
        "tables": [],
        "sweeps": _read_studies(options.write) if options.methods else [],
    }

    def keep(studies: list[dict[str, Any]], study: dict[str, Any]) -> None:
        """Written as it comes: what is there is there."""
        add_study(studies, {"command": command, **study})
        write_result({**result, "seconds": round(time.monotonic() - began)}, options.write)

    if not options.methods:
        for study in study_all(tables, None, processes=options.processes):
            keep(result["tables"], study)
        result["finer"] = find_finer(result["tables"])
    for study in study_all(chosen, options.methods or result["finer"], processes=options.processes):
        keep(result["sweeps"], study)


def _read_studies(path: Path | None) -> list[dict[str, Any]]:
    """The studies that a file holds already."""
    if path is None or not path.is_file():
        return []
    studies: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["sweeps"]
    return studies


if __name__ == "__main__":
    main()
