"""Which past attempts join a group: by outcome, by history, or by the size of the credit they had."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from groupwise import Trajectory
from groupwise.data.past_attempts import RecalledAttempt
from groupwise.methods.r3 import CrossContextReplay, HistoryKeyedReplay
from groupwise.methods.selective_buffer import SelectiveBuffer
from tests.unit.pasts import attempt, journal, make_draw, update


def sources(recalled: list[RecalledAttempt]) -> list[tuple[str, int, int]]:
    return [
        (recalled_attempt.task, recalled_attempt.past.number, recalled_attempt.past.attempt)
        for recalled_attempt in recalled
    ]


def replace_answer(word: int, trajectory: Trajectory) -> Trajectory:
    """The attempt with another answer."""
    return replace(trajectory, steps=tuple(replace(step, response_ids=(word, 3)) for step in trajectory.steps))


FAILED = [attempt(i) for i in range(4)]
SOLVED = [attempt(i, solved=True) for i in range(4)]


def test_failures_recall_a_success_successes_a_failure_and_mixed_groups_nothing(tmp_path: Path) -> None:
    past_journal = journal(tmp_path, update(1, attempt(0, solved=True), attempt(1)))
    replay = CrossContextReplay()
    for group, expected, why in (
        (FAILED, [("t", 1, 0)], ["every attempt failed"]),
        (SOLVED, [("t", 1, 1)], ["every attempt succeeded"]),
        (FAILED[:2] + SOLVED[2:], [], []),
    ):
        attempts = replay([group], past_journal.past_attempts, version=1, draw=make_draw())
        assert sources(attempts) == expected
        assert [recalled_attempt.why for recalled_attempt in attempts] == why
        assert not any(recalled_attempt.keeps_credit for recalled_attempt in attempts)


def make_graded(number: int, score: float) -> Trajectory:
    """An attempt of which the environment says what it earned, and not whether it succeeded."""
    return replace(attempt(number, rewards=[score]), scores={"return": score})


def test_a_score_at_the_threshold_counts_as_right_now_and_in_the_past(tmp_path: Path) -> None:
    past_journal = journal(tmp_path, update(1, make_graded(0, 0.5), make_graded(1, 0.25)))
    for group, expected in (([make_graded(0, 0.5)], [("t", 1, 1)]), ([make_graded(0, 0.25)], [("t", 1, 0)])):
        assert (
            sources(CrossContextReplay()([group], past_journal.past_attempts, version=1, draw=make_draw())) == expected
        )


def test_the_draw_is_named_for_the_replay_and_the_task(tmp_path: Path) -> None:
    """A run that is played again draws by the same names, so that the same attempts are recalled."""
    past_journal = journal(tmp_path, update(1, attempt(0, solved=True)))
    names: list[tuple[str | int, ...]] = []
    CrossContextReplay()([FAILED], past_journal.past_attempts, version=1, draw=make_draw(names=names))
    assert names == [("replay", "t")]


def test_a_task_without_the_other_outcome_in_its_past_recalls_nothing(tmp_path: Path) -> None:
    past_journal = journal(tmp_path, update(1, attempt(0), attempt(1), attempt(0, task="other", solved=True)))
    assert CrossContextReplay()([FAILED], past_journal.past_attempts, version=1, draw=make_draw()) == []


@pytest.mark.parametrize(("own", "k", "expected"), [(3, 0, 1), (7, 0, 1), (8, 0, 2), (16, 0, 4), (4, 3, 3)])
def test_one_for_every_four_attempts_unless_told(tmp_path: Path, own: int, k: int, expected: int) -> None:
    past_journal = journal(tmp_path, update(1, *(attempt(i, solved=True) for i in range(6))))
    group = [attempt(i) for i in range(own)]
    recalled = sources(CrossContextReplay(k=k)([group], past_journal.past_attempts, version=1, draw=make_draw()))
    assert len(set(recalled)) == len(recalled) == expected, "nobody twice"
    assert {(task, number) for task, number, _ in recalled} == {("t", 1)}


def test_the_newest_update_comes_first_and_within_it_the_draw_is_even(tmp_path: Path) -> None:
    past_journal = journal(
        tmp_path,
        update(1, attempt(0, solved=True)),
        update(2, *(attempt(i, solved=True, version=1) for i in range(4))),
    )
    drawn = [
        sources(CrossContextReplay()([FAILED], past_journal.past_attempts, version=2, draw=make_draw(seed)))[0]
        for seed in range(400)
    ]
    counts = [drawn.count(("t", 2, i)) for i in range(4)]
    assert sum(counts) == 400, "never the older update"
    assert min(counts) > 70, counts
    whole = sources(CrossContextReplay(k=9)([FAILED], past_journal.past_attempts, version=2, draw=make_draw()))
    assert whole[4] == ("t", 1, 0)
    assert whole == sources(CrossContextReplay(k=9)([FAILED], past_journal.past_attempts, version=2, draw=make_draw()))


def test_the_ring_and_the_age_bound_what_is_looked_at(tmp_path: Path) -> None:
    past_journal = journal(
        tmp_path, update(1, attempt(0, solved=True)), update(2, attempt(0, version=1), attempt(1, version=1))
    )

    def recall(**fields: int) -> list[tuple[str, int, int]]:
        return sources(CrossContextReplay(**fields)([FAILED], past_journal.past_attempts, version=3, draw=make_draw()))

    assert recall() == recall(ring=3) == recall(max_age=3) == [("t", 1, 0)]
    assert recall(ring=2) == []
    assert recall(max_age=2) == []


def test_an_attempt_is_recalled_for_the_contexts_that_have_nobody_to_differ_from(tmp_path: Path) -> None:
    """Worked by hand, depth 1 and gamma 1.

    The group: a b (0), a c (0). Contexts: a twice, b, c, ab, ac, each with the one gain 0: all are lacking.
    (1, 0) came through a b and earned 1: fills a (2 steps, weight 1), b (1) and ab (1 step, weight 2), worth 5.
    (1, 1) came through a c: the same, worth 5. (1, 2) came through c alone: worth 1. (1, 3) earned 0: worth nothing.
    The first of the equals goes first; then (1, 1) still fills c and ac, worth 3; then nothing is left for (1, 2).
    """
    group = [attempt(0, states="ab"), attempt(1, states="ac")]
    past_journal = journal(
        tmp_path,
        update(
            1,
            attempt(0, states="ab", solved=True),
            attempt(1, states="ac", solved=True),
            attempt(2, states="c", solved=True),
            attempt(3, states="ab"),
        ),
    )
    replay = HistoryKeyedReplay(depth=1, max_attempts=3, gamma=1.0)
    attempts = replay([group], past_journal.past_attempts, version=1, draw=make_draw())
    assert sources(attempts) == [("t", 1, 0), ("t", 1, 1)]
    assert [recalled_attempt.why for recalled_attempt in attempts] == [
        "3 contexts, up to depth 1, had nobody to differ from",
        "2 contexts, up to depth 1, had nobody to differ from",
    ]
    fewer = HistoryKeyedReplay(depth=1, max_attempts=1, gamma=1.0)
    assert sources(fewer([group], past_journal.past_attempts, version=1, draw=make_draw())) == [("t", 1, 0)]


def test_what_most_steps_lack_is_filled_first(tmp_path: Path) -> None:
    """Three steps stand in a, one in b and one in c: a weighs 3, b and c together 2, though listed first."""
    group = [attempt(i, states=state) for i, state in enumerate("aaabc")]
    past_journal = journal(
        tmp_path, update(1, attempt(0, states="bc", solved=True), attempt(1, states="a", solved=True))
    )
    replay = HistoryKeyedReplay(depth=0, max_attempts=2, gamma=1.0)
    assert sources(replay([group], past_journal.past_attempts, version=1, draw=make_draw())) == [
        ("t", 1, 1),
        ("t", 1, 0),
    ]


def test_contexts_deeper_than_asked_for_are_not_looked_at(tmp_path: Path) -> None:
    """A lone attempt through a b c: a, b, c and ab, bc at depth 1; abc would be one of depth 2."""
    past_journal = journal(tmp_path, update(1, attempt(0, states="abc", solved=True)))
    group = [attempt(0, states="abc")]
    for depth, why in (
        (1, "5 contexts, up to depth 1, had nobody to differ from"),
        (2, "6 contexts, up to depth 2, had nobody to differ from"),
    ):
        recalled = HistoryKeyedReplay(depth=depth)([group], past_journal.past_attempts, version=1, draw=make_draw())
        assert [entry.why for entry in recalled] == [why]


def test_a_past_attempt_differs_by_what_it_earned_from_the_context_on(tmp_path: Path) -> None:
    """At gamma 1/2 the group earned 1/2 from a on and 1 from b on.

    Attempt 0 earned 1/2 at a and ended: the same from a on. Attempt 1 earned 1/2 at a and nothing at b: the same from a
    on, and something else from b on.
    """
    group = [attempt(0, states="ab", rewards=[0.0, 1.0])]
    past_journal = journal(
        tmp_path, update(1, attempt(0, states="a", rewards=[0.5]), attempt(1, states="ab", rewards=[0.5, 0.0]))
    )
    recalled = HistoryKeyedReplay(depth=0, gamma=0.5)([group], past_journal.past_attempts, version=1, draw=make_draw())
    assert sources(recalled) == [("t", 1, 1)]
    assert recalled[0].why == "1 contexts, up to depth 0, had nobody to differ from"


def test_by_history_too_the_age_bounds_what_is_looked_at(tmp_path: Path) -> None:
    past_journal = journal(tmp_path, update(1, attempt(0, solved=True)))

    def recall(max_age: int | None) -> list[tuple[str, int, int]]:
        replay = HistoryKeyedReplay(max_age=max_age)
        return sources(replay([[attempt(0)]], past_journal.past_attempts, version=3, draw=make_draw()))

    assert recall(None) == recall(3) == [("t", 1, 0)]
    assert recall(2) == []


def test_a_context_with_a_difference_of_its_own_recalls_nothing(tmp_path: Path) -> None:
    group = [attempt(0, states="a"), attempt(1, states="a", solved=True)]
    past_journal = journal(tmp_path, update(1, attempt(0, states="a", rewards=[0.5])))
    assert HistoryKeyedReplay()([group], past_journal.past_attempts, version=1, draw=make_draw()) == []


def test_the_buffer_fills_up_what_lies_idle_to_its_share(tmp_path: Path) -> None:
    past = [replace_answer(i, attempt(i, task="past", solved=True)) for i in range(6)]
    past_journal = journal(tmp_path, update(1, *past, credit=[[1.0], [-2.0], [0.0], [1e-7], [3.0], [0.5]]))
    idle, mixed = [attempt(i, task="u") for i in range(8)], FAILED[:4] + [attempt(i, solved=True) for i in range(4, 8)]

    def recall(**fields: float) -> list[tuple[str, int, int]]:
        return sources(
            SelectiveBuffer(**fields)([idle, mixed], past_journal.past_attempts, version=1, draw=make_draw())
        )

    assert len(recall()) == 4, "a quarter of sixteen"
    assert {attempt for _, _, attempt in recall()} == {0, 1, 4, 5}, "credit of nothing teaches nothing"
    assert len(recall(share=0.125)) == 2
    recalled = SelectiveBuffer()([idle], past_journal.past_attempts, version=1, draw=make_draw())
    assert all(entry.keeps_credit for entry in recalled)
    assert {entry.task for entry in recalled} == {"past"}, "it joins its own task, not one that lies idle"
    assert {entry.why for entry in recalled} == {"8 attempts lay in groups without spread"}
    assert SelectiveBuffer()([mixed], past_journal.past_attempts, version=1, draw=make_draw()) == [], (
        "nothing lies idle"
    )
    assert SelectiveBuffer(max_age=1)([idle], past_journal.past_attempts, version=2, draw=make_draw()) == [], "too old"


@pytest.mark.parametrize(("credit", "is_recalled"), [(1e-6, False), (2e-6, True), (-2e-6, True)])
def test_credit_of_a_millionth_is_none_to_the_buffer(tmp_path: Path, credit: float, is_recalled: bool) -> None:
    past_journal = journal(tmp_path, update(1, attempt(0, task="past"), credit=[[credit]]))
    assert bool(SelectiveBuffer()([FAILED], past_journal.past_attempts, version=1, draw=make_draw())) is is_recalled


def test_the_buffer_recalls_an_answer_once_however_often_it_was_given(tmp_path: Path) -> None:
    """Attempts 0 to 3 say the same, 4 says something else; 5 says the same at another task: another problem."""
    past = [replace_answer(7, attempt(i, task="past", solved=True)) for i in range(4)]
    past += [
        replace_answer(8, attempt(4, task="past", solved=True)),
        replace_answer(7, attempt(5, task="more", solved=True)),
    ]
    past_journal = journal(tmp_path, update(1, *past, credit=[[9.0], [9.0], [9.0], [9.0], [0.1], [0.1]]))
    idle = [attempt(i, task="u") for i in range(16)]
    for seed in range(20):
        attempts = SelectiveBuffer()([idle], past_journal.past_attempts, version=1, draw=make_draw(seed))
        assert sorted(recalled_attempt.past.attempt for recalled_attempt in attempts)[1:] == [4, 5], (
            "a quarter of sixteen, and only three to be had"
        )
        assert min(recalled_attempt.past.attempt for recalled_attempt in attempts) <= 3


def test_each_round_of_the_buffers_draws_has_a_name_of_its_own(tmp_path: Path) -> None:
    """Attempts 0 and 1 say the same and have nearly all the credit: both are drawn, and a round for another follows."""
    past = [
        replace_answer(7, attempt(0, task="past")),
        replace_answer(7, attempt(1, task="past")),
        replace_answer(8, attempt(2, task="past")),
    ]
    past_journal = journal(tmp_path, update(1, *past, credit=[[1e6], [1e6], [0.1]]))
    names: list[tuple[str | int, ...]] = []
    recalled = SelectiveBuffer()([FAILED * 2], past_journal.past_attempts, version=1, draw=make_draw(names=names))
    assert names == [("buffer",), ("buffer", 1)]
    assert {entry.past.attempt for entry in recalled} in ({0, 2}, {1, 2})


def test_the_buffer_draws_as_it_did_where_there_is_no_copy(tmp_path: Path) -> None:
    past = [replace_answer(i, attempt(i, task="past", solved=True)) for i in range(6)]
    past_journal = journal(tmp_path, update(1, *past, credit=[[1.0], [2.0], [3.0], [4.0], [5.0], [6.0]]))
    idle = [attempt(i, task="u") for i in range(8)]
    chance = np.arange(1, 7) / 21
    for seed in range(8):
        attempts = SelectiveBuffer()([idle], past_journal.past_attempts, version=1, draw=make_draw(seed))
        drawn = make_draw(seed)("buffer").choice(6, size=2, replace=False, p=chance)
        assert [recalled_attempt.past.attempt for recalled_attempt in attempts] == sorted(drawn.tolist())
