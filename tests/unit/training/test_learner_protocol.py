"""What a run asks of a learner: nobody needs its model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import groupwise
from groupwise import ConfigError, Part
from groupwise.engines.open_engine import open_engine
from groupwise.learner import LearnerConfig
from groupwise.learner.protocol import hash_weights
from groupwise.losses import Kl, PolicyLoss
from groupwise.parts.part import Slot
from groupwise.system.errors import TrainingError
from groupwise.training.checkpoints import load_checkpoint, save_checkpoint
from groupwise.training.config.run_config import TrainingConfig
from groupwise.training.open_run import open_run
from tests.unit.learner.learners import learner, single_steps, tiny, totals
from tests.unit.training.runs import small_config

PAIRS = [((2, 4), (5, 3)), ((2, 5, 6, 7), (4,))]


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_log_probs_are_those_of_an_engine_with_its_weights(temperature: float) -> None:
    made = learner()
    made.learn(single_steps(1.0, -1.0), totals(single_steps(1.0, -1.0)))
    engine = open_engine(tiny()[0])
    engine.load(made.weights(), version=1)
    for weight, wanted in zip(
        made.logps(PAIRS, temperature=temperature), engine.score(PAIRS, temperature=temperature), strict=True
    ):
        assert weight == pytest.approx(wanted, abs=1e-5)


def test_the_reference_is_asked_by_name_and_the_weights_stay(tmp_path: Path) -> None:
    made = learner(loss=PolicyLoss(penalties=(Kl(weight=0.1),)))
    before = made.logps(PAIRS)
    for _ in range(3):
        made.learn(single_steps(1.0, -1.0), totals(single_steps(1.0, -1.0)))
    weights = hash_weights(made.weights())
    assert made.logps(PAIRS, weights="reference") == before
    assert made.logps(PAIRS) != before
    assert hash_weights(made.weights()) == weights


def test_a_learner_whose_loss_needs_no_reference_keeps_one_when_asked() -> None:
    made, samples = learner(), single_steps(1.0, -1.0)
    with pytest.raises(TrainingError, match="keeps no reference policy; call hold_reference first"):
        made.logps(PAIRS, weights="reference")
    before = made.logps(PAIRS)
    made.hold_reference()
    made.learn(samples, totals(samples))
    assert made.logps(PAIRS, weights="reference") == before != made.logps(PAIRS)
    other = learner()
    other.learn(samples, totals(samples))
    assert hash_weights(other.weights()) == hash_weights(made.weights()), "and learns as it would without"


def test_an_export_needs_no_other_folder(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM

    torch.manual_seed(1)
    made = learner(peft.get_peft_model(tiny()[0], peft.LoraConfig(r=2, target_modules="all-linear")))
    made.learn(single_steps(1.0, -1.0), totals(single_steps(1.0, -1.0)))
    said = made.logps(PAIRS)
    made.export(tmp_path)
    again = learner(AutoModelForCausalLM.from_pretrained(tmp_path))
    assert again.logps(PAIRS)[0] == pytest.approx(said[0], abs=1e-5)


class Deep:
    """A learner that keeps a file in a folder below the checkpoint's."""

    def __init__(self) -> None:
        self.inner = learner()
        self.kept = b"1"

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def save(self, folder: Path) -> None:
        (folder / "deep").mkdir()
        self.inner.save(folder / "deep")
        (folder / "deep" / "kept").write_bytes(self.kept)

    def load(self, folder: Path, *, steps: int) -> None:
        self.inner.load(folder / "deep", steps=steps)
        self.kept = (folder / "deep" / "kept").read_bytes()


def test_files_in_folders_below_are_guarded_too(tmp_path: Path) -> None:
    made, other = Deep(), Deep()
    made.kept = b"2"
    made.learn(single_steps(1.0, -1.0), totals(single_steps(1.0, -1.0)))
    path = save_checkpoint(tmp_path, 1, made, tiny()[1], {})
    load_checkpoint(path, other)
    assert (other.kept, other.steps, hash_weights(other.weights())) == (b"2", 1, hash_weights(made.weights()))
    (path / "deep" / "kept").write_bytes(b"3")
    with pytest.raises(TrainingError, match=r"0001 is damaged \(deep/kept is not as it was written\)"):
        load_checkpoint(path, other)


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "average.safetensors", "deep/note.txt"])
def test_a_file_that_was_added_is_refused_before_the_learner_reads_anything(tmp_path: Path, name: str) -> None:
    path = save_checkpoint(tmp_path, 1, learner(), tiny()[1], {})
    (path / name).parent.mkdir(exist_ok=True)
    (path / name).write_bytes(b"x")
    with pytest.raises(TrainingError, match=rf"0001 is damaged \({name} was not written with it\)"):
        load_checkpoint(path, learner())


class Bare(Part, slot="learner"):
    """Opens something that is no learner."""

    def open(self, model: Any, loss: Any, *, temperature: float) -> Any:
        return model


def test_a_part_that_opens_no_learner_is_a_sentence(tmp_path: Path) -> None:
    training = TrainingConfig(learner=Bare())
    with pytest.raises(ConfigError) as caught:
        open_run(small_config().model_copy(update={"training": training}), tmp_path / "run")
    assert str(caught.value).startswith(
        f"the learner {__name__}:Bare: open returned a LlamaForCausalLM; expected an object with "
    )
    assert "hold_reference" in str(caught.value)


def test_a_section_without_a_kind_is_the_local_learner_as_it_always_was() -> None:
    assert Slot("learner").fill({"learning_rate": 1e-4, "passes": 2}) == LearnerConfig(learning_rate=1e-4, passes=2)
    assert TrainingConfig(learner={"passes": 2}).learner == LearnerConfig(passes=2)
    assert TrainingConfig().learner == LearnerConfig()
    with pytest.raises(ConfigError, match=r"learner\.pases: unknown setting; did you mean 'passes'"):
        TrainingConfig(learner={"pases": 2})


def test_nobody_but_the_local_learner_names_its_model() -> None:
    sources = Path(groupwise.__file__).parent
    inside = re.compile(r"(?<!training\.)learner\.(model|forward|optimizer)\b")  # settings have names alike
    places = [
        f"{path.relative_to(sources)}: {line.strip()}"
        for path in sorted(sources.rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if inside.search(line)
    ]
    assert places == []
