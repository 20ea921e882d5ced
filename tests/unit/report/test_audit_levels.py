"""The hierarchy of groups, counted again by plain loops with exact fractions."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Hashable
from fractions import Fraction
from typing import Any

import pytest

from groupwise import StepTable, methods
from groupwise.report.audit import HistoryLevel, audit_tables
from tests.strategies import Row, columns_of, random_rows
from tests.unit.tables import walks

GAMMA = 0.5
DEPTH = 3
GRPO = {"grpo": methods.grpo()}
EXACT = ("terminal", "integers", "gaussian")

Id = tuple[Any, Any, int]


def identity(row: Row) -> Id:
    return row["task"], row["rollout"], int(str(row["step"]))


def returns_to_go(rows: list[Row]) -> dict[Id, Fraction]:
    returns: dict[Id, Fraction] = {}
    later: dict[tuple[Any, Any], Fraction] = defaultdict(Fraction)
    for row in sorted(rows, key=identity, reverse=True):
        task, rollout, _ = identity(row)
        later[task, rollout] = Fraction(float(str(row["reward"]))) + Fraction(GAMMA) * later[task, rollout]
        returns[identity(row)] = later[task, rollout]
    return returns


def windows(rows: list[Row], depth: int) -> dict[Id, Hashable]:
    """Each step's task, state and `depth` states before it; None where one is missing."""
    state = {identity(row): row["state"] for row in rows}
    windows_by_step: dict[Id, Hashable] = {}
    for task, rollout, index in state:
        window = tuple(state.get((task, rollout, index - k)) for k in range(depth + 1))
        windows_by_step[task, rollout, index] = None if None in window else (task, window)
    return windows_by_step


def mean(values: list[Fraction]) -> Fraction:
    return sum(values, Fraction()) / len(values)


def count_level(rows: list[Row], depth: int) -> HistoryLevel:
    value = returns_to_go(rows)
    shallow, deep = windows(rows, 0), windows(rows, depth)
    peers = {step: [other for other in deep if deep[other] == deep[step]] for step in deep if deep[step] is not None}
    company = {
        step: [other for other in shallow if shallow[other] == shallow[step]]
        for step in shallow
        if shallow[step] is not None
    }
    compared = [step for step in peers if len(peers[step]) > 1]
    met = [step for step in company if len(company[step]) > 1]
    both = [step for step in compared if step in met]
    shifts, in_deviations, flips = [], [], 0
    for step in both:
        level = mean([value[other] for other in peers[step]])
        state_values = [value[other] for other in company[step]]
        base = mean(state_values)
        variance = mean([(state_value - base) ** 2 for state_value in state_values])
        shifts.append(float(abs(level - base)))
        if variance > 0:
            in_deviations.append(float(abs(level - base)) / math.sqrt(variance))
        flips += (value[step] - level) * (value[step] - base) < 0
    num_groups = len({deep[step] for step in compared})
    return HistoryLevel(
        depth=depth,
        groups=num_groups,
        compared_steps=len(compared),
        own_rollout_steps=sum(len({other[:2] for other in peers[step]}) == 1 for step in compared),
        alone_steps=len(peers) - len(compared),
        too_early_steps=len(deep) - len(peers),
        equal_steps=sum(len({value[other] for other in peers[step]}) == 1 for step in compared),
        mean_size=len(compared) / num_groups if num_groups else 0.0,
        split_steps=sum(len({deep[other] for other in company[step]}) > 1 for step in met),
        baseline_shift=math.fsum(shifts) / max(len(shifts), 1),
        relative_shift=math.fsum(in_deviations) / max(len(in_deviations), 1),
        sign_flips=flips,
        compared_at_both=len(both),
    )


@pytest.mark.parametrize("seed", range(12))
def test_every_level_is_what_plain_loops_count(seed: int) -> None:
    rows = random_rows(random.Random(f"levels {seed}"), regimes=EXACT)
    table = StepTable.from_columns(**columns_of(rows))
    levels = audit_tables([table], GRPO, depth=DEPTH, gamma=GAMMA).levels
    assert len(levels) == DEPTH + 1
    for depth, level in enumerate(levels):
        expected = count_level(rows, depth)
        for name in HistoryLevel.__dataclass_fields__:
            assert getattr(level, name) == pytest.approx(getattr(expected, name), rel=1e-9, abs=1e-12), name


def test_the_random_tables_do_flip_signs_and_split_states() -> None:
    tables = [random_rows(random.Random(f"levels {seed}"), regimes=EXACT) for seed in range(12)]
    levels = [count_level(rows, 1) for rows in tables]
    assert sum(level.sign_flips for level in levels) > 10
    assert sum(level.own_rollout_steps for level in levels) >= 5
    assert sum(level.split_steps for level in levels) > 100
    assert sum(level.equal_steps for level in levels) >= 5


def test_a_state_reached_by_two_histories_worked_by_hand() -> None:
    # Four rollouts end in m; two come from a with returns 0 and 1, two from b with returns 3 and 4. gamma = 1.
    rows = walks(["a", "m"], ["a", "m"], ["b", "m"], ["b", "m"], rewards=[[0, 0], [0, 1], [0, 3], [0, 4]])
    shallow, deep = audit_tables([rows], GRPO, depth=1, gamma=1).levels
    assert shallow == HistoryLevel(
        depth=0,
        groups=3,
        compared_steps=8,
        own_rollout_steps=0,
        alone_steps=0,
        too_early_steps=0,
        equal_steps=0,
        mean_size=8 / 3,
        split_steps=0,
        baseline_shift=0.0,
        relative_shift=0.0,
        sign_flips=0,
        compared_at_both=8,
    )
    # m: mean 2; from a 0.5, from b 3.5: the baseline moves by 1.5 for each. Deviation of 0, 1, 3, 4: sqrt(10/4).
    # 1 is above 0.5 and below 2, 3 is below 3.5 and above 2: two flips of four.
    assert deep == HistoryLevel(
        depth=1,
        groups=2,
        compared_steps=4,
        own_rollout_steps=0,
        alone_steps=0,
        too_early_steps=4,
        equal_steps=0,
        mean_size=2.0,
        split_steps=4,
        baseline_shift=1.5,
        relative_shift=pytest.approx(1.5 / math.sqrt(2.5), rel=1e-12),
        sign_flips=2,
        compared_at_both=4,
    )


def test_groups_of_one_return_are_counted_as_equal_and_have_no_relative_shift() -> None:
    rows = walks(["a", "m"], ["a", "m"], ["b", "m"], rewards=[[0, 2], [0, 2], [0, 2]])
    shallow, deep = audit_tables([rows], GRPO, depth=1, gamma=1).levels
    assert (shallow.equal_steps, shallow.alone_steps) == (5, 1)
    assert (deep.equal_steps, deep.alone_steps, deep.relative_shift) == (2, 1, 0.0)


def test_a_step_too_early_for_the_depth_is_one_more_history() -> None:
    # The state a is met at the start of two rollouts and after b in the third: split at depth 1, two too early.
    rows = walks(["a"], ["a"], ["b", "a"])
    deep = audit_tables([rows], GRPO, depth=1, gamma=1).levels[1]
    assert (deep.split_steps, deep.too_early_steps, deep.alone_steps) == (3, 3, 1)


def test_depth_0_has_one_level() -> None:
    assert [level.depth for level in audit_tables([walks(["a"])], GRPO, depth=0).levels] == [0]
