"""docs/learn/own_data.md, its functions: they reward the rollouts of a run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

from groupwise.store.journal import Journal, Update
from groupwise.training.config.run_file import load_run
from groupwise.training.loop import train
from groupwise.training.observer import RunObserver
from groupwise.training.open_run import open_run
from tests.unit.cli.conftest import Run
from tests.unit.cli.conftest import groupwise as groupwise
from tests.unit.cli.run_files import SMALL

PAGE = (Path(__file__).parents[2] / "docs" / "learn" / "own_data.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


class LastUpdate(RunObserver):
    """Keeps the update that was made last."""

    def on_update(self, update: Update) -> None:
        self.update = update


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as a reader of the page has it."""
    (tmp_path / "rewards.py").write_text("\n".join(blocks("python")), encoding="utf-8")
    (tmp_path / "run.toml").write_text(f"{SMALL}\n{blocks('toml')[1]}", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_functions_of_the_page_pay_the_rollouts(folder: Path) -> None:
    observer = LastUpdate()
    with open_run(load_run(folder / "run.toml"), folder / "run") as run:
        train(run, observers=[observer])
    rollouts = observer.update.trajectories
    assert {len(rollout.steps) for rollout in rollouts} == {1}
    for rollout in rollouts:
        assert rollout.scores["score"] == rollout.scores["accuracy"] == 2.0 * rollout.scores["success"]
        assert rollout.scores["be_polite"] == 0.0
        assert rollout.steps[0].reward == rollout.scores["return"] == rollout.scores["score"]


def test_a_function_of_trls_is_taken_as_it_is(folder: Path) -> None:
    namespace: dict[str, object] = {}
    exec(blocks("python")[0], namespace)
    match_answer = namespace["match_answer"]
    assert match_answer(completions=["a ", "b"], answer=["a", "c"], level=[1, 2]) == [1.0, 0.0]  # type: ignore[operator]
    own = (folder / "run.toml").read_text(encoding="utf-8").replace("rewards.py:score", "rewards.py:match_answer")
    (folder / "run.toml").write_text(own, encoding="utf-8")
    config = load_run(folder / "run.toml")
    assert "match_answer" in {getattr(part, "score_name", "") for part in config.rewards}


def test_a_wrong_signature_stops_before_a_model_loads(folder: Path, groupwise: Run) -> None:
    (folder / "rewards.py").write_text("def score(a, b, c): ...\ndef be_polite(t): ...\n", encoding="utf-8")
    ran = groupwise("train", "run.toml")
    assert ran.status == 2
    assert f"the function '{folder}/rewards.py:score' takes (a, b, c); give it (trajectory), " in ran.err
    assert not (folder / "runs").exists()


def test_the_run_resumes_from_another_folder_as_if_it_had_never_stopped(
    folder: Path, groupwise: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function was looked for where one stood: the run resumed from the folder that it began in only."""
    elsewhere, place = folder / "elsewhere", str(folder / "run.toml")
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert groupwise("train", place, "--out", "../whole").status == 0
    assert groupwise("train", place, "--out", "../halves", "--set", "training.updates=1").status == 0
    monkeypatch.chdir(folder.parent)
    ran = groupwise("train", "--resume", str(folder / "halves"), "--set", "training.updates=2")
    assert ran.status == 0, ran.err
    assert read_digest(folder / "halves") == read_digest(folder / "whole")
    stored = (folder / "halves" / "config.toml").read_text(encoding="utf-8")
    assert f'function = "{folder}/rewards.py:score"' in stored


def read_digest(run: Path) -> str:
    with Journal(run / "journal.sqlite", read_only=True) as journal:
        assert journal.last_number() == 2
        return journal.digest()


def test_who_only_reads_the_run_file_does_not_run_the_function(folder: Path, groupwise: Run) -> None:
    (folder / "rewards.py").write_text("raise SystemExit('it ran')\n", encoding="utf-8")
    ran = groupwise("preview", "run.toml", "--tasks", "1")
    assert ran.status == 0, ran.err
    assert "it ran" not in ran.out + ran.err
