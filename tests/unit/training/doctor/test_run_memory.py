"""What a run takes in memory, part by part: learner, engine, reference, keys and values as the engine makes room."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise import methods
from groupwise.engines.engine import Request
from groupwise.engines.static_cache.engine import StaticCacheEngine
from groupwise.models import TinyModel
from groupwise.training.config.engine_config import LocalEngine
from groupwise.training.config.run_config import RunConfig
from groupwise.training.doctor import hardware
from groupwise.training.doctor import memory as run_memory
from groupwise.training.doctor.doctor import estimate_sizes
from groupwise.training.doctor.hardware import Gpu
from groupwise.training.doctor.memory import LEARN, ROLLOUT, RunMemory, choose_lanes, count_work_spaces
from groupwise.training.doctor.memory_passes import rehearse_rollouts
from tests.unit.training.runs import small_config, small_run

COLUMN = 2 * 16
"""Numbers that a token's keys and values are, in one layer of 16 units."""
LANES, WIDTH = 16, 128
"""Lanes for sixteen rollouts of a few tokens each."""


def config(*, device: str = "auto", algorithm: Any = None, learner: Any = None, **engine: Any) -> RunConfig:
    sections = {**dict(small_config(learner=learner)), "engine": engine, "device": device}
    return RunConfig.model_validate(sections | ({"algorithm": algorithm} if algorithm else {}))


@pytest.fixture(autouse=True)
def _two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU of a million bytes, and one of two."""
    gpus = [Gpu(name="small", free=1.0, memory=size, has_bfloat16=True) for size in (1e6, 2e6)]
    monkeypatch.setattr(hardware, "list_gpus", lambda: gpus)


def test_parts_are_there_while_they_are_needed() -> None:
    parts = {name: 10.0**place for place, name in enumerate({*LEARN, *ROLLOUT})}
    memory = RunMemory(parts=parts, is_rehearsed=True)
    assert memory.learn == sum(size for name, size in parts.items() if name != "reading")
    missing = ("gradients", "activations", "work space")
    assert memory.rollout == sum(size for name, size in parts.items() if name not in missing)
    assert memory.peak == max(memory.learn, memory.rollout)


def test_weights_gradients_and_moments_are_those_of_what_trains() -> None:
    sizes = estimate_sizes(config(device="cpu"))
    parts, weights = sizes.memory.parts, sizes.parameters * 4
    assert (parts["weights"], parts["gradients"], parts["optimizer"]) == (weights, weights, 2 * weights)
    assert (parts["reference"], parts["engine"]) == (0, weights)


def test_the_engines_weights_are_counted_in_its_precision() -> None:
    whole, half = (estimate_sizes(config(device="cpu", precision=precision)) for precision in ("float32", "bfloat16"))
    assert whole.memory.parts["engine"] == 2 * half.memory.parts["engine"] == whole.parameters * 4


def test_a_reference_that_only_a_measure_asks_is_counted() -> None:
    runs = [config(device="cpu", algorithm=methods.rloo(kl_in_reward=weight)) for weight in (0.0, 0.03)]
    without, with_it = (estimate_sizes(run) for run in runs)
    assert with_it.memory.peak - without.memory.peak == without.parameters * 4


def test_shares_divide_what_the_learner_holds_and_not_what_it_computes() -> None:
    alone = estimate_sizes(config(device="cpu"))
    part = {"kind": "sharded", "ranks": 4, "token_budget": 256}
    sections = {**dict(config(device="cpu")), "training": {"tasks": 2, "learner": part}}
    four = estimate_sizes(RunConfig.model_validate(sections))
    for name in ("weights", "gradients", "optimizer"):
        assert four.memory.parts[name] == alone.memory.parts[name] / 4
    assert four.memory.parts["activations"] == alone.memory.parts["activations"]


@pytest.mark.parametrize(
    ("device", "engine", "lanes"),
    [
        ("auto", {}, LANES),
        ("cuda", {"rows": 4}, 4),
        ("cuda", {"memory": 0.07}, 4),
        ("cuda:1", {"memory": 0.07}, 8),
        ("cuda:1", {"memory": 0.07, "precision": "bfloat16"}, 2 * 8),
    ],
)
def test_keys_and_values_are_as_many_as_the_engine_makes_room_for(
    device: str, engine: dict[str, Any], lanes: int
) -> None:
    width = 2 if engine.get("precision") == "bfloat16" else 4
    memory = estimate_sizes(config(device=device, **engine)).memory
    spaces = count_work_spaces(lanes, WIDTH)
    assert memory.parts["keys and values"] == lanes * WIDTH * COLUMN * width + spaces


@pytest.mark.parametrize(
    ("num", "longest", "rows", "memory"), [(3, 40, 256, 1e6), (40, 300, 256, 1e6), (9, 70, 4, 1e5)]
)
def test_lanes_are_chosen_as_the_engine_chooses_them(num: int, longest: int, rows: int, memory: float) -> None:
    model, _ = TinyModel(hidden=16, layers=1, heads=2).open(words=("a", "b"), seed=0)
    engine = StaticCacheEngine(model, use_graphs=False, rows=rows, memory=memory)
    requests = [Request(prompt_ids=(1,) * (longest - 2), seed=number, max_tokens=2) for number in range(num)]
    engine.generate(requests)
    lanes, width = choose_lanes(LocalEngine(rows=rows), COLUMN * 4, longest, requests=num, memory=memory)
    assert (lanes, width) == (engine.capacity.lanes, engine.capacity.width)


def test_a_rehearsal_comes_to_what_the_rollouts_of_a_run_come_to(tmp_path: Any) -> None:
    run = small_run(tmp_path)
    run.host.shutdown()
    rehearsal = rehearse_rollouts(run.config, run.tokenizer, context=None, token_budget=256)
    opening = len(run.prompter.encode_opening("").ids)
    assert opening < rehearsal.longest < opening + 40
    assert rehearsal.is_played
    # Prompts of a task are one, and their rollouts train one token, which the last of the prompt predicts.
    shape = rehearsal.micro_batch
    assert (shape.predicting, rehearsal.num_micro_batches) == (2, 1)
    assert rehearsal.longest < shape.tokens < 2 * rehearsal.longest
    assert shape.tokens < shape.keys < 2 * shape.tokens, "what the tasks begin with is computed once and read twice"


def test_a_system_prompt_is_read_too(tmp_path: Any) -> None:
    longest = []
    for system in ("", "say nothing else"):
        plain = small_config()
        run = plain.model_copy(update={"rollout": plain.rollout.model_copy(update={"system": system})})
        tokenizer = run.model.open(words=run.words(), seed=0)[1]
        longest.append(rehearse_rollouts(run, tokenizer, context=None, token_budget=256).longest)
    assert longest[1] >= longest[0] + 3


def test_tasks_that_are_not_played_are_like_those_that_are() -> None:
    run = small_config()
    tokenizer = run.model.open(words=run.words(), seed=0)[1]
    shapes = []
    for num in (4, 40):
        training = run.training.model_copy(update={"tasks": num})
        config = run.model_copy(update={"training": training})
        rehearsal = rehearse_rollouts(config, tokenizer, context=None, token_budget=10**6)
        shapes.append((rehearsal.micro_batch.tokens, rehearsal.micro_batch.predicting, rehearsal.read))
    assert shapes[1][1:] == (10 * shapes[0][1], 10 * shapes[0][2])
    assert 9 * shapes[0][0] < shapes[1][0] <= 11 * shapes[0][0]


def test_an_environment_from_elsewhere_is_not_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_memory, "is_ours", lambda env: False)
    monkeypatch.setattr(run_memory, "rehearse_rollouts", None)
    memory = estimate_sizes(config(device="cpu")).memory
    assert not memory.is_rehearsed
    assert memory.peak > 0


def test_checkpointed_and_compiled_layers_keep_less_and_a_larger_budget_more() -> None:
    def count_kept(**learner: Any) -> float:
        sections = {**dict(small_config(learner=learner)), "device": "cpu"}
        sections["training"] = sections["training"].model_copy(update={"tasks": 64})
        return estimate_sizes(RunConfig.model_validate(sections)).memory.parts["activations"]

    assert count_kept(compile_layers=True) == pytest.approx(0.71 * count_kept())
    assert count_kept(checkpoint_layers=True, compile_layers=True) == count_kept(checkpoint_layers=True)
    assert count_kept(checkpoint_layers=True) < count_kept() < 0.7 * count_kept(token_budget=512)
