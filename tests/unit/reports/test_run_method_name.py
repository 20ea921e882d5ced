"""What reports call a run's algorithm: a recipe's name where it is that recipe, else its own."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from typer.testing import CliRunner

from groupwise import recipes
from groupwise.cli.main import app
from groupwise.reports.run.method_name import find_method_name
from groupwise.reports.run.run_folder import RunFolder
from tests.unit.reports.run_folders import write_run


def invoke(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        (recipes.hgpo(), ("hgpo", "")),
        (recipes.gigpo(), ("gigpo", "")),
        (recipes.hgpo(gamma=0.9), ("hgpo", "gamma 0.9")),
        (recipes.hgpo(depth=4), ("hgpo", "depth 4")),
        (recipes.hgpo(depth=3, gamma=0.9), ("hgpo", "depth 3, gamma 0.9")),
        (recipes.hgpo(reference=True), ("hgpo", "reference True")),
        (recipes.hgpo(depth=1, episode=True), ("hgpo", "depth 1, episode True")),
        (recipes.hgpo(scale="none", gamma=0.5, alpha=3.0, invalid_penalty=0.0), ("hgpo", "5 settings of its own")),
        (recipes.gigpo(scale="none"), ("gigpo", "scale none")),
    ],
)
def test_a_recipe_with_other_settings_is_called_by_its_name_and_by_them(
    tmp_path: Path, algorithm: Any, expected: tuple[str, str]
) -> None:
    with RunFolder(write_run(tmp_path / "run", updates=0, algorithm=algorithm)) as run:
        assert find_method_name(run) == expected


@pytest.mark.parametrize("name", recipes.names())
def test_every_recipe_is_known_by_its_settings(tmp_path: Path, name: str) -> None:
    with RunFolder(write_run(tmp_path / "run", updates=0, algorithm=recipes.build(name))) as run:
        method, note = find_method_name(run)
    assert note == ""
    assert recipes.build(method).config() == recipes.build(name).config()


MINE = "mine.credit:SegmentCredit"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"loss": {"old": "engine"}}, ("hgpo", "old engine")),
        ({"loss": {"penalties": []}}, ("hgpo", "penalties []")),
        ({"loss": {"surrogate": {"kind": "mine:Soft"}}}, ("hgpo", "surrogate Soft")),
        ({"filters": [{"kind": "drop_uniform"}]}, ("hgpo", "filters[0] drop_uniform")),
    ],
)
def test_a_recipe_whose_parts_were_changed_says_which(
    tmp_path: Path, changes: dict[str, Any], expected: tuple[str, str]
) -> None:
    config = recipes.hgpo().config()
    loss = config["loss"] | changes.pop("loss", {})
    with RunFolder(write_settings(tmp_path / "run", config | changes | {"loss": loss})) as run:
        assert find_method_name(run) == expected


def test_a_part_that_is_left_out_of_several_is_told(tmp_path: Path) -> None:
    config = recipes.gigpo().config()
    config["loss"]["penalties"] = config["loss"]["penalties"][:1]
    with RunFolder(write_settings(tmp_path / "run", config)) as run:
        assert find_method_name(run) == ("gigpo", "penalties[1] none")


@pytest.mark.parametrize(
    ("advantage", "loss", "expected"),
    [
        ({"kind": MINE, "segments": 4}, "policy_loss", "SegmentCredit"),
        ({"kind": "relative", "by": {"kind": "mine:ByRoom"}, "of": {"kind": "step_reward"}}, "policy_loss", "relative "
         "ByRoom of step_reward"),
        (recipes.grpo().config()["advantage"], "mine:Ranked", "relative by_task of episode_return with Ranked"),
        (recipes.grpo().config()["advantage"] | {"baseline": {"kind": "median"}}, "policy_loss", "relative by_task of "
         "episode_return"),
        ({"kind": "whitened", "of": {"kind": MINE}}, "policy_loss", "whitened of SegmentCredit"),
    ],
)  # fmt: skip
def test_a_method_of_ones_own_is_never_called_by_a_recipes_name(
    tmp_path: Path, advantage: dict[str, Any], loss: str, expected: str
) -> None:
    """It was called `reinforce_pp`, the recipe with the fewest settings, or whatever else has few that differ."""
    section = {"advantage": advantage, "loss": recipes.grpo().config()["loss"] | {"kind": loss}}
    with RunFolder(write_settings(tmp_path / "run", section)) as run:
        assert find_method_name(run) == (expected, "a method of its own")
    assert invoke("inspect", tmp_path / "run").splitlines()[0] == f"run: {expected} (a method of its own) on household"
    invoke("report", tmp_path / "run")
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert f"<h1><span>{expected}</span> on household</h1>" in page


def write_settings(folder: Path, algorithm: dict[str, Any]) -> Path:
    """A run whose file says this of its algorithm, be it of parts that are not there."""
    write_run(folder, updates=0)
    path = folder / "config.toml"
    path.write_text(tomli_w.dumps(tomllib.loads(path.read_text()) | {"algorithm": algorithm}))
    return folder


def test_an_algorithm_without_settings_has_no_name(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", updates=0)
    (folder / "config.toml").write_text("")
    with RunFolder(folder) as run:
        assert find_method_name(run) == ("a run", "")
