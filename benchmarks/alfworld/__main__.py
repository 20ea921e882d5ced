"""A pretrained model on ALFWorld's real games: as it comes, after imitation, after GRPO, GiGPO and HGPO.

    python -m benchmarks.alfworld --model PATH --games PATH --out FOLDER [--stage start|methods|report|all]
                                  [--seed 0] [--key observation|situation|unnumbered] [--frame dialogue|published]
                                  [--methods grpo,gigpo,hgpo] [--minutes 9] [--updates N] [--set NAME=VALUE ...]
                                  [--start FOLDER] [--skip-base] [--name NAME]
                                  [--results FOLDER] [--picture FILE] [--notes FILE]
    python -m benchmarks.alfworld --model scratch --start benchmarks/alfworld/scratch --games PATH --out FOLDER [...]
    python -m benchmarks.alfworld --games PATH --pack FILE.tar.xz

`--stage start` evaluates the model on valid_seen (140 games) and valid_unseen (134), lets it imitate a teacher that
searches (`teacher.py`), and evaluates it again. `--stage methods` goes on from there with each method in a process of
its own on the same device until each has made the steps at which methods are compared (75,000) or `--minutes` are over,
and evaluates each there and, as time allows, at earlier marks. `--stage report` writes alfworld.json, alfworld.svg,
rollouts of each method and their audit, some 10 MB in all, into `--results`; the other stages end with it. A stage that
is called again goes on where it was cut off; with `--updates 0`, methods are only evaluated. `--model scratch` is a
small model for machines without a GPU: with the start that comes with it, ten to twenty minutes of two cores a seed of
three methods, and the same numbers each time; without `--start` each seed makes its own, in some 25 minutes of a core.
`--model tiny --small` tries all this in a minute. What was chosen, and why, stands in `settings.py`; `--set` changes a
size, and `--methods` takes methods and the variants that are named there. Methods may differ from GRPO in more than
their credit: a record names what (`own_parts`). Seeds of a method whose records have equal `settings` are pooled by
`python -m benchmarks.alfworld.pooled`.

`--games` is the folder that `alfworld-download` filled, or an archive of it, such as `--pack` writes.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from benchmarks.alfworld.games import pack_games, unpack_games
from benchmarks.alfworld.methods import jobs_of, run_methods
from benchmarks.alfworld.plot import picture
from benchmarks.alfworld.recurrence import HEADING, SEE, audit_rollouts, share_of_levels, table, write_whole_groups
from benchmarks.alfworld.settings import (
    FULL,
    METHODS,
    SMALL,
    TWO_CORES,
    VARIANTS,
    Frame,
    Key,
    Measurement,
    change_sizes,
)
from benchmarks.alfworld.start import adopt_start, check_start, digest_start, make_start, start_checkpoint
from benchmarks.alfworld.summary import sentences, summarise
from benchmarks.result_file import describe_command, read_commit
from groupwise import methods
from groupwise.store.run_folder import RunPaths
from groupwise.system.errors import ConfigError, nearest


def report(options: argparse.Namespace, summary: dict[str, Any]) -> None:
    """Write what was found so far: the record, the picture, rollouts and their audits."""
    results: Path = options.results or options.out
    results.mkdir(parents=True, exist_ok=True)
    _audit_methods(options, summary, results)
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in summary.items()]
    (results / "alfworld.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    for file in (results / "alfworld.svg", *([options.picture] if options.picture else [])):
        file.write_text(picture(summary))
    for record in options.out.glob("*.json"):
        if results != options.out:
            shutil.copy(record, results)


def _audit_methods(options: argparse.Namespace, summary: dict[str, Any], results: Path) -> None:
    """Write each method's rollouts and their audit; the shares of compared steps go into the record too."""
    for method, described in summary["methods"].items():
        rollouts = results / f"rollouts_{method}.jsonl.gz"
        one_in = write_whole_groups(RunPaths(options.out / method).journal, rollouts)
        audit = audit_rollouts(rollouts)
        described["levels"] = share_of_levels(audit)
        (results / f"audit_{method}.json").write_text(json.dumps(audit, indent=1))
        updates = {1: "all updates", 2: "every second update"}.get(one_in, f"one update in {one_in}")
        whose = f"{updates} of {method.upper()}'s run, {summary['model']} on ALFWorld's training games"
        section = f"{HEADING}\n\n{table(audit, whose)}"
        (results / f"audit_{method}.md").write_text(section)
        if options.notes and method == "hgpo":
            options.notes.write_text(f"{section}\n{SEE}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the stages that are asked for."""
    options = _options(arguments)
    if options.pack:
        print(f"{pack_games(unpack_games(options.games), options.pack)} games in {options.pack}")
        return
    measurement = _make_measurement(options)
    check_start(options.start, options.out, measurement)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.start and options.stage in ("methods", "all"):
        adopt_start(options.start, options.out)
    elif options.stage in ("start", "all"):
        make_start(options.model, unpack_games(options.games), options.out, measurement, skip_base=options.skip_base)
        _give_memory_back()
    if options.stage in ("methods", "all"):
        if not start_checkpoint(options.out).is_dir():
            sys.exit(f"{options.out}: there is no start yet; run --stage start first")
        run_methods(jobs_of(options, unpack_games(options.games), measurement))
    given = sys.argv[1:] if arguments is None else arguments
    command = describe_command("benchmarks.alfworld", given)
    name = options.name or Path(options.model).name
    commit = options.commit or read_commit()
    summary = summarise(options.out, measurement, methods=options.methods, name=name, command=command, commit=commit)
    print(sentences(summary))
    report(options, summary)


def _make_measurement(options: argparse.Namespace) -> Measurement:
    """The measurement that is asked for."""
    is_from_scratch = options.model == "scratch"
    sizes = SMALL if options.small else TWO_CORES if is_from_scratch else FULL
    return Measurement(
        change_sizes(sizes, options.changes),
        seed=options.seed,
        key=options.key,
        frame=options.frame,
        is_from_scratch=is_from_scratch,
        start=digest_start(options.start) if options.start else None,
    )


def _give_memory_back() -> None:
    """Leave the GPU to the methods: what the start keeps in this process is missing to the three beside it."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny", help="a folder, a hub's name, `scratch` or `tiny`")
    parser.add_argument("--name", help="what the model is called; otherwise as its folder")
    parser.add_argument("--games", type=Path, default=Path(os.environ.get("ALFWORLD_DATA", "")))
    parser.add_argument("--out", type=Path, default=Path("runs/alfworld"), help="checkpoints and journals, many GB")
    parser.add_argument("--results", type=Path, help="what is found; otherwise beside the runs")
    parser.add_argument("--seed", type=int, default=0, help="of the start and of every method")
    parser.add_argument("--key", choices=get_args(Key), default="observation", help="what makes two steps comparable")
    parser.add_argument("--frame", choices=get_args(Frame), default="dialogue", help="how a step is put to the model")
    parser.add_argument("--start", type=Path, help="go on from the start in this folder; otherwise each seed makes one")
    parser.add_argument("--skip-base", action="store_true", help="do not evaluate the model as it comes")
    parser.add_argument("--commit", default="", help="of this code, where it is no git checkout")
    parser.add_argument("--stage", choices=("start", "methods", "report", "all"), default="all")
    parser.add_argument("--minutes", type=float, help="of the stage methods, evaluation included; 9, of `scratch` 60")
    parser.add_argument("--methods", type=lambda text: text.split(","), default=list(METHODS))
    parser.add_argument("--updates", type=int, help="updates of each method; otherwise as many as time allows")
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--picture", type=Path, help="a second place for the picture, such as docs/images/alfworld.svg")
    parser.add_argument("--notes", type=Path, help="a second place for HGPO's audit: docs/methods/notes/hgpo.md")
    parser.add_argument("--small", action="store_true", help="sizes and two updates, to try the measurement itself")
    parser.add_argument("--pack", type=Path, help="only write the games into an archive")
    options = parser.parse_args(arguments)
    if options.small and options.updates is None:
        options.updates = 2
    if options.minutes is None:
        options.minutes = 60.0 if options.model == "scratch" else 9.0
    if options.start and options.stage == "start":
        parser.error("--start: that start is made already; leave out --stage start, or --start to make another")
    if options.model == "scratch" and options.frame != "dialogue":
        parser.error("--frame: `scratch` learns from whole dialogues; give a pretrained model, or leave --frame out")
    for method in options.methods:
        if method not in (known := {*methods.names(), *VARIANTS}):
            parser.error(f"--methods: there is no {method!r}; {nearest(method, known)}")
    return options


if __name__ == "__main__":
    try:
        main()
    except ConfigError as error:
        sys.exit(str(error))
