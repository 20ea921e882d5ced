"""The truth by continuations agrees with the exact one, to the error that it states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from groupwise.data.records import StopReason, Trajectory
from groupwise.envs import Aliased, Gridworld
from groupwise.lab.measures import measure_credit
from groupwise.lab.played_recording import PlayedCondition, RecordedStep, continue_steps, record_played
from groupwise.lab.recording import ListedTask
from groupwise.lab.tabular import ExactValues, solve_exactly
from groupwise.models.tiny import make_word_tokenizer
from groupwise.rollout import WholeResponse, Window
from groupwise.rollout.environment_runner import InProcess
from groupwise.rollout.episodes import Player, Rollout
from groupwise.rollout.forks import Fork, play_forks
from groupwise.rollout.prompts import Prompter, PromptTemplate
from groupwise.system.errors import ConfigError, EngineFault, RecordError
from tests.unit.lab.listed_tasks import list_tasks
from tests.unit.lab.tabular_engine import TabularEngine
from tests.unit.lab.traced import trace_rollout

SMALL_LAKE = Gridworld(size=3, num_holes=1, max_steps=5)
CORRIDOR = Aliased(hidden_bits=1, passages=0, num_doors=2, num_colours=2, max_steps=5)


def make_player(env: Any, tasks: Sequence[ListedTask], *, window: int = 0) -> Player:
    """A player whose policy are the tasks' tables, by way of prompts and tokens."""
    tokenizer = make_word_tokenizer((*env.vocabulary(), "Goal", ":", ">", "."))
    prompter = Prompter(tokenizer, template=PromptTemplate(), history=Window(steps=window), instruction="")
    engine = TabularEngine(prompter, WholeResponse())
    for listed in tasks:
        engine.add_task(env.open(listed.task).observe(), listed.world, listed.policy)
    return Player(engine=engine, host=InProcess(env), prompter=prompter, action_parser=WholeResponse(), max_tokens=4)


def continue_with(player: Player) -> Callable[[Sequence[Fork]], list[Trajectory]]:
    return lambda forks: play_forks(forks, player, temperature=1.0)


def find_exact(values: ExactValues, listed: ListedTask, step: RecordedStep) -> tuple[float, float]:
    steps = step.rollout.steps
    texts = [str(taken.observation) for taken in steps]
    actions = [str(taken.action) for taken in steps]
    states = trace_rollout(listed.world, keys=[taken.state_key for taken in steps], texts=texts, actions=actions)
    place = (step.index, states[step.index])
    action = listed.world.actions.index(actions[step.index])
    return float(values.value[place]), float(values.action_value[(*place, action)])


@pytest.mark.parametrize(("env", "window"), [(SMALL_LAKE, 0), (CORRIDOR, 2)], ids=["lake", "corridor"])
@pytest.mark.parametrize("gamma", [1.0, 0.8])
def test_continuations_agree_with_enumeration_to_the_error_they_state(env: Any, window: int, gamma: float) -> None:
    [listed] = list_tasks(env, num=1, sees=window, skill=1.0)
    player = make_player(env, [listed], window=window)
    [rollout] = player.play([Rollout(task=listed.task, number=0, seed=3)], temperature=1.0)
    steps = [RecordedStep(rollout=rollout, index=index) for index in range(len(rollout.steps))]
    advantages = continue_steps(steps, continue_with(player), num=400, gamma=gamma, seed=1)
    values = solve_exactly(listed.world, listed.policy, gamma=gamma)
    off = []
    for step, advantage in zip(steps, advantages, strict=True):
        before, after = find_exact(values, listed, step)
        assert advantage.state_value == pytest.approx(before, abs=0.1)
        assert advantage.action_value == pytest.approx(after, abs=0.1)
        assert advantage.value == pytest.approx(advantage.action_value - advantage.state_value)
        assert advantage.error < 0.05
        off.append((advantage.value - (after - before)) / max(advantage.error, 1e-6))
    assert np.abs(off).max() < 3.5
    assert any(advantage.error > 0 for advantage in advantages)


def test_the_stated_error_is_the_spread_of_repeated_estimates() -> None:
    [listed] = list_tasks(SMALL_LAKE, num=1, skill=1.0)
    player = make_player(SMALL_LAKE, [listed])
    [rollout] = player.play([Rollout(task=listed.task, number=0, seed=3)], temperature=1.0)
    step = RecordedStep(rollout=rollout, index=0)
    again = [continue_steps([step], continue_with(player), num=16, seed=seed)[0] for seed in range(60)]
    before, after = find_exact(solve_exactly(listed.world, listed.policy), listed, step)
    values = np.array([advantage.value for advantage in again])
    stated = float(np.sqrt(np.mean([advantage.error**2 for advantage in again])))
    assert float(values.std(ddof=1)) == pytest.approx(stated, rel=0.3)
    assert float(values.mean()) == pytest.approx(after - before, abs=3.5 * stated / np.sqrt(60))


def test_a_played_recording_finds_the_bias_of_a_planted_estimator() -> None:
    """Credit that is turned around at every first step is found out, without a listed world."""
    tasks = list_tasks(SMALL_LAKE, num=2, skill=1.0)
    player = make_player(SMALL_LAKE, tasks)
    recording = record_played(
        [listed.task for listed in tasks],
        lambda rollouts: player.play(rollouts, temperature=1.0),
        continue_with(player),
        PlayedCondition(updates=20, rollouts=4, situations=6, continuations=200),
    )
    known, index = (
        recording.is_known,
        np.concatenate([[step.index for step in rollout.steps] for rollout in recording.rollouts]),
    )
    assert 0 < known.sum() < len(known)
    truth = np.nan_to_num(recording.truth)
    noise = 0.1 * np.random.default_rng(0).standard_normal(len(truth))
    honest = measure_credit(truth + noise, recording)
    planted = measure_credit(np.where(index == 0, -truth, truth) + noise, recording)
    assert honest.bias.low <= 0 <= honest.bias.high + 0.1
    assert planted.misdirection.low > honest.misdirection.high
    values = {listed.task.id: solve_exactly(listed.world, listed.policy) for listed in tasks}
    by_task = {listed.task.id: listed for listed in tasks}
    rows = [RecordedStep(rollout=rollout, index=n) for rollout in recording.rollouts for n in range(len(rollout.steps))]
    for row in np.flatnonzero(known):
        name = rows[row].rollout.task.id
        before, after = find_exact(values[name], by_task[name], rows[row])
        assert abs(recording.truth[row] - (after - before)) < 4.5 * max(recording.truth_error[row], 1e-3)


def test_fewer_than_two_continuations_have_no_error_bar() -> None:
    with pytest.raises(ConfigError, match="continuations: expected at least 2 of each kind, got 1"):
        continue_steps([], lambda forks: [], num=1)


def test_a_prompt_that_shows_more_than_the_table_knows_is_refused() -> None:
    [listed] = list_tasks(SMALL_LAKE, num=1)
    player = make_player(SMALL_LAKE, [listed], window=2)
    rollouts = [Rollout(task=listed.task, number=seed, seed=seed) for seed in range(8)]
    with pytest.raises(EngineFault, match=r"is in no table; add its task, with a window as long as"):
        player.play(rollouts, temperature=1.0)


def end_with_fault(rollout: Trajectory) -> Trajectory:
    return replace(rollout, steps=(), stop=StopReason.ERROR, error="boom")


def test_pairs_of_which_a_fault_ended_one_are_left_out() -> None:
    [listed] = list_tasks(SMALL_LAKE, num=1, skill=1.0)
    player = make_player(SMALL_LAKE, [listed])
    [rollout] = player.play([Rollout(task=listed.task, number=0, seed=3)], temperature=1.0)
    step = RecordedStep(rollout=rollout, index=0)

    def play(forks: Sequence[Fork], num_sound: int) -> list[Trajectory]:
        played = continue_with(player)(forks)
        return [
            end_with_fault(trajectory) if fork.kept == 0 and fork.number >= num_sound else trajectory
            for fork, trajectory in zip(forks, played, strict=True)
        ]

    [whole] = continue_steps([step], continue_with(player), num=8)
    [some] = continue_steps([step], lambda forks: play(forks, 8), num=16)
    assert some == replace(whole, pairs_left_out=8, first_fault="boom")
    [none] = continue_steps([step], lambda forks: play(forks, 1), num=16)
    assert none.pairs_left_out == 15
    assert np.isnan(none.value)


def test_rollouts_that_a_fault_ended_are_not_recorded() -> None:
    tasks = list_tasks(SMALL_LAKE, num=2, skill=1.0)
    player = make_player(SMALL_LAKE, tasks)

    def play(rollouts: Sequence[Rollout]) -> list[Trajectory]:
        first, *others = player.play(rollouts, temperature=1.0)
        return [end_with_fault(first), *others]

    condition = PlayedCondition(updates=4, rollouts=4, situations=2, continuations=4)
    recording = record_played([listed.task for listed in tasks], play, continue_with(player), condition)
    assert recording.describe()["rollouts_left_out"] == 4
    assert all(rollout.steps for rollout in recording.rollouts)
    assert len(recording.update) == sum(len(rollout.steps) for rollout in recording.rollouts)


def test_continuations_that_faults_all_ended_are_told_with_their_cause() -> None:
    tasks = list_tasks(SMALL_LAKE, num=2, skill=1.0)
    player = make_player(SMALL_LAKE, tasks)
    num_forks = 0

    def break_off(forks: Sequence[Fork]) -> list[Trajectory]:
        nonlocal num_forks
        num_forks += len(forks)
        return [end_with_fault(fork.trunk) for fork in forks]

    condition = PlayedCondition(updates=4, rollouts=4, situations=2, continuations=4)
    play = partial(player.play, temperature=1.0)
    with pytest.raises(RecordError) as raised:
        record_played([listed.task for listed in tasks], play, break_off, condition)
    assert num_forks > 0
    assert str(raised.value) == (
        f"{num_forks // 2} pairs of continuations ended with an error, so no true advantage is known "
        "(the first: boom); fix the environment"
    )


def test_a_recording_without_any_truth_is_described_in_silence() -> None:
    """Warnings are errors in tests."""
    tasks = list_tasks(SMALL_LAKE, num=2, skill=1.0)
    player = make_player(SMALL_LAKE, tasks)
    recording = record_played(
        [listed.task for listed in tasks],
        partial(player.play, temperature=1.0),
        continue_with(player),
        PlayedCondition(updates=4, rollouts=4, situations=2, continuations=4),
    )
    described = replace(recording, truth=np.full(len(recording.truth), np.nan)).describe()
    assert described["steps_with_truth"] == 0
    assert np.isnan([described["truth_size"], described["truth_error"]]).all()


def test_responses_that_come_to_one_action_are_not_one_decision_point() -> None:
    """Prompts show past responses as they were said."""
    tasks = list_tasks(SMALL_LAKE, num=1, skill=1.0)
    player = make_player(SMALL_LAKE, tasks)

    def play(rollouts: Sequence[Rollout]) -> list[Trajectory]:
        return [
            replace(
                rollout,
                steps=tuple(
                    replace(step, response_ids=(rollout.rollout % 2, *step.response_ids[1:])) for step in rollout.steps
                ),
            )
            for rollout in player.play(rollouts, temperature=1.0)
        ]

    condition = PlayedCondition(updates=6, rollouts=4, situations=2, continuations=4)
    said = record_played(
        [listed.task for listed in tasks], play, lambda forks: [fork.trunk for fork in forks], condition
    )
    parity = np.concatenate([[rollout.rollout % 2] * len(rollout.steps) for rollout in said.rollouts])
    is_later = np.concatenate([np.arange(len(rollout.steps)) > 0 for rollout in said.rollouts])
    assert all(len(set(parity[said.point == number])) == 1 for number in set(said.point))
    assert all(len(set(parity[said.situation == number])) == 1 for number in set(said.situation[is_later]))
