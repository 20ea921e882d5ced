"""The audit of small tables: census, methods side by side, movers, findings, and files that come in parts."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from groupwise import Algorithm, ConfigError, StepTable, methods
from groupwise.report.audit import Audit, Mover, audit_tables
from tests.strategies import Row, columns_of, random_rows
from tests.unit.tables import single_steps, table, walks


def algorithms(*names: str) -> dict[str, Algorithm]:
    return {name: methods.build(name) for name in names}


def audit_methods(rows: StepTable, *names: str, **options: Any) -> Audit:
    return audit_tables([rows], algorithms(*(names or ("dr_grpo",))), **options)


MIXED = table(
    "task rollout step state reward valid",
    ("lone", 0, 0, "s", 1.0, True),
    ("equal", 0, 0, "s", 2.0, False),
    ("equal", 1, 0, None, 1.0, True),
    ("equal", 1, 1, "s", 1.0, False),
    ("mixed", 0, 0, "s", 1.0, True),
    ("mixed", 1, 0, "t", 0.0, True),
    ("mixed", 2, 0, None, 4.0, True),
)


def test_the_census_counts_tasks_rollouts_and_steps() -> None:
    census = audit_methods(MIXED).census
    assert (census.tasks, census.rollouts, census.steps) == (3, 6, 7)
    assert census.rollouts_per_task == {1: 1, 2: 1, 3: 1}
    # Returns 1; 2, 2; 1, 0, 4.
    assert census.mean_return == 10 / 6
    assert (census.lone_tasks, census.equal_tasks) == (1, 1)
    assert (census.steps_without_state, census.invalid_steps) == (2, 2)


def test_a_table_that_says_nothing_of_its_steps_is_not_said_to_have_no_invalid_ones() -> None:
    assert audit_methods(single_steps([1, 0])).census.invalid_steps is None


APART = table(
    "task rollout step reward well_formed accepted",
    ("q", 0, 0, 0.0, True, True),
    ("q", 0, 1, 1.0, True, False),
    ("q", 1, 0, 0.0, False, False),
    ("q", 1, 1, 0.0, False, True),
)


def test_malformed_and_refused_steps_are_counted_apart_and_none_twice() -> None:
    result = audit_methods(APART, depth=0)
    census = result.census
    assert (census.malformed_steps, census.refused_steps, census.invalid_steps) == (2, 1, 3)
    assert result.findings[:2] == [
        "50.0 % of the responses were malformed.",
        "25.0 % of the actions were rejected by the environment.",
    ]


def test_a_recording_that_says_one_of_the_two_is_counted_by_it() -> None:
    formed = table("task rollout step reward well_formed", ("q", 0, 0, 0.0, True), ("q", 1, 0, 0.0, False))
    census = audit_methods(formed).census
    assert (census.malformed_steps, census.refused_steps, census.invalid_steps) == (1, None, None)
    heard = table("task rollout step reward accepted", ("q", 0, 0, 0.0, True), ("q", 1, 0, 0.0, False))
    census = audit_methods(heard).census
    assert (census.malformed_steps, census.refused_steps, census.invalid_steps) == (None, 1, None)


def test_an_outcome_is_the_return_of_the_census() -> None:
    rows = table("task rollout step reward outcome", ("q", 0, 0, 5.0, 1.0), ("q", 1, 0, 7.0, 1.0))
    census = audit_methods(rows).census
    assert (census.mean_return, census.equal_tasks) == (1.0, 1)


# Step rewards by state: credit (step - mean of the state). Episode credit: return - mean.
# Rollout 0: s 4, x 0 (return 4); rollout 1: s 0, x 6 (return 6). Mean return 5: -1 and 1.
# By step reward and state: s 4, 0: +2, -2; x 0, 6: -3, +3.
OPPOSED = walks(["s", "x"], ["s", "x"], rewards=[[4, 0], [0, 6]])
EPISODE = methods.dr_grpo()
BY_STATE = Algorithm(
    advantage={"kind": "relative", "by": "by_state", "of": "step_reward", "scale": "no_scale", "average": "step"}
)


def test_methods_are_compared_step_by_step() -> None:
    first, second = audit_tables([OPPOSED], {"episode": EPISODE, "state": BY_STATE}).methods
    # Credit -1, -1, 1, 1 against 2, -3, -2, 3: two signs of four differ.
    assert (first.name, second.name) == ("episode", "state")
    assert (first.compared_steps, first.silent_steps) == (4, 0)
    assert (first.mean_size, first.largest) == (1.0, 1.0)
    assert (second.mean_size, second.largest) == (2.5, 3.0)
    assert first.flips == {"state": 2}
    assert second.flips == {"episode": 2}
    assert first.both_signed == {"state": 4}
    # Sum of products: -2 + 3 - 2 + 3 = 2; norms 2 and sqrt(4 + 9 + 4 + 9).
    assert first.correlation == {"state": pytest.approx(2 / (2 * np.sqrt(26)), rel=1e-12)}


def test_steps_of_exactly_0_are_silent_if_they_were_compared() -> None:
    rows = walks(["s", "x"], ["s", None], ["s", "y"], rewards=[[1, 5], [2, 5], [3, 5]])
    column = audit_tables([rows], {"state": BY_STATE}).methods[0]
    # s: -1, 0, 1; x and y are alone, and one step has no state.
    assert (column.compared_steps, column.silent_steps) == (3, 1)
    assert column.mean_size == 2 / 6


def test_a_step_counts_for_flips_only_if_both_methods_give_it_a_sign() -> None:
    rows = walks(["s"], ["s"], ["x"], rewards=[[1], [3], [5]])
    # Episode: -2, 0, 2. By state: -1, 1, 0.
    first, _ = audit_tables([rows], {"episode": EPISODE, "state": BY_STATE}).methods
    assert (first.flips, first.both_signed) == ({"state": 0}, {"state": 1})


def test_the_correlation_with_constant_credit_is_none() -> None:
    first, _ = audit_tables([single_steps([1, 0])], {"episode": EPISODE, "state": BY_STATE}).methods
    assert first.correlation == {"state": None}


def test_movers_are_the_steps_that_change_most_from_the_first_method_to_the_last() -> None:
    result = audit_tables([OPPOSED], {"episode": EPISODE, "grpo": methods.grpo(), "state": BY_STATE})
    # Changes 2 + 1 = 3; -3 + 1 = -2; -2 - 1 = -3; 3 - 1 = 2.
    where = {"task": "q", "action": ""}
    assert result.gains == [
        Mover(**where, rollout=0, step=0, state="s", before=-1.0, after=2.0),
        Mover(**where, rollout=1, step=1, state="x", before=1.0, after=3.0),
    ]
    assert result.losses == [
        Mover(**where, rollout=1, step=0, state="s", before=1.0, after=-2.0),
        Mover(**where, rollout=0, step=1, state="x", before=-1.0, after=-3.0),
    ]
    assert [mover.change for mover in result.gains] == [3, 2]


def test_movers_tell_the_state_and_the_action_in_words() -> None:
    rows = table(
        "task rollout step state action reward",
        ("q", 0, 0, ("room", 1), "go", 4.0),
        ("q", 1, 0, ("room", 1), None, 0.0),
        ("q", 1, 1, None, "look", 6.0),
    )
    result = audit_tables([rows], {"episode": EPISODE, "state": BY_STATE})
    words = {(mover.rollout, mover.step): (mover.state, mover.action) for mover in result.gains + result.losses}
    # Changes: 2 + 1; -2 - 1; 0 - 1.
    assert words == {(0, 0): ("('room', 1)", "go"), (1, 0): ("('room', 1)", ""), (1, 1): ("", "look")}


def test_at_most_five_movers_are_kept_each_way_largest_first() -> None:
    rows = walks(*[["s"]] * 16, rewards=[[float(i)] for i in range(16)])
    # dr_grpo gives i - 7.5; leave-one-out 16/15 of it: the change is (i - 7.5) / 15.
    result = audit_tables([rows], algorithms("dr_grpo", "rloo"))
    assert [mover.rollout for mover in result.gains] == [15, 14, 13, 12, 11]
    assert [mover.rollout for mover in result.losses] == [0, 1, 2, 3, 4]


def test_one_method_moves_nothing() -> None:
    result = audit_methods(OPPOSED)
    assert (result.gains, result.losses) == ([], [])


# Findings, sentence by sentence.


def test_findings_about_groups_states_and_the_last_method() -> None:
    assert audit_methods(MIXED, depth=0).findings == [
        "33.3 % of the tasks have a single rollout, so it cannot be compared. Sample at least two rollouts per task.",
        "33.3 % of the tasks have zero-variance groups: their GRPO advantages are exactly 0. "
        "Step-level advantages may still differ; if not, filter or replay these tasks.",
        "Group sizes differ: 1 to 3 rollouts.",
        "28.6 % of the steps were invalid (malformed or rejected by the environment).",
        "28.6 % of the steps have no state: GiGPO and HGPO cannot compare them.",
        "dr_grpo cannot compare 14.3 % of the steps; their advantage is 0.",
    ]


def test_findings_about_histories() -> None:
    # All start from z; m is reached over a with returns 0 and 1, over b with 3 and 4. Twelve steps share a state,
    # four of them with different histories; their baseline moves from 2 to 0.5 or 3.5, and 1 and 3 change sides.
    # Ten copies of the four rollouts make forty such steps, enough to speak about.
    rewards = [[0, 0, 0], [0, 0, 1], [0, 0, 3], [0, 0, 4]] * 10
    rows = walks(*["zam", "zam", "zbm", "zbm"] * 10, rewards=rewards)
    assert audit_methods(rows, depth=2, gamma=1).findings == [
        "33.3 % of the steps that share a state are in a state with several histories (depth 2).",
        "40 steps (33.3 % of those) can also be compared with 2 equal earlier states. For them the baseline moves "
        "by 1.5 on average (0.95 standard deviations), and 20 change sign.",
    ]


def test_a_level_that_compares_few_steps_is_not_spoken_of() -> None:
    rows = walks("zam", "zam", "zbm", "zbm", rewards=[[0, 0, 0], [0, 0, 1], [0, 0, 3], [0, 0, 4]])
    assert audit_methods(rows, depth=2, gamma=1).findings == []


def test_findings_about_thin_states() -> None:
    rows = walks(["a", "b", "c"], ["a", "d", "e"], ["f", "g", "h"], rewards=[[0, 0, 1], [0, 0, 0], [0, 0, 2]])
    # Two of nine steps share their state.
    assert audit_methods(rows, depth=0).findings == [
        "Only 22.2 % of the steps share their state, so few steps get a step-level advantage. Look for counters, "
        "times or ids in the state keys (`groupwise check rollouts`)."
    ]


def test_a_quarter_of_shared_states_is_not_thin() -> None:
    rows = walks(["a", "b", "c", "i"], ["a", "d", "e", "j"], rewards=[[0, 0, 0, 1], [0, 0, 0, 0]])
    assert audit_methods(rows, depth=0).findings == []


def test_findings_about_states_of_one_return() -> None:
    # s: returns 1, 1 (equal); t: 1, 0. Two of four compared steps: half is not more than half.
    half = walks(["s"], ["s"], ["t"], ["t"], rewards=[[1], [1], [1], [0]])
    assert audit_methods(half, depth=0).findings == []
    more = walks(["s"], ["s"], ["s"], ["t"], ["t"], rewards=[[1], [1], [1], [1], [0]])
    assert audit_methods(more, depth=0).findings == [
        "60.0 % of the steps that share a state also have equal returns: they have no learning signal."
    ]


def test_findings_about_methods_go_from_each_to_the_next() -> None:
    result = audit_tables([OPPOSED], {"episode": EPISODE, "state": BY_STATE, "again": EPISODE}, depth=0)
    assert result.findings == [
        "From episode to state, 50.0 % of the nonzero advantages change sign.",
        "From state to again, 50.0 % of the nonzero advantages change sign.",
    ]


def test_credit_where_nobody_earned_anything_is_told() -> None:
    rows = table(
        "task rollout step state reward well_formed",
        ("lost", 0, 0, "s", 0.0, True),
        ("lost", 1, 0, "s", 0.0, False),
        ("won", 0, 0, "s", 1.0, True),
        ("won", 1, 0, "s", 0.0, True),
    )
    # Each group has one better and one worse step, one deviation from the mean; in the first it is the penalty's doing.
    penalised, plain = audit_tables(
        [rows], {"with": methods.hgpo(), "without": methods.hgpo(invalid_penalty=0.0)}
    ).methods
    assert penalised.unrewarded_share == pytest.approx(0.5, rel=1e-4)
    assert plain.unrewarded_share == 0.0
    (sentence,) = [finding for finding in audit_methods(rows, "hgpo").findings if "without any reward" in finding]
    assert sentence.startswith("50.0 % of the absolute advantages of hgpo are in tasks without any reward")
    scored = table("task rollout step reward outcome", ("q", 0, 0, 0.0, 1.0), ("q", 1, 0, 0.0, 0.0))
    assert audit_methods(scored).methods[0].unrewarded_share == 0.0  # an outcome is something earned


# Files that come in parts.


def split_by_task(rows: list[Row], num_parts: int) -> list[StepTable]:
    tasks = sorted({str(row["task"]) for row in rows})
    shares = [set(tasks[part::num_parts]) for part in range(num_parts)]
    parts = [[row for row in rows if str(row["task"]) in share] for share in shares]
    return [StepTable.from_columns(**columns_of(part)) for part in parts if part]


@pytest.mark.parametrize("seed", range(6))
def test_the_audit_of_the_parts_is_the_audit_of_the_whole(seed: int) -> None:
    rng = random.Random(f"parts {seed}")
    rows: list[Row] = []
    while len({row["task"] for row in rows}) < 6:
        drawn = random_rows(rng, regimes=("gaussian",))
        number = len({row["task"] for row in rows})
        names = {name: f"t{number + i}" for i, name in enumerate(sorted({str(row["task"]) for row in drawn}))}
        rows += [
            {key: row[key] for key in ("rollout", "step", "state", "action")}
            | {"task": names[str(row["task"])], "rollout": str(row["rollout"]), "reward": rng.gauss(0, 1)}
            for row in drawn
        ]
    compared = algorithms("dr_grpo", "gigpo", "hgpo")
    whole, parts = (audit_tables(split_by_task(rows, num), compared).as_json() for num in (1, 3))
    for movers in ("gains", "losses"):
        # Steps that move by the same amount are equally good examples.
        changes, expected = (
            [mover["after"] - mover["before"] for mover in data.pop(movers)] for data in (parts, whole)
        )
        assert changes == pytest.approx(expected, rel=1e-12)
    _assert_near(parts, whole)


def _assert_near(actual: object, expected: object) -> None:
    """Equal, up to the order in which floats were added up."""
    if isinstance(expected, dict):
        assert isinstance(actual, dict)
        assert list(actual) == list(expected)
        for name in expected:
            _assert_near(actual[name], expected[name])
    elif isinstance(expected, list):
        assert isinstance(actual, list)
        assert len(actual) == len(expected)
        for first, second in zip(actual, expected, strict=True):
            _assert_near(first, second)
    elif isinstance(expected, float):
        assert actual == pytest.approx(expected, rel=1e-9, abs=1e-12)
    else:
        assert actual == expected


@pytest.mark.parametrize("name", ["reinforce_pp", "reinforce_pp_baseline", "dgpo", "a_grae"])
def test_a_method_that_compares_across_tasks_needs_the_file_in_one_part(name: str) -> None:
    parts = [single_steps([1, 0]), single_steps([1, 0])]
    assert audit_tables(parts[:1], algorithms("grpo", name)).census.tasks == 1
    with pytest.raises(ConfigError) as caught:
        audit_tables(parts, algorithms("grpo", name))
    assert str(caught.value) == (
        f"method {name!r} compares across tasks and needs the whole file in memory, which is too large for that; "
        "leave it out, or audit a smaller file"
    )


def test_an_empty_part_adds_nothing() -> None:
    empty = StepTable.from_columns(
        **{name: np.zeros(0, dtype=np.int64) for name in ("task", "rollout", "step", "state", "reward")}
    )
    compared = algorithms("dr_grpo", "rloo")
    assert audit_tables([OPPOSED, empty], compared) == audit_tables([OPPOSED], compared)


def test_one_part_is_held_at_a_time() -> None:
    log: list[str] = []

    def parts() -> Any:
        for number in range(3):
            log.append(f"read {number}")
            yield single_steps([number, 0])

    audit_tables(parts(), {"grpo": methods.grpo()})
    assert log == ["read 0", "read 1", "read 2"]


def test_an_audit_is_plain_data() -> None:
    result = audit_methods(OPPOSED, "dr_grpo", "rloo")
    assert json.loads(json.dumps(result.as_json()))["census"]["rollouts_per_task"] == {"2": 1}
    assert list(result.as_json()) == ["census", "levels", "methods", "gains", "losses", "findings"]
