"""What is said over the wire, in both directions: requests as JSON, and answers checked as they come.

Two ways of asking. The routes of vLLM take a request a call: `write_generate`, `read_generate`. Servers of ours also
take a list of requests, which they answer as one batch: `write_batch`, `read_batch`. An answer that is not what was
asked for raises a `WireError` with what is wrong; whoever asked knows which server it was.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from groupwise.data.samples import PromptAndResponse
from groupwise.engines.engine import Generation, Request
from groupwise.system.text import describe_value, quote_line

MODELS = "/v1/models"
GENERATE = "/inference/v1/generate"
BATCH_INFO = "/groupwise/v1/info"
BATCH_GENERATE = "/groupwise/v1/generate"
BATCH_SCORE = "/groupwise/v1/score"
WEIGHT_INFO = "/weight_info"
IS_PAUSED = "/is_paused"
SERVER_INFO = "/server_info?config_format=json"

MAX_VERSIONS = 10**7
"""Versions that one owner can name."""
ANSWER_BYTES = 2**16
"""What an answer may have beside its tokens."""
TOKEN_BYTES = 2**10
"""What an answer may have for each token."""
ROUNDING = 1e-3
"""By how much rounding may lift a log-prob above 0."""
IMPOSSIBLE_LOGP = -9000.0
"""What some servers write where there is no log-prob; no token that was sampled has one as low."""


class WireError(ValueError):
    """An answer, or a question, is not what was agreed on; the message says what is wrong with it."""


class SampledResponse(NamedTuple):
    """A response as a server gave it."""

    generation: Generation
    """The response, without its versions."""
    spans: tuple[tuple[str, int], ...]
    """A label of the weights and a number of tokens each, in order; empty where the server does not say."""


def limit_bytes(num_tokens: int) -> int:
    """How long an answer about so many tokens may be."""
    return ANSWER_BYTES + TOKEN_BYTES * num_tokens


def write_label(version: int, *, owner: int) -> str:
    """What a server calls the weights of a version: whose they are, then the version.

    Two runs then do not take each other's weights for their own. A number, since servers of ours count versions.
    """
    return str(owner * MAX_VERSIONS + version)


# --- one request a call, as vLLM takes it ---


def write_generate(request: Request, *, model: str) -> dict[str, Any]:
    """A request as JSON. Everything that could bend the distribution is said, so that no default of a server's can."""
    return {
        "model": model,
        "token_ids": list(request.prompt_ids),
        "sampling_params": {
            **PLAIN_SAMPLING,
            "temperature": request.temperature,
            "max_tokens": request.max_tokens,
            "seed": request.seed,
            "stop_token_ids": list(request.stop_ids),
            "logprobs": 0,
        },
    }


PLAIN_SAMPLING: Mapping[str, Any] = {
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
}
"""Settings under which tokens are drawn from the model's own distribution, at the request's temperature."""


def read_generate(answer: Any, request: Request, *, vocabulary: int) -> SampledResponse:
    """The response to a request."""
    choice = _read_choice(answer)
    ids = _read_ids(choice.get("token_ids"), vocabulary)
    logp = _read_sampled_logps(choice.get("logprobs"), ids)
    stopped = _check_end(ids, choice.get("finish_reason"), request)
    spans = _read_spans(choice.get("weight_versions"), len(ids))
    return SampledResponse(Generation(response_ids=ids, logp=logp, entropy=(), stopped=stopped, versions=()), spans)


def write_score(prompt: Sequence[int], response: Sequence[int], *, model: str) -> dict[str, Any]:
    """Ask for the log-probs of a prompt's own tokens, at temperature 1: what a model says of a recorded response."""
    sampling = {**PLAIN_SAMPLING, "temperature": 1.0, "max_tokens": 1, "seed": 0, "prompt_logprobs": 0}
    return {"model": model, "token_ids": [*prompt, *response], "sampling_params": sampling}


def read_score(answer: Any, prompt: Sequence[int], response: Sequence[int]) -> tuple[tuple[float, ...], str | None]:
    """The log-probs of a response that was sent as the end of a prompt, and the label of the weights."""
    rows = _read_mapping(answer, "the answer").get("prompt_logprobs")
    num = len(prompt) + len(response)
    if not isinstance(rows, list) or len(rows) != num:
        raise WireError(f"prompt_logprobs is {describe_value(rows)}, but {num} are needed")
    logps = tuple(
        _read_logp(_read_mapping(_read_mapping(row, "a prompt log-prob").get(str(token)), "a prompt log-prob"))
        for row, token in zip(rows[len(prompt) :], response, strict=True)
    )
    return logps, _read_single_label(answer)


def write_next_score(context: Sequence[int], token: int, *, model: str, temperature: float) -> dict[str, Any]:
    """Ask for the log-prob that one token would be sampled with, at a temperature, through the cache of prefixes."""
    sampling = {
        **PLAIN_SAMPLING,
        "temperature": temperature,
        "max_tokens": 1,
        "seed": 0,
        "logprobs": 2,
        "logprob_token_ids": [token, token],  # twice: vLLM cuts its list of them by one, for the token it sampled
    }
    return {"model": model, "token_ids": list(context), "sampling_params": sampling}


def read_next_score(answer: Any, token: int) -> tuple[float, str | None]:
    """The log-prob of the token that was asked for, and the label of the weights."""
    logprobs = _read_mapping(_read_choice(answer).get("logprobs"), "logprobs")
    content = logprobs.get("content")
    if not isinstance(content, list) or len(content) != 1:
        raise WireError(f"logprobs.content is {describe_value(content)}, but 1 is needed")
    sampled = _read_mapping(content[0], "a log-prob")
    others = sampled.get("top_logprobs")
    for entry in (sampled, *(others if isinstance(others, list) else ())):
        if _read_mapping(entry, "a log-prob").get("token_id") == token:
            return _read_logp(entry), _read_single_label(answer)
    raise WireError(f"the log-prob of token {token}, which was asked for, is not among the answer's")


# --- a batch a call, as servers of ours take it ---


def write_batch(requests: Sequence[Request]) -> dict[str, Any]:
    """Requests as JSON, to be answered as one batch."""
    return {
        "requests": [
            {
                "prompt_ids": list(request.prompt_ids),
                "seed": request.seed,
                "max_tokens": request.max_tokens,
                "temperature": request.temperature,
                "stop_ids": list(request.stop_ids),
                "session": request.session,
            }
            for request in requests
        ]
    }


def read_batch(answer: Any, requests: Sequence[Request], *, vocabulary: int) -> list[SampledResponse]:
    """A batch's answers, one for each request."""
    rows = _read_mapping(answer, "the answer").get("generations")
    if not isinstance(rows, list) or len(rows) != len(requests):
        raise WireError(f"generations is {describe_value(rows)}, but {len(requests)} are needed")
    return [
        _read_generation(_read_mapping(row, "a generation"), request, vocabulary)
        for row, request in zip(rows, requests, strict=True)
    ]


def write_batch_score(sequences: Sequence[PromptAndResponse], temperature: float) -> dict[str, Any]:
    """Prompts with responses as JSON, to be scored as one batch."""
    pairs = [[list(prompt), list(response)] for prompt, response in sequences]
    return {"sequences": pairs, "temperature": temperature}


def read_batch_score(answer: Any, sequences: Sequence[PromptAndResponse]) -> list[tuple[float, ...]]:
    """A batch's scores: a log-prob for each token of each response."""
    rows = _read_mapping(answer, "the answer").get("scores")
    if not isinstance(rows, list) or len(rows) != len(sequences):
        raise WireError(f"scores is {describe_value(rows)}, but {len(sequences)} are needed")
    return [_read_numbers(row, len(response), "scores") for row, (_, response) in zip(rows, sequences, strict=True)]


# --- pieces ---


def _read_mapping(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise WireError(f"{name} is {describe_value(value)}, but an object is needed")
    return value


def _read_choice(answer: Any) -> dict[str, Any]:
    choices = _read_mapping(answer, "the answer").get("choices")
    if not isinstance(choices, list) or len(choices) != 1:
        raise WireError(f"choices is {describe_value(choices)}, but a list of 1 is needed")
    return _read_mapping(choices[0], "a choice")


def _read_ids(value: Any, vocabulary: int | None) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise WireError(f"token ids are {describe_value(value)}, but a list is needed")
    for token in value:
        if type(token) is not int or token < 0 or (vocabulary is not None and token >= vocabulary):
            limit = "" if vocabulary is None else f" below {vocabulary}"
            raise WireError(f"among token ids is {_show(token)}, but whole numbers{limit} are needed")
    return tuple(value)


def _read_sampled_logps(logprobs: Any, ids: Sequence[int]) -> tuple[float, ...]:
    content = _read_mapping(logprobs, "logprobs").get("content")
    if not isinstance(content, list) or len(content) != len(ids):
        raise WireError(f"{len(ids)} tokens came with {describe_value(content)} for log-probs")
    entries = [_read_mapping(entry, "a log-prob") for entry in content]
    for entry, token in zip(entries, ids, strict=True):
        if entry.get("token_id", token) != token:
            raise WireError(f"the log-prob of token {token} is that of {_show(entry['token_id'])}")
    return tuple(_read_logp(entry) for entry in entries)


def _read_logp(entry: Mapping[str, Any]) -> float:
    logp = _read_number(entry.get("logprob"), "a log-prob")
    if not IMPOSSIBLE_LOGP < logp <= ROUNDING:
        raise WireError(f"a log-prob is {logp:g}, which no sampled token has")
    return logp


def _read_number(value: Any, name: str) -> float:
    if type(value) not in (int, float) or not abs(value) <= sys.float_info.max:  # NaN is not, nor 1 and 400 zeros
        raise WireError(f"{name} is {_show(value)}, but a finite number is needed")
    return float(value)


def _read_numbers(value: Any, num: int, name: str) -> tuple[float, ...]:
    if not isinstance(value, list) or len(value) != num:
        raise WireError(f"{name} is {describe_value(value)} for {num} tokens")
    return tuple(_read_number(number, name) for number in value)


def _check_end(ids: Sequence[int], reason: Any, request: Request) -> bool:
    """Whether a stop token ended a response; refused where it ended as no response does."""
    if reason not in ("stop", "length", None):
        raise WireError(f"the response ended for the reason {_show(reason)}")
    if not 1 <= len(ids) <= request.max_tokens:
        raise WireError(f"a response has {len(ids)} tokens, but at most {request.max_tokens} were asked for")
    stops = set(request.stop_ids)
    if stops.intersection(ids[:-1]):
        raise WireError("a response goes on after a stop token")
    if ids[-1] not in stops and len(ids) < request.max_tokens:
        raise WireError(f"a response ended after {len(ids)} of {request.max_tokens} tokens without a stop token")
    return ids[-1] in stops


def _read_spans(value: Any, num: int) -> tuple[tuple[str, int], ...]:
    """Labels and numbers of tokens; empty where the server says nothing of versions."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise WireError(f"weight_versions is {describe_value(value)}, but a list is needed")
    spans, end = list[tuple[str, int]](), 0
    for row in (_read_mapping(row, "a span of weight_versions") for row in value):
        label, start, stop = _read_label(row.get("version")), row.get("start"), row.get("end")
        if type(start) is not int or type(stop) is not int or start != end or stop < start:
            raise WireError(f"a span of weight_versions goes from {_show(start)} to {_show(stop)}, after {end}")
        end = stop
        if stop > start:
            spans.append((label, stop - start))
    if end != num:
        raise WireError(f"weight_versions cover {end} of {num} tokens")
    return tuple(spans)


def _read_single_label(answer: Any) -> str | None:
    """The label of the weights that sampled the one token of an answer; None where the server does not say."""
    spans = _read_spans(_read_choice(answer).get("weight_versions"), 1)
    return spans[0][0] if spans else None


def _read_label(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 200:
        raise WireError(f"a version of the weights is {_show(value)}, but a short text is needed")
    return value


def _read_generation(row: Mapping[str, Any], request: Request, vocabulary: int) -> SampledResponse:
    ids = _read_ids(row.get("response_ids"), vocabulary)
    stopped = _check_end(ids, None, request)
    entropy, spans = row.get("entropy"), row.get("versions")
    if not isinstance(spans, list) or not all(isinstance(span, list) and len(span) == 2 for span in spans):
        raise WireError(f"versions is {describe_value(spans)}, but a list of pairs is needed")
    if any(type(number) is not int for span in spans for number in span):
        raise WireError("versions has something else than whole numbers")
    if sum(tokens for _, tokens in spans) != len(ids):
        raise WireError(f"versions cover {sum(tokens for _, tokens in spans)} of {len(ids)} tokens")
    generation = Generation(
        response_ids=ids,
        logp=_read_numbers(row.get("logp"), len(ids), "logp"),
        entropy=() if entropy == [] else _read_numbers(entropy, len(ids), "entropy"),
        stopped=stopped,
        versions=(),
    )
    return SampledResponse(generation, tuple((str(label), tokens) for label, tokens in spans))


def _show(value: object) -> str:
    return quote_line(repr(value), limit=60) if isinstance(value, str | int | float | None) else describe_value(value)
