"""Forks: copies of worlds in hosts of both kinds, and continuations that see the prompts they would have seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from groupwise.data.records import Origin, Trajectory
from groupwise.data.seeds import seed_of
from groupwise.engines.engine import Request
from groupwise.engines.scripted import ScriptedEngine
from groupwise.envs import Gridworld
from groupwise.models.tiny import make_word_tokenizer
from groupwise.rollout import Full, WholeResponse, Window
from groupwise.rollout.environment_runner import Fault, Host, InProcess
from groupwise.rollout.episodes import Player, Rollout
from groupwise.rollout.forks import Fork, play_forks
from groupwise.rollout.prompts import Prompter, PromptTemplate
from groupwise.rollout.worker_pool import Workers
from groupwise.system.errors import EnvironmentFault
from tests.unit.rollout.troublesome import Troublesome, task
from tests.unit.rollout.worker_processes import kill

LAKE = Gridworld(size=4, num_holes=2, slip=0.3, max_steps=8)
MOVES = ("up", "down", "left", "right")


@pytest.fixture(params=["in this process", "in workers"])
def host(request: Any) -> Iterator[Host]:
    with InProcess(LAKE) if request.param == "in this process" else Workers(LAKE, num=2, timeout=5.0) as opened:
        yield opened


def text_of(answer: Any) -> str:
    return str(answer.observation.text if hasattr(answer, "observation") else answer.text)


@pytest.mark.few(1)
def test_a_copy_shows_what_its_source_shows_and_goes_its_own_way(host: Host) -> None:
    lake = LAKE.task_set("train")[0]
    host.open({0: lake, 1: lake})
    host.act({0: "left"})
    copies = host.fork(0, [7, 8])
    moved = host.act({0: "up", 1: "left", 7: "up", 8: "down"})
    expected = host.act({1: "up"})[1]
    assert text_of(copies[7]) == text_of(copies[8]) == text_of(moved[1])
    assert moved[7] == moved[0] == expected
    other = InProcess(LAKE)
    other.open({0: lake})
    assert [other.act({0: action})[0] for action in ("left", "down")][-1] == moved[8]


def test_a_copy_of_a_copy_is_one_too_and_copies_outlive_their_source(host: Host) -> None:
    lake = LAKE.task_set("train")[1]
    host.open({0: lake})
    host.fork(0, [1])
    host.close([0])
    assert text_of(host.fork(1, [2])[2]) == text_of(host.open({3: lake})[3])
    assert host.act({2: "right"})[2] == host.act({3: "right"})[3]


def test_a_world_without_fork_says_so_and_goes_on() -> None:
    message = (
        "EnvironmentFault: TroublesomeEnvironment has no fork(), so no rollout can continue from the middle of its "
        "rollouts; give it one that returns an independent copy"
    )
    with Workers(Troublesome(), num=1, timeout=5.0) as workers:
        for host in (InProcess(Troublesome()), workers):
            host.open({0: task()})
            fault = host.fork(0, [1])[1]
            assert isinstance(fault, Fault)
            assert fault.message == message
            assert host.act({0: "walk"})[0].reward == 1.0  # type: ignore[union-attr]
            with pytest.raises(KeyError):
                host.act({1: "walk"})


def test_copies_come_back_with_their_worker() -> None:
    lake = LAKE.task_set("train")[0]
    with Workers(LAKE, num=1, timeout=5.0) as workers, InProcess(LAKE) as here:
        for host in (workers, here):
            host.open({0: lake})
            host.act({0: "left"})
            host.fork(0, [1])
            host.act({1: "down"})
        kill(workers.pids[0])
        for number in (0, 1):
            assert workers.act({number: "up"}) == here.act({number: "up"})


def test_a_worker_that_died_before_a_copy_was_made_costs_nothing() -> None:
    lake = LAKE.task_set("train")[0]
    with Workers(LAKE, num=1, timeout=5.0) as workers, InProcess(LAKE) as here:
        for host in (workers, here):
            host.open({0: lake})
            host.act({0: "left"})
        kill(workers.pids[0])
        assert workers.fork(0, [4]) == here.fork(0, [4])
        assert workers.act({4: "up"}) == here.act({4: "up"})


def make_player(host: Host, *, history: Any) -> Player:
    """A player whose moves follow from the prompt and the request's seed, as a sampler's do."""
    tokenizer = make_word_tokenizer((*LAKE.vocabulary(), ">", "\n"))
    prompter = Prompter(tokenizer, template=PromptTemplate(), history=history, instruction="")

    def answer(request: Request) -> tuple[int, ...]:
        move = MOVES[np.random.default_rng(seed_of(request.seed, *request.prompt_ids)).integers(4)]
        return (*prompter.encode(move), prompter.frame.end_id)

    return Player(
        engine=ScriptedEngine(answer, version=3),
        host=host,
        prompter=prompter,
        action_parser=WholeResponse(),
        max_tokens=4,
    )


def record(player: Player, num: int = 3) -> list[Trajectory]:
    lakes = LAKE.task_set("train")[:num]
    return player.play([Rollout(task=lake, number=0, seed=n) for n, lake in enumerate(lakes)], temperature=1.0)


@pytest.mark.few(2)
@pytest.mark.parametrize("history", [Full(), Window(steps=2), Window(steps=0)])
def test_with_the_same_seeds_a_continuation_is_the_rollout_itself(host: Host, history: Any) -> None:
    player = make_player(host, history=history)
    recorded = record(player)
    forks = [
        Fork(trunk=rollout, kept=kept, number=kept, seed=number)
        for number, rollout in enumerate(recorded)
        for kept in range(len(rollout.steps) + 1)
    ]
    for fork, played in zip(forks, play_forks(forks, player, temperature=1.0), strict=True):
        expected = replace(
            fork.trunk,
            id=f"{fork.trunk.id}/{fork.kept}/{fork.number}",
            rollout=fork.number,
            origin=Origin.BRANCHED,
            parent=fork.trunk.id,
        )
        assert played == expected


def test_with_other_seeds_the_kept_steps_stay_and_what_follows_may_differ(host: Host) -> None:
    player = make_player(host, history=Full())
    [recorded] = record(player, 1)
    forks = [Fork(trunk=recorded, kept=1, number=n, seed=100 + n) for n in range(8)]
    played = play_forks(forks, player, temperature=1.0)
    assert all(rollout.steps[:1] == recorded.steps[:1] for rollout in played)
    assert len({tuple(step.action for step in rollout.steps) for rollout in played}) > 1


def test_a_record_that_its_world_does_not_repeat_is_refused() -> None:
    player = make_player(InProcess(LAKE), history=Full())
    recorded = next(rollout for rollout in record(player) if len(rollout.steps) > 1)
    first, second, *rest = recorded.steps
    wrong = replace(recorded, steps=(first, replace(second, observation="You are on the moon."), *rest))
    with pytest.raises(EnvironmentFault, match=r"step 1: its recorded actions lead to .* and not to 'You are on the"):
        play_forks([Fork(trunk=wrong, kept=2, number=0, seed=0)], player, temperature=1.0)
