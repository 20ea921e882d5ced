"""One flipped bit in a checkpoint stops the run with a sentence, and the advice in it works."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise.learner.local_files import read_weights
from groupwise.learner.protocol import hash_weights
from groupwise.models import TinyModel
from groupwise.system.errors import TrainingError
from groupwise.system.json_text import digest_value
from groupwise.training.checkpoints import load_checkpoint, save_checkpoint
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from groupwise.training.run import Run
from tests.faults.damaged_runs import copy_run, flip_bit, follow, go_on, make_run, refusal, weights_of
from tests.unit.cli.conftest import Run as Command
from tests.unit.cli.conftest import groupwise  # noqa: F401
from tests.unit.cli.run_files import small
from tests.unit.learner.learners import learner, tiny
from tests.unit.training.runs import small_config

FILES = ["config.json", "model.safetensors", "optimizer.safetensors", "tokenizer.json", "tokenizer_config.json"]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three updates, with a checkpoint after each."""
    folder = tmp_path_factory.mktemp("damaged") / "run"
    make_run(folder, updates=3)
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run of four updates that nobody damaged."""
    return make_run(tmp_path_factory.mktemp("whole"), updates=4)


@pytest.fixture
def folder(source: Path, tmp_path: Path) -> Path:
    return copy_run(source, tmp_path / "run")


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_is_found_and_the_checkpoint_before_brings_back_every_bit(
    folder: Path, whole: Run, name: str
) -> None:
    latest = folder / "checkpoints" / "0003"
    assert set(json.loads((latest / "state.json").read_text())["files"]) >= set(FILES)
    flip_bit(latest / name, 0.7)
    said = refusal(folder, updates=4)
    assert said.startswith(f"checkpoint {latest} is damaged ({name} is not as it was written); the newest checkpoint ")
    assert follow(said, folder) == "0002"
    assert weights_of(go_on(folder, updates=4)) == weights_of(whole)


def test_nothing_is_loaded_from_a_checkpoint_that_is_damaged(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 1, learner(tiny()[0]), tiny()[1], {})
    flip_bit(path / "optimizer.safetensors")
    made = learner(TinyModel(hidden=16, layers=1).build(tiny()[1], seed=5))
    before = hash_weights(made.weights())
    with pytest.raises(TrainingError, match=r"optimizer\.safetensors is not as it was written"):
        load_checkpoint(path, made)
    assert hash_weights(made.weights()) == before


def test_of_two_damaged_checkpoints_neither_is_advised(folder: Path) -> None:
    flip_bit(folder / "checkpoints" / "0003" / "model.safetensors")
    (folder / "checkpoints" / "0002" / "tokenizer.json").unlink()
    assert follow(refusal(folder, updates=4), folder) == "0001"


def spoil(path: Path, **changes: Any) -> None:
    """Change state.json so that its own digest is right again; None takes a key out."""
    state = json.loads(path.read_text())
    state |= changes
    content = {name: value for name, value in state.items() if value is not None and name != "digest"}
    path.write_text(json.dumps({**content, "digest": digest_value(content)}))


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "state.json is not JSON"),
        (b"\x00\xff\xfe binary", "state.json is not JSON"),
        (b"[" * 100_000, "state.json is not JSON"),
        (b"[1, 2]", "state.json has no digests of the files: an older version wrote it, or it was changed"),
        (b"{}", "state.json has no digests of the files: an older version wrote it, or it was changed"),
    ],
)
def test_a_state_that_cannot_be_read_is_a_sentence(folder: Path, content: bytes, what: str) -> None:
    (folder / "checkpoints" / "0003" / "state.json").write_bytes(content)
    said = refusal(folder, updates=4)
    assert said.startswith(f"checkpoint {folder / 'checkpoints' / '0003'} is damaged ({what}); the newest checkpoint ")
    assert follow(said, folder) == "0002"


def test_a_flipped_bit_in_the_state_is_found(folder: Path) -> None:
    path = folder / "checkpoints" / "0003" / "state.json"
    path.write_text(path.read_text().replace('"learner_steps": 3', '"learner_steps": 2'))
    assert "(state.json is not as it was written)" in refusal(folder, updates=4)


@pytest.mark.parametrize("name", ["update", "learner_steps", "curriculum", "journal"])
def test_a_state_that_lacks_something_is_a_sentence(folder: Path, name: str) -> None:
    spoil(folder / "checkpoints" / "0003" / "state.json", **{name: None})
    assert f"(state.json has no {name!r})" in refusal(folder, updates=4)


def test_a_state_that_names_files_elsewhere_is_refused(folder: Path) -> None:
    spoil(folder / "checkpoints" / "0003" / "state.json", files={"../../config.toml": "0" * 64})
    assert "('../../config.toml' is no file of the folder)" in refusal(folder, updates=4)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "holds '', which is not the number of a checkpoint"),
        (b"../../elsewhere\n", "holds '../../elsewhere', which is not the number of a checkpoint"),
        (b"/etc", "holds '/etc', which is not the number of a checkpoint"),
        (b"yesterday", "holds 'yesterday', which is not the number of a checkpoint"),
        (b"\xff\x00\x80" * 30, "cannot be read (not the number of a checkpoint)"),
        (b"\x1b]52;c;aGk=\x07", r"holds '\\x1b]52;c;aGk=\\x07', which is not the number of a checkpoint"),
        (b"0009", "names 0009, which is not there"),
        (b"3" * 10_000, f"holds '{'3' * 64}', which is not the number of a checkpoint"),
    ],
)
def test_a_damaged_pointer_is_a_sentence_and_the_advice_works(
    folder: Path, whole: Run, content: bytes, what: str
) -> None:
    pointer = folder / "checkpoints" / "latest"
    pointer.write_bytes(content)
    said = refusal(folder, updates=4)
    assert said.startswith(f"{pointer} {what}; the newest checkpoint that is whole and fits the journal is 0003: ")
    follow(said, folder)
    assert weights_of(go_on(folder, updates=4)) == weights_of(whole)


def test_a_pointer_that_is_gone_is_a_sentence(folder: Path) -> None:
    (folder / "checkpoints" / "latest").unlink()
    said = refusal(folder, updates=4)
    assert said.startswith(f"{folder / 'checkpoints'} names no latest checkpoint, but the journal has updates; ")
    assert follow(said, folder) == "0003"


def test_a_pointer_that_is_a_folder_is_a_sentence(folder: Path) -> None:
    (folder / "checkpoints" / "latest").unlink()
    (folder / "checkpoints" / "latest").mkdir()
    assert "latest cannot be read (Is a directory); the newest " in refusal(folder, updates=4)


def test_a_checkpoint_of_another_run_does_not_fit(folder: Path, tmp_path: Path) -> None:
    """The same settings but the seed: whole in itself, and still not what the journal led to."""
    other = open_run(small_config(updates=3).model_copy(update={"seed": 9}), tmp_path / "other")
    train(other)
    shutil.rmtree(folder / "checkpoints" / "0003")
    shutil.copytree(tmp_path / "other" / "checkpoints" / "0003", folder / "checkpoints" / "0003")
    said = refusal(folder, updates=4)
    assert said.startswith(
        f"{folder}: the journal does not lead to checkpoint 0003 (its update 3 is of another run); the newest "
    )
    assert follow(said, folder) == "0002"


@pytest.mark.parametrize(
    ("model", "what"),
    [
        (TinyModel(hidden=32, layers=1, heads=2), "has the shape [4, 16] there and"),
        (TinyModel(hidden=16, layers=2, heads=2), "it has no 'model.layers.1."),
        (TinyModel(hidden=16, layers=1, heads=2, expansion=2), "has the shape"),
    ],
    ids=["wider", "deeper", "thinner"],
)
def test_another_model_is_a_sentence_and_nothing_is_lost(folder: Path, whole: Run, model: TinyModel, what: str) -> None:
    (folder / "config.toml").unlink()  # it says the same sooner: tests/unit/training/test_changed_settings.py
    said = refusal(folder, updates=4, model=model)
    assert said.startswith(f"checkpoint {folder / 'checkpoints' / '0003'} is of another model: ")
    assert what.partition("[")[0] in said
    assert said.endswith("; use the section [model] of the run's config.toml, or start a new run in another folder")
    assert weights_of(go_on(folder, updates=4)) == weights_of(whole)


def test_another_model_leaves_the_settings_of_the_folder(groupwise: Command, tmp_path: Path) -> None:  # noqa: F811
    assert groupwise("train", small(tmp_path), "--out", "run").status == 0
    before = (tmp_path / "run" / "config.toml").read_bytes()
    ran = groupwise("train", "--resume", "run", "--set", "model.hidden=32", "--set", "training.updates=3")
    assert ran.status == 2
    assert ran.err == (
        "error: model.hidden cannot change in a resumed run: it was 16, is 32; leave it as in run/config.toml, or "
        "begin another run in another folder\n"
    )
    assert (tmp_path / "run" / "config.toml").read_bytes() == before
    assert groupwise("train", "--resume", "run", "--set", "training.updates=3").status == 0


def test_another_optimizer_is_a_sentence(tmp_path: Path) -> None:
    made = learner(tiny()[0])
    weight = next(iter(made.optimizer.param_groups[0]["params"]))
    made.optimizer.state[weight] = {"momentum_buffer": torch.zeros_like(weight)}
    path = save_checkpoint(tmp_path, 1, made, tiny()[1], {})
    with pytest.raises(TrainingError, match=r"its optimizer holds 'momentum_buffer', which this run's does not; use"):
        load_checkpoint(path, learner(tiny()[0]))


def learner_in_shards(folder: Path) -> Any:
    """A learner whose model is written in several files, as large ones are."""
    made = learner(tiny()[0])
    real = made.model.save_pretrained
    made.model.save_pretrained = lambda path: real(path, max_shard_size="8KB")
    return made


def test_a_model_in_several_files_comes_back(tmp_path: Path) -> None:
    made = learner_in_shards(tmp_path)
    path = save_checkpoint(tmp_path, 1, made, tiny()[1], {})
    names = [each.name for each in path.glob("model-*-of-*.safetensors")]
    assert len(names) > 2
    assert {*names, "model.safetensors.index.json"} <= json.loads((path / "state.json").read_text())["files"].keys()
    other = learner(TinyModel(hidden=16, layers=1).build(tiny()[1], seed=5))
    load_checkpoint(path, other)
    assert hash_weights(other.weights()) == hash_weights(made.weights())
    assert read_weights(path).keys() == {name for name, _ in made.model.named_parameters()}


@pytest.mark.parametrize("how", ["flipped", "missing", "step"])
def test_a_damaged_part_of_a_model_in_several_files_is_found(tmp_path: Path, how: str) -> None:
    path = save_checkpoint(tmp_path, 1, learner_in_shards(tmp_path), tiny()[1], {})
    shard = sorted(path.glob("model-*-of-*.safetensors"))[1]
    index = path / "model.safetensors.index.json"
    if how == "missing":
        shard.unlink()
    else:
        flip_bit(shard if how == "flipped" else index)
    for read in (lambda: load_checkpoint(path, learner(tiny()[0])), lambda: read_weights(path)):
        with pytest.raises(TrainingError, match=r"0001 is damaged \(.*(model-|index\.json)"):
            read()


def test_the_policy_that_the_run_started_from_is_needed_where_the_loss_compares_with_it(tmp_path: Path) -> None:
    make_run(tmp_path, updates=2, method="gigpo")
    flip_bit(tmp_path / "checkpoints" / "0000" / "model.safetensors", 0.9)
    assert refusal(tmp_path, updates=3, method="gigpo") == (
        f"checkpoint {tmp_path / 'checkpoints' / '0000'} is damaged (model.safetensors is not as it was written). "
        "It holds the reference of the loss, the policy that the run started from; put it back from a copy, or start "
        "the run again"
    )
