"""Answers are checked as they come: each kind of garbage is named."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from groupwise.engines import messages as wire
from groupwise.engines.engine import Generation, Request, VersionSpan

REQUEST = Request(prompt_ids=(1, 2), seed=2**62 + 5, max_tokens=3, stop_ids=(9,), temperature=0.7, session="a")
ANSWER = {
    "choices": [
        {
            "token_ids": [4, 5, 9],
            "logprobs": {"content": [{"token_id": token, "logprob": -1.5} for token in (4, 5, 9)]},
            "finish_reason": "stop",
            "weight_versions": [{"version": "a", "start": 0, "end": 1}, {"version": "b", "start": 1, "end": 3}],
        }
    ]
}
BATCH = {
    "generations": [
        {"response_ids": [4, 9], "logp": [-1.5, -2], "entropy": [0.5, 0.25], "stopped": True, "versions": [[7, 2]]}
    ]
}


def read(text: Any) -> wire.SampledResponse:
    return wire.read_generate(json.dumps(text).encode(), REQUEST, vocabulary=10)


def read_rows(text: Any) -> list[wire.SampledResponse]:
    return wire.read_batch(json.dumps(text).encode(), [REQUEST], vocabulary=10)


def complain(read: Callable[[Any], Any], answer: Any) -> str:
    """What is said of an answer."""
    with pytest.raises(ValueError) as caught:
        read(answer)
    return wire.describe_problem(caught.value) if isinstance(caught.value, ValidationError) else str(caught.value)


def edit(answer: Any, path: tuple[Any, ...], value: Any) -> Any:
    """An answer with another value at a path."""
    answer = copy.deepcopy(answer)
    place = answer
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return answer


def test_a_request_says_everything_that_could_bend_its_distribution() -> None:
    assert wire.write_generate(REQUEST, model="policy") == {
        "model": "policy",
        "token_ids": [1, 2],
        "sampling_params": {
            "n": 1,
            "top_p": 1.0,
            "top_k": 0,
            "min_p": 0.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "repetition_penalty": 1.0,
            "min_tokens": 0,
            "ignore_eos": True,
            "detokenize": False,
            "temperature": 0.7,
            "max_tokens": 3,
            "seed": 2**62 + 5,
            "stop_token_ids": [9],
            "logprobs": 0,
        },
    }


def test_an_evaluation_may_truncate_the_distribution() -> None:
    sampling = wire.write_generate(replace(REQUEST, top_p=0.9, top_k=50), model="policy")["sampling_params"]
    assert (sampling["top_p"], sampling["top_k"], sampling["min_p"]) == (0.9, 50, 0.0)


def test_a_response_is_read_with_the_spans_of_its_weights() -> None:
    response = read(ANSWER)
    assert response.generation.response_ids == (4, 5, 9)
    assert response.generation.logp == (-1.5, -1.5, -1.5)
    assert response.generation.stopped
    assert response.spans == (("a", 1), ("b", 2))
    assert read(edit(ANSWER, ("choices", 0, "weight_versions"), None)).spans == ()


CHOICE = ("choices", 0)
CONTENT = (*CHOICE, "logprobs", "content")


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        (("choices",), [], "choices: tuple should have at least 1 item after validation, not 0, found a list of 0"),
        (CHOICE, "text", "choices.0: input should be an object, found 'text'"),
        ((*CHOICE, "token_ids"), None, "choices.0.token_ids: input should be a valid array, found nothing"),
        ((*CHOICE, "token_ids", 0), "4", "choices.0.token_ids.0: input should be a valid integer, found '4'"),
        ((*CHOICE, "token_ids", 0), True, "choices.0.token_ids.0: input should be a valid integer, found True"),
        ((*CHOICE, "token_ids", 0), 4.0, "choices.0.token_ids.0: input should be a valid integer, found 4.0"),
        ((*CHOICE, "token_ids", 0), -1, "token ids are from -1 to 9, but must be from 0 to 9"),
        ((*CHOICE, "token_ids", 0), 10, "token ids are from 5 to 10, but must be from 0 to 9"),
        ((*CHOICE, "token_ids"), [4, 9], "2 tokens came with 3 log-probs"),
        ((*CHOICE, "logprobs"), None, "3 tokens came with 0 log-probs"),
        ((*CONTENT, 1), None, "choices.0.logprobs.content.1: input should be an object, found nothing"),
        ((*CONTENT, 1, "logprob"), None, "choices.0.logprobs.content.1.logprob: input should be a valid number, found"),
        ((*CONTENT, 1, "logprob"), "-1", "choices.0.logprobs.content.1.logprob: input should be a valid number, found"),
        ((*CONTENT, 1, "logprob"), float("nan"), "choices.0.logprobs.content.1.logprob: input should be a finite num"),
        ((*CONTENT, 1, "logprob"), 0.5, "a log-prob is 0.5, which is impossible for a sampled token"),
        ((*CONTENT, 1, "logprob"), -9999.0, "a log-prob is -9999, which is impossible for a sampled token"),
        ((*CONTENT, 1, "token_id"), 6, "the log-prob of token 5 belongs to token 6"),
        ((*CHOICE, "finish_reason"), "abort", "choices.0.finish_reason: input should be 'stop' or 'length', found 'ab"),
        ((*CHOICE, "weight_versions"), {}, "choices.0.weight_versions: input should be a valid array, found a dict of"),
        ((*CHOICE, "weight_versions"), [], "weight_versions cover 0 of 3 tokens"),
        ((*CHOICE, "weight_versions", 1, "start"), 2, "a span of weight_versions is from 2 to 3, after 1"),
        ((*CHOICE, "weight_versions", 1, "version"), 3, "choices.0.weight_versions.1.version: input should be a valid"),
        ((*CHOICE, "weight_versions", 1, "end"), "3", "choices.0.weight_versions.1.end: input should be a valid integ"),
    ],
)
def test_garbage_in_a_response_is_named(path: tuple[Any, ...], value: Any, complaint: str) -> None:
    assert complain(read, edit(ANSWER, path, value)).startswith(complaint)


@pytest.mark.parametrize(
    ("ids", "complaint"),
    [
        ([], "a response has 0 tokens, but must have 1 to 3"),
        ([4, 4, 4, 4], "a response has 4 tokens, but must have 1 to 3"),
        ([9, 4, 4], "a response continues after a stop token"),
        ([4, 4], "a response ended after 2 of 3 tokens without a stop token"),
    ],
)
def test_a_response_ends_as_it_was_asked_to(ids: list[int], complaint: str) -> None:
    logprobs = {"content": [{"logprob": -1.0}] * len(ids)}
    assert complain(read, {"choices": [{"token_ids": ids, "logprobs": logprobs}]}) == complaint


@pytest.mark.parametrize("answer", ["null", "[]", '"text"', "3", "{}", '{"choices": null}', "<html>", "", "[" * 9999])
@pytest.mark.parametrize(
    "read",
    [
        lambda text: wire.read_generate(text, REQUEST, vocabulary=10),
        lambda text: wire.read_score(text, (1,), (2,)),
        lambda text: wire.read_next_score(text, 2),
        lambda text: wire.read_batch(text, [REQUEST], vocabulary=10),
        lambda text: wire.read_scores(text, [((1,), (2,))]),
        wire.read_model,
        wire.read_label,
    ],
)
def test_what_is_no_answer_at_all_is_refused(read: Callable[[bytes], Any], answer: str) -> None:
    assert len(complain(read, answer.encode())) < 200


def test_a_batch_is_read_to_the_bit() -> None:
    third = 1 / 3 - 1
    [response] = read_rows(edit(BATCH, ("generations", 0, "logp", 0), third))
    assert response.generation.logp == (third, -2.0)
    assert response.generation.entropy == (0.5, 0.25)
    assert response.spans == (("7", 2),)


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        (("generations",), [], "generations has 0 entries, but 1 are needed"),
        (("generations", 0), 3, "generations.0: input should be an object, found 3"),
        (("generations", 0, "logp"), [-1.5], "generations.0: a response of 2 tokens has 1 log-probs and 2 entropies"),
        (("generations", 0, "logp", 0), None, "generations.0.logp.0: input should be a valid number, found nothing"),
        (("generations", 0, "logp", 0), float("nan"), "generations.0.logp.0: input should be a finite number"),
        (("generations", 0, "entropy"), None, "generations.0.entropy: input should be a valid array, found nothing"),
        (("generations", 0, "response_ids", 0), 99, "token ids are from 9 to 99, but must be from 0 to 9"),
        (
            ("generations", 0, "versions"),
            [[7, 1]],
            "generations.0: the versions of a response of 2 tokens are [(7, 1)]",
        ),
        (("generations", 0, "versions"), [7], "generations.0.versions.0: input"),
        (("generations", 0, "versions"), [["7", 2]], "generations.0.versions.0.0: input should be a valid integer"),
    ],
)
def test_garbage_in_a_batch_is_named(path: tuple[Any, ...], value: Any, complaint: str) -> None:
    assert complain(read_rows, edit(BATCH, path, value)).startswith(complaint)


def test_scores_are_those_of_the_response() -> None:
    rows = [None, {"2": {"logprob": -1.0}}, {"5": {"logprob": -2.0}, "6": {"logprob": -0.5}}, {"7": {"logprob": -3.0}}]
    label = {"choices": [{"weight_versions": [{"version": "v", "start": 0, "end": 1}]}]}
    answer = json.dumps({"prompt_logprobs": rows, **label}).encode()
    assert wire.read_score(answer, (1, 2), (5, 7)) == ((-2.0, -3.0), "v")
    for prompt, response in (((1, 2), (5, 6)), ((1,), (5, 7)), ((1, 2), (5, 7, 8))):
        with pytest.raises(ValueError):
            wire.read_score(answer, prompt, response)


def test_a_batch_of_scores_has_one_for_each_token() -> None:
    pairs = [((1,), (2, 3))]
    assert wire.read_scores(b'{"scores": [[-1, -2.5]]}', pairs) == [(-1.0, -2.5)]
    for text in (b'{"scores": [[-1]]}', b'{"scores": []}', b'{"scores": [[-1, NaN]]}'):
        with pytest.raises(ValueError):
            wire.read_scores(text, pairs)


def test_numbers_come_back_to_the_bit() -> None:
    draw = random.Random(0)
    logp = tuple(-abs(draw.gauss(0, 1)) * 10.0 ** draw.randint(-300, 300) for _ in range(5000))
    ids, spans = (1,) * len(logp), (VersionSpan(10**12, len(logp)),)
    sent = Generation(response_ids=ids, logp=logp, entropy=logp, stopped=False, versions=spans)
    text = wire.BatchAnswer(generations=(sent,)).model_dump_json()
    assert wire.BatchAnswer.model_validate_json(text).generations == (sent,)


def test_labels_of_two_owners_never_agree() -> None:
    labels = {wire.write_label(version, owner=owner) for owner in (100_000, 100_001) for version in range(20)}
    assert len(labels) == 40
