"""An environment lists its words for a model that is made from scratch; under a pretrained model it need not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from groupwise.envs.checker import RULES
from groupwise.models import TinyModel
from groupwise.models.folder import save_model
from groupwise.store.journal import Journal
from groupwise.store.run_folder import RunPaths
from tests.unit.cli.conftest import Run

WORLD = '''
from groupwise import Part, Task
from groupwise.envs import Observation, Progress

SIDES = ("left", "right")


class Door(Part, slot="env"):
    """Open the door on the side that the sign says."""

    max_steps: int = 1

    def task_set(self, split):
        numbers = {"train": range(8), "validation": range(8, 10), "test": range(10, 14)}[split]
        return tuple(Task.create(env="door", split=split, payload={"number": number}) for number in numbers)

    def open(self, task):
        return Hall(task)

    def instruction(self):
        return "go left or right"


class Hall:
    def __init__(self, task):
        self.task, self.side = task, SIDES[task.payload["number"] % 2]
        self.progress = Progress(task, max_steps=1)

    def observe(self):
        return Observation(text=self.side, state_key=self.side, admissible=LISTED)

    def act(self, action):
        self.progress.step()
        is_right = action == self.side
        seen = self.observe()
        return self.progress.outcome(seen, accepted=action in SIDES, success=is_right, reward=float(is_right))
'''
RUN = """
[algorithm]
method = "grpo"

[env]
kind = "doors:Door"

[model]
{model}

[rollout]
max_tokens = 1
group_size = 4

[training]
updates = 1
tasks = 2

[evaluation]
tasks = 2
"""
TINY = 'kind = "tiny"\nhidden = 16\nlayers = 1\nheads = 2'
PRETRAINED = 'kind = "pretrained"\npath = "model"'
LACKING = (
    "env: Door has no vocabulary(), and the model is made from scratch with a tokenizer of the environment's words; "
    'add vocabulary() to Door, or set model.kind = "pretrained"'
)


@pytest.fixture(autouse=True)
def _doors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that lists its possible actions, beside a folder with a model."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "doors", raising=False)
    write_world(tmp_path, listed="SIDES")
    words = ("go", "left", "or", "right")
    model, tokenizer = TinyModel(hidden=16, layers=1, heads=2).open(words=words, seed=0)
    save_model(model, tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")


def write_world(folder: Path, *, listed: str) -> None:
    (folder / "doors.py").write_text(WORLD.replace("LISTED", listed), encoding="utf-8")


def write_run(folder: Path, model: str) -> str:
    (folder / "run.toml").write_text(RUN.format(model=model), encoding="utf-8")
    return "run.toml"


@pytest.mark.parametrize("workers", [0, 1])
def test_a_run_with_a_pretrained_model_needs_none(groupwise: Run, tmp_path: Path, workers: int) -> None:
    file = write_run(tmp_path, PRETRAINED)
    ran = groupwise("train", file, "--set", f"rollout.workers={workers}")
    assert ran.status == 0, ran.err
    with Journal(RunPaths(tmp_path / "runs" / "run").journal, read_only=True) as journal:
        assert journal.last_number() == 1
    evaluated = groupwise("evaluate", "runs/run", "--trust", "--seeds", "1")
    assert "after update 1: 2 tasks of split test" in evaluated.out


def test_preview_and_doctor_need_none_under_a_pretrained_model(groupwise: Run, tmp_path: Path) -> None:
    file = write_run(tmp_path, PRETRAINED)
    previewed = groupwise("preview", file, "--trust")
    assert previewed.status == 0, previewed.err
    assert "go left or right" in previewed.out
    examined = groupwise("doctor", file, "--trust")
    assert examined.status == 0, examined.out
    assert " run.toml: 1 updates of 8 rollouts" in examined.out


@pytest.mark.parametrize("listed", ["SIDES", "None"])
def test_the_checker_calls_an_environment_without_one_sound(groupwise: Run, tmp_path: Path, listed: str) -> None:
    write_world(tmp_path, listed=listed)
    ran = groupwise("check", "env", "doors:Door")
    assert ran.status == 0, ran.out
    lines = {line.split(":")[0].split()[-1]: line for line in ran.out.splitlines()}
    assert lines["Door"].startswith(f"Door: {len(RULES)} rules, 0 broken, ")
    assert lines["vocabulary_covers_every_word"] == (
        " not tested vocabulary_covers_every_word: there is no vocabulary(); only models made from scratch need it"
    )
    assert lines["is_repeatable"].startswith(" ok ")


def test_a_model_from_scratch_needs_one_and_says_so_before_any_work(groupwise: Run, tmp_path: Path) -> None:
    file = write_run(tmp_path, TINY)
    trained = groupwise("train", file)
    assert (trained.status, trained.err.strip()) == (2, f"error: {LACKING}")
    assert not RunPaths(tmp_path / "runs" / "run").journal.exists()
    assert groupwise("preview", file, "--trust").err.strip() == f"error: {LACKING}"
    examined = groupwise("doctor", file, "--trust")
    assert examined.status == 1
    assert f" broken   run.toml: {LACKING}" in examined.out
    assert groupwise("check", "engine", file).err.strip() == f"error: {LACKING}"


def test_of_several_environments_the_one_without_is_named(groupwise: Run, tmp_path: Path) -> None:
    members = '[{name = "words", env = {kind = "identity"}}, {name = "doors", env = {kind = "doors:Door"}}]'
    settings = ("--set", f'env={{kind = "mixture", members = {members}}}')
    refused = groupwise("train", write_run(tmp_path, TINY), *settings)
    assert refused.err.strip() == f"error: {LACKING}"
    ran = groupwise("train", write_run(tmp_path, PRETRAINED), *settings, "--out", "both")
    assert ran.status == 0, ran.err
