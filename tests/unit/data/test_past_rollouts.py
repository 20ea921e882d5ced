"""What a run remembers: found by task, read back whole, gone with its update, and never apart from the journal."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from groupwise import FileError, Origin, StopReason
from groupwise.data.past_rollouts import ReplayedRollout, digest_states, find_histories
from groupwise.data.records import score_of
from groupwise.store import journal as journals
from groupwise.store.journal import Journal
from tests.unit.pasts import journal, rollout, update


def keys_of(past: object) -> list[tuple[int, int]]:
    return [(one.number, one.rollout) for one in past]  # type: ignore[attr-defined]


def test_the_newest_update_comes_first_and_other_tasks_stay_out(tmp_path: Path) -> None:
    made = journal(
        tmp_path,
        update(1, rollout(0), rollout(1), rollout(0, task="other")),
        update(2, rollout(0, version=1), rollout(1, version=1)),
    )
    assert keys_of(made.past_rollouts.recent("t", max_rollouts=9)) == [(2, 0), (2, 1), (1, 0), (1, 1)]
    assert keys_of(made.past_rollouts.recent("t", max_rollouts=3)) == [(2, 0), (2, 1), (1, 0)]
    assert keys_of(made.past_rollouts.recent("t", max_rollouts=9, since=1)) == [(2, 0), (2, 1)]
    assert keys_of(made.past_rollouts.recent("nowhere", max_rollouts=9)) == []
    assert [one.task for one in made.past_rollouts.newest(max_rollouts=9, after=0)] == ["t", "t", "other", "t", "t"]
    assert keys_of(made.past_rollouts.newest(max_rollouts=9, after=1)) == [(2, 0), (2, 1)]


def test_only_what_had_no_help_counts_for_the_record_of_a_task(tmp_path: Path) -> None:
    made = journal(
        tmp_path,
        update(1, rollout(0, solved=True), rollout(1)),
        update(
            2,
            rollout(0),
            rollout(1),
            rollout(2, solved=True, origin=Origin.HINTED),
            rollout(0, task="t~help", solved=True, origin=Origin.REFLECTED),
        ),
    )
    assert made.past_rollouts.mean_score("t", max_rollouts=64) == 0.25
    assert made.past_rollouts.mean_score("t", max_rollouts=2) == 0.0, "of the newest two"
    assert made.past_rollouts.mean_score("t~help", max_rollouts=64) is None
    assert made.past_rollouts.mean_score("new", max_rollouts=64) is None
    assert keys_of(made.past_rollouts.recent("t", max_rollouts=9)) == [(2, 0), (2, 1), (1, 0), (1, 1)], (
        "what was told without help"
    )


def test_the_index_says_what_replay_chooses_by(tmp_path: Path) -> None:
    made = journal(
        tmp_path,
        update(3, rollout(5, states=("a", None), rewards=(0.25, 1.0), solved=True, version=2), credit=[[0.5, -2.0]]),
    )
    (past,) = made.past_rollouts.recent("t", max_rollouts=1)
    assert (past.task, past.number, past.rollout, past.version, past.origin) == ("t", 3, 5, 2, "fresh")
    assert (past.score, past.credit, past.rewards.tolist()) == (1.0, 2.0, [0.25, 1.0])
    assert past.states.tolist() == [digest_states(rollout(states=("a",)))[0], 0]
    assert made.past_rollouts.credit_of(past) == (0.5, -2.0)


def test_an_rollout_is_judged_by_success_then_by_what_the_judges_paid_then_by_what_it_earned() -> None:
    assert score_of(rollout(rewards=[0.7])) == 0.0
    assert score_of(replace(rollout(rewards=[0.7]), scores={"accuracy": 0.4, "return": 0.7})) == 0.4
    assert score_of(replace(rollout(rewards=[0.7]), scores={})) == 0.7
    assert score_of(replace(rollout(rewards=[0.7]), scores={}, outcome=0.2)) == 0.2


def test_states_are_told_apart_by_their_content() -> None:
    first = digest_states(rollout(states=("a", ("a", 1), None, "a", ("a", 2))))
    assert first[0] == first[3]
    assert first[2] == 0
    assert len({*first.tolist()}) == 4
    assert list(find_histories(first, 1)) == [(1, (first[0], first[1])), (4, (first[3], first[4]))], (
        "None breaks a context"
    )


def test_what_was_shaped_is_not_remembered_as_earned(tmp_path: Path) -> None:
    paid = rollout(rewards=[0.25], stop=StopReason.TRUNCATED)
    shaped = replace(paid, steps=(replace(paid.steps[0], shaped=0.5),))
    made = journal(tmp_path, update(1, shaped))
    (row,) = made.trajectories(1)
    assert (row["steps"][0]["reward"], row["steps"][0]["reward_alone"], row["outcome"]) == (0.75, 0.25, 0.25)
    (past,) = made.past_rollouts.recent("t", max_rollouts=1)
    assert past.rewards.tolist() == [0.25]
    assert made.past_rollouts.read(past).steps == paid.steps


def replay(made: Journal, number: int) -> ReplayedRollout:
    (past,) = made.past_rollouts.recent("t", max_rollouts=1)
    member = replace(made.past_rollouts.read(past), rollout=number, origin=Origin.REPLAYED, off_policy=True)
    return ReplayedRollout(
        past=past, task="t", why="every rollout failed", trajectory=member, log_ratio=0.125, credit=(1.5,)
    )


def test_what_was_replayed_is_told_with_its_source_and_is_not_written_again(tmp_path: Path) -> None:
    made = journal(tmp_path, update(1, rollout(0, solved=True)))
    made.write(replace(update(2, rollout(0), rollout(1)), replayed=[replay(made, 2)]))
    assert made.past_rollouts.list_replayed(2) == [
        {
            "number": 2,
            "task": "t",
            "rollout": 2,
            "from_task": "t",
            "from_number": 1,
            "from_rollout": 0,
            "why": "every rollout failed",
            "log_ratio": 0.125,
            "keeps_credit": False,
            "credit": [1.5],
        }
    ]
    assert made.past_rollouts.list_replayed(1) == []
    assert keys_of(made.past_rollouts.recent("t", max_rollouts=9)) == [(2, 0), (2, 1), (1, 0)]
    made.past_rollouts.check({"t"})


def test_forgotten_updates_leave_the_index_and_what_they_replayed(tmp_path: Path) -> None:
    made = journal(tmp_path, update(1, rollout(0, solved=True)))
    made.write(replace(update(2, rollout(0)), replayed=[replay(made, 1)]))
    made.forget_after(1)
    assert keys_of(made.past_rollouts.recent("t", max_rollouts=9)) == [(1, 0)]
    assert made.past_rollouts.list_replayed(2) == []
    made.past_rollouts.check({"t"})


def test_an_update_that_breaks_off_leaves_neither_index_nor_replayed_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = journal(tmp_path, update(1, rollout(0, solved=True)))
    write = journals.write_replayed

    def interrupt(*arguments: object) -> None:
        write(*arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(journals, "write_replayed", interrupt)
    with pytest.raises(KeyboardInterrupt):
        made.write(replace(update(2, rollout(0)), replayed=[replay(made, 1)]))
    made.close()
    with Journal(tmp_path / "journal.sqlite") as again:
        assert (again.last_number(), again.past_rollouts.list_replayed(2), list(again.trajectories(2))) == (1, [], [])
        assert keys_of(again.past_rollouts.recent("t", max_rollouts=9)) == [(1, 0)]


@pytest.mark.parametrize("table", ["past_rollouts", "trajectories"])
def test_an_index_that_disagrees_with_the_journal_is_refused(tmp_path: Path, table: str) -> None:
    made = journal(tmp_path, update(1, rollout(0), rollout(1)))
    path = tmp_path / "journal.sqlite"
    past = made.past_rollouts.recent("t", max_rollouts=1)[0]
    with sqlite3.connect(path) as database:
        database.execute(f"DELETE FROM {table} WHERE rollout = 0")
    message = (
        f"{path}: the index of past rollouts and the journal differ: only one of them has rollout 0 of task 't' in "
        "update 1. The file was changed, or another version wrote it; start a new run, or resume without replay"
    )
    with pytest.raises(FileError) as caught:
        made.past_rollouts.check({"t"})
    assert str(caught.value) == message
    if table == "trajectories":
        for ask in (made.past_rollouts.read, made.past_rollouts.credit_of):
            with pytest.raises(FileError) as caught:
                ask(past)
            assert str(caught.value) == message


def test_a_past_of_tasks_that_are_no_more_is_refused(tmp_path: Path) -> None:
    hinted = rollout(0, task="t~help", origin=Origin.REFLECTED)
    made = journal(tmp_path, update(1, rollout(0), hinted))
    made.past_rollouts.check({"t", "more"})
    with pytest.raises(FileError) as caught:
        made.past_rollouts.check({"more"})
    assert str(caught.value) == (
        f"{tmp_path / 'journal.sqlite'}: it has rollouts of task 't', which is not in the environment's train set. "
        "Use an environment that gives the same task ids in every run, or start a new run"
    )
