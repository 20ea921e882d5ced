"""A run with its own text of prompts and a limit: trained, interrupted, resumed without the file, and looked at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from typer.testing import CliRunner

pytest.importorskip("torch")
from groupwise.cli.main import make_app
from groupwise.learner.protocol import hash_weights
from groupwise.store.checkpoint_files import find_latest_checkpoint
from groupwise.store.journal import Journal
from groupwise.store.run_folder import RunPaths
from groupwise.training.config.run_file import load_run
from groupwise.training.doctor.preview import preview_run
from groupwise.training.loop import train
from groupwise.training.open_run import open_run

LIMIT = 50
RUN: dict[str, Any] = {
    "algorithm": {"method": "hgpo"},
    "env": {"kind": "household", "rooms": ["bedroom"], "categories": ["pick"], "num_receptacles": 3, "num_objects": 2},
    "model": {"kind": "tiny", "hidden": 16, "layers": 1, "heads": 2},
    "rollout": {
        "max_tokens": 12,
        "max_prompt_tokens": LIMIT,
        "over_limit": "drop_oldest",
        "group_size": 4,
        "action_parser": {"kind": "tagged", "reference": True},
        "template": {"kind": "template_file", "first": "first.txt", "later": "later.txt"},
    },
    "training": {"updates": 3, "tasks": 2, "checkpoint_every": 1},
    "evaluation": {"tasks": 2},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "first.txt").write_text("You see: $observation\n<action>", encoding="utf-8")
    (tmp_path / "later.txt").write_text("Do: $task\nPast $num_shown: $history\nNow: $observation\n", encoding="utf-8")
    (tmp_path / "run.toml").write_text(tomli_w.dumps(RUN), encoding="utf-8")
    return tmp_path / "run.toml"


def read_run(folder: Path) -> tuple[Any, ...]:
    """Rollouts, metrics that tell no time, and the last weights."""
    from safetensors.torch import load_file

    with Journal(RunPaths(folder).journal, read_only=True) as journal:
        rollouts = [list(journal.trajectories(number)) for number in journal.update_numbers()]
        names = [name for name in journal.metric_names() if not name.startswith(("seconds/", "speed/"))]
        curves = {name: journal.curve(name) for name in names}
    last = find_latest_checkpoint(RunPaths(folder).checkpoints)
    assert last is not None
    return rollouts, curves, hash_weights(load_file(last / "model.safetensors"))


def test_a_run_resumes_to_the_bit_without_its_files(file: Path, tmp_path: Path) -> None:
    with open_run(load_run(file), tmp_path / "whole") as run:
        train(run)
    with open_run(load_run(file, overrides=["training.updates=1"]), tmp_path / "cut") as run:
        train(run)
    for name in ("first.txt", "later.txt"):
        (tmp_path / name).unlink()
    with open_run(load_run(tmp_path / "cut", overrides=["training.updates=3"]), tmp_path / "cut") as run:
        train(run, resume=True)
    rollouts, curves, weights = read_run(tmp_path / "whole")
    assert read_run(tmp_path / "cut") == (rollouts, curves, weights)
    steps = [step for update in rollouts for rollout in update for step in rollout["steps"]]
    cut = [step.get("prompt_cut", 0) for step in steps]
    assert max(len(step["prompt_ids"]) for step in steps) <= LIMIT
    assert 0 < sum(map(bool, cut)) < len(cut)
    of_update = [step.get("prompt_cut", 0) > 0 for rollout in rollouts[0] for step in rollout["steps"]]
    assert curves["rollout/prompts_cut"][0] == (1, sum(of_update) / len(of_update))


def test_preview_and_inspect_say_what_was_cut(file: Path, tmp_path: Path) -> None:
    config = load_run(file)
    preview = preview_run(config, num_tasks=1, num_steps=5)
    steps = preview.rollouts[0].steps
    assert steps[-1].prompt_cut > 0
    num_cut = sum(step.prompt_cut > 0 for step in steps)
    assert (
        f"{num_cut} of these {len(steps)} prompts are longer than rollout.max_prompt_tokens, {LIMIT}, and are "
        "shortened; shorten rollout.history, or raise the limit"
    ) in preview.notes
    assert preview.costs.longest_prompt == LIMIT
    with open_run(load_run(file, overrides=["training.updates=1"]), tmp_path / "run") as run:
        train(run)
    with Journal(RunPaths(tmp_path / "run").journal, read_only=True) as journal:
        rollout = next(one for one in journal.trajectories(1) if any(step.get("prompt_cut") for step in one["steps"]))
    step = next(step for step in rollout["steps"] if step.get("prompt_cut"))
    place = ["inspect", str(tmp_path / "run"), "--update", "1", "--task", rollout["task"]]
    place += ["--rollout", str(rollout["rollout"])]
    shown = CliRunner().invoke(make_app(), place, catch_exceptions=False).stdout
    assert f"prompt cut by {step['prompt_cut']} token" in " ".join(shown.split())
    prompt = [*place, "--step", str(step["step"]), "--prompt"]
    told = CliRunner().invoke(make_app(), prompt, catch_exceptions=False).stdout
    assert f"; {step['prompt_cut']} more removed by rollout.max_prompt_tokens" in " ".join(told.split())
    assert json.loads(CliRunner().invoke(make_app(), [*prompt, "--json"]).stdout)["cut"] == step["prompt_cut"]


def test_a_preview_says_that_long_prompts_would_be_refused(file: Path) -> None:
    refusing = load_run(file, overrides=['rollout.over_limit="refuse"', "rollout.max_prompt_tokens=80"])
    preview = preview_run(refusing, num_tasks=1)
    longest = preview.costs.longest_prompt
    assert longest > 80
    assert (
        f"the last prompts of a long rollout have about {longest} tokens and exceed rollout.max_prompt_tokens, 80, so "
        'the rollout ends; raise it, shorten rollout.history, or set rollout.over_limit = "cut_left"'
    ) in preview.notes
