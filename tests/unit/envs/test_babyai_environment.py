"""BabyAI in words: what is seen, what can be done, missions, the bot, and task sets by content."""

from __future__ import annotations

import sys
from hashlib import sha256
from random import Random
from typing import Any

import pytest

from groupwise import ConfigError, RecordError, Task
from groupwise.envs import SPLITS, Babyai, Household, babyai
from groupwise.envs.babyai import UNSEEN, describe_distance, describe_thing, digest_world, find_visible_cells
from groupwise.envs.kit.task_set import draw_task_sets
from groupwise.envs.kit.words import split_words

SMALL = {"num_train": 12, "num_validation": 2, "num_test": 4}


class Thing:
    """What MiniGrid's objects say of themselves."""

    def __init__(self, kind: str, color: str = "red", is_open: bool = False, is_locked: bool = False) -> None:
        self.type, self.color, self.is_open, self.is_locked = kind, color, is_open, is_locked


def test_without_the_package_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    babyai._load_registry.cache_clear()
    draw_task_sets.cache_clear()
    monkeypatch.setitem(sys.modules, "minigrid", None)
    with pytest.raises(ConfigError) as raised:
        Babyai().task_set("train")
    assert str(raised.value) == (
        "the environment 'babyai' needs a package that is not installed; pip install 'groupwise[babyai]'"
    )


def test_a_task_of_another_environment() -> None:
    with pytest.raises(RecordError, match="belongs to the environment 'household'"):
        Babyai().open(Household().task_set("test")[0])


@pytest.mark.parametrize(
    ("forward", "side", "words"),
    [
        (1, 0, "1 step forward"),
        (3, 0, "3 steps forward"),
        (0, -1, "1 step left"),
        (2, 2, "2 steps forward and 2 steps right"),
    ],
)
def test_distances_in_words(forward: int, side: int, words: str) -> None:
    assert describe_distance(forward, side) == words


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        (Thing("ball"), "a red ball"),
        (Thing("wall", "grey"), "a wall"),
        (Thing("door", is_open=True), "an open red door"),
        (Thing("door"), "a closed red door"),
        (Thing("door", is_locked=True), "a locked red door"),
    ],
)
def test_things_in_words(thing: Thing, words: str) -> None:
    assert describe_thing(thing) == words


@pytest.mark.filterwarnings("ignore")
class TestWithMinigrid:
    @pytest.fixture(autouse=True)
    def _minigrid(self) -> None:
        pytest.importorskip("minigrid", reason="pip install 'groupwise[babyai]' to play BabyAI's levels")
        babyai._load_registry.cache_clear()

    def at(self, level: str, **fields: Any) -> tuple[Babyai, Any]:
        part = Babyai(level=level, **SMALL, **fields)
        return part, part.open(part.task_set("train")[0])

    def test_a_mission_by_hand(self) -> None:
        """Two steps of a world set up by hand: the agent faces right, a red ball is two cells ahead."""
        _, environment = self.at("BabyAI-GoToRedBallNoDists-v0")
        world = environment._world
        ball = next(cell for cell in world.grid.grid if cell is not None and cell.type == "ball")
        world.grid.set(*ball.cur_pos, None)
        world.agent_pos, world.agent_dir = (2, 3), 0
        world.grid.set(4, 3, ball)
        ball.cur_pos = (4, 3)
        world.instrs.reset_verifier(world)
        first = environment._observe()
        assert first.goal == "go to the red ball."
        assert first.text == (
            "You see a wall 5 steps forward, a wall 3 steps left, a red ball 2 steps forward. You carry nothing."
        )
        assert first.admissible == ("turn left", "turn right", "go forward", "done")
        assert first.state_key.startswith("row 3 column 2 facing right; carrying nothing; done nothing; world ")
        fork = environment.fork()
        last = environment.act("go forward")
        assert last.success is True
        assert last.reward == pytest.approx(1 - 0.9 / world.max_steps)
        turned = fork.act("turn left")
        assert (turned.success, turned.reward) == (None, 0.0)
        assert "facing up" in str(turned.observation.state_key)

    @pytest.mark.parametrize("level", ["GoToLocalS5N2", "BossLevel", "KeyInBox", "UnlockToUnlock"])
    def test_the_view_and_the_digest_are_the_packages(self, level: str) -> None:
        """Cell by cell as `gen_obs_grid` and `encode` give them, wherever an agent walks and whatever it opens."""
        draw, kinds = Random(0), set()
        for task in Babyai(level=f"BabyAI-{level}-v0", **SMALL).task_set("train")[:4]:
            world = babyai.start_world(f"BabyAI-{level}-v0", task.seed)
            for _ in range(60):
                world.step(draw.choice((0, 1, 2, 2, 2, 3, 4, 5)))
                grid, in_view = world.gen_obs_grid()
                ours, middle = find_visible_cells(world), world.agent_view_size // 2
                for forward, line in enumerate(ours):
                    for column, cell in enumerate(line):
                        row = world.agent_view_size - 1 - forward
                        assert (cell is not UNSEEN) == in_view[column, row]
                        if cell is not UNSEEN and (forward, column) != (0, middle):
                            theirs = grid.get(column, row)
                            assert getattr(cell, "type", None) == getattr(theirs, "type", None)
                            kinds.add(getattr(cell, "type", None))
                            assert theirs is cell or theirs.type == "wall"
                hidden = repr(
                    [describe_thing(cell.contains) for cell in world.grid.grid if getattr(cell, "contains", None)]
                )
                theirs = sha256(world.grid.encode().tobytes() + hidden.encode()).hexdigest()[:16]
                assert digest_world(world) == theirs
        assert {None, "wall"} < kinds

    def test_what_does_nothing_is_valid_and_said_to_be_nothing(self) -> None:
        _, environment = self.at("BabyAI-GoToLocal-v0")
        before = environment.observe()
        outcome = environment.act("drop")
        assert outcome.accepted
        assert outcome.observation.text == f"Nothing happens. {before.text}"
        assert outcome.observation.state_key == before.state_key
        unknown = environment.act("fly")
        assert not unknown.accepted
        assert unknown.observation.text == f"Nothing happens. {before.text}"

    @pytest.mark.parametrize(
        "level",
        ["GoToLocal", "PickupLoc", "PutNextLocal", "UnlockLocal", "OpenDoorsOrderN2", "GoToSeqS5R2", "ActionObjDoor"],
    )
    def test_the_bot_does_its_missions(self, level: str) -> None:
        part = Babyai(level=f"BabyAI-{level}-v0", **SMALL, max_steps=200)
        known = set(part.vocabulary())
        for task in part.task_set("train"):
            environment, outcome = part.open(task), None
            while (action := environment.expert()) is not None:
                assert environment.expert() == action, "asking twice changes nothing"
                outcome = environment.act(action)
                shown = outcome.observation
                assert {*split_words(shown.text), *split_words(shown.goal)} <= known
            assert outcome is not None
            assert outcome.success is True

    def test_the_bot_finds_back_from_a_detour_and_says_nothing_of_an_opened_box(self) -> None:
        part = Babyai(level="BabyAI-GoToLocal-v0", **SMALL)
        for task in part.task_set("train")[:6]:
            environment = part.open(task)
            for action in ("turn left", "turn left", "turn left"):
                if not environment.act(action).ended:
                    assert environment.expert() in (environment.observe().admissible or ())
        box = babyai.Guide.__new__(babyai.Guide)
        box._bot = type("Bot", (), {"replan": lambda self, taken: 1 / 0})()
        assert box._ask(5) is None
        assert box._bot is None

    def test_no_world_is_in_two_task_sets_and_small_levels_have_small_ones(self) -> None:
        part = Babyai(level="BabyAI-GoToRedBallNoDists-v0", num_train=60, num_validation=8, num_test=10)
        worlds = {
            split: {task.payload["start"] + task.payload["mission"] for task in part.task_set(split)}
            for split in SPLITS
        }
        assert sum(map(len, worlds.values())) == len(set().union(*worlds.values()))
        assert {split: len(starts) for split, starts in worlds.items()} == {"train": 60, "validation": 8, "test": 10}

    def test_a_seed_that_makes_another_world_is_refused(self) -> None:
        part = Babyai(**SMALL)
        task = part.task_set("test")[0]
        changed = Task.create(env="babyai", split="test", seed=task.seed + 1, payload=task.payload)
        with pytest.raises(RecordError, match=f"seed {task.seed + 1} now makes another level"):
            part.open(changed)

    def test_an_unknown_level_gives_the_names(self) -> None:
        with pytest.raises(
            ConfigError, match="there is no level 'BabyAI-GoToLocl-v0'; did you mean 'BabyAI-GoToLocal-v0'"
        ):
            Babyai(level="BabyAI-GoToLocl-v0").task_set("train")
