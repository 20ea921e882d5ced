"""The static cache says what the transformers engine says: same tokens, log-probs and entropies, whatever the lanes."""

from __future__ import annotations

import copy
import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from hypothesis import given
from hypothesis import strategies as st

from groupwise.engines import static_cache
from groupwise.engines.engine import Request
from groupwise.engines.static_cache.cache import LaneCache
from groupwise.engines.static_cache.engine import LOOK_EVERY, LOOK_LATE, LOOK_SOON, Capacity, StaticCacheEngine
from groupwise.engines.transformers_engine import TransformersEngine
from groupwise.system.errors import EngineFault
from tests.unit.engines.same_answers import ask_next, assert_same
from tests.unit.engines.small_models import CATEGORIES, STOPS, VOCABULARY, WINDOW, family, requests

LLAMA = family("llama")
ALONE = TransformersEngine(LLAMA, session_tokens=0)


@pytest.mark.few(4)
@pytest.mark.parametrize("name", CATEGORIES)
@pytest.mark.parametrize("rows", [3, 64])
def test_it_says_what_the_transformers_engine_says(name: str, rows: int) -> None:
    model = family(name)
    engine = StaticCacheEngine(model, use_graphs=False, rows=rows)
    expected = TransformersEngine(copy.deepcopy(model)).generate(requests())
    assert_same(engine.generate(requests()), expected)
    assert engine.capacity.lanes == rows
    assert {answer.stopped for answer in expected} == {True, False}


@pytest.mark.parametrize("name", CATEGORIES)
def test_the_kernel_is_told_the_last_column_of_each_row(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def attend(
        query: Any, key: Any, value: Any, last: Any, *, scaling: float, softcap: float | None = None
    ) -> torch.Tensor:
        """The same by products, from nothing but what the kernel is given."""
        calls.append(len(last))
        scores = query.unflatten(1, (key.shape[1], -1)) @ key.transpose(2, 3) * scaling
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        is_hidden = torch.arange(key.shape[2]) > last[:, None]
        return (scores.masked_fill(is_hidden[:, None, None], -torch.inf).softmax(-1) @ value).flatten(1, 2)

    stand_in = ModuleType("groupwise.engines.static_cache.kernels")
    stand_in.attend_step = attend  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, stand_in.__name__, stand_in)
    monkeypatch.setattr(static_cache, "kernels", stand_in, raising=False)
    model = family(name)
    engine = StaticCacheEngine(model, use_graphs=False, use_kernel=True, rows=20)
    assert_same(engine.generate(requests()), TransformersEngine(copy.deepcopy(model)).generate(requests()))
    assert set(calls) == {16, 20}


@pytest.mark.parametrize("name", CATEGORIES)
def test_what_a_lane_remembers_changes_no_answer(name: str) -> None:
    model = family(name)
    lanes, plain = StaticCacheEngine(model, use_graphs=False, rows=24), TransformersEngine(model, session_tokens=0)
    asked = requests(40, session=True, longest=18)
    for _ in range(3):
        expected = plain.generate(asked)
        assert_same(lanes.generate(asked), expected)
        asked = ask_next(asked, expected)[::2]


def test_only_the_rest_of_a_known_prompt_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    model = family("llama")
    engine = StaticCacheEngine(model, use_graphs=False)
    read: list[int] = []
    ask = [Request(prompt_ids=tuple(range(3, 43)), seed=1, max_tokens=5, session="a")]
    said = engine.generate(ask)
    run = type(model.model).forward

    def forward(self, input_ids, **kwargs):  # type: ignore[no-untyped-def]
        read.append(input_ids.shape[1])
        return run(self, input_ids, **kwargs)

    monkeypatch.setattr(type(model.model), "forward", forward)
    [again] = ask_next(ask, said)
    engine.generate([again])
    # Held: 40 tokens and all sampled but the last. New: that one and the 7; the 8 is the first that decoding reads.
    assert read == [2, *[1] * 9]
    engine.load(dict(model.named_parameters()), version=1)
    read.clear()
    engine.generate(ask_next([again], engine.generate([again])))
    assert read[0] == len(again.prompt_ids) - 1


def test_equal_prompts_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = family("llama")
    engine = StaticCacheEngine(model, use_graphs=False)
    run, read = type(model.model).forward, []

    def forward(self, input_ids, **kwargs):  # type: ignore[no-untyped-def]
        read.append(tuple(input_ids.shape))
        return run(self, input_ids, **kwargs)

    monkeypatch.setattr(type(model.model), "forward", forward)
    asked = [Request(prompt_ids=(3, 4, 5, 6 + i % 2), seed=i, max_tokens=1) for i in range(12)]
    engine.generate(asked)
    assert read == [(1, 3), (16, 1)]


@pytest.mark.more
@given(data=st.data())
def test_an_answer_does_not_depend_on_what_is_asked_beside_it(data: st.DataObject) -> None:
    prompts = st.lists(st.integers(3, VOCABULARY - 1), min_size=1, max_size=20).map(tuple)
    ask = st.builds(
        Request,
        prompt_ids=prompts,
        seed=st.integers(0, 2**63),
        max_tokens=st.integers(1, 2 * LOOK_EVERY + 1),
        temperature=st.sampled_from([0.0, 0.6, 1.0]),
        top_p=st.sampled_from([0.5, 1.0]),
        top_k=st.sampled_from([0, 0, 3]),
        stop_ids=st.sampled_from([(), STOPS[:1], STOPS]),
    )
    asked = data.draw(st.lists(ask, min_size=1, max_size=12))
    rows = data.draw(st.integers(1, 12))
    together = StaticCacheEngine(LLAMA, use_graphs=False, rows=rows, batch_tokens=data.draw(st.sampled_from([1, 64])))
    assert_same(together.generate(asked), [ALONE.generate([request])[0] for request in asked])


@pytest.mark.parametrize(("top_p", "top_k"), [(0.7, 0), (1.0, 4), (0.7, 4)])
def test_lanes_truncate_as_the_plain_engine_does(top_p: float, top_k: int) -> None:
    asked = [
        Request(prompt_ids=(3, 4, i % 5 + 5), seed=i, max_tokens=6, top_p=top_p if i % 2 else 1.0, top_k=top_k)
        for i in range(24)
    ]
    assert_same(StaticCacheEngine(LLAMA, use_graphs=False, rows=16).generate(asked), ALONE.generate(asked))


def test_lanes_are_kept_full_and_closed_up_when_nothing_waits() -> None:
    engine = StaticCacheEngine(family("llama"), use_graphs=False, rows=32)
    asked = [Request(prompt_ids=(3, 4, i + 5), seed=i, max_tokens=80 if i % 10 == 9 else 2) for i in range(90)]
    engine.generate(asked[:1])
    assert engine._step is not None
    shapes: list[tuple[int, int, int]] = []
    engine.generate(asked)  # storage grows here, and the step with it
    run = engine._step.run
    engine._step.run = lambda num, width, steps, **cut: (
        shapes.append((num, width, steps)),
        run(num, width, steps=steps, **cut),
    )[1]
    expected = TransformersEngine(family("llama")).generate(asked)
    assert_same(engine.generate(asked), expected)
    assert {width for _, width, _ in shapes} == {128}
    # Nine long responses among 90: full while others wait, then sixteen rows, of which nine run.
    assert [num for num, _, _ in shapes] == sorted((num for num, _, _ in shapes), reverse=True)
    assert shapes[0] == (32, 128, 8)
    assert shapes[-1][0] == 16
    assert len(shapes) <= 16


def test_loading_changes_the_version_and_the_answers() -> None:
    model = family("llama")
    engine = StaticCacheEngine(copy.deepcopy(model), use_graphs=False)
    before = engine.generate(requests(session=True))
    weights = {name: value + 0.05 * torch.sin(1000 * value) for name, value in model.named_parameters()}
    engine.load(weights, version=3)
    after = engine.generate(requests(session=True))
    assert (
        {span.version for a in before for span in a.versions},
        {span.version for a in after for span in a.versions},
    ) == ({0}, {3})
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(weights[name])
    assert_same(after, TransformersEngine(model).generate(requests()))


def test_it_scores_what_it_sampled() -> None:
    engine = StaticCacheEngine(family("llama"), use_graphs=False)
    asked = [Request(prompt_ids=(3, 4, 5 + i), seed=i, max_tokens=6) for i in range(5)]
    said = engine.generate(asked)
    scored = engine.score([(a.prompt_ids, g.response_ids) for a, g in zip(asked, said, strict=True)])
    for answer, logp in zip(said, scored, strict=True):
        assert answer.logp == pytest.approx(logp, abs=1e-5)


def test_requests_longer_than_a_sliding_window_are_answered_without_lanes() -> None:
    model = family("gemma2")
    engine = StaticCacheEngine(model, use_graphs=False)
    long = Request(prompt_ids=tuple(range(3, 3 + WINDOW)), seed=5, max_tokens=8)
    asked = [long, *requests(3)]
    assert_same(engine.generate(asked), TransformersEngine(copy.deepcopy(model)).generate(asked))
    assert engine.capacity.width == 128
    assert StaticCacheEngine(family("gemma"), use_graphs=False)._limit == float("inf")


def test_memory_bounds_the_lanes_and_storage_grows_with_what_is_asked() -> None:
    model = family("llama")
    column = 2 * 2 * 2 * 8 * 4  # layers, keys and values, heads, their width, bytes
    engine = StaticCacheEngine(model, use_graphs=False, memory=10 * 128 * column)
    assert_same(engine.generate(requests()), TransformersEngine(model).generate(requests()))
    assert engine.capacity == Capacity(lanes=10, width=128, tokens=64, stops=8)
    long = [Request(prompt_ids=tuple(range(3, 103)), seed=i, max_tokens=30) for i in range(7)]
    assert_same(engine.generate(long), TransformersEngine(model).generate(long))
    assert engine.capacity == Capacity(lanes=5, width=256, tokens=64, stops=8)


def test_a_response_that_does_not_fit_in_memory_is_refused() -> None:
    engine = StaticCacheEngine(family("llama"), use_graphs=False, memory=1000)
    with pytest.raises(EngineFault) as caught:
        engine.generate([Request(prompt_ids=(3,) * 10, seed=0, max_tokens=5)])
    assert str(caught.value) == (
        "the keys and values of one response of up to 15 tokens take 3,840 bytes, but the engine may use 1,000; raise "
        "engine.memory, or shorten prompts and responses"
    )


def test_a_device_that_is_full_is_told_with_what_to_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: LaneCache, **capacity: int) -> LaneCache:
        raise torch.OutOfMemoryError("out of memory")

    engine = StaticCacheEngine(family("llama"), use_graphs=False)
    asked = requests(20, session=True)
    first = engine.generate(asked)
    following_steps = [*ask_next(asked, first), Request(prompt_ids=(3,) * 200, seed=0, max_tokens=5)]
    monkeypatch.setattr(LaneCache, "resize", full)
    with pytest.raises(EngineFault) as caught:
        engine.generate(following_steps)
    assert str(caught.value) == (
        "the keys and values of 32 responses of up to 256 tokens do not fit in the device's free memory; "
        "lower engine.memory or engine.rows"
    )
    # What the lost storage held is not believed to be there.
    assert_same(engine.generate(following_steps), TransformersEngine(family("llama")).generate(following_steps))


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(EngineFault) as caught:
        StaticCacheEngine(LLAMA, use_graphs=False).generate([Request(prompt_ids=(), seed=0, max_tokens=1)])
    assert str(caught.value) == "a request has an empty prompt; begin prompts with a start token"


def test_nothing_asked_is_nothing_answered() -> None:
    assert StaticCacheEngine(LLAMA, use_graphs=False).generate([]) == []


def test_a_model_attends_as_configured_once_it_has_decoded() -> None:
    model = family("llama")
    StaticCacheEngine(model, use_graphs=False).generate(requests(3))
    assert {module.config._attn_implementation for module in model.modules() if hasattr(module, "config")} == {"sdpa"}


def test_an_adapter_is_sampled_with() -> None:
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(family("llama"), peft.LoraConfig(r=4, target_modules="all-linear"))
    weights = {
        name: torch.sin(torch.arange(value.numel()).float()).view_as(value) / 4
        for name, value in model.named_parameters()
        if "lora" in name
    }
    engine, plain = StaticCacheEngine(copy.deepcopy(model), use_graphs=False), TransformersEngine(copy.deepcopy(model))
    bare = engine.generate(requests())
    engine.load(weights, version=1)
    plain.load(weights, version=1)
    assert_same(engine.generate(requests()), plain.generate(requests()))
    assert [answer.response_ids for answer in bare] != [answer.response_ids for answer in plain.generate(requests())]


def test_two_requests_of_one_session_are_both_answered() -> None:
    engine = StaticCacheEngine(LLAMA, use_graphs=False)
    first = [Request(prompt_ids=(3, 4, 5, 6), seed=0, max_tokens=4, session="one")]
    [asked] = ask_next(first, engine.generate(first))
    both = [asked, replace(asked, seed=9)]
    assert_same(engine.generate(both), ALONE.generate(both))


def test_a_call_that_failed_does_not_stand_in_the_way_of_a_larger_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: StaticCacheEngine, step: object, max_steps: int) -> None:
        raise RuntimeError("out of order")

    engine = StaticCacheEngine(LLAMA, use_graphs=False)
    with monkeypatch.context() as broken:
        broken.setattr(StaticCacheEngine, "_decode", fail)
        with pytest.raises(RuntimeError, match="out of order"):
            engine.generate(requests(3))
    long = [Request(prompt_ids=(3,) * 140, seed=1, max_tokens=3)]
    assert_same(engine.generate(long), ALONE.generate(long))


def test_layers_that_see_a_part_of_the_sequence_in_a_way_of_their_own_are_refused() -> None:
    model = family("llama")
    model.config.layer_types = ["full_attention", "chunked_attention"]
    with pytest.raises(EngineFault, match=r"layers of kind chunked_attention, .*set engine\.decoding = 'eager'"):
        StaticCacheEngine(model, use_graphs=False)


@pytest.mark.parametrize(
    ("stop_ids", "expected"), [((VOCABULARY + 1,), [LOOK_EVERY, *[LOOK_SOON] * 3]), ((), [LOOK_EVERY, 12])]
)
def test_the_host_looks_more_often_once_most_responses_have_ended_where_they_may_end(
    stop_ids: tuple[int, ...], expected: list[int]
) -> None:
    engine = StaticCacheEngine(family("llama"), use_graphs=False, rows=16)
    asked = [
        Request(prompt_ids=(3, 4, i + 5), seed=i, max_tokens=20 if i < 3 else 8, stop_ids=stop_ids) for i in range(12)
    ]
    engine.generate(asked)  # storage grows here
    assert engine._step is not None
    looks: list[int] = []
    run = engine._step.run
    engine._step.run = lambda num, width, steps, **cut: (looks.append(steps), run(num, width, steps=steps, **cut))[1]
    engine.generate(asked)
    assert looks == expected


def test_responses_longer_than_the_time_between_two_looks_are_sampled_whole() -> None:
    engine = StaticCacheEngine(LLAMA, use_graphs=False)
    asked = [Request(prompt_ids=(3, 4, i + 5), seed=i, max_tokens=LOOK_LATE + 20) for i in range(3)]
    assert_same(engine.generate(asked), ALONE.generate(asked))
