"""Answers are checked as they come: each kind of garbage is named."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from groupwise.engines import messages as wire
from groupwise.engines.engine import Request

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


def test_a_response_is_read_with_the_spans_of_its_weights() -> None:
    response = wire.read_generate(ANSWER, REQUEST, vocabulary=10)
    assert response.generation.response_ids == (4, 5, 9)
    assert response.generation.logp == (-1.5, -1.5, -1.5)
    assert response.generation.stopped
    assert response.spans == (("a", 1), ("b", 2))
    assert wire.read_generate(edit(ANSWER, ("choices", 0, "weight_versions"), None), REQUEST, vocabulary=10).spans == ()


CHOICE = ("choices", 0)
CONTENT = (*CHOICE, "logprobs", "content")


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        (("choices",), [], "choices is a list of 0, but a list of 1 is needed"),
        (CHOICE, "text", "a choice is a str, but an object is needed"),
        ((*CHOICE, "token_ids"), None, "token ids are nothing, but a list is needed"),
        ((*CHOICE, "token_ids", 0), "4", "among token ids is '4', but whole numbers below 10 are needed"),
        ((*CHOICE, "token_ids", 0), True, "among token ids is True, but whole numbers below 10 are needed"),
        ((*CHOICE, "token_ids", 0), 4.0, "among token ids is 4.0, but whole numbers below 10 are needed"),
        ((*CHOICE, "token_ids", 0), -1, "among token ids is -1, but whole numbers below 10 are needed"),
        ((*CHOICE, "token_ids", 0), 10, "among token ids is 10, but whole numbers below 10 are needed"),
        ((*CHOICE, "token_ids"), [4, 5], "2 tokens came with a list of 3 for log-probs"),
        ((*CHOICE, "logprobs"), None, "logprobs is nothing, but an object is needed"),
        ((*CONTENT, 1), None, "a log-prob is nothing, but an object is needed"),
        ((*CONTENT, 1, "logprob"), None, "a log-prob is None, but a finite number is needed"),
        ((*CONTENT, 1, "logprob"), "-1", "a log-prob is '-1', but a finite number is needed"),
        ((*CONTENT, 1, "logprob"), float("nan"), "a log-prob is nan, but a finite number is needed"),
        ((*CONTENT, 1, "logprob"), 0.5, "a log-prob is 0.5, which no sampled token has"),
        ((*CONTENT, 1, "logprob"), -9999.0, "a log-prob is -9999, which no sampled token has"),
        ((*CONTENT, 1, "token_id"), 6, "the log-prob of token 5 is that of 6"),
        ((*CHOICE, "finish_reason"), "abort", "the response ended for the reason 'abort'"),
        ((*CHOICE, "token_ids", 2), 8, "the log-prob of token 8 is that of 9"),
        ((*CHOICE, "weight_versions"), {}, "weight_versions is a dict of 0, but a list is needed"),
        ((*CHOICE, "weight_versions"), [], "weight_versions cover 0 of 3 tokens"),
        ((*CHOICE, "weight_versions", 1, "start"), 2, "a span of weight_versions goes from 2 to 3, after 1"),
        ((*CHOICE, "weight_versions", 1, "version"), 3, "a version of the weights is 3, but a short text is needed"),
        ((*CHOICE, "weight_versions", 1, "end"), "3", "a span of weight_versions goes from 1 to '3', after 1"),
    ],
)
def test_garbage_in_a_response_is_named(path: tuple[Any, ...], value: Any, complaint: str) -> None:
    with pytest.raises(wire.WireError) as caught:
        wire.read_generate(edit(ANSWER, path, value), REQUEST, vocabulary=10)
    assert str(caught.value) == complaint


@pytest.mark.parametrize(
    ("ids", "complaint"),
    [
        ([], "a response has 0 tokens, but at most 3 were asked for"),
        ([4, 4, 4, 4], "a response has 4 tokens, but at most 3 were asked for"),
        ([9, 4, 4], "a response goes on after a stop token"),
        ([4, 4], "a response ended after 2 of 3 tokens without a stop token"),
    ],
)
def test_a_response_ends_as_it_was_asked_to(ids: list[int], complaint: str) -> None:
    logprobs = {"content": [{"logprob": -1.0}] * len(ids)}
    with pytest.raises(wire.WireError) as caught:
        wire.read_generate({"choices": [{"token_ids": ids, "logprobs": logprobs}]}, REQUEST, vocabulary=10)
    assert str(caught.value) == complaint


@pytest.mark.parametrize("answer", [None, [], "text", 3, {}, {"choices": None}, {"choices": {}}])
@pytest.mark.parametrize(
    "read",
    [
        lambda answer: wire.read_generate(answer, REQUEST, vocabulary=10),
        lambda answer: wire.read_score(answer, (1,), (2,)),
        lambda answer: wire.read_next_score(answer, 2),
        lambda answer: wire.read_batch(answer, [REQUEST], vocabulary=10),
        lambda answer: wire.read_batch_score(answer, [((1,), (2,))]),
    ],
)
def test_what_is_no_answer_at_all_is_refused(read: Callable[[Any], Any], answer: Any) -> None:
    with pytest.raises(wire.WireError):
        read(answer)


def test_a_batch_is_read_to_the_bit() -> None:
    third = 1 / 3 - 1
    [response] = wire.read_batch(edit(BATCH, ("generations", 0, "logp", 0), third), [REQUEST], vocabulary=10)
    assert response.generation.logp == (third, -2.0)
    assert response.generation.entropy == (0.5, 0.25)
    assert response.spans == (("7", 2),)


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        (("generations",), [], "generations is a list of 0, but 1 are needed"),
        (("generations", 0), 3, "a generation is the int 3, but an object is needed"),
        (("generations", 0, "logp"), [-1.5], "logp is a list of 1 for 2 tokens"),
        (("generations", 0, "logp", 0), None, "logp is None, but a finite number is needed"),
        (("generations", 0, "entropy"), None, "entropy is nothing for 2 tokens"),
        (("generations", 0, "response_ids", 0), 99, "among token ids is 99, but whole numbers below 10 are needed"),
        (("generations", 0, "versions"), [[7, 1]], "versions cover 1 of 2 tokens"),
        (("generations", 0, "versions"), [7], "versions is a list of 1, but a list of pairs is needed"),
        (("generations", 0, "versions"), [["7", 2]], "versions has something else than whole numbers"),
    ],
)
def test_garbage_in_a_batch_is_named(path: tuple[Any, ...], value: Any, complaint: str) -> None:
    with pytest.raises(wire.WireError) as caught:
        wire.read_batch(edit(BATCH, path, value), [REQUEST], vocabulary=10)
    assert str(caught.value) == complaint


def test_scores_are_those_of_the_response() -> None:
    rows = [None, {"2": {"logprob": -1.0}}, {"5": {"logprob": -2.0}, "6": {"logprob": -0.5}}, {"7": {"logprob": -3.0}}]
    answer = {"prompt_logprobs": rows, "choices": [{"weight_versions": [{"version": "v", "start": 0, "end": 1}]}]}
    assert wire.read_score(answer, (1, 2), (5, 7)) == ((-2.0, -3.0), "v")
    for prompt, response in (((1, 2), (5, 6)), ((1,), (5, 7)), ((1, 2), (5, 7, 8))):
        with pytest.raises(wire.WireError):
            wire.read_score(answer, prompt, response)


def test_a_batch_of_scores_has_one_for_each_token() -> None:
    assert wire.read_batch_score({"scores": [[-1, -2.5]]}, [((1,), (2, 3))]) == [(-1.0, -2.5)]
    with pytest.raises(wire.WireError, match="scores is a list of 1 for 2 tokens"):
        wire.read_batch_score({"scores": [[-1]]}, [((1,), (2, 3))])


def test_labels_of_two_owners_never_agree() -> None:
    labels = {wire.write_label(version, owner=owner) for owner in (100_000, 100_001) for version in range(20)}
    assert len(labels) == 40
