"""Corridors: what texts show and hide, what keys tell apart, chance that belongs to the task, and the task sets."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from pydantic import ValidationError

from groupwise import Task
from groupwise.envs import SPLITS, Aliased
from groupwise.envs.kit.draws import Draws
from groupwise.envs.small.aliased import Corridor, Stand, comes_to_nothing

PAYLOAD = {
    "colours": ["red", "blue", "green"],
    "lamps": [["blue", "green"], ["green", "red"]],
    "names": [7, 4],
    "wiring": [[0, 1, 0], [1, 0, 0]],
    "passages": 1,
    "doors": [1, 0],
    "noise": 0.0,
}


def corridor(seed: int = 0, **changes: object) -> Task:
    return Task.create(env="aliased", seed=seed, payload={**PAYLOAD, **changes})


def test_a_way_out_by_hand() -> None:
    environment = Aliased(hidden_bits=2).open(corridor())
    first = environment.observe()
    assert (first.text, first.goal, first.admissible) == ("Switch 7.", "get out.", ("red", "blue", "green"))
    said = [
        ("blue", "Lamp 7 is green. Switch 4.", "Switch 4. Lamp 7 is green."),
        ("red", "Lamp 4 is red. Passage 1.", "Passage 1. Lamp 7 is green. Lamp 4 is red."),
        ("red", "Door 1 asks for lamp 4.", "Door 1 asks for lamp 4. Lamp 7 is green. Lamp 4 is red."),
        (
            "green",
            "Nothing happens. Door 1 asks for lamp 4.",
            "Door 1 asks for lamp 4. Lamp 7 is green. Lamp 4 is red. Nothing happens.",
        ),
        ("red", "Door 2 asks for lamp 7.", "Door 2 asks for lamp 7. Lamp 7 is green. Lamp 4 is red."),
        ("green", "You are out.", "You are out. Lamp 7 is green. Lamp 4 is red."),
    ]
    for action, text, key in said:
        outcome = environment.act(action)
        assert (outcome.observation.text, outcome.observation.state_key) == (text, key)
        assert outcome.accepted
    assert (outcome.reward, outcome.terminated, outcome.success) == (1.0, True, True)


def test_what_is_no_colour_here_is_refused_and_costs_a_step() -> None:
    environment = Aliased(hidden_bits=2, max_steps=8).open(corridor())
    for said in ("white", "Red", "") * 3:
        outcome = environment.act(said)
        assert not outcome.accepted
        assert outcome.observation.text == "Nothing happens. Switch 7."
        if outcome.ended:
            break
    assert (outcome.truncated, outcome.success) == (True, False)


def test_one_reply_hides_the_place_from_the_text_and_not_from_the_situation() -> None:
    part = Aliased(hidden_bits=2, one_reply=True)
    replies = []
    for actions in (["no"], ["red", "no"], ["red", "red", "red", "green"]):
        environment = part.open(corridor())
        for action in actions:
            outcome = environment.act(action)
        replies.append(outcome.observation)
    assert {seen.text for seen in replies} == {"Nothing happens."}
    assert len({seen.state_key for seen in replies}) == 3


@pytest.mark.parametrize("bits", [0, 1, 2, 3])
def test_the_text_at_the_last_door_hides_so_many_bits(bits: int) -> None:
    part = Aliased(hidden_bits=bits, passages=1, num_doors=3, num_colours=2, max_steps=8)
    situations: dict[str, set[object]] = defaultdict(set)
    for number in range(400):
        environment, draws = part.open(part.task_set("train")[0]), Draws("test", number)
        outcome = None
        while outcome is None or not outcome.ended:
            outcome = environment.act(draws.pick(("red", "blue")))
            situations[outcome.observation.text].add(outcome.observation.state_key)
    last = next(text for text in situations if text.startswith("Door 3"))
    assert len(situations[last]) == 2**bits


def test_the_key_is_the_situation_or_the_text() -> None:
    for part, key in (
        (Aliased(hidden_bits=2), "Switch 4. Lamp 7 is green."),
        (Aliased(hidden_bits=2, key="observation"), "Lamp 7 is green. Switch 4."),
        (Aliased(hidden_bits=2, key="observation", goal_in_text=True), "Lamp 7 is green. Switch 4."),
    ):
        assert part.open(corridor()).act("blue").observation.state_key == key


def test_chance_comes_as_often_as_it_should_and_belongs_to_seed_step_room_and_action() -> None:
    lost = Counter(
        comes_to_nothing(Corridor.read({**PAYLOAD, "noise": 0.25}, seed), Stand(room), colour, step)
        for seed in range(50)
        for step in range(4)
        for room in range(4)
        for colour in ("red", "blue")
    )
    assert abs(lost[True] / lost.total() - 0.25) < 4 * (0.25 * 0.75 / lost.total()) ** 0.5
    noisy = corridor(seed=3, noise=0.5)
    part = Aliased(hidden_bits=2)
    assert part.open(noisy).act("red") == part.open(noisy).act("red")


def test_with_noise_the_task_sets_hold_what_the_expert_can_win() -> None:
    part = Aliased(hidden_bits=2, noise=0.3, max_steps=10)
    lengths = Counter()
    for task in part.task_set("test"):
        environment = part.open(task)
        outcome = None
        while outcome is None or not outcome.ended:
            action = environment.expert()
            assert action is not None
            outcome = environment.act(action)
            lengths[task.id] += 1
        assert outcome.success
        assert environment.expert() is None
    assert min(lengths.values()) == 7
    assert max(lengths.values()) > 8


def test_no_corridor_is_in_two_task_sets_and_each_door_asks_for_a_lamp_in_turn() -> None:
    part = Aliased(hidden_bits=3, num_doors=4)
    doors = [tuple(task.payload["doors"]) for split in SPLITS for task in part.task_set(split)]
    assert all(set(asked) == {0, 1, 2} for asked in doors)
    assert len(set(doors)) == 12, "every order of three lamps, the first of them twice"
    assert {len(part.task_set(split)) for split in SPLITS} == {1000, 100, 200}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (
            {"hidden_bits": 3, "passages": 4, "num_doors": 4, "max_steps": 10},
            "hidden_bits, passages and num_doors make 11 rooms, more than max_steps, 10; raise max_steps",
        ),
        (
            {"hidden_bits": 3, "passages": 6, "num_doors": 8, "max_steps": 20},
            "hidden_bits, passages and num_doors make 17 rooms, more than 12; take fewer",
        ),
    ],
)
def test_corridors_that_are_too_long_are_refused(fields: dict[str, int], problem: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        Aliased.model_validate(fields)
    assert problem in str(refusal.value)
