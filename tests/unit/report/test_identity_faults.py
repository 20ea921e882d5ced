"""Faults of identity: for each check one small file that it alone finds, and a clean one that nothing is wrong with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from groupwise.report.identity_faults import CHECKS, FaultTally, IdentityFault
from groupwise.store import RolloutsFile

HEADER = {"format": "groupwise.rollouts", "version": 2, "meta": {}}


def step(rollout: int, index: int, state: Any = "s", reward: float = 0.0, **more: Any) -> dict[str, Any]:
    return {"task": "t", "rollout": rollout, "step": index, "state": state, "reward": reward} | more


def check_rows(folder: Path, *rows: dict[str, Any]) -> FaultTally:
    path = folder / "rollouts.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (HEADER, *rows)), encoding="utf-8")
    tally = FaultTally()
    for chunk in RolloutsFile.open(path).chunks():
        tally.add(chunk)
    return tally


def make_counting_rollout(rollout: int, text: str) -> list[dict[str, Any]]:
    """A rollout of six steps whose states count up through the rollouts, so that none is met twice."""
    return [step(rollout, i, "start" if i == 0 else text.format(10 * rollout + i), action=f"a{i}") for i in range(6)]


CLEAN = [step(0, 0, "a"), step(0, 1, "b", 1.0), step(1, 0, "a"), step(1, 1, "c")]

# Lines count from 1, and the header is line 1: the first row stands in line 2.
FAULTY: list[tuple[str, list[dict[str, Any]], IdentityFault]] = [
    (
        "duplicated-row",
        [*CLEAN, step(1, 1, "c")],
        IdentityFault(kind="duplicated-row", lines=(5, 6), found="group 't', rollout 1, step 1 twice"),
    ),
    (
        "two-first-observations",
        [step(0, 0, "a"), step(1, 0, "b", 1.0)],
        IdentityFault(kind="two-first-observations", lines=(2, 3), found="group 't' starts from 2 observations"),
    ),
    (
        "two-outcomes",
        [step(0, 0, outcome=1.0), step(0, 1, outcome=0.0, reward=1.0), step(1, 0, outcome=1.0)],
        IdentityFault(kind="two-outcomes", lines=(2, 3), found="group 't', rollout 0 has outcomes [0.0, 1.0]"),
    ),
    (
        "row-after-the-end",
        [step(0, 0, stop="terminated"), step(0, 1), step(1, 0, stop="truncated")],
        IdentityFault(kind="row-after-the-end", lines=(2,), found="group 't', rollout 0 continues after 'terminated'"),
    ),
    (
        "outcome-not-in-rewards",
        [step(0, 0, outcome=1.0), step(1, 0, outcome=0.0)],
        IdentityFault(kind="outcome-not-in-rewards", lines=(2,), found="group 't' has outcomes and no rewards"),
    ),
    (
        "gap-in-steps",
        [step(0, 0), step(0, 3), step(1, 0)],
        IdentityFault(kind="gap-in-steps", lines=(2,), found="group 't', rollout 0 has no step 1 but has 3"),
    ),
    (
        "copied-rollout",
        [step(0, 0, "a"), step(0, 1, "b"), step(1, 0, "a"), step(1, 1, "b"), step(2, 0, "a"), step(2, 1, "c")],
        IdentityFault(kind="copied-rollout", lines=(4,), found="group 't': rollout 1 repeats rollout 0 in all 2 rows"),
    ),
    (
        "counter-in-state",
        make_counting_rollout(0, "door 3, step {}") + make_counting_rollout(1, "door 3, step {}"),
        IdentityFault(
            kind="counter-in-state",
            lines=(3,),
            found="group 't': 0 of 10 states meet, 10 would without numbers",
        ),
    ),
    (
        "no-state",
        [step(0, 0, None, 1.0), step(1, 0, None)],
        IdentityFault(kind="no-state", lines=(2,), found="group 't' has no state on any of 2 rows"),
    ),
    (
        "lone-rollout",
        [step(0, 0), step(0, 1)],
        IdentityFault(kind="lone-rollout", lines=(2,), found="group 't' has one rollout"),
    ),
    (
        "several-versions",
        [step(0, 0, version=3), step(1, 0, version=4, reward=1.0)],
        IdentityFault(kind="several-versions", lines=(2, 3), found="group 't' mixes versions [3, 4]"),
    ),
]


def test_a_clean_file_has_no_faults(tmp_path: Path) -> None:
    tally = check_rows(tmp_path, *CLEAN)
    assert +tally.counts == {}
    assert not tally.has_errors


@pytest.mark.parametrize(("kind", "rows", "fault"), FAULTY)
def test_a_fault_is_found_by_its_check_alone_and_names_its_lines(
    kind: str, rows: list[dict[str, Any]], fault: IdentityFault, tmp_path: Path
) -> None:
    tally = check_rows(tmp_path, *rows)
    assert dict(+tally.counts) == {kind: 1}
    assert tally.examples[kind] == [fault]


def test_every_check_has_a_file_that_it_finds() -> None:
    assert [check.kind for check in CHECKS] == [
        "duplicated-row",
        "two-first-observations",
        "two-outcomes",
        "row-after-the-end",
        "gap-in-steps",
        "outcome-not-in-rewards",
        "copied-rollout",
        "counter-in-state",
        "no-state",
        "lone-rollout",
        "several-versions",
    ]
    assert {kind for kind, _, _ in FAULTY} == {check.kind for check in CHECKS}


@pytest.mark.parametrize(("kind", "rows", "fault"), FAULTY)
def test_four_faults_break_credit_and_the_others_warn(
    kind: str, rows: list[dict[str, Any]], fault: IdentityFault, tmp_path: Path
) -> None:
    breaks = kind in ("duplicated-row", "two-first-observations", "two-outcomes", "row-after-the-end")
    assert check_rows(tmp_path, *rows).has_errors == breaks


def test_every_check_says_why_it_matters() -> None:
    assert all(check.meaning.endswith(".") and len(check.meaning) > 40 for check in CHECKS)


def test_rows_that_differ_by_segment_are_no_duplicates(tmp_path: Path) -> None:
    rows = [step(0, 0, "a", segment=0), step(0, 0, "a", segment=1), step(1, 0, "a", 1.0, segment=0)]
    assert +check_rows(tmp_path, *rows).counts == {}


def test_three_copies_are_two_faults_and_five_are_shown_of_many(tmp_path: Path) -> None:
    assert check_rows(tmp_path, *CLEAN, step(1, 1, "c"), step(1, 1, "c")).counts["duplicated-row"] == 2
    tally = check_rows(tmp_path, *CLEAN, *[step(1, 1, "c")] * 9)
    assert tally.counts["duplicated-row"] == 9
    assert [fault.lines for fault in tally.examples["duplicated-row"]] == [(5, 6), (6, 7), (7, 8), (8, 9), (9, 10)]


def test_the_observation_tells_starts_apart_where_it_was_recorded(tmp_path: Path) -> None:
    same_state = [step(0, 0, observation="a lamp"), step(1, 0, reward=1.0, observation="a desk")]
    assert dict(+check_rows(tmp_path, *same_state).counts) == {"two-first-observations": 1}
    same_text = [step(0, 0, "x", observation="a lamp"), step(1, 0, "y", observation="a lamp")]
    assert +check_rows(tmp_path, *same_text).counts == {}


def test_rollouts_that_were_recorded_from_the_middle_do_not_speak_of_starts(tmp_path: Path) -> None:
    rows = [step(0, 0, "a"), step(0, 1, "b"), step(1, 1, "b")]
    assert dict(+check_rows(tmp_path, *rows).counts) == {"gap-in-steps": 1}


def test_groups_are_checked_apart(tmp_path: Path) -> None:
    rows = [row | {"task": "u"} for row in CLEAN]
    assert +check_rows(tmp_path, *CLEAN, *rows).counts == {}


def test_a_file_of_groups_is_checked_by_group(tmp_path: Path) -> None:
    rows = [row | {"group": f"g{row['rollout']}"} for row in CLEAN]
    tally = check_rows(tmp_path, *rows)
    assert dict(+tally.counts) == {"lone-rollout": 2}
    assert [fault.found for fault in tally.examples["lone-rollout"]] == [
        "group 'g0' has one rollout",
        "group 'g1' has one rollout",
    ]


def test_an_rollout_of_one_step_is_no_copy(tmp_path: Path) -> None:
    assert +check_rows(tmp_path, step(0, 0, "a"), step(1, 0, "a")).counts == {}


def test_equal_rollouts_with_different_rewards_are_no_copies(tmp_path: Path) -> None:
    rows = [step(0, 0, "a"), step(0, 1, "b", 1.0), step(1, 0, "a"), step(1, 1, "b", 0.0)]
    assert +check_rows(tmp_path, *rows).counts == {}


def test_a_stop_on_the_last_row_is_where_it_belongs(tmp_path: Path) -> None:
    rows = [step(0, 0), step(0, 1, stop="terminated"), step(1, 0, stop="truncated")]
    assert +check_rows(tmp_path, *rows).counts == {}


def test_states_that_look_like_times_are_called_so(tmp_path: Path) -> None:
    tally = check_rows(
        tmp_path, *make_counting_rollout(0, "at 12:00:{:02d}"), *make_counting_rollout(1, "at 12:00:{:02d}")
    )
    assert tally.examples["counter-in-state"][0].found == (
        "group 't': 0 of 10 states meet, 10 would without numbers (they look like times)"
    )


def test_numbered_states_that_meet_are_no_counters(tmp_path: Path) -> None:
    rows = [step(a, i, f"room {i}", action=f"a{a}") for a in range(2) for i in range(6)]
    assert +check_rows(tmp_path, *rows).counts == {}


def test_a_short_group_is_not_suspected_of_counters(tmp_path: Path) -> None:
    # Seven later steps are too few to tell.
    rows = make_counting_rollout(0, "step {}")[:5] + make_counting_rollout(1, "step {}")[:4]
    assert +check_rows(tmp_path, *rows).counts == {}


def test_a_group_with_some_states_is_not_called_stateless(tmp_path: Path) -> None:
    rows = [step(0, 0, "a"), step(0, 1, None), step(1, 0, "a", 1.0)]
    assert +check_rows(tmp_path, *rows).counts == {}


def test_one_version_and_unknown_versions_do_not_mix(tmp_path: Path) -> None:
    rows = [step(0, 0, version=3), step(1, 0, reward=1.0)]
    assert +check_rows(tmp_path, *rows).counts == {}
