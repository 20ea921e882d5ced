"""What breaks a run itself stops it within one update, with a message that names it, and the run can go on after it."""

from __future__ import annotations

import resource
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise.learner.protocol import hash_weights
from groupwise.store.checkpoint_files import find_latest_checkpoint
from groupwise.system.errors import TrainingError
from groupwise.training import checkpoints as run_checkpoints
from groupwise.training.checkpoints import save_checkpoint
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from groupwise.training.run import Run
from tests.end_to_end.runs import config, run_to_end


def test_weights_that_do_not_arrive_stop_the_run_within_one_update(tmp_path: Path) -> None:
    run = open_run(config(3, seed=1), tmp_path)
    real_load = run.engine.load
    run.engine.load = lambda weights, *, version: real_load({}, version=version)  # type: ignore[method-assign]
    with pytest.raises(TrainingError) as caught:
        train(run)
    assert str(caught.value).startswith("after the weight sync of version 1, the engine and the learner disagree by ")
    assert "on a fixed prompt (allowed 0.001; the update moved the learner by " in str(caught.value)
    assert str(caught.value).endswith("). The engine did not load the weights, or training.weight_sync never sent them")
    assert run.journal.last_number() == -1


def test_old_weights_that_would_pass_for_the_new_ones_are_found_out_too(tmp_path: Path) -> None:
    """A step so small that the tolerance would hide it: the engine agrees with what the learner said before."""
    sections = config(3, seed=1)
    slow = sections.training.learner.model_copy(update={"learning_rate": 2e-6})
    training = sections.training.model_copy(update={"learner": slow})
    run = open_run(sections.model_copy(update={"training": training}), tmp_path / "stuck")
    real_load = run.engine.load
    run.engine.load = lambda weights, *, version: real_load({}, version=version)  # type: ignore[method-assign]
    with pytest.raises(TrainingError, match="The engine did not load the weights") as caught:
        train(run)
    gap = float(str(caught.value).partition("disagree by ")[2].partition(" ")[0])
    assert 1e-5 < gap < 1e-3
    train(open_run(sections.model_copy(update={"training": training}), tmp_path / "sound"))


def test_a_sync_that_is_never_made_is_told_by_the_version(tmp_path: Path) -> None:
    run = open_run(config(3), tmp_path)
    run.engine.load = lambda weights, *, version: None  # type: ignore[method-assign]
    with pytest.raises(TrainingError) as caught:
        train(run)
    assert str(caught.value) == (
        "the engine reports weights of version 0, but version 1 was sent; its `load` had no effect, "
        "or training.weight_sync never called it"
    )
    assert run.journal.last_number() == -1


def spoil_loss(run: Run) -> None:
    """From the second update on, the loss is not a number."""
    learner: Any = run.learner
    sound = learner._loss

    class Spoilt:
        needs, unit = sound.needs, sound.unit

        def __call__(self, columns: Any, totals: Any) -> Any:
            result = sound(columns, totals)
            return replace(result, loss=result.loss * (float("nan") if learner.steps else 1.0))

    learner._loss = Spoilt()


def spoil_gradient(run: Run) -> None:
    """From the second update on, the gradient of one weight is not a number."""
    learner: Any = run.learner
    weight = learner.model.get_parameter("model.norm.weight")
    weight.register_hook(lambda gradient: gradient * (float("nan") if learner.steps else 1.0))


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (spoil_loss, "the loss is not finite (nan)"),
        (spoil_gradient, "the gradient is not finite (nan, first in model.norm.weight)"),
    ],
)
def test_a_nan_in_learning_stops_the_run_and_leaves_the_weights(
    tmp_path: Path, spoil: Callable[[Run], None], what: str
) -> None:
    whole = run_to_end(tmp_path / "whole", config(2))
    run = open_run(config(2, checkpoint_every=1), tmp_path / "spoilt")
    spoil(run)
    with pytest.raises(TrainingError) as caught:
        train(run)
    assert str(caught.value) == (
        f"optimizer step 2: {what}; weights and optimizer are unchanged. Lower the learning rate, or look at the "
        "rewards of this update"
    )
    assert run.journal.update_numbers() == [1]
    # Once the cause is mended the run goes on from where it was.
    resumed = run_to_end(tmp_path / "spoilt", config(2, checkpoint_every=1), resume=True)
    assert hash_weights(resumed.learner.weights()) == hash_weights(whole.learner.weights())


@pytest.mark.parametrize("allowed", [0, 20_000, 200_000], ids=["nothing", "no weights", "weights only"])
def test_a_full_disk_leaves_the_earlier_checkpoint_and_the_run_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    def on_a_full_disk(folder: Path, number: int, *rest: Any) -> Path:
        if number == 0:
            return save_checkpoint(folder, number, *rest)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (allowed, limits[1]))
        try:
            return save_checkpoint(folder, number, *rest)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    folder = tmp_path / "full"
    monkeypatch.setattr(run_checkpoints, "save_checkpoint", on_a_full_disk)
    with pytest.raises(TrainingError) as caught:
        run_to_end(folder, config(3))
    assert str(caught.value).startswith(f"checkpoint {folder / 'checkpoints' / '0002'} could not be written (")
    assert "File too large" in str(caught.value)
    assert str(caught.value).endswith("; the earlier ones are untouched. Free some space, then continue with --resume")
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == ["0000", "latest"]
    monkeypatch.undo()
    resumed = run_to_end(folder, config(3), resume=True)
    whole = run_to_end(tmp_path / "whole", config(3))
    assert hash_weights(resumed.learner.weights()) == hash_weights(whole.learner.weights())
    assert resumed.journal.update_numbers() == [1, 2, 3]


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
def test_a_damaged_checkpoint_names_the_one_before_and_the_advice_works(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "run"
    run_to_end(folder, config(4))
    latest = find_latest_checkpoint(folder / "checkpoints")
    assert latest is not None
    assert latest.name == "0004"
    content = (latest / name).read_bytes()
    (latest / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(TrainingError) as caught:
        run_to_end(folder, config(6), resume=True)
    pointer = folder / "checkpoints" / "latest"
    assert str(caught.value).startswith(f"checkpoint {latest} is damaged (")
    assert str(caught.value).endswith(
        f"; the newest checkpoint that is whole and fits the journal is 0002: write `0002` into {pointer} and resume"
    )
    pointer.write_text("0002\n", encoding="utf-8")
    resumed = run_to_end(folder, config(6), resume=True)
    whole = run_to_end(tmp_path / "whole", config(6))
    assert hash_weights(resumed.learner.weights()) == hash_weights(whole.learner.weights())
    assert resumed.journal.update_numbers() == [1, 2, 3, 4, 5, 6]


def test_the_first_checkpoint_has_none_before_it(tmp_path: Path) -> None:
    run_to_end(tmp_path, config(0))
    (tmp_path / "checkpoints" / "0000" / "state.json").unlink()
    with pytest.raises(TrainingError) as caught:
        run_to_end(tmp_path, config(1), resume=True)
    assert str(caught.value) == (
        f"checkpoint {tmp_path / 'checkpoints' / '0000'} is damaged (state.json is missing); no other checkpoint is "
        "whole and fits the journal: start the run again"
    )
