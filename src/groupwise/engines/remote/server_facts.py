"""Who a server is: its model, what it reads and computes in, what it can do; refused where a run cannot use it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from groupwise.core.errors import ConfigError, EngineFault
from groupwise.core.parts.engine_slot import GIFTS, SCORES, VERSIONS
from groupwise.core.text.safe_text import quote_line
from groupwise.engines.engine import Request
from groupwise.engines.remote import wire
from groupwise.engines.remote.http_client import (
    RequestRefusedFault,
    ServerClient,
    ServerFault,
    ask_optional_route,
)

if TYPE_CHECKING:
    from groupwise.engines.model_source import ModelSource

VLLM_FLAGS = "VLLM_SERVER_DEV_MODE=1 and --enable-scale-out"
NO_ROUTE = 404
PROCESSED = "processed_logprobs"


@dataclass(frozen=True, kw_only=True)
class ServerFacts:
    """What a server says of itself; None = it does not say."""

    model: str
    """The name that requests call the model by."""
    context: int | None
    """How many tokens a prompt and its response may have together."""
    vocabulary: int | None
    """How many token ids there are."""
    precision: str | None
    """What it computes in."""
    gives: frozenset[str]
    """What its answers have beside tokens and log-probs."""
    takes_batches: bool
    """Whether it answers a list of requests as one batch."""
    label: str
    """What it calls the weights that it holds."""
    logprobs_mode: str | None
    """Which log-probs it reports, in vLLM's words."""


def ask_server(client: ServerClient, *, timeout: float) -> ServerFacts:
    """Ask a server who it is."""
    model, context = _ask_model(client, timeout)
    label = _ask_label(client, timeout)
    info = _ask_optional(client, wire.BATCH_INFO, timeout)
    if info is not None:
        return _read_info(client, info, model, label)
    config = _ask_optional(client, wire.SERVER_INFO, timeout)
    settings = _dig(config, "vllm_config", "model_config")
    dtype, mode = _dig(settings, "dtype"), _dig(settings, "logprobs_mode")
    return ServerFacts(
        model=model,
        context=context,
        vocabulary=None,
        precision=dtype.removeprefix("torch.") if isinstance(dtype, str) else None,
        gives=frozenset({SCORES, VERSIONS}),
        takes_batches=False,
        label=label,
        logprobs_mode=mode if isinstance(mode, str) else None,
    )


def check_server(client: ServerClient, facts: ServerFacts, source: ModelSource, precision: str, timeout: float) -> None:
    """Refuse a server that cannot speak for a run's model."""
    size = int(source.model.config.get_text_config().vocab_size)
    where = f"engine.urls: the server {client.url}"
    if facts.context is not None and facts.context < 2:
        raise ConfigError(f"{where} has a context of {facts.context} tokens, too small for a prompt and a response")
    if facts.vocabulary is not None and facts.vocabulary != size:
        raise ConfigError(
            f"{where} has a vocabulary of {facts.vocabulary} tokens, but the run's model has {size}: it serves another "
            "model; start it with the run's own"
        )
    if _dig(_ask_optional(client, wire.IS_PAUSED, timeout), "is_paused") is True:  # a run was killed in a hand-over
        let_go_on(client, facts.label, timeout=timeout)
    if facts.vocabulary is None and not _has_vocabulary(client, facts.model, size, timeout):
        raise ConfigError(
            f"{where} has not the {size} tokens of the run's model: it serves another model; start it with the run's "
            "own"
        )
    if facts.precision is not None and facts.precision != precision:
        raise ConfigError(
            f"{where} computes in {quote_line(facts.precision, limit=40)}, but engine.precision is {precision}; start "
            "the server with that dtype, or correct the setting"
        )
    if facts.logprobs_mode is not None and facts.logprobs_mode != PROCESSED:
        raise ConfigError(
            f"{where} reports {quote_line(facts.logprobs_mode, limit=40)}, but log-probs at the sampling temperature "
            f"are needed; start it with --logprobs-mode {PROCESSED}"
        )


def let_go_on(client: ServerClient, label: str, *, timeout: float) -> None:
    """Let a server answer again whose hand-over of weights was broken off; `label` is what it called those before.

    What was begun is finished first: a vLLM server that answers in the middle of it dies, and one that never finishes
    it takes no further weights. Where nothing was begun it refuses to, which is as well.
    """
    for path, question in (("/finish_weight_update", {"weight_version": label}), ("/resume", {})):
        with suppress(EngineFault):
            client.post(path, question, what="go on after a hand-over", timeout=timeout, is_fresh=True)


def _ask_model(client: ServerClient, timeout: float) -> tuple[str, int | None]:
    """The name that a server calls its model by, and its context; an adapter has a parent, and is not the model."""
    what = "say which model it serves"
    answer = client.get(wire.MODELS, what=what, timeout=timeout)
    rows = _dig(answer, "data")
    for row in rows if isinstance(rows, list) else ():
        name, context = _dig(row, "id"), _dig(row, "max_model_len")
        if isinstance(name, str) and _dig(row, "parent") is None:
            return name, context if type(context) is int else None
    raise ServerFault(f"the server {client.url} did not {what} (no model with an id in its answer); is it vLLM?")


def _ask_label(client: ServerClient, timeout: float) -> str:
    what = "say which weights it holds"
    try:
        label = _dig(client.get(wire.WEIGHT_INFO, what=what, timeout=timeout), "weight_version")
    except ServerFault as fault:
        if fault.status == NO_ROUTE:
            raise ServerFault(
                f"the server {client.url} has no routes for weights; start it with {VLLM_FLAGS}, or with `groupwise "
                "serve`"
            ) from None
        raise
    if not isinstance(label, str):
        raise ServerFault(f"the server {client.url} did not {what} (no weight_version in its answer); is it vLLM?")
    return label


def _ask_optional(client: ServerClient, path: str, timeout: float) -> Any:
    return ask_optional_route(lambda: client.get(path, what="say what it is", timeout=timeout))


def _read_info(client: ServerClient, info: Any, model: str, label: str) -> ServerFacts:
    """What one of our own servers says of itself."""
    vocabulary, context, precision = (_dig(info, name) for name in ("vocabulary", "context", "precision"))
    gives = _dig(info, "gives")
    if (
        type(vocabulary) is not int
        or not isinstance(precision, str)
        or not (context is None or type(context) is int)
        or not (isinstance(gives, list) and all(gift in GIFTS for gift in gives))
    ):
        raise ServerFault(
            f"the server {client.url} did not say what it is ({quote_line(str(info), limit=200)}); is it of another "
            "version of groupwise?"
        )
    return ServerFacts(
        model=model,
        context=context,
        vocabulary=vocabulary,
        precision=precision,
        gives=frozenset(gives),
        takes_batches=True,
        label=label,
        logprobs_mode=None,
    )


def _has_vocabulary(client: ServerClient, model: str, size: int, timeout: float) -> bool:
    """Whether a server knows exactly so many tokens, where it does not say: the last is known to it, the next is not.

    The ids are named in a setting that is checked against the vocabulary and never read: an id beyond it in a prompt
    ends some servers.
    """
    return _knows_token(client, model, size - 1, timeout) and not _knows_token(client, model, size, timeout)


def _knows_token(client: ServerClient, model: str, token: int, timeout: float) -> bool:
    question = wire.write_generate(Request(prompt_ids=(0,), seed=0, max_tokens=1), model=model)
    question["sampling_params"]["logit_bias"] = {str(token): 0.0}
    try:
        client.post(wire.GENERATE, question, what="say which tokens it knows", timeout=timeout)
    except RequestRefusedFault:
        return False
    return True


def _dig(value: Any, *names: str) -> Any:
    """What lies under names within JSON; None where nothing does."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value
