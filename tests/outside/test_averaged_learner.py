"""A learner from outside that wraps ours: what it remembers is in each checkpoint, and survives a resume to the bit."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file

from groupwise import load_run, open_run, train
from groupwise.learner.protocol import hash_weights
from groupwise.store.run_folder import RunPaths
from groupwise.system.errors import TrainingError
from groupwise.training.run import Run
from tests.outside.running import PACKAGES, SMALL_RUN, groupwise

ALGORITHM = '\n[algorithm]\nmethod = "dr_grpo"\n'
REPEATING = ("env={kind='identity', num_words=4, length=1}", "rollout.max_tokens=1", "rollout.group_size=16")
"""A task at which some rollouts succeed from the start, so that the weights move."""
AVERAGED = """
[training.learner]
kind = "averaged_learner:AveragedLearner"
decay = 0.75
of = { kind = "local", learning_rate = 1e-2 }
"""
LOCAL = "\n[training.learner]\nlearning_rate = 1e-2\n"
FILES = ("model.safetensors", "optimizer.safetensors", "average.safetensors")


def train_run(folder: Path, learner: str, *, updates: int) -> Run:
    file = folder.with_suffix(".toml")
    file.write_text(SMALL_RUN + ALGORITHM + learner, encoding="utf-8")
    with open_run(load_run(file, overrides=[*REPEATING, f"training.updates={updates}"]), folder) as run:
        train(run)
    return run


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three updates, never interrupted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PACKAGES))
        return train_run(tmp_path_factory.mktemp("averaged") / "whole", AVERAGED, updates=3).folder


def test_the_average_is_that_of_the_weights_after_each_update(whole: Path) -> None:
    paths = RunPaths(whole)
    average = load_file(paths.checkpoint(0) / "model.safetensors")
    for number in (1, 2, 3):
        weights = load_file(paths.checkpoint(number) / "model.safetensors")
        for name, value in weights.items():
            average[name].lerp_(value, 0.25)
        kept = load_file(paths.checkpoint(number) / "average.safetensors")
        assert all(torch.equal(kept[name], average[name]) for name in kept)
        assert hash_weights(weights) != hash_weights(average)


def test_what_it_wraps_learns_as_it_does_alone(whole: Path, tmp_path: Path) -> None:
    plain = train_run(tmp_path / "plain", LOCAL, updates=3)
    for number in range(4):
        alone, wrapped = (RunPaths(folder).checkpoint(number) for folder in (plain.folder, whole))
        for name in FILES[:2]:
            assert (alone / name).read_bytes() == (wrapped / name).read_bytes(), name


def test_it_is_resumed_to_the_bit_by_the_command(whole: Path, tmp_path: Path) -> None:
    train_run(tmp_path / "cut", AVERAGED, updates=2)
    shutil.rmtree(tmp_path / "cut" / "checkpoints" / "0002")  # killed after update 2, before its checkpoint
    RunPaths(tmp_path / "cut").latest.write_text("0001\n")
    ran = groupwise("train", "--resume", "cut", "--set", "training.updates=3", "--plain", cwd=tmp_path)
    assert "update    3" in ran.stdout
    one, two = (RunPaths(folder) for folder in (whole, tmp_path / "cut"))
    for name in FILES:
        assert (one.checkpoint(3) / name).read_bytes() == (two.checkpoint(3) / name).read_bytes(), name
    distances = [distances_of(folder) for folder in (whole, tmp_path / "cut")]
    assert distances[0] == distances[1]
    assert len(set(distances[0])) == 3


def distances_of(folder: Path) -> list[float]:
    from groupwise.store.journal import Journal

    with Journal(RunPaths(folder).journal, read_only=True) as journal:
        return [value for _, value in journal.curve("extra/distance_to_average")]


def test_its_file_is_guarded_as_ours_are(whole: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    path = RunPaths(folder).checkpoint(3) / "average.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    run = open_run(load_run(folder, overrides=["training.updates=4"]), folder)
    with pytest.raises(TrainingError, match=r"0003 is damaged \(average.safetensors is not as it was written\)"):
        train(run, resume=True)
