"""Steps that are compared only with their own rollout: as published by default, not compared if that is asked."""

from __future__ import annotations

import pytest

from groupwise import Algorithm, StepTable, methods
from tests.unit.tables import walks

# Two rollouts: a b b, final score 1, and a c d, final score 0.
ROWS = walks("abb", "acd", rewards=[[0, 0, 1], [0, 0, 0]])


def credit(algorithm: Algorithm, rows: StepTable = ROWS) -> tuple[list[float], list[bool]]:
    given = algorithm.advantage(rows)
    return given.values.tolist(), given.compared.tolist()


def test_the_published_method_compares_a_rollout_with_itself() -> None:
    """At b, returns 0.95 and 1 of one rollout: mean 0.975, deviation 0.025, so -1 and +1 (less the eps of 1e-6)."""
    values, compared = credit(methods.hgpo(depth=2))
    half = 0.025 / (0.025 + 1e-6)
    whole = 0.45125 / (0.45125 + 1e-6)  # at a, returns 0.9025 and 0
    assert values == pytest.approx([whole, -half, half, -whole, 0, 0], abs=1e-12)
    assert compared == [True, True, True, True, False, False]


def test_with_other_rollouts_it_compares_nobody_there() -> None:
    published, _ = credit(methods.hgpo(depth=2))
    values, compared = credit(methods.hgpo(depth=2, peers="other_rollouts"))
    assert values == [published[0], 0.0, 0.0, published[3], 0.0, 0.0]
    assert compared == [True, False, False, True, False, False]


def test_gigpo_is_left_with_its_episode_term_there() -> None:
    episode, _ = credit(methods.grpo())
    published, _ = credit(methods.gigpo())
    values, compared = credit(methods.gigpo(peers="other_rollouts"))
    assert values == [published[0], episode[1], episode[2], published[3], episode[4], episode[5]]
    assert compared == [True] * 6
    assert abs(published[1]) < 1e-4 < values[1]  # as published, the rollout's own later step takes its praise away


def test_a_group_with_another_rollout_stays_as_published() -> None:
    """At b stand two steps of rollout 0 and one of rollout 1: all three count in the mean, (1 + 1 + 0) / 3."""
    rows = walks("bb", "b", rewards=[[0, 1], [0]])
    options = {"depth": 0, "gamma": 1.0, "scale": "none"}
    values, compared = credit(methods.hgpo(**options, peers="other_rollouts"), rows)
    assert values == pytest.approx([1 / 3, 1 / 3, -2 / 3])
    assert (values, compared) == credit(methods.hgpo(**options), rows)


def test_a_run_file_may_say_it_of_the_grouper() -> None:
    part = {"kind": "relative", "by": {"kind": "by_state", "peers": "other_rollouts"}, "of": "step_reward"}
    values, compared = credit(Algorithm(advantage=part | {"scale": "no_scale", "average": "step"}))  # type: ignore[arg-type]
    assert (values, compared) == ([0.0] * 6, [True, False, False, True, False, False])
