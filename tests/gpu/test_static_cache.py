"""The static cache on a GPU: graphs say what the same steps say without them, in a bounded number of captures."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise.engines.conformance import check_engine
from groupwise.engines.engine import Generation, Request
from groupwise.engines.open_engine import open_engine
from groupwise.engines.sampling import truncate
from groupwise.engines.static_cache.attention import has_kernel
from groupwise.engines.static_cache.engine import StaticCacheEngine
from groupwise.engines.static_cache.passes import GraphPool
from groupwise.engines.transformers_engine import TransformersEngine
from groupwise.system.errors import ConfigError
from tests.unit.engines import layer_kernel_cases
from tests.unit.engines.kernel_cases import CASES, measure_gap
from tests.unit.engines.small_models import CATEGORIES, VOCABULARY, WINDOW, family, requests

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
COMPILER_WARNS = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.fixture(autouse=True)
def exact() -> Iterator[None]:
    """Full float32 in matrix products, so that rounding decides no token."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


def assert_close(answers: Sequence[Generation], wanted: Sequence[Generation], *, gap: float = 1e-4) -> None:
    assert [one.response_ids for one in answers] == [one.response_ids for one in wanted]
    for one, other in zip(answers, wanted, strict=True):
        assert one.logp == pytest.approx(other.logp, abs=gap)
        assert one.entropy == pytest.approx(other.entropy, abs=gap)


needs_kernel = pytest.mark.skipif(not has_kernel(torch.device("cuda")), reason="needs Triton")


@needs_kernel
@pytest.mark.parametrize("name", CASES)
def test_the_kernel_is_softmax_attention_over_the_rows_own_columns(name: str) -> None:
    assert measure_gap(CASES[name], torch.float32, "cuda") < 1e-5
    assert measure_gap(CASES[name], torch.bfloat16, "cuda") < 1e-2


@needs_kernel
@pytest.mark.parametrize("case", layer_kernel_cases.CASES)
def test_kernels_of_layers_compute_what_they_say(case: str) -> None:
    kernels = layer_kernel_cases.load_kernels()
    assert layer_kernel_cases.measure_gap(kernels, case, torch.float32, "cuda") < 1e-5
    assert layer_kernel_cases.measure_gap(kernels, case, torch.bfloat16, "cuda") < 2e-2


@needs_kernel
@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
def test_layers_of_our_own_say_what_the_model_says(name: str) -> None:
    model = family(name).cuda()
    own = open_engine(copy.deepcopy(model))
    assert isinstance(own, StaticCacheEngine)
    assert own._layers is not None
    plain = TransformersEngine(model, session_tokens=0)
    asked = requests(60, session=True, longest=18)
    for _ in range(3):
        wanted = plain.generate(asked)
        assert_close(own.generate(asked), wanted)
        asked = [
            Request(prompt_ids=(*a.prompt_ids, *g.response_ids, 7, 8), seed=a.seed + 1, max_tokens=9, session=a.session)
            for a, g in zip(asked, wanted, strict=True)
        ]
    with torch.no_grad():
        for value in model.parameters():
            value += 0.05 * torch.sin(1000 * value)
    own.load(dict(model.named_parameters()), version=1)
    assert_close(own.generate(requests(60)), plain.generate(requests(60)))


@needs_kernel
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_engine_is_opened_with_the_kernel(precision: Any, caplog: pytest.LogCaptureFixture) -> None:
    engine = open_engine(family("gemma2").cuda(), precision=precision, compile_parts=False)
    assert isinstance(engine, StaticCacheEngine)
    assert engine._use_kernel
    assert not [message for message in caplog.messages if message.startswith("engine:")]


@pytest.mark.parametrize("use_kernel", [pytest.param(True, marks=needs_kernel), False])
@pytest.mark.parametrize("name", CATEGORIES)
def test_graphs_say_what_the_steps_and_the_transformers_engine_say(name: str, use_kernel: bool) -> None:
    model = family(name).cuda()
    graphs = StaticCacheEngine(copy.deepcopy(model), use_graphs=True, use_kernel=use_kernel, rows=24)
    steps = StaticCacheEngine(copy.deepcopy(model), use_graphs=False, use_kernel=use_kernel, rows=24)
    plain = TransformersEngine(copy.deepcopy(model))
    answers = graphs.generate(requests(60))
    assert_close(answers, steps.generate(requests(60)), gap=1e-6)
    assert_close(answers, plain.generate(requests(60)))
    assert graphs.num_captures >= 1
    assert steps.num_captures == 0


def test_truncated_steps_are_captured_too_and_say_what_the_transformers_engine_says() -> None:
    model = family("llama").cuda()
    graphs, plain = StaticCacheEngine(copy.deepcopy(model), use_graphs=True, rows=24), TransformersEngine(model)
    whole = requests(60)
    cut = [replace(asked, top_p=0.8, top_k=40) if n % 2 else replace(asked, top_k=3) for n, asked in enumerate(whole)]
    assert_close(graphs.generate(whole), plain.generate(whole))
    captures = graphs.num_captures
    assert_close(graphs.generate(cut), plain.generate(cut))
    assert graphs.num_captures > captures
    assert_close(graphs.generate(whole[:9] + cut[:9]), plain.generate(whole[:9] + cut[:9]))


@pytest.mark.parametrize("rows", [1, 16, 256])
def test_a_large_vocabulary_is_truncated_in_a_graph(rows: int) -> None:
    """torch sorts by other kernels there."""
    random = torch.Generator("cuda").manual_seed(0)
    logits = 3 * torch.randn(rows, 151_936, device="cuda", generator=random)
    limits = torch.full((rows, 1), 0.9, device="cuda", dtype=torch.float64), torch.full((rows, 1), 50, device="cuda")
    wanted = truncate(logits, *limits)
    found = torch.empty_like(wanted)
    graph = GraphPool().capture(lambda: found.copy_(truncate(logits, *limits)))
    logits.copy_(logits.flip(1))
    graph.replay()
    assert torch.equal(found, wanted.flip(1))


def test_sessions_are_gone_on_with_under_graphs() -> None:
    model = family("llama").cuda()
    graphs, plain = StaticCacheEngine(model, use_graphs=True, rows=32), TransformersEngine(model, session_tokens=0)
    asked = requests(32, session=True, longest=18)
    for _ in range(4):
        wanted = plain.generate(asked)
        assert_close(graphs.generate(asked), wanted)
        asked = [
            Request(prompt_ids=(*a.prompt_ids, *g.response_ids, 7, 8), seed=a.seed + 1, max_tokens=9, session=a.session)
            for a, g in zip(asked, wanted, strict=True)
        ][::2]


def test_the_number_of_captures_is_bounded_by_shapes_not_by_calls() -> None:
    engine = StaticCacheEngine(family("llama").cuda(), use_graphs=True, rows=64)
    seen = []
    for turn in range(12):
        asked = [
            Request(prompt_ids=(3,) * (5 + (7 * turn + i) % 180), seed=i, max_tokens=1 + (turn + i) % 20)
            for i in range(1 + (turn * 11) % 60)
        ]
        engine.generate(asked)
        seen.append(engine.num_captures)
    for turn in range(12):
        engine.generate([Request(prompt_ids=(4,) * (5 + 9 * turn), seed=turn, max_tokens=20)] * (1 + 5 * turn))
    # Storage of at most three numbers of lanes and two widths; rows 16, 32, 64 by widths 128, 192, 256 in each.
    assert engine.num_captures <= seen[-1] + 9
    assert seen[-1] <= 30
    settled = engine.num_captures
    for turn in range(12):
        engine.generate([Request(prompt_ids=(4,) * (5 + 9 * turn), seed=turn, max_tokens=20)] * (1 + 5 * turn))
    assert engine.num_captures == settled


def test_weights_handed_over_in_place_change_what_captured_graphs_sample() -> None:
    model = family("llama").cuda()
    engine = StaticCacheEngine(copy.deepcopy(model), use_graphs=True)
    before, captured = engine.generate(requests()), engine.num_captures
    with torch.no_grad():
        for value in model.parameters():
            value += 0.05 * torch.sin(1000 * value)
    engine.load(dict(model.named_parameters()), version=1)
    after = engine.generate(requests())
    assert engine.num_captures == captured
    assert_close(after, TransformersEngine(model).generate(requests()))
    assert [one.response_ids for one in after] != [one.response_ids for one in before]


def test_bfloat16_samples_what_it_scores() -> None:
    engine = open_engine(family("llama").cuda(), precision="bfloat16")
    assert isinstance(engine, StaticCacheEngine)
    assert engine.dtype == torch.bfloat16
    asked = [Request(prompt_ids=(3, 4, 5 + i % 90), seed=i, max_tokens=12) for i in range(100)]
    said = engine.generate(asked)
    scored = engine.score([(a.prompt_ids, g.response_ids) for a, g in zip(asked, said, strict=True)])
    gaps = [abs(a - b) for one, other in zip(said, scored, strict=True) for a, b in zip(one.logp, other, strict=True)]
    assert max(gaps) < 0.25
    assert sum(gaps) / len(gaps) < 0.02


@COMPILER_WARNS
def test_compiled_parts_say_the_same() -> None:
    model = family("llama").cuda()
    engine = open_engine(copy.deepcopy(model), compile_parts=True)
    assert isinstance(engine, StaticCacheEngine)
    assert_close(engine.generate(requests(60)), TransformersEngine(model).generate(requests(60)))


def test_memory_bounds_the_lanes() -> None:
    model = family("llama").cuda()
    whole = torch.cuda.get_device_properties(0).total_memory
    column = 2 * 2 * 2 * 8 * 4  # layers, keys and values, heads, their width, bytes
    engine = open_engine(model, memory=10.5 * 128 * column / whole)
    assert isinstance(engine, StaticCacheEngine)
    assert_close(engine.generate(requests()), TransformersEngine(model).generate(requests()))
    assert engine.capacity.lanes == 10


def test_auto_takes_graphs_and_graphs_are_refused_where_the_forward_pass_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(open_engine(family("qwen2").cuda()), StaticCacheEngine)
    model = family("gemma2").cuda()  # its layers are those of transformers: those of a Llama are ours
    run = type(model.model.norm).forward

    def forward(self: torch.nn.Module, hidden: torch.Tensor) -> torch.Tensor:
        normed = run(self, hidden)
        assert float(normed.sum()) == float(normed.sum())  # waits for the device
        return normed

    monkeypatch.setattr(type(model.model.norm), "forward", forward)
    with pytest.raises(ConfigError, match=r"engine\.decoding: this model cannot decode in KV-cache slots"):
        open_engine(model, decoding="graphs")
    monkeypatch.undo()
    # A capture that failed leaves the device usable.
    assert_close(open_engine(model).generate(requests(4)), TransformersEngine(model).generate(requests(4)))


def test_requests_longer_than_a_sliding_window_are_answered() -> None:
    model = family("gemma2").cuda()
    engine = StaticCacheEngine(model, use_graphs=True)
    asked = [Request(prompt_ids=tuple(range(3, 3 + WINDOW)), seed=5, max_tokens=8), *requests(5)]
    assert max(max(one.prompt_ids) for one in asked) < VOCABULARY
    assert_close(engine.generate(asked), TransformersEngine(model).generate(asked))


def test_the_engine_keeps_every_rule() -> None:
    model = family("llama").cuda()
    weights = {name: value.detach() * 1.05 for name, value in model.named_parameters()}
    engine = open_engine(model)
    assert isinstance(engine, StaticCacheEngine)
    results = check_engine(engine, token_ids=range(3, VOCABULARY), weights=weights)
    assert {result.rule: result.found for result in results if result.status == "broken"} == {}
