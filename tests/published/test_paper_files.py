"""Each run file of examples/papers decodes, has the published values, and says how to run it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from groupwise import methods
from groupwise.training.config.run_file import load_run
from tests.published import alfworld, mathematics, webshop
from tests.published.released import Published
from tests.published.run_settings import read_settings

PAPERS = Path(__file__).parents[2] / "examples" / "papers"
PUBLISHED = {
    "hgpo_alfworld_1.5b": alfworld.HGPO,
    "hgpo_alfworld_7b": alfworld.HGPO_7B,
    "gigpo_alfworld_1.5b": alfworld.GIGPO,
    "gigpo_alfworld_7b": alfworld.GIGPO_7B,
    "grpo_alfworld_1.5b": alfworld.GRPO,
    "grpo_alfworld_7b": alfworld.GRPO_7B,
    "ppo_alfworld_1.5b": alfworld.PPO,
    "hgpo_webshop_1.5b": webshop.HGPO,
    "hgpo_webshop_7b": webshop.HGPO_7B,
    "gigpo_webshop_1.5b": webshop.GIGPO,
    "grpo_webshop_1.5b": webshop.GRPO,
    "ppo_webshop_1.5b": webshop.PPO,
    "r3_deepscaler_1.5b": mathematics.R3,
}


def test_every_paper_file_has_a_table() -> None:
    assert sorted(PUBLISHED) == sorted(path.stem for path in PAPERS.glob("*.toml"))


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_paper_s_run_file_has_every_published_value(name: str) -> None:
    assert find_differences(PAPERS / f"{name}.toml", PUBLISHED[name]) == {}


def find_differences(file: Path, published: list[Published]) -> dict[str, tuple[Any, Any]]:
    """The published value and that of the file, by path."""
    wanted = {row.path: row.value for row in published}
    assert len(wanted) == len(published) > 30, "a setting stands twice, or the table is cut off"
    found = read_settings(file, wanted)
    missing = "not a setting of this file"
    return {
        path: (value, found.get(path, missing)) for path, value in wanted.items() if found.get(path, missing) != value
    }


@pytest.mark.parametrize(
    ("name", "written", "changed", "path"),
    [
        ("hgpo_alfworld_1.5b", "weight_decay = 0.01", "weight_decay = 0.1", "training.learner.weight_decay"),
        ("hgpo_alfworld_7b", 'Qwen2.5-7B-Instruct"\n', 'Qwen2.5-7B"\n', "model.path"),
        ("grpo_webshop_1.5b", "tasks = 128", "tasks = 256", "evaluation.tasks"),
        ("ppo_alfworld_1.5b", "penalty = 0.1", "penalty = 0.2", "rewards.1.penalty"),
        ("r3_deepscaler_1.5b", 'finished = "zero"', 'finished = "mean"', "algorithm.shapers.0.finished"),
    ],
)
def test_a_changed_value_is_found(name: str, written: str, changed: str, path: str, tmp_path: Path) -> None:
    shutil.copytree(PAPERS.parent / "prompts", tmp_path / "prompts")
    shutil.copytree(PAPERS, tmp_path / "papers")
    file = tmp_path / "papers" / f"{name}.toml"
    text = file.read_text(encoding="utf-8")
    assert text.count(written) == 1
    file.write_text(text.replace(written, changed), encoding="utf-8")
    assert list(find_differences(file, PUBLISHED[name])) == [path]


@pytest.mark.parametrize("rows", PUBLISHED.values(), ids=PUBLISHED)
def test_every_published_value_names_its_source(rows: list[Published]) -> None:
    assert [row.path for row in rows if "/" not in row.source] == []


@pytest.mark.parametrize("world", ["alfworld", "webshop"])
def test_grpo_of_the_release_is_gigpo_without_its_state_term(world: str) -> None:
    algorithm = load_run(PAPERS / f"grpo_{world}_1.5b.toml").algorithm
    released = methods.gigpo(step_weight=0.0, scale="std", reference=True)
    assert algorithm.loss == released.loss
    assert algorithm.advantage == released.advantage.terms[0].of


@pytest.mark.parametrize("name", PUBLISHED)
def test_its_head_says_how_to_run_it_and_what_it_needs(name: str) -> None:
    text = (PAPERS / f"{name}.toml").read_text(encoding="utf-8")
    head = " ".join(line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#"))
    assert f"groupwise train examples/papers/{name}.toml" in head
    assert head.count("groupwise evaluate") == head.count(f"groupwise evaluate runs/{name} --trust")  # it starts vLLM
    assert [word for word in ("Not run", "Sources: ", "What differs", "Needs: ", "Cost: ") if word not in head] == []
