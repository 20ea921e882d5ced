"""A KL in the reward of RLOO, P3O and REINFORCE++: oracles, laws, and what is refused."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise import RecordError, Step, Task, Trajectory, methods
from groupwise.credit import shape_group
from groupwise.data.step_table import StepTable
from groupwise.data.token_table import TokenTable
from groupwise.parts.algorithm import Algorithm
from groupwise.report.explained_step import explain_token
from groupwise.training.samples import credit_tokens
from tests.oracles import kl_in_reward as oracle
from tests.oracles.kl_in_reward import Sampled

SEEDS = st.integers(0, 10**9)


def draw_rollouts(rng: random.Random) -> list[Sampled]:
    rollouts = []
    for group in range(rng.randint(1, 3)):
        for _ in range(rng.randint(1, 4)):
            logp = [-rng.uniform(0.0, 3.0) for _ in range(rng.randint(1, 5))]
            ref = [value + rng.choice([0.0, rng.gauss(0, 1)]) for value in logp]
            rollouts.append(Sampled(group=group, reward=rng.choice([0.0, 1.0, 0.5]), logp=logp, ref=ref))
    return rollouts


def record(rollouts: Sequence[Sampled], **fields: Any) -> list[Trajectory]:
    """The rollouts as they are recorded after the scorer `reference_score`."""
    return [
        Trajectory(
            id=str(number),
            task=Task(id=str(rollout.group)),
            rollout=number,
            steps=(
                Step(
                    index=0,
                    reward=rollout.reward,
                    response_ids=tuple(range(5, 5 + len(rollout.logp))),
                    logp_behaviour=tuple(rollout.logp),
                    info={"reference_logp": sum(rollout.ref), "reference_token_logps": rollout.ref},
                ),
            ),
            **fields,
        )
        for number, rollout in enumerate(rollouts)
    ]


def shape(method: Algorithm, rollouts: Sequence[Sampled], **fields: Any) -> tuple[StepTable, list[Trajectory]]:
    recorded = record(rollouts, **fields)
    groups = [
        [member for member in recorded if member.task.id == name] for name in sorted({t.task.id for t in recorded})
    ]
    shaped = [member for group in groups for member in shape_group(group, method.shapers)]
    return StepTable.from_trajectories(shaped), shaped


def credit_each_token(method: Algorithm, rollouts: Sequence[Sampled], **fields: Any) -> list[tuple[float, ...]]:
    table, recorded = shape(method, rollouts, **fields)
    return [tokens.values for tokens in credit_tokens(method, table, method.credit(table), recorded)]


@given(seed=SEEDS, beta=st.floats(0.001, 1.0))
def test_rloo_and_the_gaps_of_p3o(seed: int, beta: float) -> None:
    rollouts = draw_rollouts(random.Random(seed))
    rloo, p3o = methods.rloo(kl_in_reward=beta), methods.p3o(kl_in_reward=beta)
    assert (rloo.shapers, rloo.scorers) == (p3o.shapers, p3o.scorers)
    table, _ = shape(rloo, rollouts)
    assert rloo.credit(table).values.tolist() == pytest.approx(oracle.rloo(rollouts, beta), abs=1e-9)
    assert p3o.pairing is not None
    gaps = {(pair.winner, pair.loser): pair.gap for pair in p3o.pairing(table)}
    expected = oracle.p3o_gaps(rollouts, beta)
    assert gaps.keys() <= expected.keys()
    assert all(expected[pair] < 1e-8 for pair in expected.keys() - gaps.keys())  # what differs by rounding is no pair
    assert all(gap == pytest.approx(expected[pair], abs=1e-9) for pair, gap in gaps.items())


@given(seed=SEEDS, beta=st.floats(0.001, 1.0), gamma=st.sampled_from([1.0, 0.9]))
def test_reinforce_pp_takes_it_off_each_token(seed: int, beta: float, gamma: float) -> None:
    rollouts = draw_rollouts(random.Random(seed))
    method = methods.reinforce_pp(gamma=gamma, kl_in_reward=beta)
    expected = oracle.reinforce_pp(rollouts, beta, gamma)
    for own, wanted in zip(credit_each_token(method, rollouts), expected, strict=True):
        assert own == pytest.approx(wanted, abs=1e-7)


def test_reinforce_pp_by_hand_and_derived_again() -> None:
    """Reward 1, log-ratios 0.5 and -0.5 at beta 0.1: token rewards -0.05 and 1.05, returns 1 and 1.05."""
    rollouts = [Sampled(0, 1.0, [-0.5, -1.0], [-1.0, -0.5]), Sampled(0, 0.0, [-0.5], [-0.5])]
    method = methods.reinforce_pp(kl_in_reward=0.1)
    mean, spread = (1 + 1.05 + 0) / 3, np.std([1, 1.05, 0], ddof=1)
    first, second = credit_each_token(method, rollouts)
    assert first == pytest.approx([(1 - mean) / spread, (1.05 - mean) / spread])
    assert second == pytest.approx([-mean / spread])
    table, recorded = shape(method, rollouts)
    tokens = TokenTable.from_trajectories(table, recorded)
    explained = explain_token(method, table, method.credit(table), tokens, step=0, position=1)
    assert (explained.gap < 1e-9, explained.not_derived) == (True, "")


@given(seed=SEEDS)
def test_a_policy_that_is_the_reference_pays_nothing(seed: int) -> None:
    rollouts = [replace(rollout, ref=list(rollout.logp)) for rollout in draw_rollouts(random.Random(seed))]
    for rollout in rollouts:
        rollout.logp = [round(4 * value) / 4 for value in rollout.logp]  # sums of quarters are exact
        rollout.ref = list(rollout.logp)
    for name in ("rloo", "p3o"):
        method = methods.build(name, kl_in_reward=0.3)
        with_kl, without = shape(method, rollouts)[0], shape(methods.build(name), rollouts)[0]
        assert np.array_equal(with_kl.reward, without.reward)
    charged = credit_each_token(methods.reinforce_pp(kl_in_reward=0.3), rollouts)
    plain = methods.reinforce_pp().credit(shape(methods.reinforce_pp(), rollouts)[0]).values
    for own, value in zip(charged, plain.tolist(), strict=True):
        assert own == pytest.approx([value] * len(own), abs=1e-9)


@given(seed=SEEDS, beta=st.floats(0.01, 1.0))
def test_a_level_of_a_task_cancels_in_what_compares_rollouts(seed: int, beta: float) -> None:
    """Answers of a task that are all likelier by as many nats: RLOO and P3O compare, REINFORCE++ does not."""
    rollouts = draw_rollouts(random.Random(seed))
    moved = [replace(rollout, ref=[rollout.ref[0] - 3.0, *rollout.ref[1:]]) for rollout in rollouts]
    method = methods.rloo(kl_in_reward=beta)
    before, after = (method.credit(shape(method, sampled)[0]).values for sampled in (rollouts, moved))
    np.testing.assert_allclose(after, before, atol=1e-9)


@pytest.mark.parametrize("name", ["rloo", "p3o", "reinforce_pp"])
def test_rollouts_of_another_policy_are_charged_nothing(name: str) -> None:
    rollouts = draw_rollouts(random.Random(3))
    method = methods.build(name, kl_in_reward=0.3)
    table, recorded = shape(method, rollouts, off_policy=True)
    assert table.reward.tolist() == [rollout.reward for rollout in rollouts]
    if method.token_credit is not None:
        free = [replace(rollout, ref=list(rollout.logp)) for rollout in rollouts]
        assert credit_each_token(method, rollouts, off_policy=True) == credit_each_token(method, free, off_policy=True)
    assert len(recorded) == len(rollouts)


def test_log_probs_that_were_not_measured_by_token_are_asked_for() -> None:
    method = methods.reinforce_pp(kl_in_reward=0.1)
    short = [
        replace(t, steps=(replace(t.steps[0], info={"reference_token_logps": [0.0]}),))
        for t in record([Sampled(0, 1.0, [-0.5, -1.0], [-1.0, -0.5])])
    ]
    table = StepTable.from_trajectories(short)
    with pytest.raises(RecordError) as raised:
        credit_tokens(method, table, method.credit(table), short)
    assert str(raised.value) == (
        "task '0', rollout 0, step 0: reference_token_logps does not have one number for each of its 2 sampled "
        "tokens; add the scorer reference_score, by_token = true"
    )
