"""A run whose credit reads an info value of its environment: info in the journal, and the number explained from it."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("torch")

from groupwise.cli.main import make_app
from groupwise.envs import Lookup
from groupwise.store.journal import Journal
from groupwise.training.config.run_file import load_run
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from tests.unit.envs.accepted_info import ACCEPTS

CALLS_COUNT = """
seed = 0
threads = 1

[algorithm]
advantage = { kind = "relative", by = "by_task", of = { kind = "column", name = "num_calls" }, average = "step" }
loss = { kind = "policy_loss" }

[env]
kind = "lookup"
hops = 1
num_people = 3
max_steps = 3

[model]
kind = "tiny"
hidden = 64
layers = 1

[rollout]
max_tokens = 6
history = { kind = "window", steps = 1 }
group_size = 4

[training]
updates = 2
tasks = 4

[evaluation]
tasks = 0

[warm_start]
tasks = 300
epochs = 3
learning_rate = 1e-2
batch_tokens = 256
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("info")
    (folder / "run.toml").write_text(CALLS_COUNT, encoding="utf-8")
    train(open_run(load_run(folder / "run.toml"), folder / "run"))
    return folder / "run"


def list_rollouts(run: Path) -> list[dict[str, Any]]:
    with closing(Journal(run / "journal.sqlite", read_only=True)) as journal:
        return list(journal.trajectories(2))


def test_the_journal_holds_the_info_of_every_step(run: Path) -> None:
    info = [row["extra"] for rollout in list_rollouts(run) for row in rollout["steps"]]
    assert {name for of_step in info for name in of_step} == Lookup.writes
    for of_step in info:
        assert all(ACCEPTS[name](value) for name, value in of_step.items())
    assert {of_step["num_calls"] for of_step in info} == {0, 1}


def test_credit_is_explained_from_the_info_key(run: Path) -> None:
    rollout = next(rollout for rollout in list_rollouts(run) if any(rollout["credit"]))
    step = next(number for number, credit in enumerate(rollout["credit"]) if credit)
    place = ["--update", "2", "--task", rollout["task"], "--rollout", str(rollout["rollout"]), "--step", str(step)]
    result = CliRunner().invoke(make_app(), ["inspect", str(run), *place, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert (shown["recorded"], shown["not_derived"]) == (rollout["credit"][step], "")
    assert shown["largest_gap"] < 1e-9
    ((_, signal),) = shown["inner"]
    assert signal["by_hand"] == rollout["steps"][step]["extra"]["num_calls"]
