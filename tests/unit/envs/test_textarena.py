"""textarena's games for one player."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from groupwise import ConfigError, RecordError, Task
from groupwise.envs import Household, Textarena
from groupwise.envs.kit import package_games
from groupwise.rollout.environment_runner import InProcess
from groupwise.rollout.worker_pool import Workers

MOVES = ("up", "down", "left", "right")
LAKE = Textarena(id="FrozenLake-v0", actions=MOVES, num_train=20, num_validation=3, num_test=3, max_steps=10)


def test_its_absence_gives_one_sentence_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textarena", None)
    with pytest.raises(ConfigError) as raised:
        LAKE.vocabulary()
    assert str(raised.value) == (
        "the environment 'textarena' needs a package that is not installed; pip install 'groupwise[textarena]'"
    )


def test_a_task_of_another_environment_is_refused() -> None:
    with pytest.raises(RecordError, match="belongs to the environment 'household'"):
        LAKE.open(Household().task_set("test")[0])


@pytest.mark.filterwarnings("ignore")
class TestGames:
    @pytest.fixture(scope="class", autouse=True)
    def _is_here(self) -> None:
        pytest.importorskip("textarena", reason="pip install 'groupwise[textarena]' to play its games")

    def lake(self, rows: str) -> str:
        line = "+-----+-----+-----+-----+"
        cells = [f"|{'|'.join(f'  {cell}  ' for cell in row)}|" for row in rows.split("/")]
        board = "\n".join(part for row in cells for part in (line, row))
        listed = "[up], [down], [left], [right], [w], [a], [s], [d]"
        return f"Current Board:\n\n{board}\n{line}\n\nAvailable Actions: {listed}"

    def test_the_prompt_is_the_goal_and_the_board_the_text(self) -> None:
        # Provenance: the lake of seed 5 in textarena 0.7.4 under CPython 3.11.
        task = LAKE.task_set("test")[0]
        seen = LAKE.open(task).observe()
        assert task.seed == 5
        assert seen.goal.startswith("Welcome to Frozen Lake!")
        assert seen.text == seen.state_key == self.lake("P   / H  /  H /H  G")
        assert seen.admissible == ("down", "right"), "the others run against the edge"

    def test_an_rollout_walks_errs_and_arrives(self) -> None:
        environment = LAKE.open(LAKE.task_set("test")[0])
        outcomes = [environment.act(action) for action in ("down", "jump", "[down]", "right", "down", "right", "right")]
        assert [(each.accepted, each.reward, each.success) for each in outcomes] == [
            (True, 0.0, None),
            (False, 0.0, None),
            (True, 0.0, None),
            (True, 0.0, None),
            (True, 0.0, None),
            (True, 0.0, None),
            (True, 1.0, True),
        ]
        assert outcomes[0].observation.text == (
            f"You moved down to position (1, 0).\n{self.lake('    /PH  /  H /H  G')}"
        )
        invalid = outcomes[1].observation
        assert invalid.text.startswith("You tried an invalid move. Reason: Invalid action format.")
        assert invalid.state_key == outcomes[0].observation.state_key
        assert "Congratulations! You reached the goal!" in outcomes[-1].observation.text

    def test_a_hole_pays_a_part_and_is_a_failure(self) -> None:
        environment = LAKE.open(LAKE.task_set("test")[0])
        environment.act("down")
        fallen = environment.act("right")
        assert (fallen.reward, fallen.terminated, fallen.success) == (pytest.approx(1 / 3), True, False)
        lenient = LAKE.model_copy(update={"success_reward": 0.3})
        environment = lenient.open(lenient.task_set("test")[0])
        environment.act("down")
        assert environment.act("right").success is True

    @pytest.mark.parametrize(("allowed", "ended"), [(None, [False, True]), (0, [True]), (2, [False, False, True])])
    def test_invalid_actions_in_a_row_end_a_game(self, allowed: int | None, ended: list[bool]) -> None:
        part = LAKE.model_copy(update={"allowed_errors": allowed})
        environment = part.open(part.task_set("test")[0])
        outcomes = [environment.act("jump") for _ in ended]
        assert [outcome.terminated for outcome in outcomes] == ended
        assert {outcome.accepted for outcome in outcomes} == {False}

    def test_without_a_board_the_key_is_what_is_known_in_any_order(self) -> None:
        part = Textarena(id="GuessTheNumber-v0", kwargs={"max_number": 60}, num_train=5)
        task = part.task_set("train")[0]  # seed 0: 55
        one, other = part.open(task), part.open(task)
        assert one.observe().text == "The game begins."
        keys = [
            [environment.act(guess).observation.state_key for guess in order]
            for environment, order in ((one, ("5", "60")), (other, ("60", "5")))
        ]
        assert keys[0][1] == keys[1][1] == "5: The target number is higher.\n60: The target number is lower."
        assert keys[0][0] != keys[1][0]
        again = one.act("5")
        assert (again.accepted, again.observation.state_key) == (False, keys[0][1])
        assert one.act("55").success is True

    def test_no_instance_is_in_two_task_sets_though_seeds_repeat_it(self) -> None:
        part = Textarena(id="GuessTheNumber-v0", kwargs={"max_number": 60})
        task_sets = {split: part.task_set(split) for split in ("train", "validation", "test")}
        assert sum(map(len, task_sets.values())) == 60, "one task for each number"
        instances = {split: {task.payload["instance"] for task in tasks} for split, tasks in task_sets.items()}
        assert len(instances["train"] | instances["validation"] | instances["test"]) == 60

    def test_a_game_that_begins_alike_needs_seeds_that_differ(self) -> None:
        sizes: dict[str, Any] = {"num_train": 4, "num_validation": 2, "num_test": 2}
        with pytest.raises(ConfigError, match="task_set is empty because too few instances exist"):
            Textarena(id="Minesweeper-v0", **sizes).task_set("train")
        part = Textarena(id="Minesweeper-v0", seeds_differ=True, **sizes)
        assert [len(part.task_set(split)) for split in ("train", "validation", "test")] == [4, 2, 2]
        one, other = (part.open(task).act("4 4").observation.text for task in part.task_set("train")[:2])
        assert one != other, "the mines are laid at the first move"

    def test_another_game_than_the_task_sets_is_refused(self) -> None:
        of = LAKE.task_set("train")[0]
        task = Task.create(env="textarena", seed=of.seed + 1, payload=of.payload)
        with pytest.raises(RecordError, match="its seed gives another game than in the task set"):
            LAKE.open(task)

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"id": "FrozenLak-v0"}, "textarena: there is no game 'FrozenLak-v0'; did you mean 'FrozenLake-v0'"),
            (
                {"id": "FrozenLake-v0", "kwargs": {"seize": 3}},
                "textarena 'FrozenLake-v0': it cannot be created (TypeError: ",
            ),
            ({"id": "TicTacToe-v0"}, "textarena 'TicTacToe-v0': it does not start with one player (AssertionError: "),
            (
                {"id": "QuantumTicTacToe-v0"},
                "textarena 'QuantumTicTacToe-v0': it does not start with one player (it keeps a TwoPlayerState); "
                "choose a game for one player",
            ),
        ],
    )
    def test_what_cannot_be_played_is_refused(self, fields: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigError) as raised:
            Textarena(**fields).task_set("train")
        assert str(raised.value).startswith(message)

    def test_a_game_opened_again_begins_as_if_it_had_not_been_played(self) -> None:
        task = LAKE.task_set("test")[0]
        one, other = LAKE.open(task), LAKE.open(task)
        fresh = one.observe()
        one.act("down")
        assert (other.observe(), LAKE.open(task).observe()) == (fresh, fresh)
        assert other.act("down") == LAKE.open(task).act("down")
        for each in LAKE.task_set("train"):
            LAKE.open(each)
        assert len(package_games._beginnings) <= package_games.MAX_KEPT_BEGINNINGS

    def test_other_settings_have_other_beginnings(self) -> None:
        task = LAKE.task_set("test")[0]
        LAKE.open(task)
        strict = LAKE.model_copy(update={"allowed_errors": 0, "actions": ("left",)})
        environment = strict.open(task)
        assert environment.observe().admissible == ()
        assert environment.act("jump").ended

    @pytest.mark.parametrize("hidden", [None, lambda: 0], ids=["written", "copied deeply"])
    def test_a_list_is_found_on_copies_and_nothing_is_drawn_for_it(self, hidden: Any) -> None:
        part = Textarena(id="2048-v0", actions=MOVES, num_train=3, num_validation=1, num_test=1)
        unlisting = part.model_copy(update={"actions": ()})
        task = part.task_set("train")[0]
        environment, alone = part.open(task), unlisting.open(task)
        environment._game.inner.hidden = hidden  # a function in a function cannot be written
        for move in ("left", "up", "left", "down", "right", "up"):
            outcome, expected = environment.act(move), alone.act(move)
            assert outcome.observation.text == expected.observation.text
            accepted = tuple(each for each in MOVES if alone.fork().act(each).accepted)
            assert outcome.observation.admissible == accepted

    def test_workers_and_neighbours_change_nothing(self) -> None:
        part = Textarena(id="2048-v0", actions=MOVES, num_train=3, num_validation=1, num_test=1, max_steps=6)
        tasks = dict(enumerate(part.task_set("train")))
        alone = {}
        for number, task in tasks.items():
            host = InProcess(part)
            alone[number] = [host.open({0: task})[0], *(host.act({0: move})[0] for move in MOVES)]
        with Workers(part, num=1, timeout=30.0) as workers:
            said: dict[int, list[Any]] = {number: [shown] for number, shown in workers.open(tasks).items()}
            for move in MOVES:
                for number, outcome in workers.act(dict.fromkeys(tasks, move)).items():
                    said[number].append(outcome)
        assert said == alone
