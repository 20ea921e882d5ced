"""Explanations: the arithmetic again, from the members, in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from groupwise import Credit, Part, RecordError, StepTable, methods
from groupwise.credit import ByState, NoScale, Relative, ReturnToGo
from groupwise.data.credit import Comparison
from groupwise.methods.salt import ByEdge, Merged
from groupwise.report.explain import Explanation, GroupMember, explain_step, find_step
from tests.unit.tables import single_steps, table, walks

# State s is met three times, with returns (gamma 1) 3, 2 and 4; rollout 0 meets it twice.
ROWS = walks(["s", "s"], ["s", "x"], rewards=[[1, 2], [0, 4]])


def explain_method(rows: StepTable, name: str, rollout: int, index: int, **options: object) -> Explanation:
    credit = methods.build(name, **options).advantage(rows)
    return explain_step(rows, credit, task=rows.task_ids[0], rollout=rollout, step=index)


def member(rollout: int, index: int | None, value: float, *, is_self: bool = False, num_steps: int = 1) -> GroupMember:
    return GroupMember(task="q", rollout=rollout, step=index, value=value, is_self=is_self, num_steps=num_steps)


def test_a_comparison_shows_its_members_and_its_arithmetic() -> None:
    # Returns 3 and 4 by rollout: mean 3.5.
    explanation = explain_method(ROWS, "dr_grpo", 0, 1)
    assert explanation == Explanation(
        what="EpisodeReturn compared ByTask, Mean / NoScale",
        value=-0.5,
        by_hand=-0.5,
        compared=True,
        formula="(3 - 3.5) / 1 = -0.5",
        members=(member(0, None, 3, is_self=True, num_steps=2), member(1, None, 4, num_steps=2)),
        inner=((1.0, Explanation(what="EpisodeReturn", value=3.0, by_hand=3.0, compared=True, formula="3")),),
        own_rollout_only=False,
    )
    assert explanation.largest_gap() == 0


def test_rollouts_that_count_once_are_listed_with_the_mean_of_their_steps() -> None:
    """At state s, rollout 0 has returns 3 and 2, rollout 1 has 4: means 2.5 and 4, their mean 3.25, and 2 - 3.25."""
    part = Relative(by=ByState(), of=ReturnToGo(gamma=1.0), scale=NoScale(), average="rollout")
    explanation = explain_step(ROWS, part(ROWS), task="q", rollout=0, step=1)
    assert explanation.members == (member(0, None, 2.5, is_self=True, num_steps=2), member(1, 0, 4))
    assert (explanation.formula, explanation.value, explanation.by_hand) == ("(2 - 3.25) / 1 = -1.25", -1.25, -1.25)
    assert explanation.value == 2 - sum(member.value for member in explanation.members) / len(explanation.members)
    by_step = part.model_copy(update={"average": "step"})
    explanation = explain_step(ROWS, by_step(ROWS), task="q", rollout=0, step=1)
    assert explanation.members == (member(0, 0, 3), member(0, 1, 2, is_self=True), member(1, 0, 4))


def test_credit_shared_by_rollouts_lists_rollouts() -> None:
    """Rollout 0 goes twice with credit 1 and 1, rollout 1 once with -1: the mean over rollouts is 0, over steps 1/3."""
    rows = table(
        "task rollout step state action reward",
        ("q", 0, 0, "s", "go", 1.0),
        ("q", 0, 1, "s", "go", 1.0),
        ("q", 1, 0, "s", "go", 0.0),
    )
    part = Merged(of=methods.dr_grpo().advantage, by=ByEdge(history=0, next_state=False))
    explanation = explain_step(rows, part(rows), task="q", rollout=1, step=0)
    assert explanation.formula == "mean of 2 rollouts = 0"
    assert explanation.members == (member(0, None, 1.0, num_steps=2), member(1, 0, -1.0, is_self=True))


def test_made_up_members_are_listed_too() -> None:
    """NGRPO adds a rollout of return 1 to each group: 0, 0 and 1 have the mean 1/3."""
    explanation = explain_method(single_steps([0.0, 0.0]), "ngrpo", 0, 0, best=1.0)
    made_up = GroupMember(
        task=explanation.members[0].task, rollout=None, step=None, value=1.0, is_self=False, num_steps=0
    )
    assert [member.value for member in explanation.members] == [0, 0, 1]
    assert explanation.members[-1] == made_up
    assert explanation.formula.startswith("(0 - 0.333333333) / ")


def test_a_blend_shows_its_levels_with_their_weights() -> None:
    explanation = explain_method(ROWS, "hgpo", 0, 1, depth=1, scale="none", gamma=1.0)
    # Level 0: returns 3, 2, 4, mean 3; level 1: only this step has the history (s, s).
    assert explanation.what == "Blend"
    assert explanation.formula == "1 x -1 + 0 x 0 = -1"
    assert [weight for weight, _ in explanation.inner] == [1, 0]
    shallow, deep = (inner for _, inner in explanation.inner)
    assert shallow.what == (
        "Penalised(of=ReturnToGo(gamma=1.0), penalty=0.1) compared ByHistory(depth=0), Mean / NoScale"
    )
    assert shallow.members == (member(0, 0, 3), member(0, 1, 2, is_self=True), member(1, 0, 4))
    assert (deep.compared, deep.formula, deep.members) == (False, "the only member of its group: 0", ())


def test_a_group_of_a_single_rollout_says_so() -> None:
    """State b is met twice, by rollout 0 alone; state a by both."""
    rows = walks("abb", "acd", rewards=[[0, 0, 1], [0, 0, 0]])
    explanation = explain_method(rows, "hgpo", 0, 1)
    assert (explanation.compared, explanation.own_rollout_only) == (True, True)
    assert [inner.own_rollout_only for _, inner in explanation.inner] == [True, False, False]
    assert explain_method(rows, "hgpo", 0, 0).own_rollout_only is False
    gigpo = explain_method(rows, "gigpo", 0, 1)
    assert gigpo.own_rollout_only is False
    assert [inner.own_rollout_only for _, inner in gigpo.inner] == [False, True]


def test_a_step_in_no_group_says_so() -> None:
    rows = walks([None], ["s"])
    explanation = explain_method(rows, "step_grpo", 0, 0)
    assert (explanation.value, explanation.by_hand, explanation.compared, explanation.formula) == (
        0,
        0,
        False,
        "in no group: 0",
    )


def test_a_lone_step_shows_what_it_was_given() -> None:
    explanation = explain_method(single_steps([5]), "grpo", 0, 0, alone="raw")
    assert (explanation.value, explanation.formula) == (5, "the only member of its group: 5")
    assert explanation.by_hand == explanation.inner[0][1].by_hand == 5


def test_equal_members_are_explained_as_0() -> None:
    explanation = explain_method(single_steps([0.1] * 3), "grpo", 1, 0)
    assert (explanation.value, explanation.by_hand, explanation.compared) == (0, 0, True)


def test_shared_credit_shows_who_shared_it() -> None:
    rows = table(
        "task rollout step state action reward",
        ("q", 0, 0, "s", "go", 1.0),
        ("q", 1, 0, "s", "go", 0.0),
        ("q", 2, 0, "s", "stay", 5.0),
    )
    # RLOO: 1 - 2.5 and 0 - 3, mean -2.25.
    explanation = explain_method(rows, "salt", 0, 0, base="rloo")
    assert (explanation.what, explanation.formula) == ("Merged", "mean of 2 rollouts = -2.25")
    assert explanation.members == (member(0, 0, -1.5, is_self=True), member(1, 0, -3.0))
    assert explanation.inner[0][1].formula == "(1 - 2.5) / 1 = -1.5"
    alone = explain_method(rows, "salt", 2, 0, base="rloo")
    assert (alone.formula, alone.members) == ("shared with no other rollout: its own advantage", ())
    by_step = explain_method(rows, "salt", 0, 0, base="rloo", count="step")
    assert by_step.formula == "mean of 2 steps = -2.25"


def test_whitened_credit_shows_the_credit_that_was_whitened() -> None:
    # Returns 1, 3, 5: mean 3, deviation 2; eps 5 makes the root of 4 + 5.
    explanation = explain_method(single_steps([1, 3, 5]), "reinforce_pp", 0, 0, eps=5)
    assert explanation.what == "Whitened"
    assert explanation.formula == "(1 - 3) / 3 = -0.666667"
    assert explanation.inner[0][0] == 1.0
    assert explanation.inner[0][1].formula == "(1 - 0) / 1 = 1"


def test_weighted_credit_shows_its_weight() -> None:
    # p = w = 1/2: factor 1/4 / sqrt(1/2) twice = 0.7071, halved for praise.
    explanation = explain_method(single_steps([1, 0]), "a_grae", 0, 0)
    assert explanation.what == "Asymmetric"
    assert explanation.inner[0][0] == pytest.approx(0.5**0.5 / 2)
    assert explanation.formula == "0.353553 x 0.707106 = 0.25"


def test_the_released_blend_leaves_zero_terms_without_weight() -> None:
    # Returns 1, 2, 3 by state: the middle one is exactly average.
    rows = walks(["s"], ["s"], ["s"], rewards=[[1], [2], [3]])
    assert [weight for weight, _ in explain_method(rows, "hgpo", 1, 0, reference=True).inner] == [0, 0, 0]
    assert [weight for weight, _ in explain_method(rows, "hgpo", 1, 0).inner] == [1, 0, 0]


class Fixed(Part, slot="estimator"):
    """An estimator from elsewhere: half the reward, compared with 1."""

    def __call__(self, table: StepTable) -> Credit:
        trace = Comparison(
            values=(table.reward - 1) / 2,
            compared=np.ones(len(table), dtype=np.bool_),
            signal=table.reward,
            label=np.zeros(len(table), dtype=np.int64),
            baseline=np.ones(len(table)),
            scale=np.full(len(table), 2.0),
            part=self,
        )
        return Credit.of(table, trace)


def test_an_estimator_that_is_not_known_is_explained_by_what_it_left_in_its_trace() -> None:
    explanation = explain_step(ROWS, Fixed()(ROWS), task="q", rollout=1, step=1)
    assert (explanation.what, explanation.formula, explanation.largest_gap()) == ("Fixed", "(4 - 1) / 2 = 1.5", 0)
    assert len(explanation.members) == 4


def test_what_an_unknown_estimator_gives_a_lone_step_is_not_derived() -> None:
    class Lonely(Fixed):
        def __call__(self, table: StepTable) -> Credit:
            trace = super().__call__(table).trace
            assert isinstance(trace, Comparison)
            return Credit.of(table, replace(trace, compared=np.zeros(len(table), dtype=np.bool_)))

    explanation = explain_step(ROWS, Lonely()(ROWS), task="q", rollout=1, step=1)
    assert (explanation.value, explanation.by_hand, explanation.compared) == (1.5, None, False)
    assert explanation.not_derived == "the number that Lonely gives a step without a comparison"


def test_the_largest_gap_is_found_anywhere_below() -> None:
    def leaf(value: float, by_hand: float) -> Explanation:
        return Explanation(what="", value=value, by_hand=by_hand, compared=True, formula="")

    whole = Explanation(
        what="",
        value=1.0,
        by_hand=1.0,
        compared=True,
        formula="",
        inner=((1.0, leaf(100.0, 99.0)), (1.0, leaf(0.5, 0.25))),
    )
    # Relative to the value, or to 1 for small ones.
    assert leaf(100.0, 99.0).largest_gap() == 0.01
    assert leaf(0.5, 0.25).largest_gap() == 0.25
    assert whole.largest_gap() == 0.25


def test_ids_may_be_given_as_text() -> None:
    rows = table("task rollout step reward", (7, 3, 0, 1.0), (7, 4, 2, 1.0), (8, 4, 2, 1.0))
    assert find_step(rows, task="7", rollout="4", step=2) == 1
    assert find_step(rows, task=8, rollout=4, step=2) == 2


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"task": "p"}, "there is no task 'p'; Valid: q"),
        ({"rollout": "00"}, "there is no rollout '00'; did you mean '0'? Valid: 0, 1"),
        ({"rollout": 7}, "there is no rollout 7; Valid: 0, 1"),
        ({"step": 5}, "task 'q', rollout 0 has no step 5; its steps are 0 to 1"),
    ],
)
def test_a_step_that_is_not_there_is_refused(where: dict[str, object], message: str) -> None:
    with pytest.raises(RecordError) as caught:
        find_step(ROWS, **({"task": "q", "rollout": 0, "step": 0} | where))  # type: ignore[arg-type]
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("rewards", "method", "options"),
    [
        ([1e9, 1e9 + 1 / 3], "grpo", {}),
        ([123.456] * 6, "grpo", {}),
        ([0.0, 4e-7], "mars", {}),
        ([0.0, 4e-7], "mars", {"scale": "std"}),
        ([1e100] * 3, "reinforce_pp", {}),
        ([0.1, 0.2, 0.3], "hgpo", {"reference": True}),
    ],
)
def test_awkward_numbers_agree_too(rewards: list[float], method: str, options: dict[str, Any]) -> None:
    num = len(rewards)
    rows = StepTable.from_columns(
        task=["q"] * num, rollout=list(range(num)), step=[0] * num, state=["s"] * num, reward=rewards
    )
    for rollout in range(num):
        assert explain_method(rows, method, rollout, 0, **options).largest_gap() <= 1e-12
