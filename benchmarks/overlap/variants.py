"""One start that every run goes on from, and runs from it: a variant and a seed each, an update at a time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.overlap.processor import measure_children, measure_own
from benchmarks.overlap.turns import TurnTaker
from groupwise import train
from groupwise.store.journal import Update
from groupwise.store.run_folder import RunPaths
from groupwise.training.config.run_file import decode_run, load_run
from groupwise.training.evaluation.summary import Evaluation
from groupwise.training.observer import RunObserver
from groupwise.training.open_run import open_run

DEMO = Path(__file__).parents[2] / "examples" / "household.toml"
VARIANTS: dict[str, dict[str, Any]] = {"lag 0": {"lag": 0}, "lag 1": {"lag": 1}}
"""What a variant says below `rollout`; all else is equal."""
ENGINE = {"kind": "server", "replicas": 1}
"""Our own engine, in a process of its own."""
KEPT = ("rollout/success", "learner/tokens", "learner/token_ratio")
"""Metrics that are written down."""


class Recorder(RunObserver):
    """Seconds by stage of each update, processor seconds of both sides, and every evaluation."""

    def __init__(self) -> None:
        self.updates: list[dict[str, Any]] = []
        self.evaluations: list[dict[str, Any]] = []
        self._steps, self._number = 0.0, 0
        self.stage, self._since = "", 0.0
        self._stages: dict[str, float] = {}
        self._cores = (0.0, 0.0)

    def on_stage(self, name: str, number: int) -> None:
        """End the stage before; where an update begins, read the processors' clocks."""
        if number > self._number:
            self._number, self.stage, self._stages = number, "", {}
            self._cores = measure_own(), measure_children()
        self._end_stage()
        self.stage, self._since = name, time.perf_counter()

    def on_update(self, update: Update) -> None:
        """Write down an update."""
        self._end_stage()
        self.stage = ""
        own, children = self._cores
        self._steps += update.metrics["rollout/total_steps"]
        self._stages.pop("checkpoint", None)  # the last update alone has one
        self.updates.append(
            {
                "number": update.number,
                "total_steps": round(self._steps),
                "seconds": round(sum(self._stages.values()), 4),
                "stages": {name: round(seconds, 4) for name, seconds in self._stages.items()},
                "trainer_core_seconds": round(measure_own() - own, 4),
                "engine_core_seconds": round(measure_children() - children, 4),
                "metrics": {name: update.metrics[name] for name in KEPT if name in update.metrics},
            }
        )

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Write down an evaluation: a digit a task, 1 = solved, in the order of the tasks' ids."""
        self.stage = ""
        rows = sorted(evaluation.rows, key=lambda row: row.task)
        self.evaluations.append(
            {
                "number": evaluation.number,
                "total_steps": round(self._steps),
                "success": evaluation.success,
                "interval": list(evaluation.interval),
                "solved": "".join("1" if row.success == 1.0 else "0" for row in rows),
            }
        )

    def _end_stage(self) -> None:
        if self.stage:
            self._stages[self.stage] = self._stages.get(self.stage, 0.0) + time.perf_counter() - self._since


def make_start(folder: Path, *, small: bool) -> None:
    """Let a fresh model imitate the demo's teacher, once; every variant and seed goes on from these weights."""
    settings = load_run(DEMO).config() | {"threads": 1, "training": {"updates": 0}, "evaluation": {"tasks": 0}}
    if small:
        settings["warm_start"] |= {"tasks": 40, "epochs": 1}
    with open_run(decode_run(settings), folder) as run:
        train(run)


def describe_run(start: Path, *, variant: str, seed: int, updates: int, tasks: int, task_set: int, every: int) -> Any:
    """The settings of a run: the demo's, with fewer tasks, from the start's weights, its engine in another process."""
    settings = load_run(DEMO).config()
    settings.pop("warm_start")
    # What a lag above 0 adds by itself, for every variant: the ratio is taken against the learner, and what the engine
    # lies behind it goes into a truncated weight, which at lag 0 is 1.
    settings["algorithm"]["loss"] |= {"old": "learner", "corrections": [{"kind": "truncate"}]}
    settings["rollout"] |= VARIANTS[variant]
    settings["training"] |= {"updates": updates, "tasks": tasks, "checkpoint_every": 1000}
    settings["evaluation"] |= {"tasks": task_set, "every": every}
    model = {"kind": "pretrained", "path": str(RunPaths(start).checkpoint(0))}
    return settings | {"seed": seed, "threads": 1, "model": model, "engine": ENGINE}


def play_run(settings: Mapping[str, Any], folder: Path, turn_taker: TurnTaker) -> dict[str, Any]:
    """Train, an update a turn; what was recorded."""
    recorder = Recorder()
    with open_run(decode_run(settings), folder) as run:
        train(run, observers=[turn_taker, recorder])
    return {"updates": recorder.updates, "evaluations": recorder.evaluations}
