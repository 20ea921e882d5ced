"""Observers change nothing: a run with them is the run without, and one that raises loses nothing."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from groupwise.learner.protocol import hash_weights
from groupwise.training.config.run_config import WarmStartConfig
from groupwise.training.loop import train
from groupwise.training.observer import RunObserver
from groupwise.training.open_run import open_run
from groupwise.training.run import Run
from tests.unit.training.runs import small_config

CALLS = {"stage", "warm start epoch", "warm start", "evaluation", "update"}


class Meddling(RunObserver):
    """Draws from and seeds every generator that is not the run's own, and empties whatever it is handed."""

    def __init__(self) -> None:
        self.heard: set[str] = set()

    def on_stage(self, name: str, number: int) -> None:
        self.meddle("stage")

    def on_warm_start_epoch(self, losses: Sequence[float], epochs: int) -> None:
        self.meddle("warm start epoch", losses)

    def on_warm_start(self, losses: Sequence[float]) -> None:
        self.meddle("warm start", losses)

    def on_expert_faults(self, causes: Mapping[str, int], rollouts: int) -> None:
        self.meddle("expert faults", causes)

    def on_evaluation(self, evaluation: Any) -> None:
        self.meddle("evaluation", evaluation.rows, evaluation.trajectories)

    def on_update(self, update: Any) -> None:
        self.meddle("update", update.metrics, update.trajectories, update.credit, update.faults)

    def meddle(self, call: str, *given: Any) -> None:
        self.heard.add(call)
        torch.manual_seed(len(self.heard))
        random.seed(1)
        np.random.seed(1)
        torch.rand(3), random.random(), np.random.rand()
        for value in given:
            if hasattr(value, "clear"):
                value.clear()


def settings(updates: int, method: str = "hgpo") -> Any:
    start = WarmStartConfig(tasks=2, epochs=3)
    return small_config(updates=updates, method=method).model_copy(update={"warm_start": start})


def train_run(
    folder: Path, observers: Sequence[RunObserver] = (), *, resume: bool = False, method: str = "hgpo"
) -> Run:
    run = open_run(settings(2, method), folder)
    train(run, observers=observers, resume=resume)
    return run


def outcome(run: Run) -> tuple[Any, ...]:
    """The journal's chain, which has every rollout, credit and metric but the clock's; evaluations; weights."""
    last = run.paths.checkpoint(2)
    files = [(last / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors")]
    return run.journal.digest(), run.journal.evaluations(), hash_weights(run.learner.weights()), files


@pytest.mark.parametrize("method", ["hgpo", "r3"])
def test_a_run_with_observers_is_the_run_without(tmp_path: Path, method: str) -> None:
    alone = train_run(tmp_path / "alone", method=method)
    observers = [Meddling(), RunObserver(), Meddling()]
    observed = train_run(tmp_path / "observed", observers, method=method)
    assert outcome(observed) == outcome(alone)
    assert all(observer.heard == CALLS for observer in observers if isinstance(observer, Meddling))


class Raising(RunObserver):
    """Raises at one call about one update."""

    def __init__(self, call: str, number: int, error: BaseException) -> None:
        self.at, self.error = (call, number), error

    def on_stage(self, name: str, number: int) -> None:
        self.reach(name, number)

    def on_evaluation(self, evaluation: Any) -> None:
        self.reach("evaluation", evaluation.number)

    def on_update(self, update: Any) -> None:
        self.reach("update", update.number)

    def reach(self, call: str, number: int) -> None:
        if (call, number) == self.at:
            raise self.error


class Heard(RunObserver):
    """Keeps the numbers of the updates that it was told of."""

    def __init__(self) -> None:
        self.updates: list[int] = []

    def on_update(self, update: Any) -> None:
        self.updates.append(update.number)


@pytest.mark.parametrize(
    ("call", "number", "written", "announced"),
    [("update", 1, [1], [1]), ("learn", 2, [1], [1]), ("checkpoint", 1, [1], []), ("evaluation", 0, [], [])],
)
def test_an_observer_that_raises_ends_the_run_and_nothing_is_lost(
    tmp_path: Path, call: str, number: int, written: list[int], announced: list[int]
) -> None:
    heard = Heard()
    run = open_run(settings(2), tmp_path / "cut")
    with pytest.raises(LookupError, match="mine"):
        train(run, observers=[Raising(call, number, LookupError("mine")), heard])
    assert run.journal.update_numbers() == written
    assert heard.updates == announced, "the others were told the same"
    run.close()
    assert outcome(train_run(tmp_path / "cut", resume=True)) == outcome(train_run(tmp_path / "whole"))


def test_of_several_errors_the_first_is_raised_and_an_interruption_does_not_wait(tmp_path: Path) -> None:
    heard = Heard()
    errors = [Raising("update", 1, KeyError("first")), Raising("update", 1, KeyError("second"))]
    with pytest.raises(KeyError, match="first"):
        train_run(tmp_path / "errors", [*errors, heard])
    assert heard.updates == [1]
    with pytest.raises(KeyboardInterrupt):
        train_run(tmp_path / "interrupted", [Raising("update", 2, KeyboardInterrupt()), heard])
    assert heard.updates == [1, 1], "the second update was not told"
