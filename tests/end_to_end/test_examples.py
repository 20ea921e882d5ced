"""Every run file of the examples says what it is and makes two updates; every recipe and environment has one."""

from __future__ import annotations

import shutil
import tomllib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from groupwise import recipes
from groupwise.core.journal import Journal
from groupwise.envs import ENVS
from groupwise.envs.storefront import catalogue
from groupwise.recipes.run_file import load_run
from groupwise.training.loop import train
from groupwise.training.run import open_run
from tests.unit.envs.alfworld_data import games
from tests.unit.envs.math_sets import gsm8k, write_lines
from tests.unit.envs.openenv_servers import server
from tests.unit.envs.shops import item, publish, told_of

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(EXAMPLES.rglob("*.toml"))
SMALL = (
    "model={kind='tiny', hidden=16, layers=1, heads=2}",
    "rollout.plan.attempts=4",
    "training.updates=2",
    "training.tasks=2",
    "training.checkpoint_every=2",
    "evaluation.tasks=2",
    "evaluation.attempts=1",
)
"""What makes a run small whatever it is."""


PACKAGES = {"gymnasium": "gymnasium", "reasoning_gym": "reasoning_gym", "math": "math_verify", "textworld": "textworld"}
PACKAGES |= {"storefront": "bm25s", "webshop": "bm25s", "search_qa": "bm25s"}
PACKAGES |= {"textworld_express": "textworld_express", "scienceworld": "scienceworld"}
PACKAGES |= {"bfcl": "bfcl_eval", "babyai": "minigrid", "sokoban": "gym_sokoban"}
PACKAGES |= {"textarena": "textarena", "gem": "gem", "openenv": "openenv.core"}
"""What the environment of an example needs beside groupwise, by its kind."""


def name_of(path: Path) -> str:
    return str(path.relative_to(EXAMPLES).with_suffix(""))


def content(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def test_every_environment_and_every_recipe_has_an_example() -> None:
    shown = {content(path)["env"]["kind"] for path in EXAMPLES.glob("*.toml")}
    assert shown >= set(ENVS) - {"household"}  # the demonstration of the whole
    assert {path.stem for path in EXAMPLES.glob("recipes/*.toml")} == set(recipes.names())


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_it_says_what_it_shows_and_how_to_run_it(path: Path) -> None:
    first, *rest = path.read_text(encoding="utf-8").splitlines()
    assert first.startswith("# ")
    assert any(line.startswith(f"#     groupwise train examples/{name_of(path)}.toml") for line in rest)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("recipes/*.toml")), ids=name_of)
def test_recipes_differ_in_their_algorithm_alone(path: Path) -> None:
    found, first = content(path), content(EXAMPLES / "recipes" / "grpo.toml")
    assert found.pop("algorithm")["recipe"] == path.stem
    del first["algorithm"]
    first["rollout"] |= OWN_ROLLOUT.get(path.stem, {})
    if path.stem == "dapo":
        first["rewards"] = [{"kind": "environment"}, {"kind": "overlong", "limit": 4, "buffer": 2}]
    assert found == first


OWN_ROLLOUT: dict[str, dict[str, Any]] = {
    "mc_grpo": {"plan": {"kind": "flat", "attempts": 9}},
    "dapo": {"plan": {"kind": "top_up", "attempts": 8, "rounds": 4}, "max_tokens": 4},
}
"""What two methods ask of the rollout: an odd number of attempts; dynamic sampling, and room to be overlong in."""


def problem_files(folder: Path) -> tuple[str, ...]:
    """Settings that put problems of our own in the place of a publisher's, and keep responses short."""
    write_lines(folder / "problems" / "train.jsonl", gsm8k(1, 40))
    write_lines(folder / "problems" / "test.jsonl", gsm8k(100, 4))
    return (f"env.path={folder / 'problems'}", "rollout.max_tokens=4")


def shop_files(folder: Path) -> tuple[str, ...]:
    """Settings that put products of our own in the place of WebShop's, and keep responses short."""
    products = catalogue(0, 20, 4).products
    publish(folder / "shop", [item(each) for each in products], {each.asin: told_of(each) for each in products})
    limits = ("env.num_test=4", "env.num_validation=4", "rollout.max_tokens=4", "rollout.workers=0")
    return (f"env.path={folder / 'shop'}", *limits)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_it_makes_two_updates(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = content(path)["env"]["kind"]
    if kind in PACKAGES:
        pytest.importorskip(PACKAGES[kind])
    if kind in ("textworld_express", "scienceworld") and shutil.which("java") is None:
        pytest.skip("there is no Java here")
    if kind == "alfworld":
        monkeypatch.setenv("ALFWORLD_DATA", str(games(tmp_path)))
    files = problem_files(tmp_path) if kind == "math" else shop_files(tmp_path) if kind == "webshop" else ()
    warm = ("warm_start.tasks=4", "warm_start.epochs=1") if "warm_start" in content(path) else ()
    short = ("env.max_steps=3",) if path.parent.name == "recipes" else ()
    short += ("rollout.plan.attempts=5",) if path.stem == "mc_grpo" else ()  # an odd number
    few = ("env.num_train=2", "env.num_test=2") if kind == "textworld" else ()  # each takes seconds to make
    with server(sessions=64) if kind == "openenv" else nullcontext() as running:
        where = (f"env.url={running.url}",) if running else ()
        train(open_run(load_run(path, overrides=[*SMALL, *warm, *short, *files, *few, *where]), tmp_path))
    with Journal(tmp_path / "journal.sqlite", read_only=True) as journal:
        assert journal.numbers() == [1, 2]
        assert len(journal.curve("rollout/success")) == 2
        assert {found.number for found in journal.evaluations()} == {0, 2}
