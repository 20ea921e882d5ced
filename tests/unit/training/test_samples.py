"""From credit to samples: what each token trains on, with a part that gives tokens credit and without."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from groupwise import Algorithm, Step, Task, Trajectory, methods
from groupwise.credit import (
    ByTask,
    DiscountedTokens,
    EpisodeReturn,
    FirstTokens,
    NoScale,
    Relative,
    SmallCredit,
    TokenGae,
)
from groupwise.data.past_rollouts import PastRollout, ReplayedRollout
from groupwise.methods.spo_chain import SegmentCredit
from groupwise.training.samples import credit_batch, make_samples
from groupwise.training.update_metrics import compute_credit_metrics

DR_GRPO = Relative(by=ByTask(), of=EpisodeReturn(), scale=NoScale())


def rollout(number: int, reward: float, *responses: tuple[int, ...]) -> Trajectory:
    steps = tuple(
        Step(
            index=i,
            reward=reward if i == 0 else 0.0,
            prompt_ids=(1,),
            response_ids=ids,
            logp_behaviour=(-1.0,) * len(ids),
        )
        for i, ids in enumerate(responses)
    )
    return Trajectory(id=str(number), task=Task(id="q"), rollout=number, steps=steps, versions=(0,))


GROUP = [rollout(1, 3.0, (5, 6), (7,)), rollout(0, 1.0, (8, 9, 10), ())]  # credit 1 and -1, in another order


def test_without_the_part_a_sample_has_one_number_and_no_mask() -> None:
    samples = make_samples(credit_batch(Algorithm(advantage=DR_GRPO), GROUP, version=0))
    assert [one.advantage for one in samples] == [1.0, 1.0, -1.0, -1.0]
    assert {one.trained for one in samples} == {None}


def test_each_token_has_its_own_credit() -> None:
    algorithm = Algorithm(advantage=DR_GRPO, token_credit=DiscountedTokens(gamma=0.5))
    samples = make_samples(credit_batch(algorithm, GROUP, version=0))
    assert [one.advantage for one in samples] == [(0.5, 1.0), (1.0,), (-0.25, -0.5, -1.0), ()]
    assert {one.trained for one in samples} == {None}  # all train
    assert [one.trains for one in samples] == [True, True, True, False]


def test_tokens_that_do_not_train_are_masked() -> None:
    algorithm = Algorithm(advantage=DR_GRPO, token_credit=FirstTokens(count=1))
    samples = make_samples(credit_batch(algorithm, GROUP, version=0))
    assert [one.trained for one in samples] == [(True, False), None, (True, False, False), None]
    assert [one.num_trained for one in samples] == [1, 1, 1, 0]


def test_the_journal_keeps_the_credit_of_the_steps() -> None:
    plain = credit_batch(Algorithm(advantage=DR_GRPO), GROUP, version=0)
    batch = credit_batch(Algorithm(advantage=DR_GRPO, token_credit=FirstTokens(count=1)), GROUP, version=0)
    assert batch.by_trajectory() == plain.by_trajectory() == [[1, 1], [-1, -1]]


def test_a_filter_drops_a_step_with_all_its_tokens() -> None:
    algorithm = Algorithm(
        advantage=DR_GRPO, filters=(SmallCredit(min_size=2.0),), token_credit=DiscountedTokens(gamma=0.5)
    )
    assert [one.num_trained for one in make_samples(credit_batch(algorithm, GROUP, version=0))] == [0, 0, 0, 0]


def replay(member: Trajectory, *credit: float) -> ReplayedRollout:
    past = PastRollout(
        task="q",
        number=1,
        rollout=2,
        version=0,
        origin="fresh",
        score=9.0,
        credit=8.0,
        states=np.zeros(len(credit), dtype=np.int64),
        rewards=np.zeros(len(credit)),
    )
    return ReplayedRollout(task="q", past=past, why="", trajectory=member, keeps_credit=True, credit=credit)


def test_a_replayed_rollout_that_keeps_its_credit_shares_it_among_its_tokens() -> None:
    member = replace(rollout(2, 9.0, (5, 6), (4, 3)), off_policy=True)
    algorithm = Algorithm(advantage=DR_GRPO, token_credit=DiscountedTokens(gamma=0.5))
    batch = credit_batch(algorithm, GROUP, [replay(member, 4.0, -8.0)], version=0)
    assert batch.values.tolist() == [1, 1, -1, -1, 4, -8]
    assert [one.advantage for one in make_samples(batch)][4:] == [(2.0, 4.0), (-4.0, -8.0)]


def test_steps_that_are_compared_within_their_own_rollout_are_marked_and_counted() -> None:
    """Rollouts a b b and a c d, handed in backwards: the two steps at b meet no other rollout, which is half of the
    four steps that are compared. A replayed rollout that keeps its credit takes no part."""

    def walk(number: int, states: str) -> Trajectory:
        steps = tuple(Step(index=i, state_key=state, well_formed=True) for i, state in enumerate(states))
        return Trajectory(id=f"q {number}", task=Task(id="q"), rollout=number, steps=steps, versions=(0,))

    group, member = [walk(1, "acd"), walk(0, "abb")], replace(walk(2, "b"), off_policy=True)
    batch = credit_batch(methods.hgpo(), group, [replay(member, 4.0)], version=0)
    assert batch.own_rollout_only is not None
    assert batch.own_rollout_only.tolist() == [False, False, False, False, True, True, False]
    assert compute_credit_metrics(batch)["advantage/own_rollout_only"] == 0.5
    apart = credit_batch(methods.hgpo(peers="other_rollouts"), group, version=0)
    assert compute_credit_metrics(apart)["advantage/own_rollout_only"] == 0.0


@pytest.mark.parametrize("part", [SegmentCredit(max_probability=None), TokenGae(lam=0.0)])
def test_a_replayed_rollout_is_held_against_the_baseline_that_it_had(part: Any) -> None:
    """A return of 9 with credit 4 was compared with 5, and its first token is worth 6: 6 - 5 and 9 - 6."""

    def cut(whole: Trajectory, *values: float) -> Trajectory:
        (step,) = whole.steps
        info = {"segment_ends": list(range(1, 1 + len(step.response_ids))), "segment_values": list(values)}
        return replace(whole, steps=(replace(step, info=info),))

    group = [cut(rollout(0, 3.0, (5,))), cut(rollout(1, 1.0, (9,)))]
    member = replace(cut(rollout(2, 9.0, (5, 6)), 6.0), off_policy=True)
    batch = credit_batch(Algorithm(advantage=DR_GRPO, token_credit=part), group, [replay(member, 4.0)], version=0)
    assert [sample.advantage for sample in make_samples(batch)] == [(1.0,), (-1.0,), (1.0, 3.0)]


def test_forced_tokens_share_no_credit_of_tokens_and_are_read_like_the_prompt() -> None:
    group = [rollout(0, 3.0, (5, 6, 7), (8,)), rollout(1, 1.0, (9,))]
    first, last = group[0].steps
    group[0] = replace(group[0], steps=(replace(first, forced=1), replace(last, forced=1)))
    algorithm = Algorithm(advantage=DR_GRPO, token_credit=FirstTokens(count=1))
    sampled, nothing, other = make_samples(credit_batch(algorithm, group, version=0))
    assert (sampled.prompt_ids, sampled.response_ids) == ((1, 5), (6, 7))
    assert sampled.trained == (True, False), "the first token that was sampled trains"
    assert sampled.logp_behaviour == (-1.0, -1.0)
    assert (nothing.prompt_ids, nothing.response_ids, nothing.trains) == ((1, 8), (), False)
    assert (other.advantage, other.trained, other.trains) == ((-1.0,), None, True)
