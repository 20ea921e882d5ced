"""Layers of our own say what the model says, whatever is read together; what they do not know they leave alone."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import transformers
from hypothesis import given
from hypothesis import strategies as st

from groupwise.engines.engine import Request
from groupwise.engines.open_engine import cast_weights, check_layers
from groupwise.engines.static_cache import engine as layers_trial
from groupwise.engines.static_cache import layer_operations
from groupwise.engines.static_cache.cache import LaneCache, Row, UnreadRow, lay_out
from groupwise.engines.static_cache.engine import StaticCacheEngine
from groupwise.engines.static_cache.layer_operations import attend_rows, rotate_and_store
from groupwise.engines.static_cache.own_layers import OwnLayers, has_own_layers
from groupwise.engines.static_cache.passes import FlatPrefill, list_unread, round_up_tokens
from groupwise.engines.transformers_engine import TransformersEngine
from groupwise.system.errors import EngineFault
from tests.unit.engines.layer_kernel_cases import CASES, measure_gap
from tests.unit.engines.same_answers import ask_next, assert_same
from tests.unit.engines.small_models import CATEGORIES, SHAPE, family, requests

KNOWN = ("llama", "qwen2", "qwen3", "mistral")


def open_own(model: Any, **settings: Any) -> StaticCacheEngine:
    return StaticCacheEngine(model, use_graphs=False, layers=OwnLayers(model), **settings)


def measure_layers_gap(engine: StaticCacheEngine) -> float:
    trial = engine.make_layers_trial()
    assert trial is not None
    return trial.measure_gap()


def family_with_biases(name: str) -> Any:
    model = family(name)
    with torch.no_grad():
        for part, value in model.named_parameters():
            if part.endswith(("bias", "norm.weight")):
                value.copy_(1 + 0.3 * torch.sin(torch.arange(value.numel())).view_as(value))
    return model


@pytest.mark.parametrize("case", CASES)
def test_operations_in_torch_compute_what_they_say(case: str) -> None:
    assert measure_gap(layer_operations, case, torch.float32, "cpu") < 1e-5


@pytest.fixture(scope="module")
def interpreted() -> Any:
    """What every kernel gives, in a process of its own: whether Triton interprets is settled when it is imported."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "tests.unit.engines.layer_kernel_cases"]
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
@pytest.mark.parametrize("case", CASES)
def test_kernels_compute_what_they_say(interpreted: Any, case: str) -> None:
    assert interpreted[case] < 1e-5


@pytest.mark.parametrize("name", CATEGORIES)
def test_models_are_known_by_their_class(name: str) -> None:
    assert has_own_layers(family(name)) == (name in KNOWN)


@pytest.mark.parametrize("light", [0, 10_000])
@pytest.mark.parametrize("name", KNOWN)
def test_they_say_what_the_transformers_engine_says(name: str, light: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = family_with_biases(name)
    plain = TransformersEngine(copy.deepcopy(model), session_tokens=0)
    monkeypatch.setattr("groupwise.engines.static_cache.engine.MAX_LIGHT_TOKENS", light)
    engine = open_own(model, rows=24)
    assert measure_layers_gap(engine) < 1e-5
    asked = requests(40, session=True, longest=18)
    for _ in range(3):
        expected = plain.generate(asked)
        assert_same(engine.generate(asked), expected)
        asked = ask_next(asked, expected)[::2]


def test_weights_handed_over_in_place_arrive_in_joint_ones() -> None:
    model = family_with_biases("qwen2")
    engine = open_own(copy.deepcopy(model))
    before = engine.generate(requests())
    with torch.no_grad():
        for value in model.parameters():
            value += 0.04 * torch.cos(900 * value)
    engine.load(dict(model.named_parameters()), version=1)
    after = engine.generate(requests())
    assert_same(after, TransformersEngine(model).generate(requests()))
    assert [answer.response_ids for answer in after] != [answer.response_ids for answer in before]


def test_weights_that_a_learner_shares_stay_shared() -> None:
    learner = family_with_biases("qwen2")
    shared: dict[int, Any] = {id(value): value for value in learner.parameters()}
    engine = open_own(copy.deepcopy(learner, shared))
    with torch.no_grad():
        for value in learner.parameters():
            value += 0.04 * torch.cos(900 * value)
    assert_same(engine.generate(requests()), TransformersEngine(copy.deepcopy(learner)).generate(requests()))


def test_a_second_engine_over_the_same_weights_leaves_the_first_with_them() -> None:
    model = family_with_biases("qwen2")
    engine = open_own(model)
    joint = model.model.layers[0].self_attn.q_proj.weight.untyped_storage().data_ptr()
    second = open_own(model)
    assert model.model.layers[0].self_attn.v_proj.weight.untyped_storage().data_ptr() == joint
    with torch.no_grad():
        for value in model.parameters():
            value += 0.04 * torch.cos(900 * value)
    expected = TransformersEngine(copy.deepcopy(model)).generate(requests())
    assert_same(engine.generate(requests()), expected)
    assert_same(second.generate(requests()), expected)


def test_an_adapter_is_sampled_with() -> None:
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(family("llama"), peft.LoraConfig(r=4, target_modules=["q_proj", "up_proj"]))
    weights = {
        name: torch.sin(torch.arange(value.numel()).float()).view_as(value) / 4
        for name, value in model.named_parameters()
        if "lora" in name
    }
    plain = TransformersEngine(copy.deepcopy(model))
    engine = StaticCacheEngine(model, use_graphs=False, layers=OwnLayers(model.get_base_model()))
    engine.load(weights, version=1)
    plain.load(weights, version=1)
    assert_same(engine.generate(requests()), plain.generate(requests()))


def test_layers_that_compute_something_else_show_in_their_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = open_own(family("llama"))
    model = engine._model
    monkeypatch.setattr(model.model.layers[1].self_attn, "scaling", 0.2)
    monkeypatch.setattr(layers_trial, "TRIAL_LENGTHS", (9,))
    assert measure_layers_gap(engine) > 1e-3


@pytest.mark.parametrize("name", KNOWN)
def test_right_layers_in_bfloat16_are_as_far_from_float32_as_the_model(name: str) -> None:
    model = family_with_biases(name)
    cast_weights(model, torch.bfloat16)
    kept = {key: value.clone() for key, value in model.named_parameters()}
    engine = open_own(model)
    check_layers(engine)
    trial = engine.make_layers_trial()
    assert trial is not None
    assert 0.5 < trial.compare_rounding() < 1.5
    assert all(torch.equal(value, kept[key]) for key, value in model.named_parameters())


def open_fresh_in_bfloat16() -> StaticCacheEngine:
    """Over fresh weights, whose attention says so little that rounding nearly hides it."""
    shape = {**SHAPE, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 8, "num_attention_heads": 8}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**shape)).eval()
    cast_weights(model, torch.bfloat16)
    return open_own(model)


def leave_unrotated(query: Any, key: Any, value: Any, angles: Any, *rest: Any) -> Any:
    angles = torch.ones_like(angles[0]), torch.zeros_like(angles[1])
    return rotate_and_store(query, key, value, angles, *rest)


def attend_sharply(*values: Any, scaling: float, tile: int) -> Any:
    return attend_rows(*values, scaling=2 * scaling, tile=tile)


@pytest.mark.parametrize(
    ("operation", "wrong"), [("rotate_and_store", leave_unrotated), ("attend_rows", attend_sharply)]
)
def test_wrong_layers_do_not_hide_in_the_rounding_of_bfloat16(
    operation: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_fresh_in_bfloat16()
    check_layers(engine)
    assert engine._layers is not None
    monkeypatch.setattr(engine._layers.operations, operation, wrong)
    assert measure_layers_gap(engine) < 0.1, "so far apart that a look at all layers sees it"
    with pytest.raises(EngineFault, match=r"^our own first layers are [\d.]+ times as far from float32 as the"):
        check_layers(engine)


def test_each_distinct_prompt_is_read_once_and_only_what_is_not_known() -> None:
    rows = [
        Row(number, Request(prompt_ids=ids, seed=0, max_tokens=1), lane=lane, num_known=known)
        for number, (ids, lane, known) in enumerate(
            [((3, 4, 5), 0, 0), ((3, 4, 6), 2, 0), ((7,), 1, 0), ((3, 4, 5, 6), 3, 2), ((3, 4, 5), 4, 2)]
        )
    ]
    assert list_unread(rows) == [UnreadRow((3, 4), 0, (0, 2)), UnreadRow((5,), 2, (3,))]


@given(lengths=st.lists(st.integers(1, 300), max_size=40), budget=st.integers(1, 400))
def test_batches_hold_every_row_once_within_the_budget_or_alone(lengths: list[int], budget: int) -> None:
    cache = LaneCache.empty([(1, 1, 1)], lanes=1, width=1, dtype=torch.float32, device=torch.device("cpu"))
    layers: Any = None
    prefill = FlatPrefill(layers, cache, batch_tokens=budget, light_tokens=0, pool=None)
    unread = [UnreadRow((number,) * length, 0, (0,)) for number, length in enumerate(lengths)]
    batches = list(prefill._cut_batches(unread))
    assert [row for batch in batches for row in batch] == unread
    assert all(len(batch) == 1 or sum(len(row.ids) for row in batch) <= budget for batch in batches)


@given(num=st.integers(1, 100_000))
def test_captured_sizes_are_few_and_hold_what_is_read(num: int) -> None:
    size = round_up_tokens(num)
    assert num <= size <= max(64, 1.25 * num + 16)
    assert round_up_tokens(size) == size


@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=9))
def test_tables_begin_where_kernels_need_not_be_compiled_anew(lengths: list[int]) -> None:
    rows = [UnreadRow(tuple(range(length)), 3, (lane, lane + 9)) for lane, length in enumerate(lengths)]
    batch, table = lay_out(rows, queries=3, tile=16, device=torch.device("cpu"))
    columns = [*vars(batch).values(), *vars(table).values()]
    assert {(column.data_ptr() - batch.ids.data_ptr()) % 16 for column in columns} == {0}
    assert batch.ids.tolist() == [token for row in rows for token in row.ids]
    assert table.lengths.tolist() == lengths
