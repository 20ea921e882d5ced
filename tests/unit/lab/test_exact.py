"""True values: against every trajectory of the real environment, against many played ones, and by their laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.data.records import Task
from groupwise.envs import Aliased, Countdown
from groupwise.lab import TabularPolicy, enumerate_task, remember, solve_exactly
from groupwise.lab.enumerated import Branch, EnumeratedWorld, RememberedState, list_world
from groupwise.system.errors import ConfigError
from tests.unit.lab.played_worlds import TINY, play_all, play_once
from tests.unit.lab.traced import trace_rollout


@pytest.mark.parametrize("window", [0, 1, 2])
@pytest.mark.parametrize("name", TINY)
def test_values_are_those_of_all_trajectories_of_the_real_environment(name: str, window: int) -> None:
    part, task = TINY[name]
    world = remember(enumerate_task(part, task), window)
    policy = TabularPolicy.draw(world, np.random.default_rng(window), sharpness=1.5)
    values = solve_exactly(world, policy, gamma=0.9)
    played = play_all(part, task, policy, gamma=0.9)
    assert len(played) > 30
    for (step, key, past), (value, worth) in played.items():
        state = world.states.index(RememberedState(key, past[-window:]) if window else key)
        assert values.value[step, state] == pytest.approx(value, abs=1e-12)
        assert values.action_value[step, state] == pytest.approx(worth, abs=1e-12)


def test_values_are_the_means_of_many_rollouts_at_the_real_environment() -> None:
    part = Aliased(hidden_bits=2, passages=1, num_doors=3, num_colours=3, max_steps=14, noise=0.1)
    task = part.task_set("test")[1]
    world = enumerate_task(part, task)
    policy = TabularPolicy.draw(world, np.random.default_rng(0))
    values = solve_exactly(world, policy, gamma=0.95)
    generator = np.random.default_rng(1)
    returns, credits = [], []
    for _ in range(1500):
        steps = list(play_once(part, task, policy, generator))
        states = trace_rollout(world, keys=[step["key"] for step in steps])
        discount = 0.95 ** np.arange(len(steps))
        returns.append(float(discount @ [step["reward"] for step in steps]))
        actions = [world.actions.index(step["action"]) for step in steps]
        credits.append(float(discount @ values.advantage[np.arange(len(steps)), states, actions]))
    error = np.std(returns) / np.sqrt(len(returns))
    assert 0.1 < values.value[0, world.start] < 0.9
    assert abs(np.mean(returns) - values.value[0, world.start]) < 4 * error
    # In a world without chance of its own, what came out beyond the value is what the actions were worth beyond it.
    assert returns == pytest.approx(values.value[0, world.start] + np.array(credits), abs=1e-9)


def test_the_chance_of_a_family_is_the_mean_over_seeds() -> None:
    part = Aliased(hidden_bits=1, passages=0, num_doors=2, num_colours=2, max_steps=5, noise=0.3)
    payload = part.task_set("train")[0].payload
    tasks = [Task.create(env="aliased", seed=seed, payload=payload) for seed in range(400)]
    family = enumerate_task(part, tasks[0], chance="family")
    policy = TabularPolicy.uniform(family)
    expected = solve_exactly(family, policy).value[0, family.start]
    by_seed = [solve_exactly(enumerate_task(part, task), policy).value[0, family.start] for task in tasks]
    assert np.std(by_seed) > 0.05
    assert abs(np.mean(by_seed) - expected) < 4 * np.std(by_seed) / np.sqrt(len(by_seed))


def test_a_door_by_hand() -> None:
    part = Aliased(hidden_bits=0, passages=0, num_doors=1, num_colours=2, max_steps=3)
    payload = {"colours": ["red", "blue"], "lamps": [], "names": [], "wiring": [], "passages": 0}
    task = Task.create(env="aliased", payload={**payload, "doors": ["blue"], "noise": 0.0})
    world = enumerate_task(part, task)
    shares = {"Door 1 asks for blue.": (0.75, 0.25), "Nothing happens. Door 1 asks for blue.": (0.5, 0.5)}
    values = solve_exactly(world, TabularPolicy.from_function(world, lambda view: shares[view.text]))
    assert world.states == ("Door 1 asks for blue.", "Door 1 asks for blue. Nothing happens.")
    assert values.value.tolist() == [[0.8125, 0.875], [0.625, 0.75], [0.25, 0.5], [0, 0]]
    assert values.advantage[0, 0].tolist() == [0.75 - 0.8125, 1 - 0.8125]
    assert values.visits.tolist() == [[1, 0], [0, 0.75], [0, 0.375]]


def draw_world(generator: np.random.Generator, *, varies: bool) -> EnumeratedWorld:
    """Any small world: two ways for an action, states that share texts, ends anywhere."""
    names: list[int | None] = [0, 1, 2, 3]

    def branches(step: int, state: object, action: str) -> list[Branch]:
        local = np.random.default_rng([seed, step, int(str(state)), ord(action)])
        share = float(local.random())
        targets = [[*names, None][int(code)] for code in local.integers(0, 5, size=2)]
        return [Branch(p, to, float(local.random())) for p, to in zip((share, 1 - share), targets, strict=True)]

    seed = int(generator.integers(2**31))
    texts = {0: "a", 1: "b", 2: "b", 3: "c"}
    return list_world(texts=texts, actions=("x", "y", "z"), start=0, horizon=4, branches=branches, varies=varies)


@given(seed=st.integers(0, 2**31), varies=st.booleans(), gamma=st.floats(0, 1), window=st.integers(0, 2))
def test_laws_of_values(seed: int, varies: bool, gamma: float, window: int) -> None:
    generator = np.random.default_rng(seed)
    plain = draw_world(generator, varies=varies)
    world = remember(plain, window)
    policy = TabularPolicy.draw(world, generator, sharpness=2.0)
    values = solve_exactly(world, policy, gamma=gamma)
    assert np.abs((values.probability * values.advantage).sum(axis=-1)).max() < 1e-12, "advantages average to 0"
    assert (values.advantage.max(axis=-1) >= -1e-12).all(), "some action is at least as good as the average"
    assert (np.diff(values.visits.sum(axis=1)) <= 1e-12).all(), "rollouts only end"
    assert values.visits[0].sum() == 1
    earned = np.einsum(
        "tsab,tsab->tsa",
        np.broadcast_to(world.chance, (4, *world.chance.shape[1:])),
        np.broadcast_to(world.reward, (4, *world.reward.shape[1:])),
    )
    forwards = np.einsum("t,ts,sa,tsa->", gamma ** np.arange(4), values.visits, values.probability, earned)
    assert forwards == pytest.approx(values.value[0, world.start], abs=1e-12), "forwards and backwards agree"
    if not varies:
        assert (np.diff(values.value, axis=0) <= 1e-12).all(), "with rewards above 0 more steps left are worth more"


@pytest.mark.parametrize("with_actions", [True, False])
def test_a_recorded_rollout_is_found_among_the_states(with_actions: bool) -> None:
    part, task = TINY["two bits, one reply"]
    plain = enumerate_task(part, task)
    world = remember(plain, 2, with_actions=with_actions)
    generator = np.random.default_rng(0)
    for _ in range(20):
        steps = list(play_once(part, task, TabularPolicy.uniform(plain), generator))
        keys, texts, actions = ([step[name] for step in steps] for name in ("key", "text", "action"))
        states = trace_rollout(world, keys=keys, texts=texts, actions=actions)
        assert [world.states[state].state for state in states] == keys  # type: ignore[attr-defined]
        assert [world.views[world.view[state]].text for state in states] == texts
        assert states[0] == world.start
        reached = {int(code) for code in world.following[0, states[0], world.actions.index(actions[0])]}
        assert int(states[1]) in reached


@given(seed=st.integers(0, 2**31), window=st.integers(0, 2), more=st.integers(1, 2))
def test_states_told_apart_by_more_than_the_policy_sees_change_no_value(seed: int, window: int, more: int) -> None:
    generator = np.random.default_rng(seed)
    plain = draw_world(generator, varies=False)
    world, wider = remember(plain, window), remember(plain, window + more)
    policy = TabularPolicy.draw(world, generator)
    narrow, wide = solve_exactly(world, policy, gamma=0.9), solve_exactly(wider, policy, gamma=0.9)
    assert len(wider.states) >= len(world.states)
    assert wide.value[0, wider.start] == pytest.approx(narrow.value[0, world.start], abs=1e-12)


def test_a_policy_that_sees_more_than_the_states_is_refused() -> None:
    part, task = TINY["a bit"]
    world = enumerate_task(part, task)
    policy = TabularPolicy.uniform(remember(world, 2))
    with pytest.raises(ConfigError) as refusal:
        solve_exactly(world, policy)
    assert str(refusal.value) == (
        "the policy sees 2 past steps, but the states contain only 0: list them with `remember(world, 2)`"
    )


def test_other_environments_are_refused() -> None:
    part = Countdown()
    with pytest.raises(ConfigError) as refusal:
        enumerate_task(part, part.task_set("test")[0])
    assert str(refusal.value) == (
        "the states of Countdown cannot be listed, only those of gridworld and aliased; use continuations from forks"
    )


def test_a_world_that_remembers_is_made_at_once() -> None:
    part, task = TINY["a bit"]
    with pytest.raises(ConfigError) as refusal:
        remember(remember(enumerate_task(part, task), 1), 2)
    assert str(refusal.value) == (
        "the environment already shows 1 past steps; pass the original one with the whole window"
    )
