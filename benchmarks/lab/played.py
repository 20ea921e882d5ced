"""The lab with language models, whose truth continuations from forks tell: a text home, and ALFWorld's real games.

    python -m benchmarks.lab.played household [--updates 40] [--write benchmarks/results/lab_played.json]
    python -m benchmarks.lab.played alfworld --games PATH [--key observation] [--write ...]

In the home a small model imitates a teacher and makes one update (`examples/household.toml`); on ALFWorld it is the
start that `benchmarks.alfworld --model scratch` goes on from. The file is added to: what was measured in the same world
by the same key is replaced.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import numpy as np

from benchmarks.alfworld.games import unpack_games
from benchmarks.alfworld.settings import TWO_CORES, Key, Variant, run_settings
from benchmarks.alfworld.start import SCRATCH_START, start_checkpoint
from benchmarks.result_file import describe_command, write_result
from groupwise.lab.played_recording import PlayedCondition
from groupwise.lab.study import list_algorithms, record_run, study_recording
from groupwise.system.errors import ConfigError
from groupwise.training.checkpoints import open_run_at
from groupwise.training.config.run_file import decode_run, load_run
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from groupwise.training.run import Run

EXAMPLE = Path(__file__).parents[2] / "examples" / "household.toml"
SETTINGS = (
    "device='cpu'",
    "threads=1",
    "training.updates=1",
    "training.checkpoint_every=1",
    "evaluation.tasks=20",
    "evaluation.rollouts=1",
)
"""Of the example: its imitation, and one update, so that there is a checkpoint."""
METHODS = (
    *("grpo", "rloo", "gigpo", "hgpo", "salt", "gagpo", "hgae", "shrunk_hgae", "mars", "step_grpo"),
    *("after_webstar", "gtpo", "dcpo", "d3s"),
)
"""Those with credit of steps or tokens that play no probes of their own, beside GRPO and RLOO."""


@contextmanager
def open_household() -> Iterator[Run]:
    """The example's model after its imitation and one update."""
    config = load_run(EXAMPLE, overrides=SETTINGS)
    with TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        with open_run(config, folder) as run:
            train(run)
        with open_run_at(config, folder, read_only=True) as run:
            yield run


@contextmanager
def open_alfworld(games: Path, key: Key) -> Iterator[Run]:
    """The start of the measurement on ALFWorld, with its prompts, steps and training games."""
    variant = Variant(TWO_CORES, key=key)
    model = str(start_checkpoint(SCRATCH_START))
    content = run_settings(model, str(unpack_games(games)), variant, method="grpo", on_gpu=False)
    with (
        TemporaryDirectory() as scratch,
        open_run(decode_run({**content, "device": "cpu", "threads": 1}), Path(scratch) / "run") as run,
    ):
        yield run


def study_run(run: Run, condition: PlayedCondition, names: Sequence[str]) -> dict[str, Any]:
    """Play a run's policy, continue its steps, and hold methods' credit against what that tells."""
    recording, tools = record_run(run, condition)
    print("recorded and continued", flush=True)
    return study_recording(recording, list_algorithms(names), tools=tools, tell=lambda name: print(name, flush=True))


def main(arguments: Sequence[str] | None = None) -> None:
    """Study one world, and add what is found to a file."""
    options = _options(arguments)
    key = options.key if options.world == "alfworld" else "situation"
    others = _read_others(options.write, options.world, key)
    counts = {name: getattr(options, name) for name in ("updates", "tasks", "situations", "continuations")}
    began = time.monotonic()
    opened = open_household() if options.world == "household" else open_alfworld(options.games, options.key)
    with opened as run:
        study = study_run(run, PlayedCondition(**counts), options.methods)
    given = sys.argv[1:] if arguments is None else arguments
    study = {
        "command": describe_command("benchmarks.lab.played", given),
        "machine": f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}",
        "seconds": round(time.monotonic() - began),
        "world": options.world,
        "key": key,
        "condition": counts,
        **study,
    }
    write_result({"studies": [*others, study]}, options.write)


def _read_others(path: Path | None, world: str, key: str) -> list[dict[str, Any]]:
    """The studies that a file holds already, without that of the same world and key."""
    if path is None or not path.is_file():
        return []
    studies: list[dict[str, Any]] | None = json.loads(path.read_text(encoding="utf-8")).get("studies")
    if studies is None:
        raise ConfigError(f"--write: {path} is no file of such studies; give another")
    return [study for study in studies if (study["world"], study["key"]) != (world, key)]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world", choices=("household", "alfworld"))
    parser.add_argument("--games", type=Path, help="ALFWorld's games, a folder or an archive")
    parser.add_argument("--key", choices=get_args(Key), default="observation", help="of ALFWorld")
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--updates", type=int, default=40, help="how often the groups are drawn")
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--situations", type=int, default=40)
    parser.add_argument("--continuations", type=int, default=96)
    parser.add_argument("--write", type=Path, help="the result, as JSON")
    options = parser.parse_args(arguments)
    if options.world == "alfworld" and options.games is None:
        parser.error("alfworld: give --games, the folder that `alfworld-download` filled")
    return options


if __name__ == "__main__":
    try:
        main()
    except ConfigError as error:
        sys.exit(str(error))
