"""Which past rollouts join a group: by outcome, by history, or by the size of the credit they had."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from groupwise import Trajectory
from groupwise.data.past_rollouts import ReplayedRollout
from groupwise.methods.r3 import CrossContextReplay, HistoryKeyedReplay
from groupwise.methods.selective_buffer import SelectiveBuffer
from tests.unit.pasts import journal, make_draw, rollout, update


def sources(replayed: list[ReplayedRollout]) -> list[tuple[str, int, int]]:
    return [
        (replayed_rollout.task, replayed_rollout.past.number, replayed_rollout.past.rollout)
        for replayed_rollout in replayed
    ]


def replace_answer(word: int, trajectory: Trajectory) -> Trajectory:
    """The rollout with another answer."""
    return replace(trajectory, steps=tuple(replace(step, response_ids=(word, 3)) for step in trajectory.steps))


FAILED = [rollout(i) for i in range(4)]
SOLVED = [rollout(i, solved=True) for i in range(4)]


def test_failures_replay_a_success_successes_a_failure_and_mixed_groups_nothing(tmp_path: Path) -> None:
    past_journal = journal(tmp_path, update(1, rollout(0, solved=True), rollout(1)))
    replay = CrossContextReplay()
    for group, expected, why in (
        (FAILED, [("t", 1, 0)], ["every rollout failed"]),
        (SOLVED, [("t", 1, 1)], ["every rollout succeeded"]),
        (FAILED[:2] + SOLVED[2:], [], []),
    ):
        rollouts = replay([group], past_journal.past_rollouts, version=1, draw=make_draw())
        assert sources(rollouts) == expected
        assert [replayed_rollout.why for replayed_rollout in rollouts] == why
        assert not any(replayed_rollout.keeps_credit for replayed_rollout in rollouts)


def make_graded(number: int, score: float) -> Trajectory:
    """A rollout of which the environment says what it earned, and not whether it succeeded."""
    return replace(rollout(number, rewards=[score]), scores={"return": score})


def test_a_score_at_the_threshold_counts_as_right_now_and_in_the_past(tmp_path: Path) -> None:
    past_journal = journal(tmp_path, update(1, make_graded(0, 0.5), make_graded(1, 0.25)))
    for group, expected in (([make_graded(0, 0.5)], [("t", 1, 1)]), ([make_graded(0, 0.25)], [("t", 1, 0)])):
        assert (
            sources(CrossContextReplay()([group], past_journal.past_rollouts, version=1, draw=make_draw())) == expected
        )


def test_the_draw_is_named_for_the_replay_and_the_task(tmp_path: Path) -> None:
    """A run that is played again draws by the same names, so that the same rollouts are replayed."""
    past_journal = journal(tmp_path, update(1, rollout(0, solved=True)))
    names: list[tuple[str | int, ...]] = []
    CrossContextReplay()([FAILED], past_journal.past_rollouts, version=1, draw=make_draw(names=names))
    assert names == [("replay", "t")]


def test_a_task_without_the_other_outcome_in_its_past_replays_nothing(tmp_path: Path) -> None:
    past_journal = journal(tmp_path, update(1, rollout(0), rollout(1), rollout(0, task="other", solved=True)))
    assert CrossContextReplay()([FAILED], past_journal.past_rollouts, version=1, draw=make_draw()) == []


@pytest.mark.parametrize(("own", "k", "expected"), [(3, 0, 1), (7, 0, 1), (8, 0, 2), (16, 0, 4), (4, 3, 3)])
def test_one_for_every_four_rollouts_unless_told(tmp_path: Path, own: int, k: int, expected: int) -> None:
    past_journal = journal(tmp_path, update(1, *(rollout(i, solved=True) for i in range(6))))
    group = [rollout(i) for i in range(own)]
    replayed = sources(CrossContextReplay(k=k)([group], past_journal.past_rollouts, version=1, draw=make_draw()))
    assert len(set(replayed)) == len(replayed) == expected, "nobody twice"
    assert {(task, number) for task, number, _ in replayed} == {("t", 1)}


def test_the_newest_update_comes_first_and_within_it_the_draw_is_even(tmp_path: Path) -> None:
    past_journal = journal(
        tmp_path,
        update(1, rollout(0, solved=True)),
        update(2, *(rollout(i, solved=True, version=1) for i in range(4))),
    )
    drawn = [
        sources(CrossContextReplay()([FAILED], past_journal.past_rollouts, version=2, draw=make_draw(seed)))[0]
        for seed in range(400)
    ]
    counts = [drawn.count(("t", 2, i)) for i in range(4)]
    assert sum(counts) == 400, "never the older update"
    assert min(counts) > 70, counts
    whole = sources(CrossContextReplay(k=9)([FAILED], past_journal.past_rollouts, version=2, draw=make_draw()))
    assert whole[4] == ("t", 1, 0)
    assert whole == sources(CrossContextReplay(k=9)([FAILED], past_journal.past_rollouts, version=2, draw=make_draw()))


def test_the_ring_and_the_age_bound_what_is_looked_at(tmp_path: Path) -> None:
    past_journal = journal(
        tmp_path, update(1, rollout(0, solved=True)), update(2, rollout(0, version=1), rollout(1, version=1))
    )

    def replay(**fields: int) -> list[tuple[str, int, int]]:
        return sources(CrossContextReplay(**fields)([FAILED], past_journal.past_rollouts, version=3, draw=make_draw()))

    assert replay() == replay(ring=3) == replay(max_staleness=3) == [("t", 1, 0)]
    assert replay(ring=2) == []
    assert replay(max_staleness=2) == []


def test_an_rollout_is_replayed_for_the_contexts_that_have_nobody_to_differ_from(tmp_path: Path) -> None:
    """Worked by hand, depth 1 and gamma 1.

    The group: a b (0), a c (0). Contexts: a twice, b, c, ab, ac, each with the one gain 0: all are lacking.
    (1, 0) came through a b and earned 1: fills a (2 steps, weight 1), b (1) and ab (1 step, weight 2), worth 5.
    (1, 1) came through a c: the same, worth 5. (1, 2) came through c alone: worth 1. (1, 3) earned 0: worth nothing.
    The first of the equals goes first; then (1, 1) still fills c and ac, worth 3; then nothing is left for (1, 2).
    """
    group = [rollout(0, states="ab"), rollout(1, states="ac")]
    past_journal = journal(
        tmp_path,
        update(
            1,
            rollout(0, states="ab", solved=True),
            rollout(1, states="ac", solved=True),
            rollout(2, states="c", solved=True),
            rollout(3, states="ab"),
        ),
    )
    replay = HistoryKeyedReplay(depth=1, max_rollouts=3, gamma=1.0)
    rollouts = replay([group], past_journal.past_rollouts, version=1, draw=make_draw())
    assert sources(rollouts) == [("t", 1, 0), ("t", 1, 1)]
    assert [replayed_rollout.why for replayed_rollout in rollouts] == [
        "3 contexts, up to depth 1, had nobody to differ from",
        "2 contexts, up to depth 1, had nobody to differ from",
    ]
    fewer = HistoryKeyedReplay(depth=1, max_rollouts=1, gamma=1.0)
    assert sources(fewer([group], past_journal.past_rollouts, version=1, draw=make_draw())) == [("t", 1, 0)]


def test_what_most_steps_lack_is_filled_first(tmp_path: Path) -> None:
    """Three steps stand in a, one in b and one in c: a weighs 3, b and c together 2, though listed first."""
    group = [rollout(i, states=state) for i, state in enumerate("aaabc")]
    past_journal = journal(
        tmp_path, update(1, rollout(0, states="bc", solved=True), rollout(1, states="a", solved=True))
    )
    replay = HistoryKeyedReplay(depth=0, max_rollouts=2, gamma=1.0)
    assert sources(replay([group], past_journal.past_rollouts, version=1, draw=make_draw())) == [
        ("t", 1, 1),
        ("t", 1, 0),
    ]


def test_contexts_deeper_than_asked_for_are_not_looked_at(tmp_path: Path) -> None:
    """A lone rollout through a b c: a, b, c and ab, bc at depth 1; abc would be one of depth 2."""
    past_journal = journal(tmp_path, update(1, rollout(0, states="abc", solved=True)))
    group = [rollout(0, states="abc")]
    for depth, why in (
        (1, "5 contexts, up to depth 1, had nobody to differ from"),
        (2, "6 contexts, up to depth 2, had nobody to differ from"),
    ):
        replayed = HistoryKeyedReplay(depth=depth)([group], past_journal.past_rollouts, version=1, draw=make_draw())
        assert [entry.why for entry in replayed] == [why]


def test_a_past_rollout_differs_by_what_it_earned_from_the_context_on(tmp_path: Path) -> None:
    """At gamma 1/2 the group earned 1/2 from a on and 1 from b on.

    Rollout 0 earned 1/2 at a and ended: the same from a on. Rollout 1 earned 1/2 at a and nothing at b: the same from a
    on, and something else from b on.
    """
    group = [rollout(0, states="ab", rewards=[0.0, 1.0])]
    past_journal = journal(
        tmp_path, update(1, rollout(0, states="a", rewards=[0.5]), rollout(1, states="ab", rewards=[0.5, 0.0]))
    )
    replayed = HistoryKeyedReplay(depth=0, gamma=0.5)([group], past_journal.past_rollouts, version=1, draw=make_draw())
    assert sources(replayed) == [("t", 1, 1)]
    assert replayed[0].why == "1 contexts, up to depth 0, had nobody to differ from"


def test_by_history_too_the_age_bounds_what_is_looked_at(tmp_path: Path) -> None:
    past_journal = journal(tmp_path, update(1, rollout(0, solved=True)))

    def replay(max_staleness: int | None) -> list[tuple[str, int, int]]:
        replay = HistoryKeyedReplay(max_staleness=max_staleness)
        return sources(replay([[rollout(0)]], past_journal.past_rollouts, version=3, draw=make_draw()))

    assert replay(None) == replay(3) == [("t", 1, 0)]
    assert replay(2) == []


def test_a_context_with_a_difference_of_its_own_replays_nothing(tmp_path: Path) -> None:
    group = [rollout(0, states="a"), rollout(1, states="a", solved=True)]
    past_journal = journal(tmp_path, update(1, rollout(0, states="a", rewards=[0.5])))
    assert HistoryKeyedReplay()([group], past_journal.past_rollouts, version=1, draw=make_draw()) == []


def test_the_buffer_fills_up_what_lies_idle_to_its_share(tmp_path: Path) -> None:
    past = [replace_answer(i, rollout(i, task="past", solved=True)) for i in range(6)]
    past_journal = journal(tmp_path, update(1, *past, credit=[[1.0], [-2.0], [0.0], [1e-7], [3.0], [0.5]]))
    idle, mixed = [rollout(i, task="u") for i in range(8)], FAILED[:4] + [rollout(i, solved=True) for i in range(4, 8)]

    def replay(**fields: float) -> list[tuple[str, int, int]]:
        return sources(
            SelectiveBuffer(**fields)([idle, mixed], past_journal.past_rollouts, version=1, draw=make_draw())
        )

    assert len(replay()) == 4, "a quarter of sixteen"
    assert {rollout for _, _, rollout in replay()} == {0, 1, 4, 5}, "credit of nothing teaches nothing"
    assert len(replay(share=0.125)) == 2
    replayed = SelectiveBuffer()([idle], past_journal.past_rollouts, version=1, draw=make_draw())
    assert all(entry.keeps_credit for entry in replayed)
    assert {entry.task for entry in replayed} == {"past"}, "it joins its own task, not one that lies idle"
    assert {entry.why for entry in replayed} == {"8 rollouts lay in groups without spread"}
    assert SelectiveBuffer()([mixed], past_journal.past_rollouts, version=1, draw=make_draw()) == [], (
        "nothing lies idle"
    )
    assert SelectiveBuffer(max_staleness=1)([idle], past_journal.past_rollouts, version=2, draw=make_draw()) == [], (
        "too old"
    )


@pytest.mark.parametrize(("credit", "is_replayed"), [(1e-6, False), (2e-6, True), (-2e-6, True)])
def test_credit_of_a_millionth_is_none_to_the_buffer(tmp_path: Path, credit: float, is_replayed: bool) -> None:
    past_journal = journal(tmp_path, update(1, rollout(0, task="past"), credit=[[credit]]))
    assert bool(SelectiveBuffer()([FAILED], past_journal.past_rollouts, version=1, draw=make_draw())) is is_replayed


def test_the_buffer_replays_an_answer_once_however_often_it_was_given(tmp_path: Path) -> None:
    """Rollouts 0 to 3 say the same, 4 says something else; 5 says the same at another task: another problem."""
    past = [replace_answer(7, rollout(i, task="past", solved=True)) for i in range(4)]
    past += [
        replace_answer(8, rollout(4, task="past", solved=True)),
        replace_answer(7, rollout(5, task="more", solved=True)),
    ]
    past_journal = journal(tmp_path, update(1, *past, credit=[[9.0], [9.0], [9.0], [9.0], [0.1], [0.1]]))
    idle = [rollout(i, task="u") for i in range(16)]
    for seed in range(20):
        rollouts = SelectiveBuffer()([idle], past_journal.past_rollouts, version=1, draw=make_draw(seed))
        assert sorted(replayed_rollout.past.rollout for replayed_rollout in rollouts)[1:] == [4, 5], (
            "a quarter of sixteen, and only three to be had"
        )
        assert min(replayed_rollout.past.rollout for replayed_rollout in rollouts) <= 3


def test_each_round_of_the_buffers_draws_has_a_name_of_its_own(tmp_path: Path) -> None:
    """Rollouts 0 and 1 say the same and have nearly all the credit: both are drawn, and a round for another follows."""
    past = [
        replace_answer(7, rollout(0, task="past")),
        replace_answer(7, rollout(1, task="past")),
        replace_answer(8, rollout(2, task="past")),
    ]
    past_journal = journal(tmp_path, update(1, *past, credit=[[1e6], [1e6], [0.1]]))
    names: list[tuple[str | int, ...]] = []
    replayed = SelectiveBuffer()([FAILED * 2], past_journal.past_rollouts, version=1, draw=make_draw(names=names))
    assert names == [("buffer",), ("buffer", 1)]
    assert {entry.past.rollout for entry in replayed} in ({0, 2}, {1, 2})


def test_the_buffer_draws_as_it_did_where_there_is_no_copy(tmp_path: Path) -> None:
    past = [replace_answer(i, rollout(i, task="past", solved=True)) for i in range(6)]
    past_journal = journal(tmp_path, update(1, *past, credit=[[1.0], [2.0], [3.0], [4.0], [5.0], [6.0]]))
    idle = [rollout(i, task="u") for i in range(8)]
    chance = np.arange(1, 7) / 21
    for seed in range(8):
        rollouts = SelectiveBuffer()([idle], past_journal.past_rollouts, version=1, draw=make_draw(seed))
        drawn = make_draw(seed)("buffer").choice(6, size=2, replace=False, p=chance)
        assert [replayed_rollout.past.rollout for replayed_rollout in rollouts] == sorted(drawn.tolist())
