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


def draw_attempts(rng: random.Random) -> list[Sampled]:
    attempts = []
    for group in range(rng.randint(1, 3)):
        for _ in range(rng.randint(1, 4)):
            logp = [-rng.uniform(0.0, 3.0) for _ in range(rng.randint(1, 5))]
            ref = [value + rng.choice([0.0, rng.gauss(0, 1)]) for value in logp]
            attempts.append(Sampled(group=group, reward=rng.choice([0.0, 1.0, 0.5]), logp=logp, ref=ref))
    return attempts


def record(attempts: Sequence[Sampled], **fields: Any) -> list[Trajectory]:
    """The attempts as they are recorded after the measure `reference_score`."""
    return [
        Trajectory(
            id=str(number),
            task=Task(id=str(attempt.group)),
            attempt=number,
            steps=(
                Step(
                    index=0,
                    reward=attempt.reward,
                    response_ids=tuple(range(5, 5 + len(attempt.logp))),
                    logp_behaviour=tuple(attempt.logp),
                    facts={"reference_logp": sum(attempt.ref), "reference_token_logps": attempt.ref},
                ),
            ),
            **fields,
        )
        for number, attempt in enumerate(attempts)
    ]


def shape(method: Algorithm, attempts: Sequence[Sampled], **fields: Any) -> tuple[StepTable, list[Trajectory]]:
    recorded = record(attempts, **fields)
    groups = [
        [member for member in recorded if member.task.id == name] for name in sorted({t.task.id for t in recorded})
    ]
    shaped = [member for group in groups for member in shape_group(group, method.shapers)]
    return StepTable.from_trajectories(shaped), shaped


def credit_each_token(method: Algorithm, attempts: Sequence[Sampled], **fields: Any) -> list[tuple[float, ...]]:
    table, recorded = shape(method, attempts, **fields)
    return [tokens.values for tokens in credit_tokens(method, table, method.credit(table), recorded)]


@given(seed=SEEDS, beta=st.floats(0.001, 1.0))
def test_rloo_and_the_gaps_of_p3o(seed: int, beta: float) -> None:
    attempts = draw_attempts(random.Random(seed))
    rloo, p3o = methods.rloo(kl_in_reward=beta), methods.p3o(kl_in_reward=beta)
    assert (rloo.shapers, rloo.measures) == (p3o.shapers, p3o.measures)
    table, _ = shape(rloo, attempts)
    assert rloo.credit(table).values.tolist() == pytest.approx(oracle.rloo(attempts, beta), abs=1e-9)
    assert p3o.pairing is not None
    gaps = {(pair.winner, pair.loser): pair.gap for pair in p3o.pairing(table)}
    expected = oracle.p3o_gaps(attempts, beta)
    assert gaps.keys() <= expected.keys()
    assert all(expected[pair] < 1e-8 for pair in expected.keys() - gaps.keys())  # what differs by rounding is no pair
    assert all(gap == pytest.approx(expected[pair], abs=1e-9) for pair, gap in gaps.items())


@given(seed=SEEDS, beta=st.floats(0.001, 1.0), gamma=st.sampled_from([1.0, 0.9]))
def test_reinforce_pp_takes_it_off_each_token(seed: int, beta: float, gamma: float) -> None:
    attempts = draw_attempts(random.Random(seed))
    method = methods.reinforce_pp(gamma=gamma, kl_in_reward=beta)
    expected = oracle.reinforce_pp(attempts, beta, gamma)
    for own, wanted in zip(credit_each_token(method, attempts), expected, strict=True):
        assert own == pytest.approx(wanted, abs=1e-7)


def test_reinforce_pp_by_hand_and_derived_again() -> None:
    """Reward 1, log-ratios 0.5 and -0.5 at beta 0.1: token rewards -0.05 and 1.05, returns 1 and 1.05."""
    attempts = [Sampled(0, 1.0, [-0.5, -1.0], [-1.0, -0.5]), Sampled(0, 0.0, [-0.5], [-0.5])]
    method = methods.reinforce_pp(kl_in_reward=0.1)
    mean, spread = (1 + 1.05 + 0) / 3, np.std([1, 1.05, 0], ddof=1)
    first, second = credit_each_token(method, attempts)
    assert first == pytest.approx([(1 - mean) / spread, (1.05 - mean) / spread])
    assert second == pytest.approx([-mean / spread])
    table, recorded = shape(method, attempts)
    tokens = TokenTable.from_trajectories(table, recorded)
    explained = explain_token(method, table, method.credit(table), tokens, step=0, position=1)
    assert (explained.gap < 1e-9, explained.not_derived) == (True, "")


@given(seed=SEEDS)
def test_a_policy_that_is_the_reference_pays_nothing(seed: int) -> None:
    attempts = [replace(attempt, ref=list(attempt.logp)) for attempt in draw_attempts(random.Random(seed))]
    for attempt in attempts:
        attempt.logp = [round(4 * value) / 4 for value in attempt.logp]  # sums of quarters are exact
        attempt.ref = list(attempt.logp)
    for name in ("rloo", "p3o"):
        method = methods.build(name, kl_in_reward=0.3)
        with_kl, without = shape(method, attempts)[0], shape(methods.build(name), attempts)[0]
        assert np.array_equal(with_kl.reward, without.reward)
    charged = credit_each_token(methods.reinforce_pp(kl_in_reward=0.3), attempts)
    plain = methods.reinforce_pp().credit(shape(methods.reinforce_pp(), attempts)[0]).values
    for own, value in zip(charged, plain.tolist(), strict=True):
        assert own == pytest.approx([value] * len(own), abs=1e-9)


@given(seed=SEEDS, beta=st.floats(0.01, 1.0))
def test_a_level_of_a_task_cancels_in_what_compares_attempts(seed: int, beta: float) -> None:
    """Answers of a task that are all likelier by as many nats: RLOO and P3O compare, REINFORCE++ does not."""
    attempts = draw_attempts(random.Random(seed))
    moved = [replace(attempt, ref=[attempt.ref[0] - 3.0, *attempt.ref[1:]]) for attempt in attempts]
    method = methods.rloo(kl_in_reward=beta)
    before, after = (method.credit(shape(method, sampled)[0]).values for sampled in (attempts, moved))
    np.testing.assert_allclose(after, before, atol=1e-9)


@pytest.mark.parametrize("name", ["rloo", "p3o", "reinforce_pp"])
def test_attempts_of_another_policy_are_charged_nothing(name: str) -> None:
    attempts = draw_attempts(random.Random(3))
    method = methods.build(name, kl_in_reward=0.3)
    table, recorded = shape(method, attempts, off_policy=True)
    assert table.reward.tolist() == [attempt.reward for attempt in attempts]
    if method.token_credit is not None:
        free = [replace(attempt, ref=list(attempt.logp)) for attempt in attempts]
        assert credit_each_token(method, attempts, off_policy=True) == credit_each_token(method, free, off_policy=True)
    assert len(recorded) == len(attempts)


def test_log_probs_that_were_not_measured_by_token_are_asked_for() -> None:
    method = methods.reinforce_pp(kl_in_reward=0.1)
    short = [
        replace(t, steps=(replace(t.steps[0], facts={"reference_token_logps": [0.0]}),))
        for t in record([Sampled(0, 1.0, [-0.5, -1.0], [-1.0, -0.5])])
    ]
    table = StepTable.from_trajectories(short)
    with pytest.raises(RecordError) as raised:
        credit_tokens(method, table, method.credit(table), short)
    assert str(raised.value) == (
        "task '0', attempt 0, index 0: reference_token_logps does not have one number for each of its 2 sampled "
        "tokens; add the scorer reference_score, by_token = true"
    )
