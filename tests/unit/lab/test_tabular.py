"""Policies as tables, and rollouts that they play."""

from __future__ import annotations

import numpy as np
import pytest

from groupwise.data.step_table import StepTable
from groupwise.lab import TabularPolicy, View, enumerate_task, read_window, remember, sample_rollouts, solve_exactly
from groupwise.rollout.prompts import AnchoredWindow, Full, Window
from groupwise.system.errors import ConfigError
from tests.unit.lab.played_worlds import TINY


@pytest.mark.parametrize("name", TINY)
def test_sampled_rollouts_visit_states_as_often_as_they_should(name: str) -> None:
    part, task = TINY[name]
    world = remember(enumerate_task(part, task, chance="family"), 1)
    policy = TabularPolicy.draw(world, np.random.default_rng(0))
    values = solve_exactly(world, policy)
    played = sample_rollouts(world, policy, rollouts=4000, generator=np.random.default_rng(1))
    returns = played.reward.sum(axis=1)
    error = returns.std() / np.sqrt(len(returns))
    assert error > 0
    assert abs(returns.mean() - values.value[0, world.start]) < 4 * error
    for step in range(world.horizon):
        visited = played.state[played.length > step, step]
        share = np.bincount(visited, minlength=len(world.states)) / len(returns)
        assert np.abs(share - values.visits[step]).max() < 0.03
    assert values.advantages_of(played).shape == (played.length.sum(),)
    assert abs(values.advantages_of(played).mean()) < 0.02, "the policy's own actions are worth 0 more on average"


def test_the_same_generator_plays_the_same_rollouts() -> None:
    part, task = TINY["noise"]
    world = enumerate_task(part, task)
    policy = TabularPolicy.uniform(world)
    first, again = (
        sample_rollouts(world, policy, rollouts=9, generator=np.random.default_rng(3)).state for _ in range(2)
    )
    assert np.array_equal(first, again)


def test_columns_make_a_step_table_by_either_key() -> None:
    part, task = TINY["two bits, one reply"]
    world = enumerate_task(part, task)
    played = sample_rollouts(world, TabularPolicy.uniform(world), rollouts=40, generator=np.random.default_rng(0))
    tables = [
        StepTable.from_columns(**played.to_columns(task=task.id, key=key)) for key in ("situation", "observation")
    ]
    assert [len(table) for table in tables] == [played.length.sum()] * 2
    situations, texts = (set(table.state_keys) for table in tables)
    assert "Nothing happens." in texts
    assert not any(text == "Nothing happens." for text in situations)
    assert len(texts) < len(situations)
    assert tables[0].reward.sum() == played.reward.sum() > 0


@pytest.mark.parametrize(("history", "window"), [(Window(steps=0), 0), (Window(steps=2), 2), (Full(), 7)])
def test_the_window_of_a_memory(history: Window | Full, window: int) -> None:
    assert read_window(history, 8) == window


def test_a_memory_that_tells_the_step_is_refused() -> None:
    with pytest.raises(ConfigError) as refusal:
        read_window(AnchoredWindow(low=1, high=3), 6)
    assert str(refusal.value) == (
        "the history shows 0, 1, 2, 3, 2, 3 past steps at steps 0 to 5, so the prompt contains more than the state; "
        'use `history = {kind = "window"}` or continuations'
    )


def test_policies_that_do_not_fit_are_refused() -> None:
    part, task = TINY["nothing hidden"]
    world = enumerate_task(part, task)
    other = enumerate_task(*TINY["a bit"])
    with pytest.raises(
        ConfigError, match=r"^the policy has the actions red, blue, but the environment has red, blue, green; make"
    ):
        TabularPolicy.uniform(other).spread(world)
    with pytest.raises(ConfigError, match=r"^the policy has no probabilities for 'Passage 1\.' after 0 visible steps"):
        TabularPolicy(actions=world.actions, rows={}).spread(world)
    with pytest.raises(ConfigError, match=r"is \[0\.5, 0\.5, 0\.5\]; give 3 probabilities that sum to 1$"):
        TabularPolicy.from_function(world, lambda view: (0.5, 0.5, 0.5)).spread(world)


def test_a_view_keeps_the_end_of_its_past() -> None:
    view = View("c", (("a", "x"), ("b", "y")))
    assert [view.shorten(window).past for window in (0, 1, 2, 5)] == [(), (("b", "y"),), view.past, view.past]
