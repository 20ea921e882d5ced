"""What comparing the rollouts of a group adds to what they earned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from groupwise import Part, RecordError, StopReason, Trajectory
from groupwise.credit import ReferenceKl, shape_group
from groupwise.methods.r3 import EntropyRanking
from groupwise.methods.unlikeliness import Unlikeliness
from tests.unit.pasts import rollout


def make_failed(number: int, *entropies: Sequence[float], cut: bool = True, solved: bool = False) -> Trajectory:
    """A rollout whose steps have these entropies."""
    stop = StopReason.TRUNCATED if cut else StopReason.TERMINATED
    trajectory = rollout(number, states=range(len(entropies)), solved=solved, stop=stop)
    steps = [
        replace(step, response_ids=(5,) * len(values), logp_behaviour=(-1.0,) * len(values), entropy=tuple(values))
        for step, values in zip(trajectory.steps, entropies, strict=True)
    ]
    return replace(trajectory, steps=tuple(steps))


def shape_by_entropy(group: Sequence[Trajectory], **fields: object) -> list[list[float]]:
    return [[step.shaped for step in shaped.steps] for shaped in shape_group(group, [EntropyRanking(**fields)])]


SHARP, FLAT = (0.0, 0.0, 0.0, 0.0, 2.0), (1.0,) * 5
"""Peak 2 and mean 0.4 against peak 1 and mean 1: the first beats the second."""


def test_the_better_pattern_is_paid_on_the_last_step() -> None:
    assert shape_by_entropy([make_failed(0, FLAT, FLAT), make_failed(1, SHARP, SHARP)]) == [[0.0, 0.0], [0.0, 0.5]]
    assert shape_by_entropy([make_failed(0, FLAT), make_failed(1, SHARP)], best=0.25) == [[0.0], [0.25]]


def test_one_ranked_rollout_alone_is_paid_nothing() -> None:
    assert shape_by_entropy([make_failed(0, SHARP), make_failed(1, FLAT, cut=False)]) == [[0.0], [0.0]]


def test_a_group_with_a_success_is_left_as_it_is() -> None:
    group = [make_failed(0, FLAT), make_failed(1, SHARP), make_failed(2, SHARP, cut=False, solved=True)]
    assert shape_group(group, [EntropyRanking(who="failed")]) == group


def test_only_what_was_cut_off_is_ranked_unless_all_that_failed_is_asked_for() -> None:
    group = [make_failed(0, FLAT), make_failed(1, SHARP, cut=False), make_failed(2, SHARP)]
    assert shape_by_entropy(group, finished="zero") == [[0.0], [0.0], [0.5]]
    assert shape_by_entropy(group) == [[0.0], [0.25], [0.5]], "being cut off is worth nothing by itself"
    assert shape_by_entropy(group, who="failed") == [[0.0], [0.375], [0.375]]


def test_a_response_cut_off_at_its_most_tokens_counts_as_cut_off() -> None:
    own = make_failed(0, SHARP, cut=False)
    cut = replace(own, steps=(replace(own.steps[0], cut=True),))
    assert shape_by_entropy([cut, make_failed(1, FLAT)]) == [[0.5], [0.0]]


def test_steps_can_count_by_their_means() -> None:
    # Tokens: peaks 4 and 3, means 0.5 and 1.2: the first wins. Step means: peaks 0.5 and 3, means 0.5 and 1.5: nobody.
    short, long = make_failed(0, (4.0,) + (0.0,) * 7), make_failed(1, (0.0,) * 3, (3.0, 3.0))
    assert shape_by_entropy([short, long], p=0.1) == [[0.5], [0.0, 0.0]]
    assert shape_by_entropy([short, long], p=0.1, per="step") == [[0.0], [0.0, 0.0]]


def test_a_step_counts_with_the_mean_over_its_tokens() -> None:
    # Step means: peak 2 and mean (2 + 0) / 2 = 1 against peak 1.5 and mean 1.5. Sums would be 2 and 4.5 at the peak.
    short, long = make_failed(0, (2.0,), (0.0,)), make_failed(1, (1.5,) * 3, (1.5,) * 3)
    assert shape_by_entropy([short, long], per="step") == [[0.0, 0.5], [0.0, 0.0]]


def test_the_peak_is_the_mean_of_the_highest_share() -> None:
    # A fifth of ten tokens is two. Peaks (1.5 + 1.5) / 2 and (2 + 0.25) / 2, means 0.3 and 0.425: the first beats.
    even, single = make_failed(0, (1.5, 1.5) + (0.0,) * 8), make_failed(1, (2.0,) + (0.25,) * 9)
    assert shape_by_entropy([even, single], p=0.2) == [[0.5], [0.0]]


def test_an_rollout_that_said_nothing_has_no_peak_and_no_entropy() -> None:
    silent, unsure, sharp = make_failed(0, ()), make_failed(1, (0.5,) * 5), make_failed(2, SHARP)
    # Peak 0 beats nobody's, and an overall entropy of 0 is beaten by nobody's.
    assert shape_by_entropy([silent, unsure], finished="zero") == [[0.25], [0.25]]
    assert shape_by_entropy([silent, sharp], finished="zero") == [[0.25], [0.25]]


def test_an_rollout_without_steps_is_neither_ranked_nor_paid() -> None:
    unplayed = make_failed(2)
    for who in ("truncated", "failed"):
        assert shape_by_entropy([make_failed(0, FLAT), make_failed(1, SHARP), unplayed], who=who) == [[0.0], [0.5], []]
    assert shape_by_entropy([make_failed(1, SHARP), unplayed], finished="zero") == [[0.0], []], (
        "one ranked rollout is alone"
    )


def test_a_score_at_the_threshold_counts_as_a_success() -> None:
    right = replace(rollout(2, rewards=[0.5]), scores={"return": 0.5})
    almost = replace(rollout(2, rewards=[0.25]), scores={"return": 0.25})
    assert shape_by_entropy([make_failed(0, FLAT), make_failed(1, SHARP), right]) == [[0.0], [0.0], [0.0]]
    assert shape_by_entropy([make_failed(0, FLAT), make_failed(1, SHARP), almost]) == [[0.0], [0.5], [0.25]]


def test_where_nobody_beats_anybody_nothing_is_paid_unless_being_cut_off_is() -> None:
    group = [make_failed(0, FLAT), make_failed(1, FLAT), make_failed(2, SHARP, cut=False)]
    assert shape_by_entropy(group, finished="mean") == [[0.0], [0.0], [0.0]]
    assert shape_by_entropy(group, finished="zero") == [[0.25], [0.25], [0.0]]


def test_entropies_that_were_not_recorded_are_asked_for() -> None:
    silent = make_failed(1, SHARP)
    silent = replace(silent, steps=(replace(silent.steps[0], entropy=()),))
    with pytest.raises(RecordError) as caught:
        shape_by_entropy([make_failed(0, FLAT), silent])
    assert str(caught.value) == (
        "task 't', rollout 1, step 0: the entropies of its sampled tokens were not recorded, by which failed rollouts "
        "are ranked; use an engine that reports them"
    )
    assert EntropyRanking().needs_entropy
    assert not Unlikeliness().needs_entropy


def test_what_is_taken_off_the_likely_goes_off_each_reward_and_equals_are_left_alone() -> None:
    good = rollout(0, states="ab", rewards=[1.0, 3.0], solved=True)
    unlikely = replace(good, rollout=1, steps=tuple(replace(s, logp_behaviour=(-9.0, -9.0)) for s in good.steps))
    wrong = rollout(2)
    by_factor = [
        [s.shaped for s in tried.steps] for tried in shape_group([good, unlikely, wrong], [Unlikeliness(weight=0.75)])
    ]
    # Least likely first: the unlikely (0), then the equals in their order: good (1), wrong (2).
    assert by_factor == [[-0.25, -0.75], [0.0, 0.0], [0.0]]
    assert shape_group([good, unlikely], [Unlikeliness()]) == [good, unlikely]


def test_a_likely_wrong_answer_is_punished_as_much_as_an_unlikely_one() -> None:
    """A right answer earns 1, two wrong ones -0.5 each; of three, the likeliest is right, then wrong, then wrong."""
    group = [rollout(0, rewards=[1.0], solved=True), rollout(1, rewards=[-0.5]), rollout(2, rewards=[-0.5])]
    logps = (-0.1, -0.2, -0.3)
    group = [
        replace(tried, steps=(replace(tried.steps[0], logp_behaviour=(logp, logp)),))
        for tried, logp in zip(group, logps, strict=True)
    ]
    # k = 2, 1, 0: the right one becomes 1 - 0.25 x 2 / 3; -0.5 would have become -0.5 x (1 - 0.25 / 3) = -0.4583.
    returns = [tried.steps[0].reward + tried.steps[0].shaped for tried in shape_group(group, [Unlikeliness()])]
    assert returns == pytest.approx([1 - 0.5 / 3, -0.5, -0.5], rel=1e-15)


def test_by_sum_the_longer_is_the_less_likely() -> None:
    short, long = rollout(0, solved=True), rollout(1, states="ab")
    long = replace(long, steps=tuple(replace(s, logp_behaviour=(-0.7, -0.7)) for s in long.steps))  # means -0.75, -0.7
    assert [s.shaped for s in shape_group([short, long], [Unlikeliness(weight=1.0)])[0].steps] == [0.0]
    assert [s.shaped for s in shape_group([short, long], [Unlikeliness(weight=1.0, by="sum")])[0].steps] == [-0.5]


def test_what_was_added_before_is_scaled_down_too_and_a_return_of_nothing_is_left() -> None:
    """A half of 1 + 3 goes off the likelier of two; rewards of 1 and -1 sum to nothing, and stay."""
    good = rollout(0, rewards=[1.0], solved=True)
    good = replace(good, steps=(replace(good.steps[0], shaped=3.0),))
    even = replace(rollout(0, states="ab", rewards=[1.0, -1.0]), scores={"success": 0.0})
    wrong = replace(rollout(1), steps=tuple(replace(s, logp_behaviour=(-9.0, -9.0)) for s in rollout(1).steps))
    part = Unlikeliness(weight=1.0)
    assert part([good, wrong]) == [(-2.0,), (0.0,)]
    assert part([even, replace(wrong, scores={"success": 1.0})])[0] == (0.0, 0.0)


def test_equally_likely_rollouts_keep_their_order() -> None:
    """Of 64, every second is unlikely: these come first, each after the one before it, then the others. One failed."""
    group = [rollout(i, solved=i != 63) for i in range(64)]
    group[::2] = [
        replace(trajectory, steps=tuple(replace(step, logp_behaviour=(-9.0, -9.0)) for step in trajectory.steps))
        for trajectory in group[::2]
    ]
    less_likely = [i // 2 if i % 2 == 0 else 32 + i // 2 for i in range(63)]
    assert Unlikeliness(weight=1.0)(group) == [(-num / 64,) for num in less_likely] + [(0.0,)]


def test_log_probs_that_were_not_recorded_are_asked_for() -> None:
    silent = rollout(1, solved=True)
    silent = replace(silent, steps=(replace(silent.steps[0], logp_behaviour=()),))
    with pytest.raises(RecordError) as caught:
        Unlikeliness()([rollout(0), silent])
    assert str(caught.value) == (
        "task 't', rollout 1, step 0: the log-probs of its sampled tokens were not recorded, by which rollouts are "
        "ranked; use an engine that reports them"
    )


def make_scored(*references: float, **fields: Any) -> Trajectory:
    """A rollout whose responses have these log-probs under the reference, and -1.5 under the policy."""
    trajectory = rollout(0, states=range(len(references)), **fields)
    steps = [
        replace(step, info={"reference_logp": logp}) for step, logp in zip(trajectory.steps, references, strict=True)
    ]
    return replace(trajectory, steps=tuple(steps))


def test_what_became_likelier_than_under_the_reference_is_taken_off_its_step() -> None:
    # Log-probs -1 - 0.5 against -3.5, -1.5 and 0.5: 2 nats likelier, equal, 2 nats less likely, at 1/4 a nat.
    group = [make_scored(-3.5, -1.5, 0.5), make_scored(-1.0)]
    assert ReferenceKl(weight=0.25)(group) == [(-0.5, 0.0, 0.5), (0.125,)]
    assert not ReferenceKl(weight=0.25).needs_entropy


def test_rollouts_of_another_policy_keep_their_rewards() -> None:
    hinted = make_scored(-3.5, -3.5, off_policy=True)
    assert ReferenceKl(weight=0.25)([hinted, make_scored(-3.5)]) == [(0.0, 0.0), (-0.5,)]


def test_a_reference_that_was_not_measured_is_asked_for() -> None:
    with pytest.raises(RecordError) as caught:
        ReferenceKl(weight=0.25)([rollout(3, states="ab")])
    assert str(caught.value) == (
        "task 't', rollout 3, step 0: it has no step info 'reference_logp', which the shaper reference_kl reads; add "
        'scorers = ["reference_score"] to [algorithm]'
    )


def test_log_probs_under_the_policy_are_asked_for_by_their_step() -> None:
    trajectory = make_scored(-1.0, -1.0)
    silent = replace(trajectory, steps=(trajectory.steps[0], replace(trajectory.steps[1], logp_behaviour=())))
    with pytest.raises(RecordError) as caught:
        ReferenceKl(weight=0.25)([silent])
    assert str(caught.value) == (
        "task 't', rollout 0, step 1: the log-probs of its sampled tokens were not recorded, which the shaper "
        "reference_kl reads; use an engine that reports them"
    )


class Wrong(Part, slot="shaper"):
    """Adds what it is told to."""

    amounts: tuple[float, ...]

    @property
    def needs_entropy(self) -> bool:
        return False

    def __call__(self, group: Sequence[Trajectory]) -> list[tuple[float, ...]]:
        return [self.amounts for _ in group]


@pytest.mark.parametrize("amounts", [(), (1.0, 2.0), (float("nan"),)])
def test_a_shaper_that_gives_no_number_per_step_is_named(amounts: tuple[float, ...]) -> None:
    with pytest.raises(RecordError) as caught:
        shape_group([rollout(3)], [Wrong(amounts=amounts)])
    assert str(caught.value) == (
        f"task 't', rollout 3: shaper Wrong(amounts={amounts!r}) gave {amounts!r} for 1 steps; give one finite number "
        "per step"
    )


class Forgetful:
    """A shaper that is a plain class, and says nothing of the last rollout."""

    needs_entropy = False

    def __call__(self, group: Sequence[Trajectory]) -> list[tuple[float, ...]]:
        return [(1.0,) for _ in group[:-1]]


def test_no_rollout_is_lost_where_a_shaper_forgets_it() -> None:
    with pytest.raises(ValueError, match="shorter"):
        shape_group([rollout(0), rollout(1)], [Forgetful()])


def test_shapers_add_up_one_after_the_other() -> None:
    (shaped,) = shape_group([rollout(0, rewards=[1.0])], [Wrong(amounts=(0.5,)), Wrong(amounts=(0.25,))])
    assert (shaped.steps[0].reward, shaped.steps[0].shaped) == (1.0, 0.75)
