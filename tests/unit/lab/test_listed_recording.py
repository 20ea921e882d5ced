"""Recordings from listed worlds: the records are those that the environment would give, and their truth is exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from groupwise.data.records import StopReason
from groupwise.envs import Aliased, Gridworld
from groupwise.lab.enumerated import RememberedState
from groupwise.lab.recording import record_listed
from groupwise.lab.study import make_skilled_policy
from groupwise.lab.tabular import solve_exactly
from tests.unit.lab.listed_tasks import LAKE, list_tasks, record
from tests.unit.lab.traced import trace_rollout

WORLDS = {
    "lake": LAKE,
    "slippery lake": Gridworld(size=4, num_holes=3, slip=0.3, max_steps=8),
    "hidden bits": Aliased(hidden_bits=2, passages=1, num_doors=2, num_colours=3, max_steps=8, one_reply=True),
    "by text": Aliased(hidden_bits=1, passages=1, num_doors=2, num_colours=3, max_steps=8, key="observation"),
}


@pytest.mark.parametrize("name", WORLDS)
@pytest.mark.parametrize("sees", [0, 2, "situation"])
def test_records_are_those_of_the_environment(name: str, sees: Any) -> None:
    env: Any = WORLDS[name]
    key = getattr(env, "key", "situation")
    tasks = list_tasks(env, sees=sees)
    recording = record_listed(tasks, updates=3, rollouts=4, key=key)
    for rollout in recording.rollouts:
        environment = env.open(rollout.task)
        for step in rollout.steps:
            seen = environment.observe()
            assert (step.observation, step.state_key) == (seen.text, seen.state_key)
            outcome = environment.act(step.action)
            assert (step.reward, step.accepted) == (outcome.reward, outcome.accepted)
            assert outcome.ended == (step is rollout.steps[-1])
        assert rollout.stop is (StopReason.TERMINATED if outcome.terminated else StopReason.TRUNCATED)
        assert rollout.scores == {"success": float(bool(outcome.success)), "return": outcome.reward}


def test_every_step_has_the_exact_advantage_of_its_state_and_action() -> None:
    tasks = list_tasks(sees=1)
    recording = record_listed(tasks, updates=2, rollouts=3, key="situation", gamma=0.9)
    expected = []
    for groups in recording.updates:
        for listed, group in zip(tasks, groups, strict=True):
            values = solve_exactly(listed.world, listed.policy, gamma=0.9)
            for rollout in group:
                keys = [step.state_key for step in rollout.steps]
                texts, actions = ([getattr(step, what) for step in rollout.steps] for what in ("observation", "action"))
                states = trace_rollout(listed.world, keys=keys, texts=texts, actions=actions)
                for index, (state, action) in enumerate(zip(states, actions, strict=True)):
                    expected.append(values.advantage[index, state, listed.world.actions.index(action)])
    assert recording.truth.tolist() == expected
    assert not recording.truth_error.any()


def test_points_and_situations_tell_steps_apart_by_what_their_truth_depends_on() -> None:
    recording = record(updates=4)
    rows = [
        (rollout.task.id, step.index, step.state_key, step.action)
        for rollout in recording.rollouts
        for step in rollout.steps
    ]
    assert len(set(rows)) == len(set(zip(rows, recording.point.tolist(), strict=True)))
    assert len(set(recording.point.tolist())) == len(set(rows))
    assert len(set(recording.situation.tolist())) == len({row[:3] for row in rows})


def test_log_probs_and_entropies_are_those_of_the_table() -> None:
    [listed] = list_tasks(num=1)
    recording = record_listed([listed], updates=2, rollouts=2, key="situation")
    for rollout in recording.rollouts:
        for step in rollout.steps:
            row = next(row for view, row in listed.policy.rows.items() if view.text == step.observation)
            chance = row[listed.world.actions.index(str(step.action))]
            assert step.logp_behaviour == (pytest.approx(np.log(chance)), 0.0)
            assert step.entropy == (pytest.approx(-(row * np.log(row)).sum()), 0.0)


def test_the_same_seed_gives_the_same_recording() -> None:
    first, second, other = record(updates=3), record(updates=3), record(updates=3, seed=1)
    assert list(first.rollouts) == list(second.rollouts)
    assert np.array_equal(first.truth, second.truth)
    assert list(first.rollouts) != list(other.rollouts)


def test_skill_is_a_dial() -> None:
    shares = []
    for skill in (0.0, 1.0, 3.0, 8.0):
        tasks = list_tasks(skill=skill, num=4)
        values = [solve_exactly(listed.world, listed.policy).value[0, listed.world.start] for listed in tasks]
        shares.append(float(np.mean(values)))
    assert shares == sorted(shares)
    assert shares[0] < 0.3
    assert shares[-1] > 0.95


def test_a_policy_that_does_not_see_the_lamps_cannot_know_them() -> None:
    env = Aliased(hidden_bits=1, passages=1, num_doors=2, num_colours=2, max_steps=5)
    worth = {}
    for window in (0, 3):
        [listed] = list_tasks(env, num=1, sees=window, skill=20.0)
        policy = make_skilled_policy(listed.world, skill=20.0, roughness=0.0)
        worth[window] = solve_exactly(listed.world, policy).value[0, listed.world.start]
        is_remembered = isinstance(listed.world.states[0], RememberedState)
        assert is_remembered == (window > 0)
    assert worth[3] == pytest.approx(1.0, abs=1e-3)
    assert worth[0] < 0.9
