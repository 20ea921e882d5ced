"""Which checkpoints stay, which is the best, and when a run ends early; resumed or not, it comes to the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from groupwise import ConfigError
from groupwise.learner.protocol import hash_weights
from groupwise.store.checkpoint_files import read_state
from groupwise.store.run_folder import RunPaths
from groupwise.training import loop
from groupwise.training.alarms import find_best_number, is_finished, is_out_of_patience
from groupwise.training.config.run_config import CheckpointsConfig, EvaluationConfig, RunConfig
from groupwise.training.doctor.doctor import estimate_sizes
from groupwise.training.evaluation.summary import Evaluation
from groupwise.training.run import Run
from tests.end_to_end.runs import config, run_to_end
from tests.unit.evaluations import make_evaluated

WINS = {0: 1, 1: 0, 2: 3, 3: 2, 4: 3, 5: 2, 6: 1}
"""Of four tasks, how many are solved after an update: best after 2, and again, no better, after 4."""


@pytest.fixture(autouse=True)
def _scripted_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluations that come out as `WINS` says; the policy itself learns nothing in so few updates."""

    def evaluate_run(run: Run, **settings: object) -> Evaluation:
        number = max(run.journal.last_number(), 0)
        rows = [
            make_evaluated(number=number, split="train", task=f"t{task}", success=float(task < WINS[number]))
            for task in range(4)
        ]
        run.journal.write_evaluation(rows)
        return Evaluation.from_rows(rows)

    monkeypatch.setattr(loop, "evaluate_run", evaluate_run)


def make_config(
    keep: str | int = "all", *, every: int = 1, patience: int = 0, updates: int = 6, **over: Any
) -> RunConfig:
    evaluation = EvaluationConfig(split="train", tasks=2, every=1, patience=patience)
    checkpoints = CheckpointsConfig(keep=keep)  # type: ignore[arg-type]
    return config(updates, checkpoint_every=every, evaluation=evaluation, checkpoints=checkpoints, **over)


def train(folder: Path, settings: RunConfig, *, resume: bool = False) -> tuple[list[int], int, str]:
    """Which checkpoints are there, the last update, and the weights."""
    with run_to_end(folder, settings, resume=resume) as run:
        return run.paths.checkpoint_numbers(), run.journal.last_number(), hash_weights(run.learner.weights())


@pytest.mark.parametrize(
    ("keep", "every", "numbers"),
    [
        ("all", 2, [0, 2, 4, 6]),
        ("best", 2, [2, 6]),
        ("best", 6, [2, 6]),  # no checkpoint was due after the best
        (1, 1, [2, 6]),
        (3, 1, [2, 4, 5, 6]),
    ],
)
def test_the_checkpoints_that_stay(tmp_path: Path, keep: str | int, every: int, numbers: list[int]) -> None:
    kept, last, _ = train(tmp_path / "run", make_config(keep, every=every))
    assert (kept, last) == (numbers, 6)
    assert not list((tmp_path / "run" / "checkpoints").glob(".*"))


def test_the_policy_that_a_loss_compares_with_stays(tmp_path: Path) -> None:
    assert train(tmp_path / "run", make_config("best", method="grpo"))[0] == [0, 2, 6]


def test_a_run_ends_when_its_patience_does_and_can_go_on(tmp_path: Path) -> None:
    folder, patient = tmp_path / "run", make_config("best", every=6, patience=3)
    numbers, last, _ = train(folder, patient)
    assert (numbers, last) == ([2, 5], 5)  # 3, 4 and 5 were no better than 2
    assert is_finished(folder, patient)
    assert train(folder, patient, resume=True)[:2] == ([2, 5], 5)
    more = make_config("best", every=6, patience=4)
    assert not is_finished(folder, more)
    assert train(folder, more, resume=True)[:2] == ([2, 6], 6)


def test_a_resumed_run_keeps_the_same(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", make_config(2))
    train(tmp_path / "halves", make_config(2, updates=3))
    assert train(tmp_path / "halves", make_config(2), resume=True) == whole


def go_back(folder: Path, number: int, *, damaged: list[int]) -> None:
    """Damage checkpoints, and follow the advice to go on from an earlier one."""
    for spoilt in damaged:
        (RunPaths(folder).checkpoint(spoilt) / "model.safetensors").write_bytes(b"")
    RunPaths(folder).latest.write_text(f"{number:04d}")


def test_a_run_that_went_back_keeps_what_it_comes_to(tmp_path: Path) -> None:
    whole, folder = train(tmp_path / "whole", make_config("best", every=2)), tmp_path / "run"
    assert train(folder, make_config("best", every=2, updates=5))[0] == [2, 5]
    go_back(folder, 2, damaged=[5])
    assert train(folder, make_config("best", every=2, updates=4), resume=True)[0] == [2, 4, 5]
    assert train(folder, make_config("best", every=2), resume=True) == whole


def test_a_run_that_went_back_saves_the_best_anew(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert train(folder, make_config("best", every=6, updates=2, method="grpo"))[0] == [0, 2]  # the first one stays
    go_back(folder, 0, damaged=[2])
    assert train(folder, make_config("best", every=6, method="grpo"), resume=True)[0] == [0, 2, 6]
    assert read_state(RunPaths(folder).checkpoint(2))["update"] == 2


def test_the_best_is_one_whose_checkpoint_is_there(tmp_path: Path) -> None:
    assert train(tmp_path / "run", make_config("all", every=4, updates=4))[0] == [0, 4]  # and 2 did best
    assert train(tmp_path / "run", make_config("best", every=4), resume=True)[0] == [4, 6]


def test_patience_counts_evaluations_since_the_first_best() -> None:
    rows = [make_evaluated(number=number, success=float(wins > 2)) for number, wins in WINS.items()]
    settings = EvaluationConfig(split="test", patience=4)
    assert find_best_number(rows, settings) == 2
    assert [is_out_of_patience(rows[:num], settings) for num in range(8)] == [False] * 7 + [True]
    assert not is_out_of_patience(rows, EvaluationConfig(split="test"))
    assert find_best_number(rows, EvaluationConfig(split="other")) is None


@pytest.mark.parametrize("keep", [0, -1, True, "some", 1.5])
def test_what_is_no_number_of_checkpoints_is_refused(keep: object) -> None:
    with pytest.raises(
        ConfigError, match=r'keep: found .*; give "all", "best" or the number of newest checkpoints to keep, 1 or more'
    ):
        CheckpointsConfig(keep=keep)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("keep", "evaluation", "what"),
    [
        ("all", {"patience": 2}, r"patience = 2 needs .* but every = 0; raise evaluation\.every"),
        ("all", {"patience": 2, "every": 1, "tasks": 0}, r"but tasks = 0; raise evaluation\.tasks"),
        ("best", {"tasks": 0}, r"keep = \"best\" needs evaluations, .*set checkpoints\.keep = 1 for the latest only"),
    ],
)
def test_settings_that_would_do_nothing_are_refused(keep: str, evaluation: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        config(2, evaluation=EvaluationConfig(**evaluation), checkpoints=CheckpointsConfig(keep=keep))  # type: ignore[arg-type]


@pytest.mark.parametrize(("keep", "num"), [("all", 7), ("best", 3), (2, 4), (50, 7)])
def test_doctor_counts_those_that_are_there_at_a_time(keep: str | int, num: int) -> None:
    assert estimate_sizes(make_config(keep)).checkpoints == num


@pytest.mark.parametrize(("keep", "num"), [("all", 2), ("best", 3), (5, 7)])
def test_doctor_counts_those_that_are_saved_for_being_the_best(keep: str | int, num: int) -> None:
    assert estimate_sizes(make_config(keep, every=6)).checkpoints == num
