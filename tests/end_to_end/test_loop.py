"""The loop on a tiny model: it learns, it repeats itself to the bit, and it goes on after an interruption."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from groupwise.learner.protocol import hash_weights
from groupwise.system.errors import TrainingError
from groupwise.training.evaluation.summary import Evaluation
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from tests.end_to_end.runs import config, run_to_end


def test_a_policy_learns_to_repeat_a_word(tmp_path: Path) -> None:
    run = open_run(config(32), tmp_path)
    train(run)
    rows = run.journal.evaluations()
    assert {row.number for row in rows} == {0, 32}
    assert Evaluation.from_rows([row for row in rows if row.number == 0]).success < 0.3
    assert Evaluation.from_rows([row for row in rows if row.number == 32]).success > 0.85
    assert [version for version, _ in run.journal.curve("rollout/success")] == list(range(1, 33))


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(tmp_path: Path) -> None:
    first, same = (hash_weights(run_to_end(tmp_path / name, config(3)).learner.weights()) for name in ("a", "b"))
    other = hash_weights(run_to_end(tmp_path / "c", config(3, seed=1)).learner.weights())
    assert first == same
    assert first != other


def test_the_reference_is_the_policy_the_run_started_from(tmp_path: Path) -> None:
    run = open_run(config(4, method="hgpo"), tmp_path)
    with torch.no_grad():  # what a warm start would do: other weights than those the run was opened with
        for value in dict(run.learner.weights()).values():
            value.mul_(1.5)
    run.sync(0)
    train(run)
    # At the first update the policy is the reference still.
    first, *later = (value for _, value in run.journal.curve("loss/kl_to_reference"))
    assert first == pytest.approx(0.0, abs=1e-9)
    assert max(later) > 1e-6


@pytest.mark.parametrize("method", ["hgpo", "gspo"])
def test_a_resumed_run_equals_the_uninterrupted_one(tmp_path: Path, method: str) -> None:
    whole = run_to_end(tmp_path / "whole", config(5, method=method))
    run_to_end(tmp_path / "cut", config(3, method=method, checkpoint_every=2))
    # Pretend that the process died after update 3 and before its checkpoint was complete.
    (tmp_path / "cut" / "checkpoints" / "latest").write_text("0002\n")
    resumed = run_to_end(tmp_path / "cut", config(5, method=method), resume=True)
    assert hash_weights(resumed.learner.weights()) == hash_weights(whole.learner.weights())
    for name in whole.journal.metric_names():
        if not name.startswith(("seconds/", "speed/")):
            assert resumed.journal.curve(name) == whole.journal.curve(name), name
    for number in range(1, 6):
        assert list(resumed.journal.trajectories(number)) == list(whole.journal.trajectories(number))


def test_a_folder_with_a_run_is_not_overwritten(tmp_path: Path) -> None:
    run_to_end(tmp_path, config(1))
    with pytest.raises(TrainingError) as caught:
        run_to_end(tmp_path, config(1))
    assert str(caught.value) == (
        f"{tmp_path} holds a run already; continue it with resume=True (on the command line --resume), or choose "
        "another folder"
    )
