"""What a server is asked and what it answers, as JSON; a request that cannot be meant is refused in one sentence."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.core.errors import EngineFault
from groupwise.core.text.safe_text import quote_line
from groupwise.engines.engine import Generation, Request

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "top_p": (1,),
    "top_k": (0, -1),
    "min_p": (0,),
    "repetition_penalty": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "n": (1,),
    "min_tokens": (0,),
    "logprobs": (0, 1, 2),
    "ignore_eos": (True,),
    "detokenize": (True, False),
    "skip_special_tokens": (True, False),
}
"""Sampling parameters of a vLLM server that our engine does not have, and the values that ask nothing of it."""
READ = (
    *("temperature", "max_tokens", "seed", "stop_token_ids"),
    *("prompt_logprobs", "logprob_token_ids", "logit_bias"),
)
"""Sampling parameters that are read."""
MAX_SEED = 2**64
VERSION = re.compile("[0-9]{1,18}")


class RefusedRequest(EngineFault):
    """A request that is not answered, with the HTTP status that says so."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def read_request(fields: Any, *, vocabulary: int) -> Request:
    """A request of the route for batches: its fields are those of `Request`."""
    if not isinstance(fields, dict):
        raise RefusedRequest(f"a request is {_show(fields)}; give an object with prompt_ids, seed and max_tokens")
    unknown = sorted(fields.keys() - {"prompt_ids", "seed", "max_tokens", "temperature", "stop_ids", "session"})
    if unknown:
        raise RefusedRequest(f"a request has {_show(unknown[0])}, which this server does not know; leave it out")
    session = fields.get("session")
    if session is not None and not isinstance(session, str):
        raise RefusedRequest(f"session is {_show(session)}; give text, or leave it out")
    return Request(
        prompt_ids=read_ids(fields.get("prompt_ids"), "prompt_ids", vocabulary=vocabulary, minimum=1),
        seed=_read_whole_number(fields.get("seed"), "seed", minimum=0, limit=MAX_SEED),
        max_tokens=_read_whole_number(fields.get("max_tokens"), "max_tokens", minimum=1),
        temperature=read_temperature(fields.get("temperature", 1.0)),
        stop_ids=read_ids(fields.get("stop_ids", []), "stop_ids", vocabulary=None),
        session=session,
    )


@dataclass(frozen=True, kw_only=True)
class SingleRequest:
    """A request of vLLM's route for token ids, and what else is asked for with it."""

    request: Request
    """What is to be sampled."""
    wants_prompt: bool
    """Whether the log-probs of the prompt's own tokens are asked for."""
    named_ids: tuple[int, ...]
    """Tokens whose log-probs at the first place are asked for, whatever is sampled there."""


def read_single_request(body: Mapping[str, Any], *, vocabulary: int) -> SingleRequest:
    """Read a request of vLLM's route; refused where it asks for what our engine does not do."""
    sampling = body.get("sampling_params")
    if not isinstance(sampling, dict):
        raise RefusedRequest(f"sampling_params is {_show(sampling)}; give an object")
    given = {name: value for name, value in sampling.items() if value is not None}
    for name, value in given.items():
        if name not in NEUTRAL and name not in READ:
            raise RefusedRequest(f"sampling_params.{quote_line(name)} is not supported by this engine; leave it out")
        if name in NEUTRAL and value not in NEUTRAL[name]:
            raise RefusedRequest(
                f"sampling_params.{name} is {_show(value)}, which this engine does not sample with; leave it out, or "
                f"give {NEUTRAL[name][0]!r}"
            )
    bias = given.get("logit_bias", {})  # of nothing: a way to ask whether the model has a token
    if not isinstance(bias, dict) or any(bias.values()):
        raise RefusedRequest(f"sampling_params.logit_bias is {_show(bias)}, which this engine does not sample with")
    read_ids([int(token) if token.isdigit() else -1 for token in bias], "logit_bias", vocabulary=vocabulary)
    if given.get("prompt_logprobs", 0) not in (0, 1):
        raise RefusedRequest(f"sampling_params.prompt_logprobs is {_show(given['prompt_logprobs'])}; give 0")
    request = {
        "prompt_ids": body.get("token_ids"),
        "seed": given.get("seed", 0),
        "max_tokens": given.get("max_tokens", 16),
        "temperature": given.get("temperature", 1.0),
        "stop_ids": given.get("stop_token_ids", []),
        "session": body.get("session"),
    }
    named_ids = read_ids(given.get("logprob_token_ids", []), "logprob_token_ids", vocabulary=vocabulary)
    return SingleRequest(
        request=read_request(request, vocabulary=vocabulary),
        wants_prompt="prompt_logprobs" in given,
        named_ids=tuple(dict.fromkeys(named_ids)),
    )


def read_list(body: Mapping[str, Any], name: str) -> list[Any]:
    """A list of the body, by name."""
    value = body.get(name)
    if not isinstance(value, list):
        raise RefusedRequest(f"{name} is {_show(value)}; give a list")
    return value


def read_text(body: Mapping[str, Any], name: str) -> str:
    """Text of the body, by name."""
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise RefusedRequest(f"{name} is {_show(value)}; give text")
    return value


def read_version(value: Any) -> int:
    """A version of the weights: a whole number, which vLLM writes as text."""
    if not isinstance(value, str) or not VERSION.fullmatch(value):
        raise RefusedRequest(f"weight_version is {_show(value)}; give a whole number as text, such as '3'")
    return int(value)


def read_temperature(value: Any) -> float:
    """What logits are divided by."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < 0:
        raise RefusedRequest(f"temperature is {_show(value)}; give a number, 0 or more")
    return float(value)


def read_ids(value: Any, name: str, *, vocabulary: int | None, minimum: int = 0) -> tuple[int, ...]:
    """Token ids. One that the model has not would bring a GPU down, so they are looked at here."""
    if not isinstance(value, list) or len(value) < minimum:
        raise RefusedRequest(f"{name} is {_show(value)}; give a list of at least {minimum} token ids")
    for token in value:
        if type(token) is not int or token < 0 or (vocabulary is not None and token >= vocabulary):
            limit = "" if vocabulary is None else f" below {vocabulary}, the size of the model's vocabulary"
            raise RefusedRequest(f"{name} has {_show(token)}; give token ids from 0 up{limit}")
    return tuple(value)


def write_generation(answer: Generation) -> dict[str, Any]:
    """A generation as the route for batches gives it; numbers are written so that they come back to the bit."""
    return {
        "response_ids": answer.response_ids,
        "logp": answer.logp,
        "entropy": answer.entropy,
        "stopped": answer.stopped,
        "versions": [[span.version, span.tokens] for span in answer.versions],
    }


def write_choice(answer: Generation, *, named: Mapping[int, float]) -> dict[str, Any]:
    """A generation as vLLM's route gives it, with `entropies` in addition; `named` are log-probs of tokens that were
    asked for by name, at the first place.
    """
    spans, start = [], 0
    for span in answer.versions:
        spans.append({"version": str(span.version), "start": start, "end": start + span.tokens})
        start += span.tokens
    top = [{"token_id": token, "logprob": logp} for token, logp in named.items()]
    content = [
        {"token_id": token, "logprob": logp, "top_logprobs": [] if place else top}
        for place, (token, logp) in enumerate(zip(answer.response_ids, answer.logp, strict=True))
    ]
    return {
        "index": 0,
        "token_ids": answer.response_ids,
        "logprobs": {"content": content},
        "entropies": answer.entropy,
        "finish_reason": "stop" if answer.stopped else "length",
        "weight_versions": spans,
    }


def write_prompt_logprobs(token_ids: Sequence[int], scores: Sequence[float]) -> list[dict[str, Any] | None]:
    """Log-probs of a prompt's tokens as vLLM gives them; its first token has none."""
    return [None, *({str(token): {"logprob": logp}} for token, logp in zip(token_ids[1:], scores, strict=True))]


def _read_whole_number(value: Any, name: str, *, minimum: int, limit: int | None = None) -> int:
    if type(value) is not int or value < minimum or (limit is not None and value >= limit):
        below = "" if limit is None else f", below {limit}"
        raise RefusedRequest(f"{name} is {_show(value)}; give a whole number from {minimum} up{below}")
    return value


def _show(value: Any) -> str:
    return "missing" if value is None else quote_line(repr(value), limit=80)
