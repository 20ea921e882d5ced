"""Laws of a baseline that remembers: it is the paper's tracker, order changes nothing, and it goes on to the bit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise import Task
from groupwise.credit import AbovePrior
from groupwise.parts.stateful import ObservedUpdate
from tests.oracles.priors import beta_tracker
from tests.unit.credit.observed_updates import make_update, rollout

RETURNS = st.lists(st.lists(st.integers(0, 1), max_size=5), max_size=6)


def single(task: str, returns: Sequence[float]) -> ObservedUpdate:
    return make_update(*(rollout(task, number, float(value)) for number, value in enumerate(returns)))


@given(updates=RETURNS, rho=st.sampled_from([Fraction(7, 8), Fraction(0), Fraction(1), Fraction(1, 2)]))
def test_it_is_the_tracker_of_the_paper(updates: list[list[int]], rho: Fraction) -> None:
    state, priors = AbovePrior(keep=float(rho)).start(seed=0), list[float]()
    for returns in updates:
        priors.append(state.columns([Task(id="t")])["prior"][0])
        if returns:
            state.observe(single("t", returns))
    priors.append(state.columns([Task(id="t")])["prior"][0])
    assert priors == pytest.approx([float(value) for value in beta_tracker(updates, rho=rho)], rel=1e-12)


@given(drawn=st.data())
def test_the_order_of_rollouts_and_other_tasks_change_no_bit(drawn: st.DataObject) -> None:
    values = st.floats(-1e6, 1e6)
    played = [
        rollout(task, number, *drawn.draw(st.lists(values, min_size=1, max_size=3)))
        for task in ("a", "b", "c")
        for number in range(drawn.draw(st.integers(1, 4)))
    ]
    first, second, alone = (AbovePrior().start(seed=seed) for seed in (0, 1, 2))
    first.observe(make_update(*played))
    second.observe(make_update(*drawn.draw(st.permutations(played))))
    alone.observe(make_update(*(each for each in played if each.task.id == "b")))
    tasks = [Task(id=name) for name in ("a", "b", "c", "d")]
    assert first.columns(tasks)["prior"].tobytes() == second.columns(tasks)["prior"].tobytes()
    assert alone.columns(tasks)["prior"][1] == first.columns(tasks)["prior"][1]


@given(updates=RETURNS)
def test_what_is_taken_up_goes_on_to_the_bit(updates: list[list[int]]) -> None:
    part, tasks = AbovePrior(), [Task(id="t"), Task(id="u")]
    whole, resumed = part.start(seed=0), part.start(seed=0)
    for returns in updates:
        if returns:
            whole.observe(single("t", returns))
            resumed.observe(single("t", returns))
        taken_up = part.start(seed=0)
        taken_up.load_state_dict(json.loads(json.dumps(resumed.state_dict())))
        resumed = taken_up
    assert resumed.columns(tasks)["prior"].tobytes() == whole.columns(tasks)["prior"].tobytes()
    assert resumed.state_dict() == whole.state_dict()
