"""A real vLLM server: tokens, seeds, stops, log-probs, weight sync, and what a forgotten cache does."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise.engines.client import ServerEngine, StreamingServerEngine
from groupwise.engines.conformance import check_engine
from groupwise.engines.engine import Request, VersionSpan
from groupwise.engines.replica import Replica
from groupwise.engines.sampling import truncate
from groupwise.learner import ThroughFile
from groupwise.learner.weight_check import WeightCheck
from groupwise.system.errors import TrainingError
from tests.measured_numbers import Numbers
from tests.vllm.environment import (
    MAX_GAP,
    ROOT,
    SECONDS,
    VOCABULARY,
    find_gap,
    list_weights,
    make_model,
    make_prompts,
    save_model,
    score_with_transformers,
    serve,
)

MODELS = {0: make_model(0), 1: make_model(77)}
"""By the version that they are handed over as, where it is even or odd."""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamingServerEngine]:
    with serve(save_model(MODELS[0], tmp_path_factory.mktemp("server") / "model")) as engine:
        assert isinstance(engine, StreamingServerEngine)
        yield engine


@pytest.fixture
def fresh(engine: StreamingServerEngine) -> StreamingServerEngine:
    """The server with the weights that it was started with."""
    engine.load(list_weights(MODELS[0]), version=0)
    return engine


def ask(temperature: float = 1.0, *, max_tokens: int = 24, stop_ids: tuple[int, ...] = ()) -> list[Request]:
    return [
        Request(
            prompt_ids=prompt,
            seed=2**62 + i,
            max_tokens=max_tokens,
            temperature=temperature,
            stop_ids=stop_ids,
            session=f"rollout {i}",
        )
        for i, prompt in enumerate(make_prompts())
    ]


class Learner:
    """Who owns the weights, as far as the weight check asks."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def logps(self, pairs: Any) -> list[tuple[float, ...]]:
        return [score_with_transformers(self._model, prompt, response) for prompt, response in pairs]


def test_every_rule_of_the_suite_is_kept(fresh: StreamingServerEngine, numbers: Numbers) -> None:
    results = check_engine(fresh, token_ids=range(3, VOCABULARY), weights=list_weights(MODELS[1]), max_gap=MAX_GAP)
    assert {result.rule: result.found for result in results if result.status == "broken"} == {}
    not_tested = {result.rule for result in results if result.status == "not tested"}
    assert not_tested == {"entropies_are_those_of_the_distribution"}
    numbers.measured["server: rules kept"] = sum(result.status == "kept" for result in results)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probs_are_those_of_transformers(
    fresh: StreamingServerEngine, temperature: float, numbers: Numbers
) -> None:
    requests = ask(temperature)
    answers = fresh.generate(requests)
    pairs = [(request.prompt_ids, answer.response_ids) for request, answer in zip(requests, answers, strict=True)]
    expected = [score_with_transformers(MODELS[0], *pair, temperature=temperature) for pair in pairs]
    sampled = max(find_gap(answer.logp, logps) for answer, logps in zip(answers, expected, strict=True))
    scored = max(map(find_gap, fresh.score(pairs, temperature=temperature), expected))
    numbers.measured[f"server: gap to transformers at temperature {temperature:g}, sampled"] = sampled
    numbers.measured[f"server: gap to transformers at temperature {temperature:g}, scored"] = scored
    assert sampled <= MAX_GAP
    assert scored <= MAX_GAP


@pytest.mark.parametrize(("top_p", "top_k"), [(0.8, 0), (1.0, 5), (0.8, 20)])
def test_a_truncated_distribution_is_the_one_that_other_engines_sample_from(
    fresh: StreamingServerEngine, top_p: float, top_k: int, numbers: Numbers
) -> None:
    requests = [replace(request, top_p=top_p, top_k=top_k) for request in ask(0.7)]
    far = 0.0
    for request, answer in zip(requests, fresh.generate(requests), strict=True):
        ids = torch.tensor([[*request.prompt_ids, *answer.response_ids]])
        with torch.no_grad():
            logits = MODELS[0](input_ids=ids).logits[0, len(request.prompt_ids) - 1 : -1] / 0.7
        limits = torch.full((len(logits), 1), top_p, dtype=torch.float64), torch.full((len(logits), 1), top_k)
        logps = truncate(logits, *limits).log_softmax(-1)
        expected = logps.gather(1, ids[0, len(request.prompt_ids) :, None])[:, 0].tolist()
        far = max(far, find_gap(answer.logp, expected))
    numbers.measured[f"server: gap to our engine at top_p {top_p:g}, top_k {top_k}"] = far
    assert far <= MAX_GAP


def test_a_request_has_its_tokens_alone_and_in_company(fresh: StreamingServerEngine, numbers: Numbers) -> None:
    together = fresh.generate(ask())
    alone = [fresh.generate([request])[0] for request in ask()]
    assert [answer.response_ids for answer in alone] == [answer.response_ids for answer in together]
    gap = max(find_gap(a.logp, b.logp) for a, b in zip(alone, together, strict=True))
    numbers.measured["server: log-probs alone against in company differ by"] = gap
    assert gap <= MAX_GAP


def test_more_prompts_than_fit_into_a_step_are_answered_as_by_themselves(fresh: StreamingServerEngine) -> None:
    """A prompt that was read in pieces would end a server on a CPU, since its request has a seed."""
    requests = [replace(request, seed=seed, max_tokens=2) for seed in range(16) for request in ask()]
    assert sum(len(request.prompt_ids) for request in requests) > 5000
    together = fresh.generate(requests)
    for place in (0, 60, 127):
        [alone] = fresh.generate([requests[place]])
        assert alone.response_ids == together[place].response_ids


def test_a_stop_token_ends_a_response_and_belongs_to_it(fresh: StreamingServerEngine) -> None:
    whole = fresh.generate(ask())
    stop = whole[0].response_ids[3]
    for answer, stopped in zip(whole, fresh.generate(ask(stop_ids=(stop,))), strict=True):
        ids = answer.response_ids
        is_there = stop in ids
        assert stopped.response_ids == (ids[: ids.index(stop) + 1] if is_there else ids)
        assert stopped.stopped is is_there


def test_the_model_s_own_end_token_stops_nothing_unless_it_is_asked_to(fresh: StreamingServerEngine) -> None:
    end = int(MODELS[0].config.eos_token_id)
    requests = [Request(prompt_ids=make_prompts()[0], seed=seed, max_tokens=40, temperature=2.0) for seed in range(60)]
    answers = fresh.generate(requests)
    assert any(end in answer.response_ids[:-1] for answer in answers)
    assert {len(answer.response_ids) for answer in answers} == {40}


def test_weights_arrive_through_memory_and_through_a_file(
    fresh: StreamingServerEngine, tmp_path: Any, numbers: Numbers
) -> None:
    seconds = []
    for version in range(1, 5):
        model, since = MODELS[version % 2], time.monotonic()
        if version < 3:
            fresh.load(list_weights(model), version=version)
        else:
            ThroughFile().open(tmp_path / "weights").sync(list_weights(model), fresh, version=version)
        seconds.append(time.monotonic() - since)
        requests = ask()
        answers = fresh.generate(requests)
        assert {answer.versions for answer in answers} == {(VersionSpan(version, 24),)}
        pairs = [(request.prompt_ids, answer.response_ids) for request, answer in zip(requests, answers, strict=True)]
        gap = max(
            find_gap(a.logp, score_with_transformers(model, *pair)) for a, pair in zip(answers, pairs, strict=True)
        )
        assert gap <= MAX_GAP
    numbers.measured["server: seconds of a weight sync, median"] = round(sorted(seconds)[len(seconds) // 2], 3)


def test_checksums_are_those_of_the_weights(fresh: StreamingServerEngine) -> None:
    first = read_checksums(fresh)
    fresh.load(list_weights(MODELS[1]), version=1)
    other = read_checksums(fresh)
    fresh.load(list_weights(MODELS[0]), version=2)
    assert read_checksums(fresh) == first
    changed = {name for name in first if first[name] != other[name]}
    assert {name.rsplit(":", 1)[-1] for name in changed} >= {"model.embed_tokens.weight"}


def read_checksums(engine: ServerEngine) -> dict[str, str]:
    [replica] = engine.replicas
    answer = replica.client.post("/weight_checker", {"action": "checksum"}, what="sum its weights up", timeout=60)
    return dict(answer["checksums"])


def test_the_weight_check_sees_each_sync_and_one_that_does_nothing(
    fresh: StreamingServerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = make_prompts()[4][:64]
    [replica] = fresh.replicas
    weight_check = WeightCheck(prompt, prompt[-5:])
    for version in range(1, 4):
        fresh.load(list_weights(MODELS[version % 2]), version=version)
        assert weight_check.check(replica, Learner(MODELS[version % 2]), version=version) <= MAX_GAP  # type: ignore[arg-type]
    fresh.load(list_weights(MODELS[1]), version=4)  # those of version 3 again
    with pytest.raises(TrainingError, match="disagree by"):
        weight_check.check(replica, Learner(MODELS[0]), version=4)  # type: ignore[arg-type]


def test_without_the_cache_reset_the_weight_check_finds_it(
    fresh: StreamingServerEngine, monkeypatch: pytest.MonkeyPatch, numbers: Numbers
) -> None:
    prompt = make_prompts()[4][:64]
    [replica] = fresh.replicas
    weight_check = WeightCheck(prompt, prompt[-5:])
    weight_check.check(replica, Learner(MODELS[0]), version=0)  # type: ignore[arg-type]
    take_step = Replica._step

    def skip_reset(self: Replica, deadline: float, path: str, *rest: Any, **more: Any) -> Any:
        return {} if path.startswith("/reset_prefix_cache") else take_step(self, deadline, path, *rest, **more)

    monkeypatch.setattr(Replica, "_step", skip_reset)
    fresh.load(list_weights(MODELS[1]), version=1)
    with pytest.raises(TrainingError, match="weight sync of version 1, the engine and the learner disagree by"):
        weight_check.check(replica, Learner(MODELS[1]), version=1)  # type: ignore[arg-type]
    stale = find_gap(replica.score([(prompt, prompt[-5:])])[0], score_with_transformers(MODELS[1], prompt, prompt[-5:]))
    plain = find_gap(fresh.score([(prompt, prompt[-5:])])[0], score_with_transformers(MODELS[1], prompt, prompt[-5:]))
    numbers.measured["server: nats off without the cache reset, by way of the cache"] = round(stale, 3)
    numbers.measured["server: nats off without the cache reset, by prompt_logprobs, which never read it"] = plain
    assert stale > 0.1
    monkeypatch.undo()
    fresh.load(list_weights(MODELS[1]), version=2)
    weight_check = WeightCheck(prompt, prompt[-5:])
    assert weight_check.check(replica, Learner(MODELS[1]), version=2) <= MAX_GAP  # type: ignore[arg-type]


@pytest.fixture
def slow_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StreamingServerEngine]:
    """A server that takes a tenth of a second a token while `slow` lies in `tmp_path`."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    extra = ("--logits-processors", "tests.vllm.slow_steps:SlowSteps")
    with serve(save_model(MODELS[0], tmp_path / "model"), extra=extra) as engine:
        assert isinstance(engine, StreamingServerEngine)
        yield engine


def test_a_response_that_goes_on_over_a_sync_has_spans(
    slow_engine: StreamingServerEngine, tmp_path: Path, numbers: Numbers
) -> None:
    (tmp_path / "slow").touch()
    requests = ask(max_tokens=400)  # they take at least 40 seconds
    futures = slow_engine.submit(requests)
    wait_until_running(slow_engine, len(requests))
    time.sleep(2)  # for some 20 tokens of the old weights
    slow_engine.load(list_weights(MODELS[1]), version=1)
    (tmp_path / "slow").unlink()
    answers = [future.result(timeout=SECONDS) for future in futures]
    for request, answer in zip(requests, answers, strict=True):
        (old, first), (new, rest) = answer.versions
        assert (old, new, first + rest) == (0, 1, len(answer.response_ids))
        before = score_with_transformers(MODELS[0], request.prompt_ids, answer.response_ids)
        after = score_with_transformers(MODELS[1], request.prompt_ids, answer.response_ids)
        # After the weight sync the new weights alone compute, keys and values of the beginning included.
        assert find_gap(answer.logp[:first], before[:first]) <= MAX_GAP
        assert find_gap(answer.logp[first:], after[first:]) <= MAX_GAP
    numbers.measured["server: spans of an update in flight"] = [list(span) for span in answers[0].versions]


def wait_until_running(engine: ServerEngine, num: int, *, seconds: float = 30.0) -> None:
    """Wait until a server samples so many requests at once."""
    [replica] = engine.replicas
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        running = [line for line in read_metrics(replica).splitlines() if line.startswith("vllm:num_requests_running")]
        if running and float(running[0].rsplit(" ", 1)[1]) == num:
            return
        time.sleep(0.05)
    raise AssertionError(f"{num} requests were not under way within {seconds:g} seconds")


def read_metrics(replica: Any) -> str:
    import urllib.request

    with urllib.request.urlopen(f"{replica.client.url}/metrics", timeout=10) as answer:
        return str(answer.read().decode())
