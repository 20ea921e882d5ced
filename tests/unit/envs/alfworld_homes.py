"""Small homes in ALFWorld's file format, made up for tests; rules and sentences are stand-ins with other digests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from groupwise.envs.alfworld import game as alfworld_game
from groupwise.envs.alfworld.game import Game, read_game

RULES = "(define (domain made-up))"
SENTENCES = '{"task": [{"rhs": "Your task is to: TASK"}]}'
HOME = """
    (receptacleType Drawer_bar_1 DrawerType) (receptacleType Desk_bar_2 DeskType) (receptacleType Shelf_bar_3 ShelfType)
    (receptacleType Sink_bar_4_bar_SinkBasin SinkBasinType) (receptacleType Microwave_bar_5 MicrowaveType)
    (receptacleType Fridge_bar_6 FridgeType) (receptacleType Shelf_bar_7 ShelfType)
    (objectType Mug_bar_1 MugType) (objectType Mug_bar_2 MugType) (objectType Knife_bar_1 KnifeType)
    (objectType Apple_bar_1 AppleType) (objectType DeskLamp_bar_1 DeskLampType) (objectType Roll_bar_1 RollType)
    (objectType Pen_bar_1 PenType)
    (canContain DrawerType MugType) (canContain DeskType MugType) (canContain ShelfType MugType)
    (canContain FridgeType AppleType) (canContain DeskType AppleType) (canContain DeskType KnifeType)
    (canContain DrawerType KnifeType) (canContain DeskType PenType) (canContain MicrowaveType MugType)
    (pickupable Mug_bar_1) (pickupable Mug_bar_2) (pickupable Knife_bar_1) (pickupable Apple_bar_1)
    (pickupable Roll_bar_1) (pickupable Pen_bar_1)
    (isReceptacleObject Mug_bar_1) (inReceptacleObject Pen_bar_1 Mug_bar_1)
    (openable Drawer_bar_1) (openable Microwave_bar_5) (openable Fridge_bar_6)
    (atLocation agent1 loc_bar_0)
    (cleanable Mug_bar_1) (cleanable Mug_bar_2) (cleanable Knife_bar_1) (cleanable Apple_bar_1)
    (heatable Mug_bar_1) (heatable Mug_bar_2) (heatable Apple_bar_1)
    (coolable Mug_bar_1) (coolable Mug_bar_2) (coolable Apple_bar_1)
    (sliceable Apple_bar_1) (toggleable DeskLamp_bar_1)
    (inReceptacle Mug_bar_1 Drawer_bar_1) (inReceptacle Mug_bar_2 Shelf_bar_3) (inReceptacle Knife_bar_1 Desk_bar_2)
    (inReceptacle Apple_bar_1 Desk_bar_2) (inReceptacle DeskLamp_bar_1 Desk_bar_2) (inReceptacle Roll_bar_1 Shelf_bar_7)
    (inReceptacle Pen_bar_1 Desk_bar_2)
    (receptacleAtLocation Drawer_bar_1 loc_bar_1) (receptacleAtLocation Desk_bar_2 loc_bar_2)
    (receptacleAtLocation Shelf_bar_3 loc_bar_3) (receptacleAtLocation Shelf_bar_7 loc_bar_3)
    (receptacleAtLocation Sink_bar_4_bar_SinkBasin loc_bar_4) (receptacleAtLocation Microwave_bar_5 loc_bar_5)
    (receptacleAtLocation Fridge_bar_6 loc_bar_6)
    (objectAtLocation Mug_bar_1 loc_bar_1) (objectAtLocation Mug_bar_2 loc_bar_3)
    (objectAtLocation Knife_bar_1 loc_bar_2) (objectAtLocation Apple_bar_1 loc_bar_2)
    (objectAtLocation DeskLamp_bar_1 loc_bar_2)
    (objectAtLocation Roll_bar_1 loc_bar_3) (objectAtLocation Pen_bar_1 loc_bar_2)
"""
PLACE = "(and (exists (?r - receptacle) (exists (?o - object) (and {} (inReceptacle ?o ?r)))))"
GOALS = {
    "pick_and_place_simple": (
        "put a mug in desk.",
        "(and (exists (?r - receptacle) (exists (?o - object) (and (inReceptacle ?o ?r) (objectType ?o MugType) "
        "(receptacleType ?r DeskType)))))",
        ("go to shelf 1", "take mug 1 from shelf 2", "go to desk 1", "move mug 1 to desk 1"),
    ),
    "pick_clean_then_place_in_recep": (
        "put a clean mug in desk.",
        PLACE.format("(cleanable ?o) (objectType ?o MugType) (receptacleType ?r DeskType) (isClean ?o)"),
        (
            "go to shelf 2",
            "take mug 1 from shelf 2",
            "go to sinkbasin 1",
            "clean mug 1 with sinkbasin 1",
            "go to desk 1",
            "move mug 1 to desk 1",
        ),
    ),
    "pick_heat_then_place_in_recep": (
        "heat some apple and put it in fridge.",
        PLACE.format("(heatable ?o) (objectType ?o AppleType) (receptacleType ?r FridgeType) (isHot ?o)"),
        (
            "go to desk 1",
            "take apple 1 from desk 1",
            "go to microwave 1",
            "heat apple 1 with microwave 1",
            "go to fridge 1",
            "open fridge 1",
            "move apple 1 to fridge 1",
        ),
    ),
    "pick_cool_then_place_in_recep": (
        "put a cool apple in desk.",
        PLACE.format("(coolable ?o) (objectType ?o AppleType) (receptacleType ?r DeskType) (isCool ?o)"),
        (
            "go to desk 1",
            "take apple 1 from desk 1",
            "go to fridge 1",
            "cool apple 1 with fridge 1",
            "go to desk 1",
            "move apple 1 to desk 1",
        ),
    ),
    "pick_two_obj_and_place": (
        "put two mug in drawer.",
        "(and (exists (?r - receptacle) (exists (?o1 - object) (and (objectType ?o1 MugType) (receptacleType ?r "
        "DrawerType) (inReceptacle ?o1 ?r) (exists (?o2 - object) (and (not (= ?o1 ?o2)) (objectType ?o2 MugType) "
        "(receptacleType ?r DrawerType) (inReceptacle ?o2 ?r)))))))",
        ("go to shelf 2", "take mug 1 from shelf 2", "go to drawer 1", "open drawer 1", "move mug 1 to drawer 1"),
    ),
    "look_at_obj_in_light": (
        "look at mug under the desklamp.",
        "(and (exists (?ot - object ?r - receptacle ?a - agent ?l - location) (and (objectType ?ot DeskLampType) "
        "(toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?ot ?r))) "
        "(exists (?o - object ?a - agent) (and (objectType ?o MugType) (holds ?a ?o))))",
        ("go to shelf 2", "take mug 1 from shelf 2", "go to desk 1", "use desklamp 1"),
    ),
}
"""Task types with the task, the goal and a walkthrough."""


def content(task_type: str, home: str = HOME) -> bytes:
    """A game file."""
    task, goal, walkthrough = GOALS[task_type]
    fields = {
        "pddl_domain": RULES,
        "grammar": SENTENCES.replace("TASK", task),
        "pddl_problem": f"(define (problem p) (:init {home}) (:goal {goal}))",
        "solvable": True,
        "walkthrough": walkthrough,
    }
    return json.dumps(fields).encode()


def admit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let games with the stand-ins pass for ALFWorld's."""
    monkeypatch.setattr(alfworld_game, "RULES_DIGEST", alfworld_game._digest_text(RULES))
    without_task = alfworld_game.TASK.sub("", SENTENCES)
    monkeypatch.setattr(alfworld_game, "SENTENCES_DIGEST", alfworld_game._digest_text(without_task))


def game(task_type: str = "pick_and_place_simple") -> Game:
    """A game that was read."""
    return read_game(content(task_type), "made up")


def fill(folder: Path) -> Path:
    """A folder of games: one of each type in each split."""
    for number, split in enumerate(("train", "valid_seen", "valid_unseen")):
        for task_type in GOALS:
            file = folder / split / f"{task_type}-Made-None-Up-{number}" / "trial_T1" / "game.tw-pddl"
            file.parent.mkdir(parents=True)
            file.write_bytes(content(task_type))
    return folder
