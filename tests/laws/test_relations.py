"""Relations between methods: where two methods must agree, or differ by a known factor."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.laws.calls import credit, map_columns, one_walk, values
from tests.strategies import DYADIC, WILD, Row, step_rows

plain_rows = step_rows(optional=False)
any_rows = step_rows()


def close(got: np.ndarray, expected: np.ndarray, size: float = 1.0) -> None:
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12 * size)


def rollouts_by_task(rows: list[Row]) -> dict[object, set[object]]:
    rollouts: dict[object, set[object]] = defaultdict(set)
    for row in rows:
        rollouts[row["task"]].add(row["rollout"])
    return rollouts


@pytest.mark.parametrize("gamma", [0.5, 0.95])
@given(rows=plain_rows)
def test_gigpo_without_its_state_term_is_grpo(gamma: float, rows: list[Row]) -> None:
    assert np.array_equal(values(rows, "gigpo", step_weight=0.0, gamma=gamma), values(rows, "grpo"))
    assert np.array_equal(values(rows, "gigpo", step_weight=0.0, scale="none"), values(rows, "dr_grpo"))


@given(rows=plain_rows)
def test_the_release_of_gigpo_without_its_state_term_is_grpo_over_rows(rows: list[Row]) -> None:
    release = values(rows, "gigpo", step_weight=0.0, reference=True)
    assert np.array_equal(release, values(rows, "grpo", average="step", alone="raw"))


@given(rows=any_rows, gamma=st.sampled_from((0.5, 1.0, 0.95)))
def test_hgpo_without_history_is_the_state_term_of_gigpo(rows: list[Row], gamma: float) -> None:
    hyper = {"gamma": gamma, "scale": "none"}
    state_term = values(rows, "gigpo", **hyper) - values(rows, "gigpo", step_weight=0.0, **hyper)
    close(values(rows, "hgpo", depth=0, **hyper), state_term, size=100.0)


@given(rows=plain_rows)
def test_scaled_hgpo_without_history_differs_from_the_state_term_by_the_ddof_alone(rows: list[Row]) -> None:
    """Population against sample deviation: a factor sqrt(n / (n - 1)) for n steps in the state, up to the eps."""
    state_term = values(rows, "gigpo") - values(rows, "gigpo", step_weight=0.0)
    size: dict[object, int] = defaultdict(int)
    for row in rows:
        size[row["task"], row["state"]] += 1
    sizes = np.array([max(size[row["task"], row["state"]], 2) for row in rows])
    expected = state_term * np.sqrt(sizes / (sizes - 1))
    np.testing.assert_allclose(values(rows, "hgpo", depth=0), expected, rtol=1e-4, atol=1e-9)


@given(rows=any_rows)
def test_hgpo_deeper_than_any_rollout_changes_nothing(rows: list[Row]) -> None:
    assert np.array_equal(values(rows, "hgpo", depth=6), values(rows, "hgpo", depth=40))


@given(rows=any_rows, alpha=st.sampled_from((0.0, 1.0, 2.0)))
def test_the_release_of_hgpo_at_depth_zero_differs_by_its_denominator_alone(rows: list[Row], alpha: float) -> None:
    """One level of weight w = 2^alpha: the released mean is w A / (w + 1e-6)."""
    weight = 2.0**alpha
    paper = values(rows, "hgpo", depth=0, alpha=alpha)
    close(values(rows, "hgpo", depth=0, alpha=alpha, reference=True), paper * (weight / (weight + 1e-6)))


@given(rows=plain_rows, alpha=st.sampled_from((0.0, 1.0, 2.0)))
def test_a_level_on_which_a_step_is_average_takes_part_or_not_only_beside_other_levels(
    rows: list[Row], alpha: float
) -> None:
    assert np.array_equal(values(rows, "hgpo", depth=0, skip_average=True), values(rows, "hgpo", depth=0))
    kept, skipped = (credit(rows, "hgpo", alpha=alpha, skip_average=skips) for skips in (False, True))
    assert np.array_equal(kept.compared, skipped.compared)
    assert np.all(np.abs(skipped.values) >= np.abs(kept.values) - 1e-12), "the same sum over less weight"
    assert np.all(skipped.values * kept.values >= -1e-12)


@given(rows=plain_rows, depth=st.integers(0, 3))
def test_hgpo_finds_nobody_where_every_state_is_its_own(rows: list[Row], depth: int) -> None:
    lonely = [row | {"state": f"{row['task']} {row['rollout']} {row['step']}"} for row in rows]
    got = credit(lonely, "hgpo", depth=depth)
    assert not np.any(got.values)
    assert not np.any(got.compared)


@given(rows=plain_rows)
def test_hgpo_on_one_state_and_no_depth_is_one_group_a_task(rows: list[Row]) -> None:
    """With every state equal, depth 0 and gamma 1, one-step rollouts: GRPO with the population deviation."""
    single = [row | {"state": "s"} for row in rows if row["step"] == 0]
    assert np.array_equal(values(single, "hgpo", depth=0, gamma=1.0), values(single, "grpo", ddof=0))


@given(rows=any_rows, gamma=st.sampled_from((0.5, 1.0, 0.95)))
def test_gagpo_of_everything_that_followed_is_the_state_term_of_gigpo(rows: list[Row], gamma: float) -> None:
    """At lam 1 the values on the way cancel: what is left is the return less the value of the state."""
    hyper = {"gamma": gamma, "invalid_penalty": 0.0}
    state_term = values(rows, "hgpo", depth=0, scale="none", **hyper)
    got = credit(rows, "gagpo", lam=1.0, scale_by="none", **hyper)
    assert np.array_equal(got.values, state_term)
    assert np.array_equal(got.compared, credit(rows, "hgpo", depth=0, **hyper).compared)


@given(rows=any_rows, depth=st.integers(0, 3), gamma=st.sampled_from((0.5, 1.0, 0.95)))
def test_hgae_of_everything_that_followed_is_hgpo_without_its_deviation(
    rows: list[Row], depth: int, gamma: float
) -> None:
    hyper = {"gamma": gamma, "depth": depth, "invalid_penalty": 0.0}
    assert np.array_equal(
        values(rows, "hgae", lam=1.0, scale_by="none", **hyper), values(rows, "hgpo", scale="none", **hyper)
    )


@given(rows=any_rows, lam=st.sampled_from((0.0, 0.5, 1.0)), scale_by=st.sampled_from(("task", "state", "none")))
def test_hgae_without_history_is_gagpo(rows: list[Row], lam: float, scale_by: str) -> None:
    hyper = {"lam": lam, "scale_by": scale_by}
    assert np.array_equal(values(rows, "hgae", depth=0, **hyper), values(rows, "gagpo", **hyper))


@given(rows=any_rows, lam=st.sampled_from((0.0, 0.5, 1.0)), scale_by=st.sampled_from(("task", "none")))
def test_shrunk_values_without_strength_are_those_of_gagpo(rows: list[Row], lam: float, scale_by: str) -> None:
    known = [row | {"state": row["state"] or "somewhere"} for row in rows]
    hyper = {"lam": lam, "scale_by": scale_by, "gamma": 0.95}
    got = values(known, "shrunk_hgae", strength=0.0, depth=0, **hyper)
    np.testing.assert_allclose(got, values(known, "gagpo", **hyper), rtol=1e-9, atol=1e-9)


@given(rows=plain_rows, gamma=st.sampled_from((0.5, 1.0)))
def test_values_that_are_all_borrowed_are_the_mean_of_the_task(rows: list[Row], gamma: float) -> None:
    borrowed = values(rows, "shrunk_hgae", strength=1e15, lam=1.0, scale_by="none", gamma=gamma)
    one_state = [row | {"state": "everywhere"} for row in rows]
    expected = values(one_state, "hgpo", depth=0, scale="none", gamma=gamma)
    np.testing.assert_allclose(borrowed, expected, rtol=1e-9, atol=1e-9)


@given(rows=plain_rows, lam=st.sampled_from((0.0, 0.5, 0.95)), gamma=st.sampled_from((0.5, 1.0)))
def test_credit_by_differences_adds_up_to_the_surprise_of_the_first_step(
    rows: list[Row], lam: float, gamma: float
) -> None:
    """A_t - gamma lam A_(t+1) are the differences; discounted and summed they are R_0 - V(s_0), at any lam."""
    hyper = {"gamma": gamma, "scale_by": "none"}
    first = {(row["task"], row["rollout"]): 0.0 for row in rows}
    surprise, got = values(rows, "gagpo", lam=1.0, **hyper), values(rows, "gagpo", lam=lam, **hyper)
    credit_at = {(row["task"], row["rollout"], row["step"]): v for row, v in zip(rows, got, strict=True)}
    whole = {(row["task"], row["rollout"]): v for row, v in zip(rows, surprise, strict=True) if row["step"] == 0}
    for (task, rollout, index), value in credit_at.items():
        later = credit_at.get((task, rollout, index + 1), 0.0)
        first[task, rollout] += gamma**index * (value - gamma * lam * later)
    for who, expected in whole.items():
        assert first[who] == pytest.approx(expected, abs=1e-9)


@given(rows=plain_rows, lam=st.sampled_from((0.0, 0.5, 1.0)))
def test_states_that_never_recur_are_worth_what_came_of_them(rows: list[Row], lam: float) -> None:
    lonely = [row | {"state": f"{row['task']} {row['rollout']} {row['step']}"} for row in rows]
    got = credit(lonely, "gagpo", lam=lam)
    assert not np.any(got.values)
    assert not np.any(got.compared)


@given(rows=step_rows(rewards=WILD, optional=False))
def test_rloo_is_dr_grpo_times_n_over_n_minus_one(rows: list[Row]) -> None:
    rollouts = rollouts_by_task(rows)
    sizes = np.array([max(len(rollouts[row["task"]]), 2) for row in rows])
    size = max(abs(float(str(row["reward"]))) for row in rows) * 4
    close(values(rows, "rloo"), values(rows, "dr_grpo") * sizes / (sizes - 1), size=size)


@given(rows=plain_rows)
def test_grpo_with_either_ddof_differs_by_the_known_factor(rows: list[Row]) -> None:
    rollouts = rollouts_by_task(rows)
    sizes = np.array([max(len(rollouts[row["task"]]), 2) for row in rows])
    sample, population = values(rows, "grpo", eps=1e-15), values(rows, "grpo", eps=1e-15, ddof=0)
    np.testing.assert_allclose(population, sample * np.sqrt(sizes / (sizes - 1)), rtol=1e-9, atol=1e-12)


@given(rows=step_rows(rewards=WILD))
def test_flow_grpo_is_grpo_and_its_release_is_grpo_over_rows(rows: list[Row]) -> None:
    assert np.array_equal(values(rows, "flow_grpo"), values(rows, "grpo"))
    assert np.array_equal(values(rows, "flow_grpo", reference=True), values(rows, "grpo", average="step"))


@given(rows=step_rows(rewards=WILD, max_steps=1))
def test_rows_and_rollouts_are_one_where_rollouts_have_one_step(rows: list[Row]) -> None:
    for method in ("grpo", "dr_grpo", "rloo"):
        assert np.array_equal(values(rows, method, average="step"), values(rows, method))


@given(rows=step_rows(rewards=WILD))
def test_ngrpo_without_a_virtual_member_is_grpo(rows: list[Row]) -> None:
    assert np.array_equal(values(rows, "ngrpo", virtual=0), values(rows, "grpo"))


@given(rows=step_rows(rewards=WILD), base=st.sampled_from(("grpo", "rloo")), history=st.integers(0, 2))
def test_salt_without_shared_edges_is_its_base(rows: list[Row], base: str, history: int) -> None:
    lonely = [row | {"action": f"{row['rollout']} {row['step']}"} for row in rows]
    assert np.array_equal(values(lonely, "salt", base=base, history=history), values(rows, base))


@given(
    rewards=st.lists(DYADIC, min_size=2, max_size=6),
    length=st.integers(1, 4),
    base=st.sampled_from(("grpo", "rloo")),
    count=st.sampled_from(("rollout", "step")),
)
def test_salt_cancels_the_credit_of_edges_that_all_rollouts_share(
    rewards: list[float], length: int, base: str, count: str
) -> None:
    """Rollouts that do the same at every step differ by luck alone; a centred base leaves them the mean, 0."""
    rows = one_walk(rewards, length)
    np.testing.assert_allclose(values(rows, "salt", base=base, count=count), 0.0, atol=1e-12)


@pytest.mark.parametrize("method", ["dr_grpo", "rloo", "grpo"])
@given(rows=any_rows)
def test_centred_credit_sums_to_zero_over_the_rollouts_of_a_task(method: str, rows: list[Row]) -> None:
    per_rollout = dict(zip(((row["task"], row["rollout"]) for row in rows), values(rows, method), strict=True))
    for task in rollouts_by_task(rows):
        total = math.fsum(value for (owner, _), value in per_rollout.items() if owner == task)
        assert total == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("method", ["dr_grpo", "rloo", "grpo"])
@given(rows=any_rows)
def test_credit_averaged_over_steps_sums_to_zero_over_the_rows_of_a_task(method: str, rows: list[Row]) -> None:
    got = values(rows, method, average="step")
    for task in rollouts_by_task(rows):
        assert math.fsum(got[[row["task"] == task for row in rows]]) == pytest.approx(0.0, abs=1e-9)


@given(rows=any_rows)
def test_the_state_term_sums_to_zero_over_each_state(rows: list[Row]) -> None:
    got = values(rows, "hgpo", depth=0, scale="none")
    for key in {(row["task"], row["state"]) for row in rows}:
        own = [(row["task"], row["state"]) == key for row in rows]
        assert math.fsum(got[own]) == pytest.approx(0.0, abs=1e-9)


@given(rows=any_rows)
def test_whitened_credit_has_token_mean_zero_and_variance_one(rows: list[Row]) -> None:
    trained = [int(str(row.get("tokens", 1))) * bool(row.get("trains", True)) for row in rows]
    tokens = np.array(trained, dtype=float)
    for method, hyper in (("reinforce_pp", {}), ("reinforce_pp_baseline", {}), ("mars", {"whiten": True})):
        got = values(rows, method, **hyper)
        if not np.any(got):
            continue
        assert np.dot(tokens, got) == pytest.approx(0.0, abs=1e-9)
        assert np.dot(tokens, got**2) / (tokens.sum() - 1) == pytest.approx(1.0, abs=1e-4)


@given(rows=step_rows(optional=False, max_steps=1, min_rollouts=2))
def test_dgpo_gives_mixed_tasks_weights_whose_mean_is_the_share_of_all_tokens(rows: list[Row]) -> None:
    """sum |A_i| / G of a mixed task is its weight; the weights are B_v softmax, so they sum to B_v."""
    got = np.abs(values(rows, "dgpo"))
    weights, tokens = [], 0
    for task in rollouts_by_task(rows):
        own = got[[row["task"] == task for row in rows]]
        if np.any(own):
            weights.append(own.mean())
            tokens += len(own)
    assume(weights)
    # Distances of multiples of 1/8 sum to an eighth at least; 1e-9 is added to them.
    assert math.fsum(weights) == pytest.approx(len(weights) * len(rows) / tokens, rel=1e-7)


@given(rows=step_rows(optional=False, min_rollouts=2))
def test_mc_grpo_and_its_release_differ_only_where_the_median_deviation_vanishes(rows: list[Row]) -> None:
    paper, release = values(rows, "mc_grpo"), values(rows, "mc_grpo", reference=True)
    assert np.array_equal(np.sign(paper), np.sign(release))
    differs = paper != release
    # Multiples of 1/8 within 32: a median deviation of 1/8 or more is never below a thousandth of the range.
    assert np.all(np.abs(release[differs]) >= 0.125 / 1e-3 * (1 - 1e-9))


@given(rows=step_rows(rewards=WILD, max_steps=3))
def test_a_recorded_outcome_replaces_the_sum_of_rewards(rows: list[Row]) -> None:
    """Terminal outcome in its own column and no rewards: the episode methods see the same table."""
    first = {(row["task"], row["rollout"]): row["reward"] for row in rows}
    with_outcome = [row | {"outcome": first[row["task"], row["rollout"]]} for row in rows]
    earned_at = {(row["task"], row["rollout"]): row["step"] for row in rows}
    earned = [
        row | {"reward": first[row["task"], row["rollout"]] * (row["step"] == earned_at[row["task"], row["rollout"]])}
        for row in rows
    ]
    for method in ("grpo", "dr_grpo", "rloo", "mc_grpo", "ngrpo", "flow_grpo", "salt"):
        hyper = {"best": 1e13} if method == "ngrpo" else {}  # no return may lie above it
        assert np.array_equal(values(with_outcome, method, **hyper), values(earned, method, **hyper))


@given(rows=step_rows(optional=False))
def test_a_table_without_states_compares_no_step_by_state(rows: list[Row]) -> None:
    blind = [{name: field for name, field in row.items() if name != "state"} for row in rows]
    assert not np.any(credit(blind, "hgpo").compared)
    assert not np.any(credit(blind, "step_grpo").compared)
    assert np.array_equal(values(blind, "gigpo"), values(rows, "grpo"))
    assert np.array_equal(values(map_columns(rows, state=lambda _: None), "gigpo"), values(rows, "grpo"))


@given(rows=any_rows, scale=st.sampled_from(("std", "none")))
def test_hgpo_among_other_rollouts_is_hgpo_but_for_groups_of_a_single_rollout(rows: list[Row], scale: str) -> None:
    """Without history a step has one group: it is left as it is, bit for bit, or it compares nobody."""
    visitors: dict[object, set[object]] = defaultdict(set)
    for row in rows:
        visitors[row["task"], row["state"]].add(row["rollout"])
    is_met = np.array([row["state"] is not None and len(visitors[row["task"], row["state"]]) > 1 for row in rows])
    published = credit(rows, "hgpo", depth=0, scale=scale)
    got = credit(rows, "hgpo", depth=0, scale=scale, peers="other_rollouts")
    assert np.array_equal(got.values, np.where(is_met, published.values, 0.0))
    assert np.array_equal(got.compared, is_met)
