"""What adding a constant to rewards, or multiplying them, does to the credit of each method: a declared table.

Rewards and shifts are multiples of 1/8 and scales are powers of two, so that every return is exact and a difference
can only come from the method.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise import methods
from tests.laws.calls import map_columns, values, with_last_rewards
from tests.strategies import Row, step_rows

SHIFT: dict[str, str] = {
    "grpo": "outcome",
    "dr_grpo": "outcome",
    "rloo": "outcome",
    "rec": "outcome",
    "opmd": "outcome",
    "asymre": "outcome",
    "red_weight": "outcome",
    "dapo": "outcome",
    "gspo": "outcome",
    "cispo": "outcome",
    "sapo": "outcome",
    "srpo": "with best",
    "after_concise_r": "outcome",
    "hdpo": "outcome",
    "seeupo": "outcome",
    "after_dsdr": "outcome",
    "after_etr": "outcome",
    "r2vpo": "outcome",
    "disco": "outcome",
    "reg_grpo": "outcome",
    "llds": "outcome",
    "epo": "outcome",
    "gardo": "outcome",
    "after_vgpo": "changes",
    "copo": "outcome",
    "gtpo": "outcome",
    "d3s": "outcome",
    "dcpo": "outcome",
    "verl": "outcome",
    "prorag": "outcome",
    "bcpg_nsa": "outcome",
    "rank_grpo": "outcome",
    "after_webstar": "outcome",
    "spo_chain": "outcome",
    "spae": "outcome",
    "after_vsrm": "outcome",
    "simpo": "outcome",
    "dpo": "outcome",
    "rpo": "outcome",
    "w_dpo": "outcome",
    "step_apo": "outcome",
    "p3o": "outcome",
    "pav": "outcome",
    "flow_grpo": "outcome",
    "mc_grpo": "outcome",
    "salt": "outcome",
    "reinforce_pp": "outcome",
    "reinforce_pp_baseline": "outcome",
    "gigpo": "outcome",
    "hgpo": "outcome",
    "gagpo": "outcome",
    "hgae": "outcome",
    "shrunk_hgae": "outcome at lam 1",
    "r3": "outcome",
    "r3_grpo_ablation": "outcome",
    "r3_hgpo": "outcome",
    "step_grpo": "reward",
    "mars": "reward",
    "ngrpo": "with best",
    "dgpo": "with accuracy",
    "a_grae": "changes",
    "after_polychromic": "changes",
    "ppo": "changes",
    "turn_ppo": "changes",
}
"""outcome: adding a constant to what each rollout earns changes nothing (gamma 1). reward: adding it to each step's
reward changes nothing. with best: if `best` moves too. with accuracy: if the table has its own accuracy column.
changes: the level of a return matters: it is read as a success rate (of a set, times its variety), counts itself, or
is compared with a critic's value."""

SCALE: dict[str, str] = {
    "dr_grpo": "linear",
    "rloo": "linear",
    "gtpo": "linear",
    "spo_chain": "linear",
    "spae": "linear",
    "after_vsrm": "linear",
    "bcpg_nsa": "linear",
    "rec": "linear",
    "opmd": "linear",
    "asymre": "linear with its shift",
    "red_weight": "linear with its temperature",
    "mars": "linear to six decimals",
    "grpo": "invariant up to eps",
    "dapo": "invariant up to eps",
    "gspo": "invariant up to eps",
    "cispo": "invariant up to eps",
    "sapo": "invariant up to eps",
    "srpo": "invariant with best up to eps",
    "after_concise_r": "invariant up to eps",
    "hdpo": "invariant up to eps",
    "seeupo": "linear",
    "after_etr": "invariant up to eps",
    "r2vpo": "invariant up to eps",
    "disco": "invariant up to eps",
    "reg_grpo": "invariant up to eps",
    "llds": "invariant up to eps",
    "epo": "invariant up to eps",
    "gardo": "linear",
    "after_vgpo": "changes",
    "copo": "invariant up to eps",
    "d3s": "invariant up to eps",
    "dcpo": "invariant up to eps",
    "verl": "invariant up to eps",
    "prorag": "invariant up to eps",
    "rank_grpo": "invariant up to eps",
    "after_webstar": "invariant up to eps",
    "simpo": "invariant up to eps",
    "dpo": "invariant up to eps",
    "rpo": "invariant up to eps",
    "w_dpo": "invariant up to eps",
    "step_apo": "invariant up to eps",
    "p3o": "linear",
    "pav": "linear",
    "flow_grpo": "invariant up to eps",
    "mc_grpo": "invariant up to eps",
    "salt": "invariant up to eps",
    "reinforce_pp": "invariant up to eps",
    "reinforce_pp_baseline": "invariant up to eps",
    "gigpo": "invariant up to eps",
    "hgpo": "invariant up to eps",
    "gagpo": "invariant up to eps",
    "hgae": "invariant up to eps",
    "shrunk_hgae": "invariant up to eps",
    "r3": "invariant up to eps",
    "r3_grpo_ablation": "invariant up to eps",
    "r3_hgpo": "invariant up to eps",
    "step_grpo": "invariant up to eps",
    "ngrpo": "invariant with best up to eps",
    "dgpo": "invariant with accuracy",
    "a_grae": "changes",
    "after_polychromic": "linear within [0, 1]",
    "after_dsdr": "invariant above its floor",
    "ppo": "changes",
    "turn_ppo": "changes",
}
"""What multiplying every reward by a positive factor does, at the default settings."""

LINEAR_SETTINGS: list[tuple[str, dict[str, object]]] = [
    ("dr_grpo", {}),
    ("rloo", {}),
    ("rec", {}),
    ("opmd", {}),
    ("gardo", {"diversity": False}),
    ("pav", {"alpha": 0.0}),
    ("gigpo", {"scale": "none"}),
    ("gigpo", {"scale": "none", "reference": True}),
    ("hgpo", {"scale": "none", "episode": True}),
    ("hgpo", {"scale": "none", "reference": True}),
    ("gagpo", {"scale_by": "none"}),
    ("hgae", {"scale_by": "none", "leave_out": True}),
    ("shrunk_hgae", {"scale_by": "none"}),
    ("salt", {"base": "rloo"}),
]
"""Settings whose credit is in units of the reward."""

SETTINGS: dict[str, dict[str, object]] = {
    **{name: {"gamma": 1.0} for name in ("gigpo", "hgpo", "r3_hgpo", "reinforce_pp", "mars")},
    **{
        name: {"gamma": 1.0, "lam": 0.5} for name in ("gagpo", "hgae", "shrunk_hgae")
    },  # small shares of small differences: the eps
    "gardo": {"diversity": False},  # which reads what only a scorer knows
    "pav": {"alpha": 0.0},
    "copo": {"mode": "off"},  # which reads answers
}
"""Under which settings it is so."""
SHIFTS = st.integers(-8000, 8000).map(lambda number: number / 8)
FACTORS = st.integers(0, 10).map(lambda power: 2.0**power)
plain_rows = step_rows(optional=False)
BEST = 16.0
"""The most that four steps of at most 4 can earn."""


def of_kind(table: dict[str, str], *kinds: str) -> list[str]:
    return [name for name, kind in table.items() if kind in kinds]


def scale_rewards(rows: list[Row], factor: float) -> list[Row]:
    return map_columns(rows, reward=lambda reward: factor * reward)


def with_accuracy(rows: list[Row]) -> list[Row]:
    return [row | {"accuracy": int(str(row["rollout"])[-1]) / 4} for row in rows]


def test_the_tables_declare_every_method() -> None:
    assert set(SHIFT) == set(SCALE) == set(methods.names())


@pytest.mark.parametrize("method", of_kind(SHIFT, "outcome"))
@given(rows=plain_rows, shift=SHIFTS)
def test_adding_a_constant_to_every_outcome_changes_nothing(method: str, rows: list[Row], shift: float) -> None:
    hyper = SETTINGS.get(method, {})
    after = values(with_last_rewards(rows, shift), method, **hyper)
    np.testing.assert_allclose(after, values(rows, method, **hyper), rtol=1e-9, atol=1e-9)


@given(rows=plain_rows, shift=SHIFTS)
def test_shrunk_values_move_with_every_outcome_where_all_that_followed_counts(rows: list[Row], shift: float) -> None:
    """At lam < 1 the value after the end, 0, does not move: neither does a lone state of GAGPO, which is its return."""
    hyper = {"gamma": 1.0, "lam": 1.0}
    after = values(with_last_rewards(rows, shift), "shrunk_hgae", **hyper)
    np.testing.assert_allclose(after, values(rows, "shrunk_hgae", **hyper), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("method", of_kind(SHIFT, "reward"))
@given(rows=plain_rows, shift=SHIFTS)
def test_adding_a_constant_to_every_reward_changes_nothing(method: str, rows: list[Row], shift: float) -> None:
    after = values(map_columns(rows, reward=lambda reward: reward + shift), method)
    np.testing.assert_allclose(after, values(rows, method), rtol=1e-9, atol=1e-9)


@given(rows=plain_rows, shift=SHIFTS)
def test_ngrpo_moves_with_its_best(rows: list[Row], shift: float) -> None:
    after = values(with_last_rewards(rows, shift), "ngrpo", best=BEST + shift)
    np.testing.assert_allclose(after, values(rows, "ngrpo", best=BEST), rtol=1e-9, atol=1e-9)


@given(rows=plain_rows, shift=SHIFTS)
def test_srpo_moves_with_its_best(rows: list[Row], shift: float) -> None:
    after = values(with_last_rewards(rows, shift), "srpo", best=1.0 + shift, k=1)
    np.testing.assert_allclose(after, values(rows, "srpo", best=1.0, k=1), rtol=1e-9, atol=1e-9)


@given(rows=plain_rows.map(with_accuracy), shift=SHIFTS)
def test_dgpo_ignores_a_shift_where_accuracy_is_recorded(rows: list[Row], shift: float) -> None:
    after = values(with_last_rewards(rows, shift), "dgpo")
    np.testing.assert_allclose(after, values(rows, "dgpo"), rtol=1e-9, atol=1e-9)


def test_a_grae_reads_the_level_of_a_return() -> None:
    """Returns 0, 1/4 against 1/2, 3/4: the same z-scores, other success rates, hence other credit."""
    low: list[Row] = [{"task": "q", "rollout": a, "step": 0, "state": "s", "reward": a / 4} for a in (0, 1)]
    high = map_columns(low, reward=lambda reward: reward + 0.5)
    # p = w = 1/8: z/2 (w / sqrt(p) + (1 - w) / sqrt(1 - p)) with z = 0.707103, positive side times w.
    np.testing.assert_allclose(values(low, "a_grae"), [-0.455717, 0.056965], atol=1e-5)
    np.testing.assert_allclose(values(high, "a_grae"), [-0.496011, 0.310007], atol=1e-5)


@pytest.mark.parametrize(("method", "hyper"), LINEAR_SETTINGS, ids=str)
@given(rows=plain_rows, factor=FACTORS)
def test_credit_in_units_of_the_reward_scales_with_it_bit_for_bit(
    method: str, hyper: dict[str, object], rows: list[Row], factor: float
) -> None:
    after = values(scale_rewards(rows, factor), method, **hyper)
    assert np.array_equal(after, factor * values(rows, method, **hyper))


@pytest.mark.parametrize(
    ("method", "hyper", "unit"),
    [
        ("asymre", {}, "shift"),
        ("red_weight", {}, "temperature"),
        ("opmd", {"baseline": "log_mean_exp"}, "temperature"),
    ],
)
@given(rows=plain_rows, factor=FACTORS)
def test_a_constant_in_units_of_the_reward_scales_with_it(
    method: str, hyper: dict[str, object], unit: str, rows: list[Row], factor: float
) -> None:
    scaled = factor * methods.summary(method).options[unit]
    after = values(scale_rewards(rows, factor), method, **hyper | {unit: scaled})
    np.testing.assert_allclose(after, factor * values(rows, method, **hyper), rtol=1e-12, atol=1e-12)


@given(rows=plain_rows, factor=FACTORS)
def test_mars_scales_with_the_reward_to_six_decimals(rows: list[Row], factor: float) -> None:
    """Distinct values are told apart after rounding to six decimals, which a factor moves by at most half of 1e-6."""
    after = values(scale_rewards(rows, factor), "mars")
    np.testing.assert_allclose(after, factor * values(rows, "mars"), rtol=0, atol=factor * 1e-6)


@pytest.mark.parametrize("method", of_kind(SCALE, "invariant up to eps"))
@given(rows=plain_rows, factor=FACTORS)
def test_scaling_rewards_up_changes_a_scaled_credit_by_its_eps_at_most(
    method: str, rows: list[Row], factor: float
) -> None:
    """The deviation of distinct multiples of 1/8 is at least 0.02, the eps 1e-6; MC-GRPO's is 1e-3, ProRAG's 1e-4."""
    hyper = SETTINGS.get(method, {})
    before, after = values(rows, method, **hyper), values(scale_rewards(rows, factor), method, **hyper)
    is_sum = method in {"gigpo", "hgpo", "salt"}
    bound = {"mc_grpo": 1e-2, "prorag": 5e-3}.get(method, 1e-4)
    np.testing.assert_allclose(after, before, rtol=bound, atol=bound if is_sum else 1e-9)
    if not is_sum:
        # Terms of a sum may cancel, as may credit shared along an edge; one term alone only grows as eps loses weight.
        assert np.all(np.abs(after) >= np.abs(before) * (1 - 1e-12) - 1e-12)


# Not mc_grpo: the deviation it falls back to holds a fixed 1e-9.
@pytest.mark.parametrize(("method", "eps"), [("grpo", 1e-6), ("step_grpo", 1e-6)])
@given(rows=plain_rows, power=st.integers(-10, 10))
def test_scaling_rewards_and_eps_together_changes_no_bit(method: str, eps: float, rows: list[Row], power: int) -> None:
    factor = 2.0**power
    after = values(scale_rewards(rows, factor), method, eps=factor * eps)
    assert np.array_equal(after, values(rows, method, eps=eps))


@given(rows=plain_rows, factor=FACTORS)
def test_ngrpo_scales_with_its_best(rows: list[Row], factor: float) -> None:
    after = values(scale_rewards(rows, factor), "ngrpo", best=factor * BEST)
    np.testing.assert_allclose(after, values(rows, "ngrpo", best=BEST), rtol=1e-4, atol=1e-9)


@given(rows=plain_rows, factor=FACTORS)
def test_srpo_scales_with_its_best(rows: list[Row], factor: float) -> None:
    after = values(scale_rewards(rows, factor), "srpo", best=factor, k=1)
    np.testing.assert_allclose(after, values(rows, "srpo", best=1.0, k=1), rtol=1e-4, atol=1e-4)


@given(rows=plain_rows.map(with_accuracy), factor=FACTORS)
def test_dgpo_ignores_a_factor_where_accuracy_is_recorded(rows: list[Row], factor: float) -> None:
    # 1e-9 is added to the sum of distances, an eighth at least before scaling.
    np.testing.assert_allclose(values(scale_rewards(rows, factor), "dgpo"), values(rows, "dgpo"), rtol=1e-5, atol=0)
