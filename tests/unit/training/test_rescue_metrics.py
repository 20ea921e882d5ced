"""Where an update's credit lies: a penalty can rule it where nothing else tells rollouts apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")

from groupwise import Step, Task, Trajectory, methods
from groupwise.data.records import Origin
from groupwise.training.collect.collect import UpdateRollouts
from groupwise.training.samples import credit_batch
from groupwise.training.update_metrics import compute_rescue_metrics


def rollout(task: str, number: int, *, success: float, well_formed: tuple[bool, ...]) -> Trajectory:
    last = len(well_formed) - 1
    steps = tuple(
        Step(index=i, state_key=f"state {i}", well_formed=each, reward=10 * success if i == last else 0.0)
        for i, each in enumerate(well_formed)
    )
    name = f"{task} {number}"
    scores = {"success": success}
    return Trajectory(id=name, task=Task(id=task), rollout=number, steps=steps, scores=scores, versions=(0,))


LOST = [rollout("lost", i, success=0.0, well_formed=(True, i > 0)) for i in range(3)]
MIXED = [rollout("mixed", i, success=float(i == 0), well_formed=(True, True)) for i in range(3)]


def share(trajectories: list[Trajectory], penalty: float) -> float:
    credit = credit_batch(methods.hgpo(invalid_penalty=penalty), trajectories, version=0)
    gathered = UpdateRollouts(played=trajectories, survivors=trajectories, chosen=trajectories)
    return compute_rescue_metrics(gathered, credit)["advantage/zero_variance_groups"]


def test_a_penalty_divided_by_its_own_deviation_weighs_as_much_as_a_success() -> None:
    """Two steps at which a success differs, one at which a malformed response does: each has the same deviations."""
    assert share([*LOST, *MIXED], penalty=0.1) == pytest.approx(1 / 3, abs=1e-3)
    assert share([*LOST, *MIXED], penalty=1e-3) == pytest.approx(1 / 3, abs=1e-3)


def test_without_a_penalty_groups_without_success_have_no_credit() -> None:
    assert share([*LOST, *MIXED], penalty=0.0) == 0.0
    assert share(LOST, penalty=0.0) == 0.0


def test_rewards_that_differ_are_no_even_group() -> None:
    partly = [replace(one, steps=(replace(one.steps[0], reward=float(i)), one.steps[1])) for i, one in enumerate(LOST)]
    assert share(partly, penalty=0.0) == 0.0


def test_where_nothing_succeeds_all_credit_is_the_penalty() -> None:
    assert share(LOST, penalty=0.1) == 1.0


def test_hinted_rollouts_of_a_plan_count_and_those_told_once_more_do_not() -> None:
    hinted = [replace(one, origin=Origin.HINTED, off_policy=True) for one in MIXED]
    retold = replace(hinted[0], id="lost~1f 9", task=Task(id="lost"), rollout=9, parent="lost~1f/0")
    chosen = [*LOST, retold, *hinted]
    credit = credit_batch(methods.hgpo(), chosen, version=0)
    metrics = compute_rescue_metrics(UpdateRollouts(played=chosen, survivors=chosen, chosen=chosen), credit)
    assert (metrics["hint/groups"], metrics["hint/success"]) == (1.0, pytest.approx(1 / 3))
