"""Learning without samples whose advantage is 0, compared with learning on all samples, update by update.

    python -m benchmarks.without_credit [--updates 16] [--write benchmarks/results/without_credit.json]

The household demo under HGPO, without the entropy bonus, which would affect every token. It starts from a noisy expert,
so many groups fail completely. In every other update the learner computes all samples, as it does if a loss has
penalties; loss and gradient are the same. One thread; median seconds of the stage `learn`.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.result_file import write_result
from groupwise import RunObserver, train
from groupwise.store.journal import Update
from groupwise.training.config.run_file import load_run
from groupwise.training.open_run import open_run

RUN = Path(__file__).parents[1] / "examples" / "household.toml"
CHANGES = ("algorithm.loss.penalties=[]", "warm_start.expert_noise=0.7", "evaluation.tasks=0", "threads=1")


class Turns(RunObserver):
    """Lets the learner compute all samples in every other update, and records each update."""

    def __init__(self, learner: Any) -> None:
        self.learner, self.with_credit, self.measured = learner, learner._with_credit, list[dict[str, float]]()

    def on_stage(self, name: str, number: int) -> None:
        self.learner._with_credit = (lambda samples: samples) if number % 2 else self.with_credit

    def on_update(self, update: Update) -> None:
        names = {"seconds": "seconds/learn", "computed": "learner/computed", "success": "rollout/success"}
        self.measured.append({name: update.metrics[metric] for name, metric in names.items()})


def measure(updates: int, *changes: str) -> dict[str, Any]:
    """Seconds of the stage `learn` in both kinds of updates."""
    config = load_run(RUN, overrides=[*CHANGES, f"training.updates={updates}", *changes])
    with tempfile.TemporaryDirectory() as folder:
        run = open_run(config, Path(folder))
        turns = Turns(run.learner)
        train(run, observers=[turns])
        run.host.shutdown()
    every, heard = turns.measured[::2], turns.measured[1::2]
    seconds = {
        name: statistics.median(each["seconds"] for each in some) for name, some in (("all", every), ("heard", heard))
    }
    return {
        "updates": turns.measured,
        "seconds": seconds,
        "computed": statistics.median(each["computed"] for each in heard),
        "times_faster": seconds["all"] / seconds["heard"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=16, help="an even number")
    parser.add_argument("--write", type=Path, help="write the result as JSON")
    options = parser.parse_args()
    result = {
        "command": f"python -m benchmarks.without_credit --updates {options.updates}",
        "machine": f"{platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}",
        **measure(options.updates),
    }
    print(json.dumps(result, indent=2))
    write_result(result, options.write)


if __name__ == "__main__":
    main()
