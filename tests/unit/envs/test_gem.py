"""GEM's language games."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from groupwise import ConfigError, RecordError
from groupwise.envs import Gem, Household

FIELDS = tuple(f"reveal {row} {column}" for row in range(4) for column in range(4))
MINES = Gem(
    id="game:Minesweeper-v0-easy",
    kwargs={"rows": 4, "cols": 4, "num_mines": 2, "max_turns": 5},
    seeds_differ=True,
    actions=FIELDS,
    num_train=5,
    num_validation=2,
    num_test=2,
)
BOARD = """Here is the current board layout:
    0  1  2  3
 0  0  0  0  0{end}
 1  1  1  0  0{end}
 2  .  2  1  1{end}
 3  .  .  .  .{end}

Enter your guess.""".format(end=" ")
"""Of the first test task, after its first field is opened."""


def test_its_absence_gives_one_sentence_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gem", None)
    with pytest.raises(ConfigError) as raised:
        MINES.task_set("train")
    assert str(raised.value) == (
        "the environment 'gem' needs a package that is not installed; pip install 'groupwise[gem]', then pip install "
        "--no-deps gem-llm"
    )


def test_what_is_no_game_is_refused() -> None:
    with pytest.raises(ConfigError) as raised:
        Gem(id="math:Math12K")
    assert str(raised.value) == ("Gem: id: 'math:Math12K' is not a game; names of GEM's games begin with game:")
    with pytest.raises(RecordError, match="belongs to the environment 'household'"):
        MINES.open(Household().task_set("test")[0])


@pytest.mark.filterwarnings("ignore")
class TestGames:
    @pytest.fixture(scope="class", autouse=True)
    def _is_here(self) -> None:
        pytest.importorskip(
            "gem.envs.registration", reason="pip install 'groupwise[gem]', then --no-deps gem-llm, to play its games"
        )

    def test_the_instructions_are_the_goal_and_the_board_is_the_key(self) -> None:
        # Provenance: the board of the first test task in gem-llm 0.1.0 under CPython 3.11.
        environment = MINES.open(MINES.task_set("test")[0])
        first = environment.observe()
        assert first.goal.startswith("You are playing the Minesweeper game.")
        assert first.text.startswith("Here is the current board layout:\n    0  1  2  3\n 0  .  .  .  .")
        assert first.admissible == FIELDS
        opened = environment.act("reveal 0 0")
        assert opened.observation.text == f"At turn 1, you successfully revealed cell (0, 0).\n{BOARD}"
        assert opened.observation.state_key == BOARD
        assert (opened.reward, opened.accepted, opened.ended) == (pytest.approx(11 / 14), True, False)
        assert opened.observation.admissible == tuple(
            f"reveal {field}" for field in ("2 0", "3 0", "3 1", "3 2", "3 3")
        )

    def test_what_has_no_effect_or_no_form_is_invalid(self) -> None:
        environment = MINES.open(MINES.task_set("test")[0])
        environment.act("reveal 0 0")
        again = environment.act(r"I open it. \boxed{reveal 0 0}")
        assert (again.accepted, again.reward, again.ended, again.observation.state_key) == (False, 0.0, False, BOARD)
        nonsense = environment.act("open the window")
        assert (nonsense.accepted, nonsense.reward, nonsense.success) == (False, pytest.approx(-0.1), False)

    def test_a_guess_that_is_right_is_a_success_and_the_key_counts_no_turns(self) -> None:
        part = Gem(id="game:GuessTheNumber-v0-hard", num_train=5)
        task = part.task_set("train")[0]  # 9
        one, other = part.open(task), part.open(task)
        for environment, order in ((one, ("5", "10")), (other, ("10", "5"))):
            for guess in order:
                environment.act(guess)
        assert one.observe().state_key == other.observe().state_key
        assert one.observe().state_key == (
            "you guessed 10, and the target number is lower than 10.\n"
            "you guessed 5, and the target number is higher than 5."
        )
        right = one.act("9")
        assert (right.reward, right.success) == (1.0, True)

    def test_no_instance_is_in_two_task_sets_though_seeds_repeat_it(self) -> None:
        part = Gem(id="game:GuessTheNumber-v0-hard")
        assert sum(len(part.task_set(split)) for split in ("train", "validation", "test")) == 50, "one for each number"

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            (
                {"id": "game:Minesweper-v0-easy"},
                "gem: there is no game 'game:Minesweper-v0-easy'; did you mean 'game:Minesweeper-v0-easy'",
            ),
            (
                {"id": "game:FifteenPuzzle-v0-random"},
                "gem 'game:FifteenPuzzle-v0-random': it cannot be created (TypeError: ",
            ),
        ],
    )
    def test_what_cannot_be_played_is_refused(self, fields: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigError) as raised:
            Gem(**fields).task_set("train")
        assert str(raised.value).startswith(message)
