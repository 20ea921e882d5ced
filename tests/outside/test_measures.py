"""A scorer from outside that calls the engine before credit: its info are written down, and credit derives again."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from groupwise.cli.main import make_app
from groupwise.store import RolloutsFile, write_rollouts
from groupwise.store.journal import Journal
from groupwise.training.config.run_file import load_run
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from tests.outside.running import SMALL_RUN, train_from_file

PROBED = SMALL_RUN + (
    "[algorithm]\n"
    'advantage = { kind = "relative", by = "by_task", of = { kind = "column", name = "repeated" }, average = "step" }\n'
    'scorers = [{ kind = "repeat_probe:Repeated", answers = 40 }]\n'
    '\n[algorithm.loss]\nkind = "policy_loss"\n'
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("probed")


@pytest.fixture(scope="module")
def probed(folder: Path) -> Path:
    return train_from_file(folder, PROBED)


def trajectories(run: Path, number: int) -> list[dict[str, Any]]:
    with closing(Journal(run / "journal.sqlite", read_only=True)) as journal:
        return list(journal.trajectories(number))


def test_what_the_engine_said_is_a_info_key_of_every_step(probed: Path) -> None:
    info = [row["extra"]["repeated"] for trajectory in trajectories(probed, 2) for row in trajectory["steps"]]
    assert all(info_key in {n / 40 for n in range(41)} for info_key in info)
    assert len(set(info)) > 1
    with closing(Journal(probed / "journal.sqlite", read_only=True)) as journal:
        sampled, read = (dict(journal.curve(f"scorers/{kind}_tokens"))[2] for kind in ("sampled", "read"))
    assert sampled == 40 * len(info)
    assert read == 40 * sum(
        len(row["prompt_ids"]) for trajectory in trajectories(probed, 2) for row in trajectory["steps"]
    )


def test_credit_derives_again_without_a_model(probed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import repeat_probe  # type: ignore[import-not-found] # on the path of these tests alone

    def ask(*_: object, **__: object) -> None:
        raise AssertionError("a report asks no model")

    monkeypatch.setattr(repeat_probe.Repeated, "__call__", ask)
    trajectory = next(one for one in trajectories(probed, 2) if any(one["credit"]))
    step = next(n for n, credit in enumerate(trajectory["credit"]) if credit)
    given = [
        "inspect",
        probed,
        "--update",
        2,
        "--task",
        trajectory["task"],
        "--rollout",
        trajectory["rollout"],
        "--step",
        step,
    ]
    result = CliRunner().invoke(make_app(), [*map(str, given), "--trust", "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert shown["recorded"] == trajectory["credit"][step]
    assert shown["largest_gap"] < 1e-9
    assert shown["not_derived"] == ""
    ((_, signal),) = shown["inner"]
    assert signal["by_hand"] == trajectory["steps"][step]["extra"]["repeated"]
    assert signal["not_derived"] == ""


def test_a_resumed_run_asks_nothing_twice_and_ends_with_the_same_info(folder: Path, probed: Path) -> None:
    file = folder / "resumed.toml"
    file.write_text(PROBED, encoding="utf-8")
    train(open_run(load_run(file, overrides=["training.updates=1"]), folder / "resumed"))
    train(open_run(load_run(file), folder / "resumed"), resume=True)
    for number in (1, 2):
        resumed, whole = (trajectories(run, number) for run in (folder / "resumed", probed))
        assert [one["steps"] for one in resumed] == [one["steps"] for one in whole]
        assert [one["credit"] for one in resumed] == [one["credit"] for one in whole]


def test_a_rollouts_file_made_of_the_run_has_the_info_as_a_column(probed: Path, tmp_path: Path) -> None:
    rows = [row for trajectory in trajectories(probed, 2) for row in trajectory["steps"]]
    write_rollouts(tmp_path / "rows.jsonl", rows)
    (part,) = RolloutsFile.open(tmp_path / "rows.jsonl").chunks()
    assert part.table().column("repeated").tolist() == [
        row["extra"]["repeated"] for row in sorted(rows, key=lambda row: (row["task"], row["rollout"], row["step"]))
    ]
