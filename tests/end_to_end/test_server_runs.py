"""Runs whose engine is in other processes: equal to the run in one process, and not lost where a server is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from groupwise.envs.small.gridworld import Gridworld
from groupwise.training import ServerEngineConfig
from groupwise.training.config.run_config import EvaluationConfig, RolloutConfig, RunConfig
from groupwise.training.loop import train
from groupwise.training.observer import RunObserver
from groupwise.training.open_run import open_run
from tests.end_to_end.runs import config, run_to_end
from tests.equivalence.run_digests import digest_run

UPDATES = 3
IDS = ("prompt_ids", "response_ids", "action", "seed", "reward")


def make_config(**changes: Any) -> RunConfig:
    fields: dict[str, Any] = {
        "env": Gridworld(size=3, num_holes=1, max_steps=4),
        "rollout": RolloutConfig(max_tokens=4, group_size=4),
        "evaluation": EvaluationConfig(tasks=2, rollouts=2),
        "threads": 1,
        "device": "cpu",
    }
    return config(UPDATES, checkpoint_every=1, **fields | changes)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The run in one process, as digests."""
    folder = tmp_path_factory.mktemp("local")
    run_to_end(folder, make_config()).close()
    return digest_run(folder)


def leave_out_counts(digests: dict[str, Any]) -> dict[str, Any]:
    """Digests without what servers count, which the run in one process has not."""
    metrics = digests["journal"]["metrics"]
    kept = {name: values for name, values in metrics.items() if not name.startswith("replicas/")}
    return {**digests, "journal": {**digests["journal"], "metrics": kept}}


@pytest.mark.few(1)
def test_a_run_through_a_server_equals_the_run_in_one_process_to_the_bit(tmp_path: Path, local: dict[str, Any]) -> None:
    with open_run(make_config(engine=ServerEngineConfig(replicas=1)), tmp_path / "run") as run:
        train(run)
        [process] = run.engine._processes  # type: ignore[attr-defined]
        assert process.is_running()
        assert process.log == tmp_path / "run" / "servers" / "server_0.log"
    assert not process.is_running()
    assert leave_out_counts(digest_run(tmp_path / "run")) == local


class Killer(RunObserver):
    """Does something when a stage of an update begins."""

    def __init__(self, stage: str, number: int, act: Callable[[], None]) -> None:
        self._when, self._act = (stage, number), act

    def on_stage(self, name: str, number: int) -> None:
        if (name, number) == self._when:
            self._act()


@pytest.mark.more
def test_a_killed_server_costs_a_run_nothing_and_comes_back(tmp_path: Path, local: dict[str, Any]) -> None:
    """Two servers, one killed before the rollouts of the second update are played: these go to the other one."""
    with open_run(make_config(engine=ServerEngineConfig(replicas=2)), tmp_path / "run") as run:
        engine: Any = run.engine
        victim = engine._processes[1]
        train(run, observers=[Killer("rollout", 2, lambda: os.killpg(victim.pid, signal.SIGKILL))])
        digests = digest_run(tmp_path / "run")
        steps, alone = digests["journal"]["steps"], local["journal"]["steps"]
        assert {name: steps[name] for name in IDS if name in steps} == {
            name: alone[name] for name in IDS if name in alone
        }
        assert "response_ids" in steps
        metrics = digests["journal"]["metrics"]
        assert metrics["replicas/alive"]["1"] == 2
        assert metrics["replicas/0/requests"]["1"] > 0
        assert metrics["replicas/1/requests"]["1"] > 0
        assert metrics["replicas/sent_again"]["2"] > 0
        # It was started again in the background; it counts from the next weight sync on, and after its own weight
        # check.
        victim.wait_until_healthy(timeout=120)
        run.sync(UPDATES + 1)
        assert len(engine.replicas) == 2
        assert engine.take_metrics()["replicas/alive"] == 2
