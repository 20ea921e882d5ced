"""TextWorld's generated games: what is asked of the generator, what is shown, points, forks, and games kept on disk."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path
from typing import Any

import pytest

from groupwise import ConfigError, RecordError
from groupwise.envs import Household, Textworld, textworld
from groupwise.envs.kit import packages
from groupwise.system.errors import EnvironmentFault

NEEDED = "pip install 'groupwise[textworld]' to play TextWorld's games"


@pytest.fixture
def no_textworld(monkeypatch: pytest.MonkeyPatch) -> None:
    """TextWorld is not installed."""

    def raise_missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    textworld._find_version.cache_clear()
    monkeypatch.setattr(packages, "version", raise_missing)


@pytest.fixture
def a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """TextWorld 1.7.0 is installed, or so it seems."""
    monkeypatch.setattr(textworld, "_find_version", lambda: "1.7.0")


class TestWithoutThePackage:
    @pytest.mark.usefixtures("no_textworld")
    def test_its_absence_gives_one_sentence_with_the_extra(self) -> None:
        with pytest.raises(ConfigError) as raised:
            Textworld().task_set("train")
        assert str(raised.value) == (
            "the environment 'textworld' needs a package that is not installed; pip install 'groupwise[textworld]'"
        )

    @pytest.mark.usefixtures("a_version")
    def test_a_task_is_a_seed_and_settings(self) -> None:
        part = Textworld(game="cooking", recipe=2, take=1, rooms=6, skills=("cook", "open"), num_test=2)
        assert [task.seed for task in part.task_set("test")] == [2_000_000, 2_000_001]
        assert part.task_set("test")[0].payload == {
            "game": "cooking",
            "settings": {"cook": True, "cut": False, "open": True, "drop": False, "recipe": 2, "take": 1, "go": 6}
            | {"recipe_seed": 0, "split": "test", "tell_way": False},
            "version": "1.7.0",
        }
        assert part.task_set("validation")[0].payload["settings"]["split"] == "valid"
        coins = Textworld(level=7)
        assert coins.task_set("train")[0].payload["settings"] == {"level": 7, "tell_way": False}
        assert coins.task_set("train")[0].tags == ("coin_collector",)

    @pytest.mark.usefixtures("a_version")
    def test_games_of_another_version_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        task = Textworld().task_set("train")[0]
        monkeypatch.setattr(textworld, "_find_version", lambda: "1.8.0")
        with pytest.raises(ConfigError, match=r"is a game of TextWorld 1\.7\.0, but 1\.8\.0 is installed"):
            Textworld().open(task)

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"game": "treasure_hunter", "level": 31}, "level is 31, but treasure hunter has 30"),
            ({"game": "cooking", "recipe": 1, "take": 2}, "take is 2, more than the 1 ingredients"),
            ({"game": "chess"}, "game"),
        ],
    )
    def test_what_cannot_be_made_is_refused(self, fields: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            Textworld(**fields)

    def test_a_task_of_another_environment(self) -> None:
        with pytest.raises(RecordError, match="belongs to the environment 'household'"):
            Textworld().open(Household().task_set("test")[0])

    def test_the_status_line_and_the_end_are_left_out(self) -> None:
        assert textworld._clean_text("\n-= Attic =-\nAn attic.\n\n> -= Attic =-0/12") == "-= Attic =- An attic."
        assert textworld._clean_text("You eat it.\n\n  *** The End ***\nYou scored 4") == "You eat it."
        assert textworld._clean_text(None) == ""

    def test_a_game_that_is_kept_is_not_made_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        orders: list[Any] = []

        def make(order: Any) -> None:
            orders.append(order)
            Path(order["path"]).parent.mkdir()
            Path(order["path"]).write_text("made")

        monkeypatch.setattr(textworld, "_make_apart", make)
        first = textworld.find_or_make_game(tmp_path / "games", "cooking", {"recipe": 1}, 3, "1.7.0")
        again = textworld.find_or_make_game(tmp_path / "games", "cooking", {"recipe": 1}, 3, "1.7.0")
        other = textworld.find_or_make_game(tmp_path / "games", "cooking", {"recipe": 2}, 3, "1.7.0")
        assert first == again != other
        assert first.read_text() == "made"
        assert [order["settings"] for order in orders] == [{"recipe": 1}, {"recipe": 2}]
        assert sorted(path.name for path in (tmp_path / "games").iterdir()) == sorted(
            [first.parent.name, other.parent.name]
        ), "nothing half made is left"

    def test_a_game_that_cannot_be_made_is_a_fault(self, tmp_path: Path) -> None:
        with pytest.raises(EnvironmentFault, match="TextWorld could not make the game 'chess': "):
            textworld.find_or_make_game(tmp_path, "chess", {"tell_way": False}, 3, "1.7.0")
        assert list(tmp_path.iterdir()) == []

    def test_games_are_kept_in_the_find_cache_folder(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(os.environ, "XDG_CACHE_HOME", "~/somewhere")
        assert textworld._find_cache_folder() == Path("~/somewhere").expanduser() / "groupwise" / "textworld"


@pytest.mark.filterwarnings("ignore")
class TestGames:
    @pytest.fixture(scope="class")
    def folder(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        pytest.importorskip("textworld", reason=NEEDED)
        textworld._find_version.cache_clear()
        return tmp_path_factory.mktemp("textworld")

    def test_finding_a_coin(self, folder: Path) -> None:
        part = Textworld(level=2, path=str(folder), max_steps=6)
        environment = part.open(part.task_set("test")[0])
        first = environment.observe()
        assert first.text.startswith("-= ")
        assert "coin" in first.goal
        assert {"inventory", "look"} < set(first.admissible or ())
        lost = environment.fork()
        outcomes = [environment.act(environment.expert() or "") for _ in range(2)]
        assert [outcome.reward for outcome in outcomes] == [0.0, 1.0]
        assert [outcome.success for outcome in outcomes] == [None, True]
        assert environment.expert() is None
        for action in ("undo", "restart", "x" * 2**20):
            outcome = lost.act(action)
            assert (outcome.observation.text, outcome.accepted) == ("Nothing happens.", False)
            assert outcome.observation.state_key == first.state_key
        assert lost.act("look").observation.text == first.text

    def test_cooking_pays_by_the_point_and_burnt_food_loses(self, folder: Path) -> None:
        part = Textworld(game="cooking", path=str(folder))
        task = part.task_set("train")[0]
        environment, rewards = part.open(task), []
        while (action := environment.expert()) is not None:
            outcome = environment.act(action)
            rewards.append(outcome.reward)
        assert outcome.success is True
        assert sum(rewards) == 1.0
        assert set(rewards) <= {0.0, 0.25}, "found, cooked, prepared, eaten"
        wasted = part.open(task)
        eaten = next(action for action in _walk(wasted) if action.startswith("eat "))
        ended = wasted.act(eaten)
        assert (ended.terminated, ended.success) == (True, False)

    def test_a_seed_makes_the_same_game_in_every_process(self, folder: Path, tmp_path: Path) -> None:
        one, other = (Textworld(game="cooking", path=str(path)) for path in (folder, tmp_path))
        task = one.task_set("train")[0]
        assert one.open(task).observe() == other.open(task).observe()


def _walk(environment: Any) -> tuple[str, ...]:
    """The possible actions once the first ingredient is in hand."""
    while not any(action.startswith("eat ") for action in environment.observe().admissible):
        environment.act(environment.expert())
    listed: tuple[str, ...] = environment.observe().admissible
    return listed
