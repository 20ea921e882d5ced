"""Effective rank of hidden states: against the definition, within its bounds, and what it does not depend on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from groupwise import Step, Task, Trajectory
from groupwise.methods.verl import EffectiveRank, compute_effective_rank, measure_growth, rank_prefixes
from tests.oracles import effective_rank as oracle


@st.composite
def draw_states(draw: Any, max_tokens: int = 14, max_width: int = 8) -> np.ndarray:
    """States of one response: whole ones, flat ones, some that repeat, of one size or of many."""
    tokens, width = draw(st.integers(1, max_tokens)), draw(st.integers(1, max_width))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    states = rng.normal(size=(tokens, width))
    kind = draw(st.sampled_from(["full", "flat", "equal", "repeated", "uneven"]))
    if kind == "flat":
        states = np.outer(states[:, 0], states[0])
    elif kind == "equal":
        states = np.repeat(states[:1], tokens, axis=0)
    elif kind == "repeated":
        states = states[rng.integers(0, max(1, tokens // 2), size=tokens)]
    elif kind == "uneven":
        states = states * 10.0 ** rng.integers(-3, 4, size=width)
    return states


def measure(states: np.ndarray, stride: int) -> dict[str, float]:
    step = Step(index=0, prompt_ids=(1,), response_ids=tuple(range(len(states))))
    groups = [[Trajectory(id="0", task=Task(id="q"), rollout=0, steps=(step,))]]
    tools: Any = SimpleNamespace(hidden=lambda pairs: [states for _ in pairs])
    (((info,),),) = EffectiveRank(stride=stride)(groups, tools, draw=None)  # type: ignore[arg-type]
    return info  # type: ignore[no-any-return]


@settings(max_examples=150)
@given(states=draw_states(), stride=st.integers(1, 5))
def test_rank_velocity_and_acceleration_are_those_of_the_definition(states: np.ndarray, stride: int) -> None:
    info = measure(states, stride)
    rank, velocity, acceleration = oracle.growth(states.tolist(), stride)
    assert info["effective_rank"] == pytest.approx(rank, abs=1e-9)
    assert info["rank_velocity"] == pytest.approx(velocity, abs=1e-9)
    assert info["rank_acceleration"] == pytest.approx(acceleration, abs=1e-9)


@given(states=draw_states())
def test_a_rank_lies_between_1_and_the_directions_there_are_or_is_0(states: np.ndarray) -> None:
    rank = compute_effective_rank(states)
    if (states == states[0]).all():
        assert rank == 0.0
    else:
        assert 1 - 1e-12 <= rank <= min(len(states) - 1, states.shape[1]) + 1e-9


@given(states=draw_states(), factor=st.sampled_from([2.0**40, 0.5, -4.0]), seed=st.integers(0, 1000))
def test_size_place_order_and_direction_do_not_matter(states: np.ndarray, factor: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank = compute_effective_rank(states)
    turn, _ = np.linalg.qr(rng.normal(size=(states.shape[1], states.shape[1])))
    others = [states * factor, rng.permutation(states), states[:, rng.permutation(states.shape[1])]]
    if not (states == states[0]).all():  # rounding makes equal states differ once they are moved
        others += [states + rng.normal(size=states.shape[1]), states @ turn]
    for other in others:
        assert compute_effective_rank(other) == pytest.approx(rank, abs=1e-6)
    assert compute_effective_rank(states * factor) == rank, "a power of two is only an exponent"


@given(states=draw_states(max_tokens=9, max_width=20), cut=st.integers(1, 9))
def test_a_prefix_has_the_rank_that_it_has_by_itself(states: np.ndarray, cut: int) -> None:
    cut = min(cut, len(states))
    prefix, whole = rank_prefixes(states, [cut])
    assert prefix == pytest.approx(compute_effective_rank(states[:cut]), abs=1e-7)
    assert whole == pytest.approx(compute_effective_rank(states), abs=1e-7)


@given(rank=st.floats(0, 1e6), num=st.integers(0, 9))
def test_ranks_that_do_not_grow_have_exactly_no_velocity(rank: float, num: int) -> None:
    assert measure_growth([rank] * num) == (0.0, 0.0)


@given(ranks=st.lists(st.floats(0, 100), max_size=9))
def test_changes_of_velocity_telescope(ranks: list[float]) -> None:
    _, acceleration = measure_growth(ranks)
    deltas = [ranks[j] - np.mean(ranks[:j]) for j in range(1, len(ranks))]
    expected = (deltas[-1] - deltas[0]) / (len(deltas) - 1) if len(deltas) > 1 else 0.0
    assert acceleration == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("tokens", "moves"),
    [(0, (0, 0)), (1, (0, 0)), (3, (0, 0)), (6, (0, 0)), (7, (1, 0)), (9, (1, 0)), (10, (1, 1))],
)
def test_short_responses_have_no_velocity_or_no_acceleration(tokens: int, moves: tuple[int, int]) -> None:
    """With a stride of 3, prefixes have 4, 7, 10, ... tokens; velocity needs two, acceleration three."""
    info = measure(np.random.default_rng(0).normal(size=(tokens, 5)), stride=3) if tokens else measure_nothing()
    assert (info["rank_velocity"] != 0, info["rank_acceleration"] != 0) == tuple(map(bool, moves))
    assert (info["effective_rank"] == 0) == (tokens < 2)


def measure_nothing() -> dict[str, float]:
    groups = [[Trajectory(id="0", task=Task(id="q"), rollout=0, steps=(Step(index=0),))]]
    (((info,),),) = EffectiveRank()(groups, None, draw=None)  # type: ignore[arg-type]
    return info  # type: ignore[no-any-return]
