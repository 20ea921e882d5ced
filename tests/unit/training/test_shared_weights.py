"""An engine that reads the learner's own weights: the same run to the bit, one copy in memory, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise import ConfigError
from groupwise.engines.engine import Generation, Request
from groupwise.engines.model_source import ModelSource
from groupwise.engines.static_cache.engine import StaticCacheEngine
from groupwise.engines.transformers_engine import TransformersEngine
from groupwise.learner.optimizers import find_spec
from groupwise.learner.protocol import hash_weights
from groupwise.learner.weight_check import TOLERANCES, WeightCheck
from groupwise.models import PretrainedModel, TinyModel
from groupwise.system.errors import TrainingError
from groupwise.training.config.engine_config import LocalEngine
from groupwise.training.config.run_config import RunConfig
from groupwise.training.doctor.doctor import check_run_engine
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from groupwise.training.run import Run
from tests.unit.learner.learners import learner, rollouts, tiny, totals
from tests.unit.training.runs import small_config

LEAN = {"optimizer": "adamw_8bit" if find_spec("torchao") else "adamw", "bfloat16_weights": "float32_masters"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model, tokenizer = TinyModel(hidden=64, layers=1, heads=2).open(words=small_config().words(), seed=0)
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def narrow_config(folder: Path, *, share: bool, updates: int = 3, method: str = "dr_grpo", **changes: Any) -> RunConfig:
    """A run of a model in bfloat16, all of whose weights train."""
    config = small_config(updates=updates, method=method, learner={**LEAN, "checkpoint_layers": True})
    return config.model_copy(
        update={
            "model": PretrainedModel(path=str(folder), dtype="bfloat16"),
            "engine": LocalEngine(precision="bfloat16", share_weights=share),
            **changes,
        }
    )


def engine_weights(run: Run) -> dict[str, torch.Tensor]:
    return dict(run.engine._model.named_parameters())  # type: ignore[attr-defined]


def read_rollouts(run: Run) -> list[tuple[Any, ...]]:
    """Every rollout with its steps and credit; the weight check looks at more where weights are shared: its gap
    differs."""
    return [
        (number, row["task"], row["rollout"], row["outcome"], row["steps"], row["credit"])
        for number in run.journal.update_numbers()
        for row in run.journal.trajectories(number)
    ]


@pytest.mark.parametrize("method", ["dr_grpo", "gigpo"])
def test_a_run_with_shared_weights_is_the_run_with_a_copy_to_the_bit(folder: Path, tmp_path: Path, method: str) -> None:
    """Also with a reference, which takes the place of the weights for a while (`gigpo` has one)."""
    made = []
    for share in (True, False):
        run = open_run(narrow_config(folder, share=share, method=method), tmp_path / str(share))
        train(run)
        made.append((hash_weights(run.learner.weights()), read_rollouts(run)))
    assert made[0] == made[1]
    assert made[0][1]


def test_there_is_one_copy_of_the_weights_after_training_too(folder: Path, tmp_path: Path) -> None:
    run = open_run(narrow_config(folder, share=True, updates=1), tmp_path / "run")
    places = {name: value.data_ptr() for name, value in run.learner.weights().items()}
    assert {name: value.data_ptr() for name, value in engine_weights(run).items()} == places
    before = hash_weights(run.learner.weights())
    train(run)
    assert {name: value.data_ptr() for name, value in run.learner.weights().items()} == places
    assert {name: value.data_ptr() for name, value in engine_weights(run).items()} == places
    assert hash_weights(run.learner.weights()) != before
    copied = open_run(narrow_config(folder, share=False), tmp_path / "copied")
    others = {value.data_ptr() for value in engine_weights(copied).values()}
    assert not others & {value.data_ptr() for value in copied.learner.weights().values()}


def test_a_killed_run_with_shared_weights_resumes_to_the_bit(folder: Path, tmp_path: Path) -> None:
    whole = open_run(narrow_config(folder, share=True, updates=4), tmp_path / "whole")
    train(whole)
    train(open_run(narrow_config(folder, share=True, updates=2), tmp_path / "killed"))
    resumed = open_run(narrow_config(folder, share=True, updates=4), tmp_path / "killed")
    train(resumed, resume=True)
    assert hash_weights(resumed.learner.weights()) == hash_weights(whole.learner.weights())
    assert resumed.journal.digest() == whole.journal.digest()


def test_the_weight_check_notices_a_weight_that_changed_in_one_way_through_the_model_only(
    folder: Path, tmp_path: Path
) -> None:
    run = open_run(narrow_config(folder, share=True), tmp_path / "run")
    run.sync(0)
    norm = run.engine._model.model.norm  # type: ignore[attr-defined]
    norm.weight = torch.nn.Parameter(-3 * norm.weight.detach())  # no longer the learner's
    with pytest.raises(
        TrainingError, match=r"after the weight sync of version 0, the engine and the learner disagree by"
    ):
        run.weight_check.check(run.engine, run.learner, version=0)


@pytest.mark.parametrize("step", [0.02, 1.0], ids=["a small one", "a large one"])
def test_the_weight_check_notices_decoding_that_stayed_with_the_old_weights(step: float) -> None:
    """As a captured graph would that reads where weights were: scores are right, what is sampled is not."""
    made = learner(learning_rate=step)
    source = ModelSource(model=made.model, tokenizer=None, path=None)
    engine, stale = TransformersEngine(source.share_model()), TransformersEngine(source.copy_model())
    for decodes in (False, True):
        weight_check = WeightCheck((2, 4, 5), (6, 3, 5), decodes=decodes)
        engine.load(made.weights(), version=0)
        assert weight_check.check(engine, made, version=0) < 1e-5
        made.learn(rollouts(), totals(rollouts()))
        engine.load(made.weights(), version=1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine, "generate", stale.generate)
            if not decodes:
                assert weight_check.check(engine, made, version=1) < 1e-5  # nothing told it
            else:
                with pytest.raises(TrainingError, match=r"the engine, sampling \[\d+, \d+, \d+\], and the learner"):
                    weight_check.check(engine, made, version=1)
        stale.load(made.weights(), version=1)


def test_the_weight_check_of_a_run_looks_at_decoding_in_lanes_without_shared_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_lanes(_: LocalEngine, source: ModelSource) -> StaticCacheEngine:
        return StaticCacheEngine(source.copy_model(), use_graphs=False)

    monkeypatch.setattr(LocalEngine, "open", open_lanes)
    run = open_run(small_config(updates=1), tmp_path / "run")
    run.sync(0)
    assert run.weight_check.check(run.engine, run.learner, version=0) < 1e-3
    generate = run.engine.generate

    def say_less(requests: Sequence[Request]) -> list[Generation]:
        return [replace(answer, logp=[logp - 0.01 for logp in answer.logp]) for answer in generate(requests)]

    monkeypatch.setattr(run.engine, "generate", say_less)
    with pytest.raises(TrainingError, match=r"the engine, sampling \[.*\], and the learner disagree by 0\.01 nats"):
        run.weight_check.check(run.engine, run.learner, version=0)


def test_the_weight_check_notices_decoding_in_bfloat16_that_stayed_while_updates_moved_little() -> None:
    """Each moves less than rounding might hide; what they move together is more."""
    made = learner(model=tiny()[0].bfloat16(), learning_rate=2e-3, bfloat16_weights="float32_masters")
    source = ModelSource(model=made.model, tokenizer=None, path=None)
    engine, stale = TransformersEngine(source.share_model()), TransformersEngine(source.copy_model())
    tolerance = TOLERANCES["bfloat16"]
    honest, weight_check = (WeightCheck((2, 4, 5), (6, 3, 5), tolerance=tolerance, decodes=True) for _ in range(2))
    honest.check(engine, made, version=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "generate", stale.generate)
        weight_check.check(engine, made, version=0)
    [answer] = stale.generate([Request(prompt_ids=(2, 4, 5), seed=0, max_tokens=3)])
    pair = (2, 4, 5), answer.response_ids
    [first], moved = made.logps([pair]), [0.0]
    while moved[-1] <= tolerance.visible:
        [before] = made.logps([pair])
        made.learn(rollouts(), totals(rollouts()))
        engine.load(made.weights(), version=len(moved))
        [now] = made.logps([pair])
        assert max(abs(a - b) for a, b in zip(now, before, strict=True)) <= tolerance.visible
        moved.append(max(abs(a - b) for a, b in zip(now, first, strict=True)))
        honest.check(engine, made, version=len(moved) - 1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine, "generate", stale.generate)
            if moved[-1] <= tolerance.visible:
                weight_check.check(engine, made, version=len(moved) - 1)
                continue
            with pytest.raises(TrainingError, match=r"the engine, sampling \[\d+, \d+, \d+\], and the learner"):
                weight_check.check(engine, made, version=len(moved) - 1)
    assert len(moved) > 3


def test_modules_and_settings_are_not_shared() -> None:
    """The learner runs layers again and the engine switches attention: neither must meet the other's."""
    model, tokenizer = tiny()
    shared = ModelSource(model=model, tokenizer=tokenizer, path=None).share_model()
    assert shared.config is not model.config
    assert not {id(module) for module in shared.modules()} & {id(module) for module in model.modules()}
    assert all(value is own for value, own in zip(shared.parameters(), model.parameters(), strict=True))
    assert shared.model.rotary_emb.inv_freq.data_ptr() != model.model.rotary_emb.inv_freq.data_ptr()


def test_a_sync_of_shared_weights_forgets_what_was_computed_with_the_old_ones() -> None:
    model, tokenizer = tiny()
    source = ModelSource(model=model, tokenizer=tokenizer, path=None)
    engine = StaticCacheEngine(source.share_model(), use_graphs=False)
    request = Request(prompt_ids=(2, 4, 5, 6), seed=1, max_tokens=6, session="a")
    engine.generate([request])
    with torch.no_grad():
        for value in model.parameters():
            value.mul_(1.5)
    engine.load({name: value.detach() for name, value in model.named_parameters()}, version=1)
    fresh = StaticCacheEngine(source.copy_model(), use_graphs=False, version=1)
    assert engine.generate([request]) == fresh.generate([request])


def test_an_adapter_shares_the_model_that_it_sits_on(folder: Path, tmp_path: Path) -> None:
    model = PretrainedModel(path=str(folder), dtype="bfloat16", lora_rank=2)
    engine = LocalEngine(share_weights=True)
    config = small_config(updates=1).model_copy(update={"model": model, "engine": engine})
    run = open_run(config, tmp_path / "run")
    train(run)
    adapter = run.learner.weights()
    assert {name: value.data_ptr() for name, value in engine_weights(run).items() if name in adapter} == {
        name: value.data_ptr() for name, value in adapter.items()
    }


def test_the_rules_are_checked_on_a_copy() -> None:
    results = check_run_engine(small_config().model_copy(update={"engine": LocalEngine(share_weights=True)}))
    assert [result.rule for result in results if result.status == "broken"] == []


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_rules_are_those_of_a_model_with_a_new_adapter(folder: Path, dtype: Any) -> None:
    """It adds nothing yet, and a model in bfloat16 computes so whatever the engine's precision."""
    model = PretrainedModel(path=str(folder), dtype=dtype, lora_rank=2)
    broken = {
        result.rule
        for result in check_run_engine(small_config().model_copy(update={"model": model}))
        if result.status == "broken"
    }
    assert broken == set()


@pytest.mark.parametrize(
    ("section", "changes", "message"),
    [
        ("rollout", {"lag": 1}, "they change during rollouts (rollout.lag = 1); set rollout.lag to 0"),
        (
            "training",
            {"learner": {"kind": "sharded"}},
            'the learner ShardedLearnerConfig does not keep them whole in one place; use kind = "local"',
        ),
        (
            "training",
            {"weight_sync": {"kind": "through_file"}},
            "ThroughFile would copy them onto themselves; use the weight_sync in_memory",
        ),
    ],
)
def test_what_cannot_share_is_refused_before_a_model_loads(
    tmp_path: Path, section: str, changes: dict[str, Any], message: str
) -> None:
    plain = small_config()
    settings = {"engine": {"share_weights": True}, "model": {"kind": "pretrained", "path": "nowhere"}}
    settings[section] = changes
    config = RunConfig(**{name: getattr(plain, name) for name in type(plain).model_fields} | settings)
    with pytest.raises(ConfigError) as caught:
        open_run(config, tmp_path)
    assert str(caught.value) == f"engine.share_weights: the engine cannot read the learner's own weights: {message}"


def test_another_precision_is_refused_before_and_after_a_model_loads(tmp_path: Path) -> None:
    engine = LocalEngine(precision="bfloat16", share_weights=True)
    loaded = small_config().model_copy(update={"engine": engine, "model": PretrainedModel(path="nowhere")})
    with pytest.raises(ConfigError, match="they are float32 and the engine would compute in bfloat16; set"):
        open_run(loaded, tmp_path)
    made = small_config().model_copy(update={"engine": engine})
    with pytest.raises(ConfigError, match=r"but model\.embed_tokens\.weight of the learner is float32; load the model"):
        open_run(made, tmp_path)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_weights_that_the_engine_would_cast_are_refused_and_stay_as_they_are(dtype: torch.dtype) -> None:
    model = tiny()[0].to(dtype)
    source = ModelSource(model=model, tokenizer=None, path=None)
    name = str(dtype).removeprefix("torch.")
    with pytest.raises(ConfigError, match=rf"but model\.embed_tokens\.weight of the learner is {name}; load the model"):
        LocalEngine(precision="bfloat16", share_weights=True).open(source)
    LocalEngine(share_weights=True).open(source)  # float32 = as loaded
    assert {value.dtype for value in model.parameters()} == {dtype}


@pytest.mark.parametrize("kind", ["server", "vllm", "vllm_in_process"])
def test_other_engines_say_that_they_cannot(kind: str) -> None:
    plain = small_config()
    settings = {name: getattr(plain, name) for name in type(plain).model_fields}
    with pytest.raises(ConfigError, match="share_weights: only the engine that computes in the trainer's own modules"):
        RunConfig(**settings | {"engine": {"kind": kind, "share_weights": True}})
