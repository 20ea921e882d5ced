"""Rescued groups as a reader sees them: by what, from when, and what it did to their credit, in numbers."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from groupwise import FileError, RecordError, methods
from groupwise.report.derived_credit import (
    DerivedCredit,
    ParentRollout,
    UnderivableCredit,
    derive_credit,
    explain_run_step,
    measure_without_rescue,
    read_replayed_rollouts,
)
from groupwise.report.groups import PlayedGroup, find_rollout, read_groups
from groupwise.report.number_format import NO_NUMBER
from groupwise.report.page import render_page
from groupwise.report.rescue import (
    Rescue,
    describe_hint,
    describe_origin,
    describe_replayed,
    describe_shaping,
    find_recent_rescues,
    has_rescues,
    rescue_of,
)
from groupwise.training.run_reader import RunFolder
from tests.unit.report.rescue_runs import FAILED, REPLAYED, write_buffer_run, write_rescue_run

CLOSE = 1e-12


@pytest.fixture(scope="module")
def rescue_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rescue_run(tmp_path_factory.mktemp("runs") / "rescued")


@pytest.fixture
def rescue_run(rescue_path: Path) -> Iterator[RunFolder]:
    with RunFolder(rescue_path) as folder:
        yield folder


@pytest.fixture
def groups(rescue_run: RunFolder) -> dict[str, PlayedGroup]:
    return {group.task: group for group in read_groups(rescue_run, 2)}


def rescue(group: PlayedGroup) -> Rescue:
    summary = rescue_of(group)
    assert summary is not None
    return summary


# credit, computed again


def test_credit_with_replayed_rollouts_is_the_journals_and_only_with_them(rescue_run: RunFolder) -> None:
    trajectories = list(rescue_run.journal.trajectories(2))
    replayed = read_replayed_rollouts(rescue_run.journal, 2)
    again = derive_credit(trajectories, methods.r3(alpha=2.0), replayed)
    assert isinstance(again, DerivedCredit)
    assert again.credit.values.tolist() == again.recorded
    assert again.credit.values[-1] == pytest.approx(REPLAYED, abs=CLOSE)
    assert isinstance(derive_credit(trajectories, methods.r3()), UnderivableCredit)
    # Without alpha, groups with replayed rollouts would be divided by half as much.
    assert isinstance(derive_credit(trajectories, methods.r3(alpha=1.0), replayed), UnderivableCredit)


def test_every_step_is_explained_to_the_bit_replayed_ones_included(
    rescue_run: RunFolder, groups: dict[str, PlayedGroup]
) -> None:
    for group in groups.values():
        for member in group.members:
            explanation = explain_run_step(rescue_run, number=2, task=group.task, rollout=member.rollout, step=0)
            assert explanation.recorded == explanation.explanation.value == member.steps[0].credit
            assert explanation.agrees
    explanation = explain_run_step(rescue_run, number=2, task="t", rollout=4, step=0)
    assert explanation.explanation.by_hand == pytest.approx(REPLAYED, abs=CLOSE)
    assert [member.rollout for member in explanation.explanation.members] == [0, 1, 2, 3, 4]


def test_sizes_without_rescue_are_those_of_the_rollouts_alone(rescue_run: RunFolder) -> None:
    sizes = measure_without_rescue(list(rescue_run.journal.trajectories(2)), methods.r3())
    apart = 0.5 / (0.5 + 1e-6)  # one failure, one success
    assert sizes == pytest.approx({"t": 0.0, "t~beef": apart, "u": 0.0, "v": apart, "w": 0.0, "w~cafe": apart})
    assert measure_without_rescue([], methods.r3()) is None
    assert measure_without_rescue(list(rescue_run.journal.trajectories(2)), None) is None


# groups


def test_a_group_that_replayed_holds_the_past_rollout_beside_its_own(groups: dict[str, PlayedGroup]) -> None:
    group = groups["t"]
    assert [rollout.rollout for rollout in group.rollouts] == [0, 1, 2, 3]
    assert group.outcomes == [0.0] * 4
    assert group.spread == 0.0
    assert [step.credit for step in group.steps] == pytest.approx([FAILED] * 4, abs=CLOSE)
    (past,) = group.joined
    assert past.rollout == 4
    assert past.source == ParentRollout(number=1, task="t", rollout=2, why="every rollout failed", log_ratio=0.125)
    assert (past.outcome, past.success, past.origin) == (1.0, 1.0, "replayed")
    assert past.steps[0].action == "say 2"
    assert past.steps[0].credit == pytest.approx(REPLAYED, abs=CLOSE)
    assert past.steps[0].company[0].members == 5
    assert find_rollout(group, 4, where="") is past
    with pytest.raises(RecordError, match="there is no rollout 5; there are 0, 1, 2, 3, 4"):
        find_rollout(group, 5, where="x")
    assert describe_origin(past) == "replayed from update 1, rollout 2: every rollout failed, log-ratio 0.125"


def test_replay_rescues_what_would_have_had_no_credit(groups: dict[str, PlayedGroup]) -> None:
    summary = rescue(groups["t"])
    assert summary.is_rescued
    assert summary.by == ["replay"]
    assert (summary.size_without, summary.size) == (0.0, pytest.approx(-FAILED, abs=CLOSE))
    assert describe_replayed(summary) == "1 from update 1"


def test_ranking_rescues_by_what_it_adds(groups: dict[str, PlayedGroup]) -> None:
    summary = rescue(groups["u"])
    assert [rollout.steps[0].added for rollout in groups["u"].rollouts] == [0.5, 0.25, 0.0, 0.0]
    assert groups["u"].outcomes == [0.0] * 4
    assert summary.is_rescued
    assert summary.by == ["shaping"]
    assert describe_shaping(summary) == "2 of 4"
    assert summary.size_without == 0.0
    assert summary.size > 0.5


def test_a_group_with_help_says_what_its_prompt_showed(groups: dict[str, PlayedGroup]) -> None:
    summary = rescue(groups["t~beef"])
    assert summary.hint == ParentRollout(number=1, task="t", rollout=0, why="shown in the prompt")
    assert summary.is_rescued
    assert summary.by == ["hint"]
    assert summary.size_without is None
    assert describe_hint(summary) == "shown rollout 0 of update 1"


def test_a_success_with_help_that_joined_does_not_count_as_the_tasks(groups: dict[str, PlayedGroup]) -> None:
    group = groups["w"]
    assert [rollout.rollout for rollout in group.rollouts] == [0, 1]
    assert group.outcomes == [0.0, 0.0]
    summary = rescue(group)
    assert summary.hinted_successes == (
        ParentRollout(number=2, task="w~cafe", rollout=1, why="solved with a hint, recorded without it"),
    )
    assert summary.is_rescued
    assert describe_hint(summary) == "1 success with a hint joined"
    assert describe_origin(group.joined[0]) == "solved with a hint, recorded without it: rollout 1 of w~cafe"


def test_a_group_for_which_nothing_was_done_was_not_rescued(
    rescue_run: RunFolder, groups: dict[str, PlayedGroup], run: RunFolder
) -> None:
    assert rescue_of(groups["v"]) is None
    assert [rescue_of(group) for group in read_groups(rescue_run, 1)] == [None, None]
    assert not has_rescues(run)
    assert has_rescues(rescue_run)


def test_the_newest_rescues_come_first(rescue_run: RunFolder) -> None:
    last = read_groups(rescue_run, 2)
    rescues = find_recent_rescues(rescue_run, last, max_rescues=9)
    assert [(number, one.task) for number, one in rescues] == [
        (2, name) for name in ("t", "t~beef", "u", "w", "w~cafe")
    ]
    assert find_recent_rescues(rescue_run, last, max_rescues=2) == rescues[:2]


# rollouts that keep their credit


def test_an_rollout_that_keeps_its_credit_is_compared_with_nobody(tmp_path: Path) -> None:
    with RunFolder(write_buffer_run(tmp_path / "run")) as run:
        groups = {group.task: group for group in read_groups(run, 2)}
        alone = groups["t"]
        assert alone.rollouts == ()
        assert (alone.outcomes, alone.spread, alone.credit_size) == ([], 0.0, 0.0)
        (past,) = alone.joined
        assert alone.best() is alone.worst() is past
        assert past.steps[0].credit == read_groups(run, 1)[0].rollouts[2].steps[0].credit
        assert past.steps[0].compared is False
        assert groups["v"].num_compared == 2
        assert explain_run_step(run, number=2, task="v", rollout=1, step=0).agrees
        with pytest.raises(RecordError) as caught:
            explain_run_step(run, number=2, task="t", rollout=0, step=0)
        assert str(caught.value) == (
            "task 't', rollout 0 has its advantages from update 1 and was not compared in update 2; "
            "use --update 1 --task t --rollout 2"
        )
        assert "Rescued groups" in render_page(run, method="grpo")


# the page


def test_the_page_has_a_section_on_rescued_groups_where_there_are_any(rescue_run: RunFolder, run: RunFolder) -> None:
    page = render_page(rescue_run, method="r3")
    section = page.partition('id="rescued"')[2].partition("</section>")[0]
    assert "Groups rescued by replay, reward shaping or hints" in section
    rows = section.partition("<tbody>")[2].split("</tr>")[:-1]
    assert len(rows) == 5
    assert "<code>t</code>" in rows[0]
    assert 'title="every rollout failed">1 from update 1<' in rows[0]
    assert "0.000 → <b>0.250</b>" in rows[0]
    assert "shown rollout 0 of update 1" in rows[1]
    assert f"{NO_NUMBER} → <b>1.000</b>" in rows[1]
    assert "update 2: by themselves 50.0\u202f%, rescued 50.0\u202f%, without 0.0\u202f%" in section
    for title in ("Zero-variance tasks", "Replayed rollouts", "Staleness of replayed rollouts", "Success with a hint"):
        assert f"<h3>{title}</h3>" in section
    assert "Log-ratio of replayed rollouts" not in section
    assert 'id="rescued"' not in render_page(run, method="hgpo")


def test_a_replayed_rollout_that_the_journal_lost_is_named(tmp_path: Path) -> None:
    folder = write_rescue_run(tmp_path / "run")
    database = sqlite3.connect(folder / "journal.sqlite")
    database.execute("DELETE FROM past_rollouts WHERE number = 1 AND task = 't' AND rollout = 2")
    database.commit()
    database.close()
    with (
        RunFolder(folder) as run,
        pytest.raises(FileError, match="only one of them has rollout 2 of task 't' in update 1"),
    ):
        read_groups(run, 2)
