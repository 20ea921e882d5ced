"""The benchmark of the lab: its circumstances can be played, and the page is made of what it writes."""

from __future__ import annotations

import importlib.util
import json
import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from benchmarks.lab import played
from benchmarks.lab.circumstances import list_sweeps, list_tables
from benchmarks.lab.played import EXAMPLE, SETTINGS
from benchmarks.lab.studies import add_study, find_finer, study_all, study_circumstance
from groupwise import methods
from groupwise.envs.environment import Forkable
from groupwise.system.errors import ConfigError
from groupwise.training.config.run_file import load_run

ROOT = Path(__file__).parents[2]


def test_every_circumstance_has_tasks_and_a_place_of_its_own() -> None:
    places = [*list_tables(), *list_sweeps()]
    assert len({(place.dial, place.world, place.setting) for place in places}) == len(places)
    for place in places:
        tasks = place.condition.env.task_set("train")
        assert len(tasks) >= place.condition.tasks
        assert isinstance(place.condition.env.open(tasks[0]), Forkable)


def test_a_circumstance_is_studied_with_its_variants() -> None:
    place = next(place for place in list_sweeps() if place.variants)
    small = replace(place, condition=replace(place.condition, updates=3, tasks=2, rollouts=4))
    result = study_circumstance(small, ["grpo", "hgpo"])
    assert list(result["methods"]) == ["grpo", "hgpo", *place.variants]
    assert result["condition"]["updates"] == 3
    [again] = study_all([small], ["grpo", "hgpo"], processes=1)
    assert again == result


def test_finer_methods_are_found_in_the_tables() -> None:
    line = {"error": {"value": 0.5}}
    tables: list[dict[str, Any]] = [
        {"methods": {"grpo": {"level": "rollout", **line}, "gigpo": {"level": "step", **line}, "x": {"level": "step"}}},
        {"methods": {"gtpo": {"level": "token", **line}, "gigpo": {"level": "step", **line}}},
    ]
    assert find_finer(tables) == ["grpo", "rloo", "gigpo", "gtpo"]


def test_every_method_has_a_line_in_the_tables_of_the_page() -> None:
    spec = importlib.util.spec_from_file_location("build_lab", ROOT / "docs" / "build_lab.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = module.PAGE.read_text(encoding="utf-8")
    cells = {name.strip() for line in text.splitlines() if line.startswith("|") for name in re.split(r"[|,]", line)}
    with_critic = {name for name in methods.names() if methods.build(name).critic is not None}  # the lab has no learner
    assert set(methods.names()) - with_critic <= cells
    for name, picture in module.pictures().items():
        assert (ROOT / "docs" / "images" / name).read_text(encoding="utf-8") == picture


def test_the_small_model_of_the_home_is_the_example_of_one_update() -> None:
    config = load_run(EXAMPLE, overrides=SETTINGS)
    assert (config.training.updates, config.evaluation.tasks) == (1, 20)
    assert config.warm_start is not None


def test_a_played_study_is_added_and_replaces_that_of_its_world_and_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "played.json"
    monkeypatch.setattr(played, "open_household", lambda: nullcontext("home"))
    monkeypatch.setattr(played, "open_alfworld", lambda games, key: nullcontext(key))
    monkeypatch.setattr(played, "study_run", lambda run, condition, names: {"recording": run, "methods": list(names)})
    for words in (["household"], ["alfworld", "--games", "/some/games"], ["household", "--methods", "grpo", "hgpo"]):
        played.main([*words, "--write", str(file)])
    [games, home] = json.loads(file.read_text())["studies"]
    assert (games["world"], games["key"], games["recording"]) == ("alfworld", "observation", "observation")
    assert (home["key"], home["methods"]) == ("situation", ["grpo", "hgpo"])
    assert games["command"] == "python -m benchmarks.lab.played alfworld --games games --write played.json"
    file.write_text("{}")
    monkeypatch.setattr(played, "open_household", None)  # it is refused before anything is played
    with pytest.raises(ConfigError, match=r"played.json is no file of such studies; give another"):
        played.main(["household", "--write", str(file)])


def test_a_study_that_is_made_again_replaces_the_older() -> None:
    place = {"dial": "none", "world": "lake", "setting": "as it is"}
    studies: list[dict[str, Any]] = []
    for number, names in enumerate((["rloo", "pav"], ["rloo"], ["rloo", "pav"])):
        add_study(studies, {**place, "methods": dict.fromkeys(names, number)})
    assert [study["methods"] for study in studies] == [{"rloo": 2, "pav": 2}, {"rloo": 1}]
