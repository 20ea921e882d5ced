"""HDPO worked by hand: who is right, what tool calls cost among those, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise import ConfigError, RecordError, StepTable, methods
from groupwise.credit import AmongSolved
from groupwise.methods.hdpo import ToolEconomy
from groupwise.training.config.run_file import load_run


def rollouts(calls: list[int], right: list[bool], **columns: list[Any]) -> StepTable:
    """Rollouts at one task that make so many calls and then answer."""
    steps = [(number, index) for number, num in enumerate(calls) for index in range(num + 1)]
    return StepTable.from_columns(
        task=["q"] * len(steps),
        rollout=[number for number, _ in steps],
        step=[index for _, index in steps],
        reward=[float(right[number] and index == calls[number]) for number, index in steps],
        **{name: [column[number] for number, _ in steps] for name, column in columns.items()},
    )


def by_rollout(table: StepTable, values: np.ndarray) -> list[float]:
    return [float(values[place]) for place in table.rollouts.first]


def test_the_numbers_of_the_specification() -> None:
    """T = 0, 1, 3, 2, the last one wrong: r_tool = 1, 1/2, 1/4, -; the right but costly one stays above 0."""
    table = rollouts([0, 1, 3, 2], [True, True, True, False])
    algorithm = methods.hdpo(calls=None)
    accuracy = by_rollout(table, algorithm.credit(table).values)
    economy = by_rollout(table, algorithm.channel_credit(table)["economy"].values)
    assert accuracy == pytest.approx([0.5, 0.5, 0.5, -1.5], abs=1e-5)
    assert economy == pytest.approx([1.0911, -0.2182, -0.8729, 0.0], abs=1e-4)
    assert accuracy[2] + 0.15 * economy[2] == pytest.approx(0.3691, abs=1e-4)


@pytest.mark.parametrize(
    ("calls", "right"), [([1, 1, 1], [True] * 3), ([0, 4, 2], [True, False, False]), ([0, 4], [False, False])]
)
def test_equal_calls_a_lone_right_rollout_and_wrong_ones_say_nothing(calls: list[int], right: list[bool]) -> None:
    table = rollouts(calls, right)
    assert not np.any(methods.hdpo(calls=None).channel_credit(table)["economy"].values)


def test_right_goes_by_accuracy_then_by_what_was_earned_before_shaping() -> None:
    grouper = AmongSolved()
    table = rollouts([0, 0, 0], [True, True, False], accuracy=[0.9, 0.1, 0.9])
    assert grouper(table).tolist() == [0, -1, 0]
    shaped = rollouts([0, 0, 0], [True, True, False], reward_alone=[np.nan, 0.2, 1.0])
    assert grouper(shaped).tolist() == [0, -1, 0]


def test_calls_are_numbers_or_lists_of_calls() -> None:
    table = rollouts([1, 0, 0], [True] * 3, tool_calls=[1, ["search", "look"], None])
    assert ToolEconomy(calls="tool_calls")(table).tolist() == [1 / 3, 1 / 3, 1 / 3, 1.0]  # once in each of two steps
    assert ToolEconomy(calls=None)(table).tolist() == [0.5, 0.5, 1.0, 1.0]


@pytest.mark.parametrize("entry", [-1, "two", float("inf")])
def test_what_is_no_number_of_calls_is_refused(entry: object) -> None:
    table = rollouts([0, 0], [True, True], tool_calls=[1, entry])
    with pytest.raises(RecordError) as caught:
        ToolEconomy(calls="tool_calls")(table)
    assert str(caught.value) == (
        f"task 'q', rollout 1, step 0: the column 'tool_calls' holds {entry!r}, which is no number of tool calls; "
        "give a number from 0 on, a list of the calls, or None"
    )


RUN = Path(__file__).parents[3] / "examples" / "methods" / "hdpo.toml"


def test_leaving_out_the_tasks_that_everybody_solved_is_refused() -> None:
    pytest.importorskip("torch")
    from groupwise.training.config.checks import check_algorithm

    check_algorithm(load_run(RUN))
    check_algorithm(load_run(RUN, overrides=["algorithm.tool_weight=0", "algorithm.filters=[{kind='zero_spread'}]"]))
    with pytest.raises(ConfigError) as caught:
        check_algorithm(load_run(RUN, overrides=["rollout.plan=top_up"]))
    assert str(caught.value) == (
        "rollout.plan: TopUp drops the tasks that every rollout solved, but AmongSolved learns from them; leave out "
        "one of the two"
    )
