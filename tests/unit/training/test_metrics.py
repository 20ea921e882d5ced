"""The table of metrics: everything that is logged is in it, and the page is written from it."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from groupwise.data.records import Step, StopReason, Task, Trajectory
from groupwise.data.samples import Totals
from groupwise.losses import METRICS as LOSS_METRICS
from groupwise.rollout.environment_runner import EnvTiming
from groupwise.system.errors import TrainingError
from groupwise.training.metrics import METRICS, check_metrics
from groupwise.training.samples import CreditedBatch
from groupwise.training.update_metrics import compute_credit_metrics, compute_rollout_metrics, compute_speed_metrics

SCRIPT = Path(__file__).parents[3] / "docs" / "build_metrics.py"


def trajectory(task: str, rollout: int, rewards: list[float], **more: object) -> Trajectory:
    steps = tuple(
        Step(index=i, reward=reward, response_ids=(5, 6)[: i + 1], entropy=(0.5, 0.1)[: i + 1], accepted=i > 0)
        for i, reward in enumerate(rewards)
    )
    return Trajectory(id=f"{task}/{rollout}", task=Task(id=task), rollout=rollout, steps=steps, **more)  # type: ignore[arg-type]


PLAYED = [
    trajectory("a", 0, [0.0, 1.0], scores={"success": 1.0}),
    trajectory("a", 1, [0.0, 0.0], scores={"success": 0.0}, stop=StopReason.TRUNCATED),
    trajectory("b", 0, [1.0], scores={"success": 1.0}),
    trajectory("b", 1, [1.0], scores={"success": 1.0}),
    trajectory("c", 0, [0.0], scores={"success": 0.0}),
    trajectory("c", 1, [], stop=StopReason.ERROR, error="OSError: gone"),
]


def test_the_numbers_of_a_rollout_are_those_worked_out_by_hand() -> None:
    # Seven steps: two rollouts of 2 steps (1 and 2 tokens), three of 1 step (1 token): 1+2 + 1+2 + 1+1+1 = 9 tokens.
    assert compute_rollout_metrics(PLAYED, PLAYED[:-1]) == pytest.approx(
        {
            "rollout/success": 3 / 5,
            "rollout/return": 3 / 5,
            "rollout/steps": 7 / 5,
            "rollout/well_formed": 1.0,
            "rollout/accepted": 2 / 7,
            "rollout/valid": 2 / 7,
            "rollout/faults": 1.0,
            "rollout/truncated": 1 / 5,
            "rollout/group_size": 5 / 3,
            "rollout/zero_variance": 2 / 3,  # b is equal, c is alone
            "rollout/return_spread": (0.5 + 0.0) / 2,  # a: 1 and 0; b: 1 and 1; c has no second
            "rollout/response_tokens": 9 / 7,
            "rollout/cut_off": 0.0,
            "rollout/total_steps": 7.0,
            "rollout/total_tokens": 9.0,
            "rollout/entropy": (7 * 0.5 + 2 * 0.1) / 9,
        }
    )


def test_what_nobody_measured_is_absent_and_not_zero() -> None:
    silent = Trajectory(id="a/0", task=Task(id="a"), rollout=0, steps=(Step(index=0),))
    metrics = compute_rollout_metrics([silent], [silent])
    assert {"rollout/success", "rollout/return_spread", "rollout/entropy"}.isdisjoint(metrics)


def test_an_outcome_decides_the_spread_and_rewards_the_return() -> None:
    pair = [trajectory("a", i, [1.0], outcome=float(i)) for i in range(2)]
    metrics = compute_rollout_metrics(pair, pair)
    assert (metrics["rollout/return"], metrics["rollout/return_spread"], metrics["rollout/zero_variance"]) == (
        1.0,
        0.5,
        0.0,
    )


def test_the_numbers_of_credit() -> None:
    replayed = trajectory("a", 2, [1.0])  # its step is the last; only the sampled rollouts count
    batch = CreditedBatch(
        trajectories=[*PLAYED[1:3], PLAYED[4], replayed],
        num_fresh=3,
        version=0,
        values=np.array([1.0, -3.0, 0.0, 0.0, 9.0]),
        compared=np.array([True, True, True, False, True]),
        keep=np.array([True, True, False, False, True]),
        own_rollout_only=np.array([True, False, False, False, True]),
        unearned=np.zeros(5, dtype=np.bool_),
    )
    numbers = {"advantage/compared": 0.75, "advantage/size": 1.0, "advantage/kept": 0.5}
    assert compute_credit_metrics(batch) == numbers | {"advantage/own_rollout_only": 1 / 3}
    # What no trace says is not measured, nor is a fraction of no steps.
    assert compute_credit_metrics(replace(batch, own_rollout_only=None)) == numbers
    nobody = replace(batch, compared=np.zeros(5, dtype=np.bool_))
    assert compute_credit_metrics(nobody) == numbers | {"advantage/compared": 0.0}
    assert compute_credit_metrics(replace(batch, num_fresh=0)) == {}


def test_speed_is_tokens_by_seconds_of_the_stage_and_steps_by_seconds_of_waiting() -> None:
    totals = Totals.count(tokens=[6], trajectory=[0], step=[0], group=[0], max_tokens=8)
    stages = {"seconds/rollout": 0.5, "seconds/learn": 2.0}
    assert compute_speed_metrics(3, totals, stages, EnvTiming(steps=12, seconds=0.25)) == {
        "speed/sampled_tokens": 6.0,
        "speed/trained_tokens": 3.0,
        "speed/env_steps": 48.0,
        "speed/env_seconds": 0.25,
    }
    assert compute_speed_metrics(3, totals, {"seconds/rollout": 0.5}, EnvTiming(seconds=0.25)) == {
        "speed/sampled_tokens": 6.0,
        "speed/env_seconds": 0.25,
    }


def test_every_metric_of_the_losses_is_in_the_table_with_its_own_sentence() -> None:
    assert {name: METRICS[name].meaning for name in LOSS_METRICS} == LOSS_METRICS


def test_an_unknown_metric_is_refused_and_one_from_elsewhere_is_not() -> None:
    known = {"rollout/success": 1.0, "extra/colour": 2.0}
    assert check_metrics(known) == known
    with pytest.raises(TrainingError) as caught:
        check_metrics({"rollout/sucess": 1.0})
    assert str(caught.value).startswith(
        "metric 'rollout/sucess' is not in the table of training/metrics.toml; did you mean 'rollout/success'? "
    )


def test_metrics_of_a_replica_have_its_number() -> None:
    known = {"replicas/alive": 2.0, "replicas/0/requests": 3.0, "replicas/17/sync_seconds": 0.5}
    assert check_metrics(known) == known
    for name in ("replicas/N/x", "replicas/0/alive", "replicas/-1/requests", "replicas/a/requests", "replicas/0"):
        with pytest.raises(TrainingError, match="is not in the table"):
            check_metrics({name: 1.0})


def test_every_entry_says_something() -> None:
    for name, metric in METRICS.items():
        assert "/" in name
        assert metric.meaning[0].islower() or metric.meaning[0].isdigit(), name
        assert not metric.meaning.endswith("."), name
        assert metric.unit, name
        assert metric.remedy.endswith("."), name


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_metrics", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_script_would_write(script: ModuleType) -> None:
    assert script.PAGE.read_text(encoding="utf-8") == script.page(), "run `python docs/build_metrics.py`"


def test_the_page_has_every_metric_once_and_every_table_four_columns(script: ModuleType) -> None:
    rows = [line for line in script.page().splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == list(METRICS)
    assert {row.replace("\\|", "").count("|") for row in rows} == {5}


@pytest.mark.parametrize("method", ["hgpo", "gspo"])
def test_what_a_run_writes_is_in_the_table(tmp_path: Path, method: str) -> None:
    pytest.importorskip("torch")
    from groupwise.training.loop import train
    from tests.unit.training.runs import small_run

    run = small_run(tmp_path, updates=2, method=method, learner={"minibatches": 2, "passes": 2})
    train(run)
    names = run.journal.metric_names()
    assert len(names) > 15
    assert [name for name in names if name not in METRICS] == []
