"""The routes of a server: those of vLLM 0.32 that a run uses, and three of our own that work in batches."""

from __future__ import annotations

import hashlib
import math
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from groupwise.data.samples import PromptAndResponse
from groupwise.engines.engine import Engine, Generation, Request
from groupwise.models.folder import ADAPTER_WEIGHTS, name_as_stored
from groupwise.system.errors import EngineFault
from groupwise.system.text import quote_line

if TYPE_CHECKING:
    import torch

Body = Mapping[str, Any]
Query = Mapping[str, str]
Route = Callable[[Body, Query], dict[str, Any]]


class Routes:
    """Answers by method and path; each answer is an object of JSON."""

    def __init__(self, model: ServedModel, *, takes_batches: bool = True) -> None:
        """Without `takes_batches` there are vLLM's routes alone, and requests come one by one."""
        self._model = model
        self._adapter = ""
        self._table: dict[tuple[str, str], Route] = {
            ("GET", "/health"): lambda body, query: {"status": "healthy"},
            ("GET", "/v1/models"): self._list_models,
            ("GET", "/weight_info"): lambda body, query: {"weight_version": str(model.version)},
            ("POST", "/inference/v1/generate"): self._generate_single,
            ("POST", "/pause"): self._pause,
            ("POST", "/resume"): self._resume,
            ("GET", "/is_paused"): lambda body, query: {"is_paused": model.is_paused},
            ("POST", "/init_weight_transfer_engine"): lambda body, query: {"message": "nothing to prepare"},
            ("POST", "/start_weight_update"): self._start_update,
            ("POST", "/update_weights"): self._update_weights,
            ("POST", "/finish_weight_update"): self._finish_update,
            # `load` has forgotten what old weights computed; a vLLM server has not, and must be told.
            ("POST", "/reset_prefix_cache"): lambda body, query: {"message": "nothing of older weights is kept"},
            ("POST", "/weight_checker"): self._check_weights,
            ("POST", "/v1/load_lora_adapter"): self._load_adapter,
            ("POST", "/v1/unload_lora_adapter"): lambda body, query: {"message": "older adapters are not kept"},
        }
        if takes_batches:
            self._table |= {
                ("GET", "/groupwise/v1/info"): self._describe,
                ("POST", "/groupwise/v1/generate"): self._generate_batch,
                ("POST", "/groupwise/v1/score"): self._score_batch,
            }

    def answer(self, method: str, path: str, query: Query, body: Body) -> dict[str, Any]:
        """Answer a call; RefusedRequest where there is no such route, or the request cannot be meant."""
        route = self._table.get((method, path))
        if route is not None:
            return route(body, query)
        others = [known for known, place in self._table if place == path]
        if others:
            raise RefusedRequest(f"{path} is called with {others[0]}, not {quote_line(method)}", status=405)
        raise RefusedRequest(f"there is no {quote_line(path)} here", status=404)

    def _list_models(self, body: Body, query: Query) -> dict[str, Any]:
        card = self._model.card
        entry = {"id": card.name, "object": "model", "root": card.root, "max_model_len": self._model.context}
        return {"object": "list", "data": [entry]}

    def _describe(self, body: Body, query: Query) -> dict[str, Any]:
        model, card = self._model, self._model.card
        return {
            "model": card.name,
            "root": card.root,
            "gives": sorted(model.gives),
            "precision": card.precision,
            "dtype": card.dtype,
            "vocabulary": card.vocabulary,
            "context": model.context,
            "version": model.version,
        }

    def _generate_batch(self, body: Body, query: Query) -> dict[str, Any]:
        vocabulary = self._model.card.vocabulary
        requests = [read_request(fields, vocabulary=vocabulary) for fields in read_list(body, "requests")]
        return {"generations": [write_generation(answer) for answer in self._model.generate(requests)]}

    def _score_batch(self, body: Body, query: Query) -> dict[str, Any]:
        vocabulary, sequences = self._model.card.vocabulary, []
        for pair in read_list(body, "sequences"):
            if not isinstance(pair, list) or len(pair) != 2:
                raise RefusedRequest("a sequence is no pair; give [prompt_ids, response_ids]")
            prompt = read_ids(pair[0], "prompt_ids", vocabulary=vocabulary, minimum=1)
            sequences.append((prompt, read_ids(pair[1], "response_ids", vocabulary=vocabulary)))
        temperature = read_temperature(body.get("temperature", 1.0))
        if not temperature:
            raise RefusedRequest("temperature is 0; log-probs need a positive one")
        return {"scores": self._model.score(sequences, temperature=temperature)}

    def _generate_single(self, body: Body, query: Query) -> dict[str, Any]:
        name = body.get("model") or self._model.card.name
        if name not in (self._model.card.name, self._adapter):
            raise RefusedRequest(
                f"there is no model {quote_line(str(name))!r} here, only {self._model.card.name!r}", status=404
            )
        single = read_single_request(body, vocabulary=self._model.card.vocabulary)
        ids, temperature = single.request.prompt_ids, single.request.temperature
        [answer] = self._model.generate([single.request])
        named = self._model.score([(ids, (token,)) for token in single.named_ids], temperature=temperature or 1.0)
        logps = {token: logp for token, (logp,) in zip(single.named_ids, named, strict=True)}
        message: dict[str, Any] = {"model": name, "choices": [write_choice(answer, named=logps)]}
        if single.wants_prompt:  # at temperature 1, as vLLM gives them
            [scores] = self._model.score([(ids[:1], ids[1:])], temperature=1.0)
            message["prompt_logprobs"] = write_prompt_logprobs(ids, scores)
        return message

    def _pause(self, body: Body, query: Query) -> dict[str, Any]:
        mode = query.get("mode", "keep")
        if mode not in ("keep", "wait"):
            raise RefusedRequest(f"mode is {quote_line(mode)!r}; give 'keep', since nothing is given up half-way here")
        self._model.pause()
        return {"status": "paused"}

    def _resume(self, body: Body, query: Query) -> dict[str, Any]:
        self._model.resume()
        return {"status": "resumed"}

    def _start_update(self, body: Body, query: Query) -> dict[str, Any]:
        self._model.start_update()
        return {"message": "started"}

    def _update_weights(self, body: Body, query: Query) -> dict[str, Any]:
        update = body.get("update_info")
        if not isinstance(update, dict):
            raise RefusedRequest("update_info is missing; give an object with the path of a safetensors file")
        self._model.stage_file(read_text(update, "path"))
        return {"message": "read"}

    def _finish_update(self, body: Body, query: Query) -> dict[str, Any]:
        self._model.finish_update(read_version(body.get("weight_version")))
        return {"message": "finished"}

    def _check_weights(self, body: Body, query: Query) -> dict[str, Any]:
        if body.get("action") != "checksum":
            raise RefusedRequest("action is not 'checksum', the only one here")
        return {"checksums": self._model.compute_checksums()}

    def _load_adapter(self, body: Body, query: Query) -> dict[str, Any]:
        """Take an adapter over; its name ends with the version of its weights, and requests call it by its name."""
        name = read_text(body, "lora_name")
        version = name.rpartition("-")[2]
        self._model.load_adapter(read_text(body, "lora_path"), read_version(version))
        self._adapter = name
        return {"message": f"adapter {name} is in use"}


# What a server is asked and what it answers, as JSON; a request that cannot be meant is refused in one sentence.

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


# A model behind HTTP: one thread that computes, a gate that closes while weights arrive, and the version in use.

MAX_PAUSE = 600.0
"""Seconds that a request waits at a closed gate before it is told so."""

Answer = TypeVar("Answer")


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """What a server says of its model."""

    name: str
    """What requests call it."""
    root: str
    """The folder or hub name that it was loaded from."""
    precision: str
    """What the engine computes in."""
    dtype: str
    """What its weights are kept in; an adapter's may be wider."""
    vocabulary: int
    """How many token ids it has."""


class ServedModel:
    """An engine that many connections share.

    One thread computes, whoever asks: what is asked together is answered together, and nothing else is in that batch.
    """

    def __init__(
        self,
        open_engine: Callable[[], Engine],
        parameters: Callable[[], Mapping[str, torch.Tensor]],
        card: ModelCard,
    ) -> None:
        """`open_engine` is called in the thread that computes; `parameters` are the model's weights as they stand."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="engine")
        self._engine = self._compute(open_engine)
        self._parameters = parameters
        self._is_open = threading.Event()
        self._is_open.set()
        self._staged: dict[str, torch.Tensor] | None = None
        self.card = card

    @property
    def gives(self) -> frozenset[str]:
        """What the engine gives beside tokens and log-probs."""
        return self._engine.gives

    @property
    def context(self) -> int | None:
        """How many tokens a prompt and its response may have together."""
        return self._engine.context

    @property
    def version(self) -> int:
        """Version of the weights in use."""
        return self._engine.version

    @property
    def is_paused(self) -> bool:
        """Whether requests wait."""
        return not self._is_open.is_set()

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """Answer requests as one batch."""
        for request in requests:
            self._check_length(len(request.prompt_ids) + request.max_tokens)
        self._wait_at_gate()
        return self._compute(lambda: self._engine.generate(requests))

    def score(self, sequences: Sequence[PromptAndResponse], *, temperature: float) -> list[tuple[float, ...]]:
        """Score sequences as one batch."""
        for prompt, response in sequences:
            self._check_length(len(prompt) + len(response))
        self._wait_at_gate()
        return self._compute(lambda: self._engine.score(sequences, temperature=temperature))

    def pause(self) -> None:
        """Let requests wait from now on; what is being computed is finished first."""
        self._is_open.clear()

    def resume(self) -> None:
        """Let requests through again."""
        self._is_open.set()

    def start_update(self) -> None:
        """Begin an update of the weights; one that was begun and never finished is forgotten."""
        self._staged = {}

    def stage_file(self, path: str) -> None:
        """Read weights from a safetensors file; they are used once the update is finished."""
        if self._staged is None:
            raise RefusedRequest("no update of the weights was started; call /start_weight_update first", status=409)
        self._staged |= self._read_weights(Path(path))

    def finish_update(self, version: int) -> None:
        """Use the weights that were read, as a version."""
        if self._staged is None:
            raise RefusedRequest("no update of the weights was started; call /start_weight_update first", status=409)
        staged, self._staged = self._staged, None
        self._compute(lambda: self._engine.load(staged, version=version))

    def load_adapter(self, folder: str, version: int) -> None:
        """Use the weights of a LoRA adapter's folder, as a version; the model must have such an adapter already."""
        stored = self._read_file(Path(folder) / ADAPTER_WEIGHTS)
        own = {name_as_stored(name): name for name in self._parameters()}
        weights = {own.get(name, name): value for name, value in stored.items()}
        self._check_fit(weights)
        self._compute(lambda: self._engine.load(weights, version=version))

    def compute_checksums(self) -> dict[str, str]:
        """A digest of each weight, by name."""
        return self._compute(lambda: {name: _hash_tensor(value) for name, value in self._parameters().items()})

    def _compute(self, work: Callable[[], Answer]) -> Answer:
        return self._thread.submit(work).result()

    def _wait_at_gate(self) -> None:
        if not self._is_open.wait(MAX_PAUSE):
            raise RefusedRequest(f"paused for {MAX_PAUSE:g} seconds, and nobody called /resume", status=503)

    def _check_length(self, num_tokens: int) -> None:
        if self.context is not None and num_tokens > self.context:
            raise RefusedRequest(f"{num_tokens} tokens were asked for, but the model's context is {self.context}")

    def _read_weights(self, path: Path) -> dict[str, torch.Tensor]:
        weights = self._read_file(path)
        self._check_fit(weights)
        return weights

    def _read_file(self, path: Path) -> dict[str, torch.Tensor]:
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(path)
        except (OSError, SafetensorError) as error:
            reason = quote_line(str(getattr(error, "strerror", None) or error), limit=200)
            raise RefusedRequest(
                f"the weights at {quote_line(str(path))} cannot be read here ({reason}); hand them over through a "
                "folder that this server sees too"
            ) from None

    def _check_fit(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Refuse weights of another model, whole: a model that has taken half of them over is none at all."""
        own = self._parameters()
        for name, value in weights.items():
            if name not in own:
                raise RefusedRequest(
                    f"it serves another model, which has no weight {quote_line(name)!r}; start it with the run's own"
                )
            if value.shape != own[name].shape:
                raise RefusedRequest(
                    f"it serves another model, whose {quote_line(name)} has the shape {tuple(own[name].shape)} and not "
                    f"{tuple(value.shape)}; start it with the run's own"
                )


def _hash_tensor(value: torch.Tensor) -> str:
    import torch

    plain = value.detach().cpu().contiguous().flatten()
    return hashlib.sha256(plain.view(torch.uint8).numpy().tobytes()).hexdigest()
