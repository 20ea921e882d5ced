"""ALFWorld's real games: all load, walkthroughs win, rules are kept, and the stock games say the same word for word."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import build_environments
import pytest

from groupwise.data.records import Task
from groupwise.envs import SPLITS, Alfworld, check_environment, task_set_hash
from groupwise.envs.alfworld.environment import FILE, find_games_folder
from groupwise.envs.kit.words import split_words
from groupwise.rollout.environment_runner import InProcess
from groupwise.rollout.worker_pool import Workers
from tests.unit.envs.alfworld_data import all_games, few_games, games
from tests.unit.rollout.worker_processes import has_ended

# Provenance: printed by `task_set_hash(Alfworld().task_set(split))` for the games that `alfworld-download` of ALFWorld
# 0.4 brings. A changed hash means that old and new results cannot be compared: say so in the changelog.
GOLDEN = {
    "train": "f7c424cdcb7b878a2386b44e3918b210328deefbf0f18982a5f463b07cd985b3",
    "validation": "ef0f5d83f2d66eeb6a6906634229cb05fe183eb4f90b60a061dad1a8dfe8e132",
    "test": "e1c8dad7ee5e0eda4eb08d45c11d295f8e85742ea2f3f3999a824757dd4a37a9",
}


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> Alfworld:
    return Alfworld(path=str(games(tmp_path_factory.mktemp("alfworld"))))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Alfworld:
    return Alfworld(path=str(all_games(tmp_path_factory.mktemp("alfworld"))))


def test_walkthroughs_win_the_games_that_come_with_the_tests(tmp_path: Path) -> None:
    few = Alfworld(path=str(few_games(tmp_path)))
    won = Counter(task.tags[0] for split in SPLITS for task in few.task_set(split) if _wins(few, task))
    assert won == dict.fromkeys(few.task_types, 6)


def _wins(part: Alfworld, task: Task) -> bool:
    """Whether every command of a game's walkthrough is accepted and the last one wins."""
    environment = part.open(task)
    outcomes = [environment.act(command) for command in environment._state.game.walkthrough]
    assert all(outcome.accepted for outcome in outcomes)
    return (outcomes[-1].success, outcomes[-1].reward) == (True, 10.0)


@pytest.mark.parametrize(("split", "size"), [("validation", 140), ("test", 134)])
def test_all_games_load_and_are_those_that_results_are_known_for(whole: Alfworld, split: str, size: int) -> None:
    task_set = whole.task_set(split)
    assert len(task_set) == size
    assert task_set_hash(task_set) == GOLDEN[split]
    known = set(whole.vocabulary())
    for task in task_set:
        seen = whole.open(task).observe()
        assert seen.text.startswith("You are in the middle of a room. Looking quickly around you, you see a ")
        assert (
            not {word for text in (seen.text, seen.goal, *(seen.admissible or ())) for word in split_words(text)}
            - known
        )


def test_walkthroughs_win_sixty_games_over_the_six_types(whole: Alfworld) -> None:
    won: Counter[str] = Counter()
    for task in (*whole.task_set("validation"), *whole.task_set("test")):
        if won[task.tags[0]] < 10:
            assert _wins(whole, task), task.payload["game"]
            won[task.tags[0]] += 1
    assert won == dict.fromkeys(whole.task_types, 10)


def test_the_rules_are_kept(part: Alfworld) -> None:
    results = check_environment(part, tasks=4)
    assert [(result.rule, result.found) for result in results if result.status != "kept"] == []


def test_the_expert_finds_back_from_random_steps(part: Alfworld) -> None:
    draw, solved, lost = Random(0), 0, 0
    tasks = part.task_set("test")[:60]
    for task in tasks:
        environment = part.open(task)
        outcome = environment.act("look")
        for _ in range(6):
            outcome = outcome if outcome.ended else environment.act(draw.choice(environment.observe().admissible or ()))
        while not outcome.ended and (action := environment.expert()) is not None:
            outcome = environment.act(action)
            assert outcome.accepted
        solved, lost = solved + bool(outcome.success), lost + (not outcome.ended)
    assert solved == len(tasks) - lost
    assert lost <= 3, "only a thing that fits nowhere leaves no way"


def test_a_group_of_eight_shares_its_first_observation_in_workers_too(part: Alfworld) -> None:
    task = part.task_set("validation")[0]
    with Workers(part, num=2, timeout=30.0) as host:
        shown = host.open(dict.fromkeys(range(8), task))
    assert len({repr(each) for each in shown.values()}) == 1
    assert shown[0] == part.open(task).observe()


def test_a_killed_worker_costs_no_rollout_that_was_not_being_played(part: Alfworld) -> None:
    tasks = dict(enumerate(part.task_set("validation")[:8]))
    here = InProcess(part)
    here.open(tasks)
    with Workers(part, num=2, timeout=30.0) as host:
        shown: dict[int, Any] = dict(host.open(tasks))
        draw = Random(1)
        for step in range(6):
            if step == 3:
                os.kill(host.pids[0], signal.SIGKILL)
                assert has_ended(host.pids[0])
            seen = {number: getattr(each, "observation", each) for number, each in shown.items()}
            actions = {number: draw.choice(each.admissible) for number, each in seen.items()}
            shown = dict(host.act(actions))
            assert shown == here.act(actions)


def test_the_page_shows_what_happens_and_the_hashes_of_the_task_sets(
    whole: Alfworld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALFWORLD_DATA", str(whole.path))
    page = (build_environments.ENVS / "alfworld.md").read_text(encoding="utf-8")
    assert build_environments.fill_environment(page, "alfworld") == page, "run `python docs/build_environments.py`"
    for split, digest in GOLDEN.items():
        assert re.search(rf"\| {split} \| .* \| `{digest[:12]}` \|", page), split


def stock(part: Alfworld, name: str) -> Any:
    """The stock game: TextWorld with ALFWorld's wrappers."""
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos

    wanted = textworld.EnvInfos(won=True, admissible_commands=True, extras=["gamefile"])
    file = find_games_folder(part.path) / name / FILE
    return textworld.start(str(file), wanted, wrappers=[AlfredDemangler(shuffle=False), AlfredInfos])


def compare(part: Alfworld, *, num_games: int, num_steps: int) -> None:
    """Play both side by side; half of the actions do something to a thing."""
    whole = Alfworld(path=part.path, goal_in_text=True, max_steps=num_steps + 1)
    draw = Random(7)
    for task in draw.sample(whole.task_set("test"), num_games):
        environment, game = whole.open(task), stock(part, str(task.payload["game"]))
        state = game.reset()
        assert environment.observe().text == state.feedback
        for _ in range(num_steps):
            listed = [command for command in state["admissible_commands"] if command != "help"]
            assert list(environment.observe().admissible or ()) == listed
            deeds = [command for command in listed if command.split()[0] not in ("go", "examine", "look", "inventory")]
            action = draw.choice((*(deeds if draw.random() < 0.5 and deeds else listed), "help", "open the pod bay"))
            state, _, _ = game.step(action)
            outcome = environment.act(action)
            assert outcome.observation.text == state.feedback, (task.payload["game"], action)
            assert bool(outcome.success) == state["won"]
            if outcome.ended:
                break


@pytest.fixture
def _stock_is_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Imported, the package makes a folder and sets ALFWORLD_DATA to it, which other tests must not see.
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path))
    pytest.importorskip("alfworld", reason="pip install 'groupwise[alfworld]' to compare with the stock games")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("_stock_is_here")
def test_the_stock_games_say_the_same(part: Alfworld) -> None:
    compare(part, num_games=2, num_steps=20)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("_stock_is_here")
def test_the_stock_games_say_the_same_for_500_steps(part: Alfworld) -> None:
    compare(part, num_games=10, num_steps=50)


@pytest.mark.slow
def test_the_training_task_set_is_whole(tmp_path: Path) -> None:
    part = Alfworld(path=str(all_games(tmp_path, one_in=1)))
    assert Counter(task.tags[0] for task in part.task_set("train")) == {
        "pick_and_place_simple": 790,
        "look_at_obj_in_light": 308,
        "pick_clean_then_place_in_recep": 650,
        "pick_heat_then_place_in_recep": 459,
        "pick_cool_then_place_in_recep": 533,
        "pick_two_obj_and_place": 813,
    }
    assert {split: task_set_hash(part.task_set(split)) for split in SPLITS} == GOLDEN
