"""The Gymnasium adapter, with the toy-text environments."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from groupwise import ConfigError
from groupwise.envs import Gymnasium

MOVES = ("left", "down", "right", "up")
DRY = Gymnasium(id="FrozenLake-v1", kwargs={"is_slippery": False}, actions=MOVES, max_steps=20)


def test_without_the_package_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(ConfigError) as raised:
        DRY.vocabulary()
    assert str(raised.value) == (
        "the environment 'gymnasium' needs a package that is not installed; pip install 'groupwise[gymnasium]'"
    )


class TestWithGymnasium:
    @pytest.fixture(autouse=True)
    def gymnasium(self) -> Any:
        return pytest.importorskip("gymnasium")

    def test_a_walk_over_the_standard_lake(self) -> None:
        environment = DRY.open(DRY.task_set("train")[0])
        assert (environment.observe().text, environment.observe().admissible) == ("state 0", MOVES)
        walk = [environment.act(move) for move in ("down", "down", "right", "down", "right")]
        assert [outcome.observation.state_key for outcome in walk] == [
            "state 4",
            "state 8",
            "state 9",
            "state 13",
            "state 14",
        ]
        last = environment.act("right")
        assert (last.observation.text, last.reward, last.terminated, last.success) == ("state 15", 1.0, True, True)

    def test_a_hole_is_a_failure_and_a_limit_is_a_cut(self) -> None:
        hole = DRY.open(DRY.task_set("train")[0])
        hole.act("right")
        fallen = hole.act("down")
        assert (fallen.terminated, fallen.truncated, fallen.success) == (True, False, False)
        waiting = DRY.open(DRY.task_set("train")[0])
        outcomes = [waiting.act("up") for _ in range(20)]
        assert [outcome.ended for outcome in outcomes] == [False] * 19 + [True]
        assert (outcomes[-1].terminated, outcomes[-1].truncated, outcomes[-1].success) == (False, True, False)

    def test_the_limit_of_gymnasium_itself_truncates_too(self) -> None:
        part = Gymnasium(id="FrozenLake-v1", kwargs={"is_slippery": False, "max_episode_steps": 3}, actions=MOVES)
        environment = part.open(part.task_set("test")[0])
        outcomes = [environment.act("up") for _ in range(3)]
        assert (outcomes[-1].terminated, outcomes[-1].truncated) == (False, True)

    def test_an_unknown_action_leaves_the_world_alone(self) -> None:
        environment = DRY.open(DRY.task_set("train")[0])
        for _ in range(2):
            outcome = environment.act("jump")
            assert (outcome.accepted, outcome.observation.text) == (False, "Nothing happens. state 0")
        assert environment.act("down").observation.text == "state 4"

    def test_forks_slip_alike_and_apart_from_each_other(self) -> None:
        part = Gymnasium(id="FrozenLake-v1", actions=MOVES)
        for task in part.task_set("test")[:10]:
            environment = part.open(task)
            environment.act("down")
            fork = environment.fork()
            one = []
            for _ in range(6):
                one.append(fork.act("down"))
                if one[-1].ended:
                    break
            assert [environment.act("down") for _ in one] == one

    def test_taxi_masks_what_is_not_admissible_and_its_delivery_is_a_success(self) -> None:
        names = ("south", "north", "east", "west", "pickup", "dropoff")
        part = Gymnasium(id="Taxi-v4", actions=names, max_steps=200)
        environment = part.open(part.task_set("train")[0])
        listed = environment.observe().admissible
        assert listed is not None
        assert "dropoff" not in listed
        assert set(listed) < set(names)
        refused = environment.act("dropoff")
        assert (refused.reward, refused.accepted, refused.ended) == (-10.0, True, False)

    def test_success_by_total_reward(self) -> None:
        part = Gymnasium(id="CliffWalking-v1", actions=("up", "right", "down", "left"), success_return=-20.0)
        environment = part.open(part.task_set("train")[0])
        for action in ("up", *["right"] * 11):
            assert not environment.act(action).ended
        assert environment.act("down").success is True, "13 steps at -1 are more than -20"

    def test_tuples_of_numbers_are_shown_as_numbers(self) -> None:
        part = Gymnasium(id="Blackjack-v1", actions=("stick", "hit"))
        text = part.open(part.task_set("train")[0]).observe().text
        assert text.startswith("state ")
        assert len(text.split()) == 4
        assert set(text.split()) <= set(part.vocabulary())

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"id": "NoSuchLake-v1"}, "gymnasium 'NoSuchLake-v1': "),
            ({"id": "FrozenLake-v1", "actions": ("up",)}, "there are 4 actions, but `actions` has 1; name each"),
            ({"id": "CartPole-v1"}, "expected text, or integers from 0"),
            ({"id": "Pendulum-v1"}, "expected text, or integers from 0"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, fields: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigError) as raised:
            Gymnasium(**fields).vocabulary()
        assert message in str(raised.value)
