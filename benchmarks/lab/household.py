"""The lab with a small model in a text home: imitation, one update, then continuations from forks tell the truth.

python -m benchmarks.lab.household [--updates 40] [--write benchmarks/results/lab_household.json]
"""

from __future__ import annotations

import argparse
import platform
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.result_file import write_result
from groupwise.config.run_file import load_run
from groupwise.lab.played_recording import PlayedCondition
from groupwise.lab.run_study import record_run
from groupwise.lab.study import list_algorithms, study_recording
from groupwise.training.checkpoints.run_checkpoints import open_run_at
from groupwise.training.loop import train
from groupwise.training.open_run import open_run

EXAMPLE = Path(__file__).parents[2] / "examples" / "household.toml"
SETTINGS = (
    "device='cpu'",
    "threads=1",
    "training.updates=1",
    "training.checkpoint_every=1",
    "evaluation.tasks=20",
    "evaluation.attempts=1",
)
"""Of the example: its imitation, and one update, so that there is a checkpoint."""


def study_household(condition: PlayedCondition, settings: tuple[str, ...] = SETTINGS) -> dict[str, Any]:
    """Train the example's model a little and hold every recipe's credit against continuations of its attempts."""
    config = load_run(EXAMPLE, overrides=settings)
    with TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        with open_run(config, folder) as run:
            train(run)
        print("trained", flush=True)
        with open_run_at(config, folder, read_only=True) as run:
            recording, tools = record_run(run, condition)
            print("recorded and continued", flush=True)
            return study_recording(recording, list_algorithms(), tools=tools, tell=lambda name: print(name, flush=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=40, help="how often the groups are drawn")
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--situations", type=int, default=40)
    parser.add_argument("--continuations", type=int, default=96)
    parser.add_argument("--write", type=Path, help="write the result as JSON")
    options = parser.parse_args()
    counts = {name: getattr(options, name) for name in ("updates", "tasks", "situations", "continuations")}
    began = time.monotonic()
    result = study_household(PlayedCondition(**counts))
    words = " ".join(f"--{name} {number}" for name, number in counts.items())
    result = {
        "command": f"python -m benchmarks.lab.household {words}",
        "machine": f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}",
        "seconds": round(time.monotonic() - began),
        "condition": counts,
        **result,
    }
    write_result(result, options.write)


if __name__ == "__main__":
    main()
