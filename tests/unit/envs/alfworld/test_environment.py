"""ALFWorld's games in small homes made up for this: what commands do and say, goals, keys, the expert, bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from groupwise import ConfigError, RecordError, Task
from groupwise.envs import SPLITS, Alfworld, Household, RolloutEnded, task_set_hash
from groupwise.envs.alfworld.environment import AlfworldEnvironment, find_shortest_plan, open_game
from groupwise.envs.alfworld.game import HELP, GameState, WinCondition, read_game
from tests.unit.envs import alfworld_homes as homes


@pytest.fixture(autouse=True)
def _made_up_games(monkeypatch: pytest.MonkeyPatch) -> None:
    homes.admit(monkeypatch)
    open_game.cache_clear()


@pytest.fixture
def part(tmp_path: Path) -> Alfworld:
    return Alfworld(path=str(homes.fill(tmp_path)))


def open_game_of(part: Alfworld, task_type: str) -> AlfworldEnvironment:
    [task] = [task for task in part.task_set("train") if task.tags == (task_type,)]
    return part.open(task)


def ids(task_set: tuple[Task, ...]) -> set[str]:
    return {task.id for task in task_set}


def play(state: GameState, *commands: str) -> list[str]:
    """What the game says to commands, each of which must be possible."""
    return [state.carry_out(state.list_commands()[command]) for command in commands]


class TestSentences:
    def test_the_introduction_names_every_receptacle(self, part: Alfworld) -> None:
        seen = open_game_of(part, "pick_and_place_simple").observe()
        assert seen.text == (
            "You are in the middle of a room. Looking quickly around you, you see a desk 1, a drawer 1, a fridge 1, "
            "a microwave 1, a shelf 2, a shelf 1, and a sinkbasin 1."
        )
        assert seen.goal == "put a mug in desk."

    def test_the_whole_introduction_where_it_is_asked_for(self, part: Alfworld) -> None:
        whole = Alfworld(path=part.path, goal_in_text=True)
        text = whole.open(whole.task_set("train")[0]).observe().text
        assert text.startswith("-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room.")
        assert text.endswith(" and a sinkbasin 1.\n\nYour task is to: put a mug in desk.")

    def test_doors_and_things(self) -> None:
        now = GameState(homes.game())
        assert play(
            now, "go to drawer 1", "open drawer 1", "examine drawer 1", "take mug 2 from drawer 1", "close drawer 1"
        ) == [
            "You arrive at drawer 1. The drawer 1 is closed.",
            "You open the drawer 1. The drawer 1 is open. In it, you see a mug 2.",
            "The drawer 1 is open. In it, you see a mug 2.",
            "You pick up the mug 2 from the drawer 1.",
            "You close the drawer 1.",
        ]
        assert play(now, "inventory", "examine mug 2", "go to desk 1", "move mug 2 to desk 1", "inventory", "help") == [
            "You are carrying: a mug 2.",
            "This is a normal mug 2. In it, you see a pen 1.",
            "You arrive at desk 1. On the desk 1, you see a apple 1, a desklamp 1, a knife 1, and a pen 1.",
            "You move the mug 2 to the desk 1.",
            "You are not carrying anything.",
            HELP,
        ]

    def test_treatments_show_when_a_thing_is_examined(self) -> None:
        now = GameState(homes.game("pick_heat_then_place_in_recep"))
        play(now, "go to desk 1", "take apple 1 from desk 1", "go to fridge 1")
        assert play(now, "examine apple 1", "cool apple 1 with fridge 1", "examine apple 1") == [
            "There's nothing special about apple 1.",
            "You cool the apple 1 using the fridge 1.",
            "This is a cold apple 1.",
        ]
        play(now, "go to sinkbasin 1")
        assert play(now, "clean apple 1 with sinkbasin 1", "examine apple 1") == [
            "You clean the apple 1 using the sinkbasin 1.",
            "This is a cool and clean apple 1.",
        ]
        play(now, "go to microwave 1")
        assert play(now, "heat apple 1 with microwave 1", "examine apple 1") == [
            "You heat the apple 1 using the microwave 1.",
            "This is a hot and clean apple 1.",
        ]

    def test_slicing_needs_a_knife_in_hand(self) -> None:
        now = GameState(homes.game())
        play(now, "go to desk 1")
        assert "slice apple 1 with knife 1" not in now.list_commands()
        play(now, "take knife 1 from desk 1")
        assert play(now, "slice apple 1 with knife 1") == ["You sliced the apple 1 with the knife 1."]
        play(now, "move knife 1 to desk 1", "take apple 1 from desk 1")
        assert play(now, "examine apple 1") == ["This is a sliced apple 1."]

    def test_look_sees_what_lies_beside_where_it_was_taken_from(self) -> None:
        now = GameState(homes.game())
        assert play(now, "look") == ["You are in the middle of a room. Looking quickly around you, you see nothing."]
        play(now, "go to shelf 1")
        assert play(now, "look") == ["You are facing the shelf 2, and shelf 1. Next to it, you see nothing."]
        play(now, "take mug 1 from shelf 2", "move mug 1 to shelf 1")
        assert play(now, "look") == ["You are facing the shelf 2, and shelf 1. Next to it, you see a mug 1."]
        play(now, "take mug 1 from shelf 1", "move mug 1 to shelf 2")
        assert play(now, "look") == ["You are facing the shelf 2, and shelf 1. Next to it, you see a mug 1."]

    def test_commands_are_those_that_are_possible_in_alphabetical_order(self) -> None:
        now = GameState(homes.game())
        play(now, "go to shelf 1")
        assert list(now.list_commands()) == [
            "examine shelf 1",
            "examine shelf 2",
            *(f"go to {place}" for place in ("desk 1", "drawer 1", "fridge 1", "microwave 1", "sinkbasin 1")),
            "help",
            "inventory",
            "look",
            "take mug 1 from shelf 2",
            "take roll 1 from shelf 1",
        ]


class TestGoals:
    @pytest.mark.parametrize(
        ("task_type", "goal"),
        [
            ("pick_and_place_simple", WinCondition(thing="mug", target="desk")),
            ("pick_clean_then_place_in_recep", WinCondition(thing="mug", target="desk", treatment="clean")),
            ("pick_heat_then_place_in_recep", WinCondition(thing="apple", target="fridge", treatment="heat")),
            ("pick_cool_then_place_in_recep", WinCondition(thing="apple", target="desk", treatment="cool")),
            ("pick_two_obj_and_place", WinCondition(thing="mug", target="drawer", num_needed=2)),
            ("look_at_obj_in_light", WinCondition(thing="mug", target="desklamp", is_seen_by_lamp=True)),
        ],
    )
    def test_the_six_are_read(self, task_type: str, goal: WinCondition) -> None:
        assert homes.game(task_type).goal == goal

    @pytest.mark.parametrize("task_type", homes.GOALS)
    def test_the_walkthrough_wins_ten_and_no_step_before_the_last_wins(self, part: Alfworld, task_type: str) -> None:
        environment = open_game_of(part, task_type)
        outcomes = [environment.act(command) for command in homes.GOALS[task_type][2]]
        assert [outcome.reward for outcome in outcomes] == [0.0] * (len(outcomes) - 1) + [10.0]
        assert [outcome.success for outcome in outcomes] == [None] * (len(outcomes) - 1) + [True]
        assert outcomes[-1].terminated
        assert environment.expert() is None
        with pytest.raises(RolloutEnded):
            environment.act("look")

    def test_two_things_must_lie_in_one_receptacle(self) -> None:
        now = GameState(homes.game("pick_two_obj_and_place"))
        play(now, "go to drawer 1", "open drawer 1", "take mug 2 from drawer 1", "go to desk 1", "move mug 2 to desk 1")
        play(now, "go to shelf 2", "take mug 1 from shelf 2", "go to drawer 1", "move mug 1 to drawer 1")
        assert not now.is_won()
        play(now, "go to desk 1", "take mug 2 from desk 1", "go to drawer 1", "move mug 2 to drawer 1")
        assert now.is_won()

    def test_a_lamp_lights_what_is_held_beside_it(self) -> None:
        now = GameState(homes.game("look_at_obj_in_light"))
        play(now, "go to desk 1", "use desklamp 1")
        assert not now.is_won()
        play(now, "go to shelf 1", "take mug 1 from shelf 2")
        assert not now.is_won()
        play(now, "go to desk 1")
        assert now.is_won()


class TestRollouts:
    def test_what_is_not_possible_changes_nothing_and_is_invalid(self, part: Alfworld) -> None:
        environment = open_game_of(part, "pick_and_place_simple")
        first = environment.observe()
        for action in ("open drawer 1", "go to bed 1", "", "x" * 2**20, "Go to desk 1"):
            outcome = environment.act(action)
            assert (outcome.observation.text, outcome.accepted) == ("Nothing happens.", False)
            assert outcome.observation.state_key == first.state_key
            assert outcome.observation.admissible == first.admissible
        assert environment.act("  go to desk 1 ").accepted, "blanks around a command do not count, as in the stock game"

    def test_help_is_understood_but_not_listed(self, part: Alfworld) -> None:
        environment = open_game_of(part, "pick_and_place_simple")
        assert "help" not in (environment.observe().admissible or ())
        outcome = environment.act("help")
        assert outcome.accepted
        assert outcome.observation.text == HELP

    def test_the_key_is_the_situation_or_what_was_said(self, part: Alfworld) -> None:
        environment = open_game_of(part, "pick_and_place_simple")
        assert environment.observe().state_key == "middle of the room; carrying nothing"
        environment.act("go to shelf 1")
        key = environment.act("take mug 1 from shelf 2").observation.state_key
        assert key == "shelf 2: nothing; shelf 1: roll 1; carrying mug 1"
        assert environment.act("inventory").observation.state_key == key
        assert environment.act("go to drawer 1").observation.state_key == "drawer 1: closed; carrying mug 1"
        by_text = Alfworld(path=part.path, key="observation")
        other = by_text.open(by_text.task_set("train")[0])
        assert other.act("nonsense").observation.state_key == "Nothing happens."

    def test_an_rollout_is_cut_off_at_the_limit(self, part: Alfworld) -> None:
        short = Alfworld(path=part.path, max_steps=2)
        environment = short.open(short.task_set("train")[0])
        environment.act("look")
        outcome = environment.act("look")
        assert (outcome.truncated, outcome.terminated, outcome.success, outcome.reward) == (True, False, False, 0.0)

    def test_a_fork_goes_its_own_way(self, part: Alfworld) -> None:
        environment = open_game_of(part, "pick_and_place_simple")
        for command in ("go to shelf 1", "take mug 1 from shelf 2", "go to desk 1"):
            environment.act(command)
        fork = environment.fork()
        assert fork.act("move mug 1 to desk 1").success is True
        assert environment.act("go to drawer 1").observation.state_key == "drawer 1: closed; carrying mug 1"

    def test_task_sets_are_the_splits_with_types_in_turn(self, part: Alfworld) -> None:
        task_sets = {split: part.task_set(split) for split in SPLITS}
        assert [task.tags[0] for task in task_sets["test"]] == list(type(part)().task_types)
        assert [task.payload["game"] for task in task_sets["validation"]][:1] == [
            "valid_seen/pick_and_place_simple-Made-None-Up-1/trial_T1"
        ]
        assert len({task_set_hash(task_set) for task_set in task_sets.values()}) == 3
        two = Alfworld(path=part.path, task_types=("look_at_obj_in_light", "pick_two_obj_and_place"))
        assert [task.tags[0] for task in two.task_set("train")] == ["look_at_obj_in_light", "pick_two_obj_and_place"]
        assert ids(two.task_set("train")) < ids(task_sets["train"]), "a game is the same task whatever else is played"

    def test_a_changed_game_file_is_another_task(self, part: Alfworld, tmp_path: Path) -> None:
        file = next((tmp_path / "train").glob("look*/*/game.tw-pddl"))
        before = part.task_set("train")
        file.write_bytes(file.read_bytes() + b"\n")
        again = homes.fill(tmp_path / "again")
        (again / file.relative_to(tmp_path)).write_bytes(file.read_bytes())
        after = Alfworld(path=str(again)).task_set("train")
        assert len(ids(before) - ids(after)) == len(ids(after) - ids(before)) == 1


class TestExpert:
    def test_it_follows_the_walkthrough_through_idle_steps(self, part: Alfworld) -> None:
        environment = open_game_of(part, "pick_and_place_simple")
        environment.act("look")
        environment.act("nonsense")
        environment.act(environment.expert() or "")
        environment.act("examine shelf 1")
        assert environment.expert() == "take mug 1 from shelf 2"

    @pytest.mark.parametrize("task_type", homes.GOALS)
    def test_it_finds_a_way_from_wherever_the_rollout_strayed(self, part: Alfworld, task_type: str) -> None:
        environment = open_game_of(part, task_type)
        for command in ("go to desk 1", "take knife 1 from desk 1", "go to fridge 1", "open fridge 1"):
            environment.act(command)
        for _ in range(12):
            outcome = environment.act(environment.expert() or "nothing to say")
            assert outcome.accepted
            if outcome.ended:
                break
        assert outcome.success is True

    def test_plans_are_shortest(self) -> None:
        now = GameState(homes.game())
        assert len(find_shortest_plan(now)) == 4
        play(now, "go to drawer 1", "open drawer 1")
        assert find_shortest_plan(now) == ["take mug 2 from drawer 1", "go to desk 1", "move mug 2 to desk 1"]

    def test_it_has_nothing_to_say_in_a_dead_end(self, part: Alfworld) -> None:
        environment = open_game_of(part, "pick_and_place_simple")
        environment.act("go to shelf 1")
        environment.act("take roll 1 from shelf 1")
        assert environment.expert() is None, "nothing may hold the roll"


class TestBadInput:
    def test_without_a_folder(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("ALFWORLD_DATA", raising=False)
        with pytest.raises(ConfigError) as raised:
            Alfworld().task_set("train")
        assert str(raised.value) == (
            "alfworld: no folder of games is set; set `path`, or ALFWORLD_DATA, to the folder that "
            "`alfworld-download` filled"
        )

    def test_a_folder_that_is_not_there(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GAMES", str(tmp_path / "nowhere"))
        with pytest.raises(ConfigError) as raised:
            Alfworld(path="$GAMES").task_set("train")
        assert str(raised.value) == (
            f"alfworld: the folder of games {str(tmp_path / 'nowhere')!r} does not exist; set `path`, or "
            "ALFWORLD_DATA, to the folder that `alfworld-download` filled"
        )

    def test_a_folder_of_something_else(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="has none of the folders train, valid_seen, valid_unseen"):
            Alfworld(path=str(tmp_path)).task_set("train")

    def test_a_split_without_games(self, tmp_path: Path) -> None:
        (tmp_path / "json_2.1.1" / "train").mkdir(parents=True)
        with pytest.raises(ConfigError, match="no games of pick_two_obj_and_place in "):
            Alfworld(path=str(tmp_path), task_types=("pick_two_obj_and_place",)).task_set("train")

    def test_the_environment_variable_names_the_folder(self, part: Alfworld, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ALFWORLD_DATA", part.path)
        assert Alfworld().task_set("test") == part.task_set("test")

    @pytest.mark.parametrize(
        ("field", "value", "message"),
        [
            ("pddl_domain", "(define (domain other))", "the rules of the game are not those of ALFWorld 0.4"),
            (
                "grammar",
                '{"rhs": "Your task is to: put a mug"} put in/on',
                "the sentences of the game are not those of",
            ),
            ("pddl_problem", "(:init) (:goal (and (isClean ?o)))", "the goal 'isclean o' is not one of"),
            ("pddl_problem", None, "not a game file, it lacks pddl_problem"),
        ],
    )
    def test_another_version_of_a_game(self, field: str, value: str | None, message: str) -> None:
        fields = json.loads(homes.content("pick_and_place_simple"))
        fields = {name: value if name == field else of for name, of in fields.items() if name != field or value}
        with pytest.raises(RecordError) as raised:
            read_game(json.dumps(fields).encode(), "'game.tw-pddl'")
        assert str(raised.value).startswith(f"'game.tw-pddl': {message}")
        assert str(raised.value).endswith("; get the games of ALFWorld 0.4 with its command `alfworld-download`")

    def test_a_file_that_is_no_game(self) -> None:
        with pytest.raises(RecordError, match="not a game file"):
            read_game(b"<html>not found</html>", "game.tw-pddl")

    def test_a_home_that_does_not_fit_together(self) -> None:
        torn = homes.HOME.replace("(receptacleAtLocation Desk_bar_2 loc_bar_2)", "")
        with pytest.raises(RecordError, match="its atoms contradict each other"):
            read_game(homes.content("pick_and_place_simple", torn), "game.tw-pddl")

    def test_a_file_that_changed_since_the_task_set_was_made(self, part: Alfworld, tmp_path: Path) -> None:
        [task, *_] = part.task_set("train")
        file = tmp_path / str(task.payload["game"]) / "game.tw-pddl"
        file.write_bytes(file.read_bytes() + b" ")
        with pytest.raises(RecordError, match="not the file that the task was made from"):
            part.open(task)
        file.unlink()
        with pytest.raises(RecordError, match="the task's game cannot be read"):
            part.open(task)

    def test_a_task_of_another_environment(self, part: Alfworld) -> None:
        with pytest.raises(RecordError, match="belongs to the environment 'household'"):
            part.open(Household().task_set("test")[0])

    def test_unknown_and_repeated_types_and_splits(self, part: Alfworld) -> None:
        with pytest.raises(ConfigError, match="listed twice"):
            Alfworld(task_types=("look_at_obj_in_light", "look_at_obj_in_light"))
        with pytest.raises(ConfigError, match="task_types"):
            Alfworld(task_types=("movable",))
        with pytest.raises(ConfigError, match="there is no split 'valid_seen'"):
            part.task_set("valid_seen")


def test_a_task_knows_nothing_of_the_folder(part: Alfworld) -> None:
    task: Task = part.task_set("test")[0]
    assert set(task.payload) == {"game", "sha256"}
    assert part.path not in str(task)
