"""Weights reach the engine in memory and through a file, and what goes wrong on the way is a sentence."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file

from groupwise import ConfigError, Part
from groupwise.engines.open_engine import open_engine
from groupwise.learner import InMemory, ThroughFile
from groupwise.learner.protocol import hash_weights
from groupwise.parts.part import Slot
from groupwise.system.errors import TrainingError
from groupwise.training.config.run_config import TrainingConfig
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from tests.faults.full_disks import no_space
from tests.unit.learner.learners import tiny
from tests.unit.training.runs import small_config

PAIRS = [((2, 4), (5, 3))]


def move_weights(model: Any) -> dict[str, torch.Tensor]:
    """Weights other than a model's, by name."""
    return {name: value.detach() * 1.5 for name, value in model.named_parameters()}


@pytest.mark.parametrize("place", ["memory", "folder", "named", "nowhere"])
@pytest.mark.parametrize("as_table", [True, False])
def test_the_engine_says_what_it_would_say_with_the_weights(tmp_path: Path, place: str, as_table: bool) -> None:
    model = tiny()[0]
    engine, wanted = open_engine(copy.deepcopy(model)), open_engine(copy.deepcopy(model))
    weights = move_weights(model)
    wanted.load(weights, version=3)
    part = InMemory() if place == "memory" else ThroughFile(folder=str(tmp_path / "own") if place == "named" else "")
    transfer = part.open(None if place == "nowhere" else tmp_path / "weights")
    transfer.sync(weights if as_table else iter(weights.items()), engine, version=3)
    assert engine.version == 3
    assert engine.score(PAIRS) == wanted.score(PAIRS)
    assert list(tmp_path.iterdir()) == [], "nothing stays behind"


def test_an_engine_that_reads_files_is_told_the_path(tmp_path: Path) -> None:
    class Reads:
        """An engine at the other end of a network, as far as weight sync goes."""

        call: dict[str, Any]

        def load_file(self, path: Path, *, version: int) -> None:
            self.call = {"path": path, "version": version, "weights": load_file(path)}

    engine, weights = Reads(), move_weights(tiny()[0])
    ThroughFile().open(tmp_path / "weights").sync(weights, engine, version=12)  # type: ignore[arg-type]
    assert engine.call["path"] == tmp_path / "weights" / "0012.safetensors"
    assert engine.call["version"] == 12
    assert hash_weights(engine.call["weights"]) == hash_weights(weights)


@pytest.mark.parametrize("is_named", [True, False])
def test_the_path_says_the_same_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_named: bool
) -> None:
    class Reads:
        """Notes the path."""

        path = Path()

        def load_file(self, path: Path, *, version: int) -> None:
            self.path = path

    monkeypatch.chdir(tmp_path)
    engine = Reads()
    part = ThroughFile(folder="weights" if is_named else "")
    part.open(Path("weights")).sync(move_weights(tiny()[0]), engine, version=1)  # type: ignore[arg-type]
    assert engine.path == tmp_path / "weights" / "0001.safetensors"


def test_weights_that_share_memory_are_a_sentence(tmp_path: Path) -> None:
    shared, transfer = torch.ones(3), ThroughFile().open(tmp_path / "weights")
    with pytest.raises(TrainingError) as caught:
        transfer.sync({"one": shared, "two": shared}, open_engine(tiny()[0]), version=1)
    path = tmp_path / "weights" / "0001.safetensors"
    assert str(caught.value).startswith(f"the weights could not be written to {path} (")
    assert str(caught.value).endswith("its own memory, or use the weight_sync in_memory")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_files_of_others_in_the_folder_stay(tmp_path: Path) -> None:
    (tmp_path / "note").touch()
    engine = open_engine(tiny()[0])
    ThroughFile(folder=str(tmp_path)).open(None).sync(move_weights(tiny()[0]), engine, version=1)
    assert [path.name for path in tmp_path.iterdir()] == ["note"]


def test_a_full_disk_is_a_sentence(tmp_path: Path) -> None:
    engine = open_engine(tiny()[0])
    with no_space(100), pytest.raises(TrainingError) as caught:
        ThroughFile().open(tmp_path / "weights").sync(move_weights(tiny()[0]), engine, version=1)
    path = tmp_path / "weights" / "0001.safetensors"
    assert str(caught.value).startswith(f"the weights could not be written to {path} (")
    assert str(caught.value).endswith(
        "; free some space, or set another training.weight_sync.folder, then continue with --resume"
    )
    assert engine.version == 0
    assert list(tmp_path.rglob("*.safetensors")) == []


@pytest.mark.parametrize("kind", ["through_file", {"kind": "through_file"}])
def test_a_run_through_files_is_the_run_in_memory_to_the_bit(tmp_path: Path, kind: Any) -> None:
    runs = []
    for name, transfer in (("memory", {"kind": "in_memory"}), ("file", kind)):
        config = small_config(updates=2)
        training = TrainingConfig(**{**config.training.config(), "weight_sync": transfer})
        run = open_run(config.model_copy(update={"training": training}), tmp_path / name)
        train(run)
        runs.append(run)
    assert runs[0].journal.digest() == runs[1].journal.digest()
    assert hash_weights(runs[0].learner.weights()) == hash_weights(runs[1].learner.weights())
    assert not (tmp_path / "file" / "weights").exists()


class Forgetful(Part, slot="weight_sync"):
    """Opens nothing."""

    def open(self, folder: Path | None) -> Any:
        return None


class Idle(Part, slot="weight_sync"):
    """Says the version and leaves the weights behind."""

    def open(self, folder: Path | None) -> Any:
        return self

    def sync(self, weights: Any, engine: Any, *, version: int) -> None:
        engine.load({}, version=version)


def test_a_transfer_that_opens_nothing_is_a_sentence(tmp_path: Path) -> None:
    training = small_config().training.model_copy(update={"weight_sync": Forgetful()})
    with pytest.raises(ConfigError) as caught:
        open_run(small_config().model_copy(update={"training": training}), tmp_path / "run")
    assert str(caught.value) == (
        f"the weight_sync {__name__}:Forgetful: open returned nothing; expected an object with sync"
    )
    assert not (tmp_path / "run").exists()


def test_a_transfer_that_leaves_the_weights_behind_is_found_by_the_weight_check(tmp_path: Path) -> None:
    training = small_config().training.model_copy(update={"weight_sync": Idle()})
    run = open_run(small_config().model_copy(update={"training": training}), tmp_path)
    with pytest.raises(TrainingError, match="The engine did not load the weights"):
        train(run)


def nameless() -> Iterator[torch.Tensor]:
    yield torch.zeros(2)


@pytest.mark.parametrize("weights", [None, 3, nameless(), {"a": 1.0}, [("a", "b")], {1: torch.zeros(1)}])
def test_weights_that_are_no_tensors_by_name_are_a_sentence(weights: Any) -> None:
    with pytest.raises(TrainingError, match=r"the learner's weights\(\) returned .*; return tensors by name, or pairs"):
        InMemory().sync(weights, open_engine(tiny()[0]), version=1)


def test_a_transfer_is_named_by_its_kind_and_is_in_memory_by_default() -> None:
    assert TrainingConfig().weight_sync == InMemory()
    assert Slot("weight_sync").fill({"kind": "through_file", "folder": "x"}) == ThroughFile(folder="x")
    with pytest.raises(ConfigError, match="there is no weight_sync 'thruogh_file'; did you mean 'through_file'"):
        Slot("weight_sync").fill("thruogh_file")
