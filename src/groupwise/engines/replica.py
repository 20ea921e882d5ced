"""One server as the engine sees it: its calls, its weights and its counters."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, TypeVar

from groupwise.data.samples import PromptAndResponse
from groupwise.engines import messages as wire
from groupwise.engines.engine import Generation, Request, VersionSpan
from groupwise.engines.http_client import (
    Read,
    RequestRefusedFault,
    ServerClient,
    ServerFault,
    ask_optional_route,
    read_json,
    read_nothing,
)
from groupwise.parts.slots import SCORES, TRUNCATION, VERSIONS
from groupwise.system.errors import ConfigError, EngineFault
from groupwise.system.text import quote_line

if TYPE_CHECKING:
    from groupwise.engines.model_source import ModelSource

DYING_SECONDS = 30.0
"""How long a failed process is watched: if one of its workers died, it may take a while to end."""
DYING_POLL_SECONDS = 0.1
RESUME_SECONDS = 10.0

CHECKSUM_BYTES = 2**24

State = Literal["in", "on trial", "out"]
Answer = TypeVar("Answer")


class StartedServer(Protocol):
    """A server that was started here."""

    @property
    def url(self) -> str:
        """Its URL; it may change when the server is restarted."""

    def is_running(self) -> bool:
        """Whether the process is alive; it may not answer yet."""

    def start_again(self) -> None:
        """Restart a dead process and return at once. The next weight sync checks whether it answers."""

    def stop(self) -> None:
        """End it; it may have ended already."""


TALLY = ("requests", "tokens", "seconds", "faults", "sync_seconds")
"""The counters of a replica: answered requests, sampled tokens, total time of its requests, failed requests and weight
syncs, and time of its weight syncs."""


class Replica:
    """A server, its state, and the labels of the weights of its weight syncs.

    Worked example: a server dies, so it is `out`. At the next weight sync it runs again and loads the weights: it is
    `on trial`. It passes the weight check: it is `in`, and answers requests.
    """

    def __init__(
        self,
        number: int,
        client: ServerClient,
        info: ServerInfo,
        *,
        vocabulary: int,
        request_timeout: float,
        sync_timeout: float,
        process: StartedServer | None = None,
    ) -> None:
        self.number, self.client, self.info, self.process = number, client, info, process
        self.state: State = "in"
        self.membership = 0
        """How often it was dismissed: the result of an earlier call says nothing about a server that returned since."""
        self._tally, self._tally_lock = dict.fromkeys(TALLY, 0.0), threading.Lock()
        self._vocabulary = vocabulary
        self._request_timeout, self._sync_timeout = request_timeout, sync_timeout
        self._handed, self._current = [(info.label, 0)], 0
        self._model = info.model
        self._adapters, self._adapter_versions, self._adapters_taken = list[str](), dict[str, int](), 0
        self._is_initialised = False
        self._is_reviving, self._is_given_up = False, threading.Event()

    @property
    def name(self) -> str:
        return f"replica {self.number} ({self.client.url})"

    @property
    def version(self) -> int:
        return self._adapter_versions[self._adapters[-1]] if self._adapters else self._handed[self._current][1]

    def count(self, **amounts: float) -> None:
        with self._tally_lock:
            for name, amount in amounts.items():
                self._tally[name] += amount

    def take_tally(self) -> dict[str, float]:
        with self._tally_lock:
            tally, self._tally = self._tally, dict.fromkeys(TALLY, 0.0)
            return tally

    def generate(self, request: Request) -> Generation:
        since, model = self._current, self._model
        question = wire.write_generate(request, model=model)
        read = partial(wire.read_generate, request=request, vocabulary=self._vocabulary)
        response = self._ask(wire.GENERATE, question, "answer a request", request.max_tokens, read)
        self.count(requests=1, tokens=len(response.generation.response_ids))
        return self._name_versions(response, since, model)

    def generate_batch(self, requests: Sequence[Request]) -> list[Generation]:
        since, num_tokens = self._current, sum(request.max_tokens for request in requests)
        question = wire.BatchQuestion(requests=tuple(requests))
        read = partial(wire.read_batch, requests=requests, vocabulary=self._vocabulary)
        responses = self._ask(wire.BATCH_GENERATE, question, "answer a batch", num_tokens, read)
        self.count(requests=len(requests), tokens=sum(len(answer.response_ids) for answer, _ in responses))
        return [self._name_versions(response, since, self.info.model) for response in responses]

    def score(self, sequences: Sequence[PromptAndResponse], *, temperature: float = 1.0) -> list[tuple[float, ...]]:
        """Log-probs as sampling would report them, by way of the server's prefix cache.

        The weight check calls this. So it finds keys and values of old weights that a weight sync left in the cache.
        """
        if self.info.takes_batches:
            return self.score_batch(sequences, temperature)
        return [self._score_by_token(prompt, response, temperature) for prompt, response in sequences]

    def score_batch(self, sequences: Sequence[PromptAndResponse], temperature: float) -> list[tuple[float, ...]]:
        num_tokens = sum(len(response) for _, response in sequences)
        pairs = [(list(prompt), list(response)) for prompt, response in sequences]
        question, read = {"sequences": pairs, "temperature": temperature}, partial(wire.read_scores, sequences=pairs)
        return self._ask(wire.BATCH_SCORE, question, "score a batch", num_tokens, read)

    def score_pair(self, prompt: Sequence[int], response: Sequence[int], temperature: float) -> tuple[float, ...]:
        """Score one response: in one call at temperature 1 without an adapter, else token by token.

        A vLLM server with adapters may crash if it reads a prompt's log-probs while other requests decode. If the
        context is full, there is no room for the token that must be sampled after the prompt.
        """
        since, num_tokens = self._current, len(prompt) + len(response)
        is_full = self.info.context is not None and num_tokens >= self.info.context
        if temperature != 1.0 or self._adapters or is_full or not response:
            return self._score_by_token(prompt, response, temperature)
        question = wire.write_score(prompt, response, model=self._model)
        read = partial(wire.read_score, prompt=prompt, response=response)
        logps, label = self._ask(wire.GENERATE, question, "score a response", num_tokens, read)
        self._find_version(label, since)
        return logps

    def _score_by_token(self, prompt: Sequence[int], response: Sequence[int], temperature: float) -> tuple[float, ...]:
        since, logps = self._current, list[float]()
        for place, token in enumerate(response):
            read_so_far = [*prompt, *response[:place]]
            question = wire.write_next_score(read_so_far, token, model=self._model, temperature=temperature)
            read = partial(wire.read_next_score, token=token)
            logp, label = self._ask(wire.GENERATE, question, "score a token", 8, read)
            self._find_version(label, since)
            logps.append(logp)
        return tuple(logps)

    def take_file(self, path: Path, *, version: int, label: str) -> None:
        """Load the weights of a safetensors file; the server must see its path too."""
        with self.hold_still(version=version, label=label) as deadline:
            if not self._is_initialised:
                self._prepare(deadline)
            self._step(deadline, "/start_weight_update", None, "start to load new weights")
            self._step(deadline, "/update_weights", {"update_info": {"path": str(path)}}, f"read weights from {path}")
            self._step(deadline, "/finish_weight_update", {"weight_version": label}, "finish loading new weights")

    @contextmanager
    def hold_still(self, *, version: int, label: str) -> Iterator[float]:
        """Pause the server while it loads weights, reset its prefix cache, and resume it; gives the deadline."""
        deadline = time.monotonic() + self._sync_timeout
        self._handed.append((label, version))  # before the start: running requests may name it from now on
        self._adapters.clear()
        self._model = self.info.model
        # vLLM could reset the prefix cache when it pauses. It is reset later, when the new weights are there.
        self._step(deadline, "/pause?mode=keep&clear_cache=false", None, "pause")
        try:
            yield deadline
            # Paused requests hold keys and values of the old weights; vLLM resets nothing unless they are reset too.
            path = "/reset_prefix_cache?reset_running_requests=true"
            answer = self._step(deadline, path, None, "reset its prefix cache")
            if _dig(answer, "success") is False:
                raise ServerFault(
                    f"the server {self.client.url} did not reset its prefix cache (it says so); check its log"
                )
        except Exception:
            let_go_on(self.client, self._handed[self._current][0], timeout=RESUME_SECONDS)  # else it stays paused
            raise
        self._step(deadline, "/resume", None, "resume")
        what, timeout = "say which weights it holds", _count_seconds_left(deadline)
        held = self.client.get(wire.WEIGHT_INFO, what=what, timeout=timeout, read=wire.read_label)
        if held != label:
            self._fail_on_version(held, label)
        self._current = len(self._handed) - 1

    def take_adapter(self, folder: Path, *, version: int, label: str) -> None:
        """Load an adapter's folder, which the server must see too; later requests name it.

        Running requests continue with their adapter, so the previous one stays until the next weight sync.
        """
        deadline = time.monotonic() + self._sync_timeout
        # Each weight sync has its own name: vLLM caches prefixes by adapter name, and an adapter that may be loaded in
        # place is read from its folder again at every step.
        self._adapters_taken += 1
        name = f"{self.info.model}-{self._adapters_taken}-{label}"
        self._handed.append((label, version))  # the label of groupwise servers; vLLM names the weights below it
        question = {"lora_name": name, "lora_path": str(folder)}
        self._step(deadline, "/v1/load_lora_adapter", question, f"read an adapter from {folder}", read=read_nothing)
        self._adapter_versions[name] = version
        self._adapters.append(name)
        self._model = name
        for old in self._adapters[:-2]:
            question = {"lora_name": old}
            self._step(deadline, "/v1/unload_lora_adapter", question, "unload an old adapter", read=read_nothing)
        del self._adapters[:-2]

    def read_checksums(self) -> dict[str, Any] | None:
        """Checksums of the server's weights by its own parameter names; None if it has no such route."""
        ask = partial(self.client.post, "/weight_checker", {"action": "checksum"}, max_bytes=CHECKSUM_BYTES)
        ask = partial(ask, what="compute checksums of its weights", timeout=self._sync_timeout)
        checksums = _dig(ask_optional_route(ask), "checksums")
        return checksums if isinstance(checksums, dict) else None

    def revive(self) -> None:
        """In the background, restart a process that was started here, once it has ended."""
        process = self.process
        with self._tally_lock:
            if process is None or self._is_reviving:
                return
            self._is_reviving = True

        def restart() -> None:
            # The process may end some seconds after its last answer.
            deadline = time.monotonic() + DYING_SECONDS
            try:
                while process.is_running():
                    if self._is_given_up.wait(DYING_POLL_SECONDS) or time.monotonic() > deadline:
                        return  # it is alive: the next weight sync checks whether it answers
                if not self._is_given_up.is_set():
                    process.start_again()
            finally:
                self._is_reviving = False

        threading.Thread(target=restart, daemon=True, name=f"revive {self.name}").start()

    def give_up(self) -> None:
        self._is_given_up.set()
        self.client.abort()

    def look_again(self, describe: Callable[[ServerClient], ServerInfo]) -> None:
        """Check whether a server that was out answers again; raise a fault if not."""
        if self.process is not None and self.process.url.rstrip("/") != self.client.url:
            self.client.abort()
            self.client = ServerClient(self.process.url)
        self.client.check_health()
        self.info = describe(self.client)
        self._handed, self._current, self._is_initialised = [(self.info.label, 0)], 0, False
        self._model, self._adapters = self.info.model, []

    def _prepare(self, deadline: float) -> None:
        try:
            self._step(deadline, "/init_weight_transfer_engine", {"init_info": {}}, "prepare for new weights")
        except ServerFault as fault:
            if fault.status is None:
                raise
            reason = quote_line(str(fault), limit=200)
            raise ServerFault(
                f"the server {self.client.url} cannot load weights from a file ({reason}); start it with `groupwise "
                "serve`, or install groupwise without its dependencies beside vLLM, and start it with "
                '--weight-transfer-config \'{"backend": "groupwise_file"}\'',
                status=fault.status,
            ) from None
        self._is_initialised = True

    def _step(self, deadline: float, path: str, question: Any, what: str, *, read: Read = read_json) -> Any:
        """A step of a weight sync. A refusal counts as this server's fault: other servers may accept the step."""
        try:
            seconds = _count_seconds_left(deadline)
            return self.client.post(path, question or {}, what=what, timeout=seconds, is_fresh=True, read=read)
        except RequestRefusedFault as fault:
            raise ServerFault(str(fault)) from None

    def _ask(self, path: str, question: Any, what: str, num_tokens: int, read: Callable[[bytes], Answer]) -> Answer:
        limit, timeout, since = wire.limit_bytes(num_tokens), self._request_timeout, time.monotonic()
        answer: Answer = self.client.post(path, question, what=what, timeout=timeout, max_bytes=limit, read=read)
        self.count(seconds=time.monotonic() - since)
        return answer

    def _name_versions(self, response: wire.SampledResponse, since: int, model: str) -> Generation:
        """A response with its versions; the server had the `since`-th weights when the request was sent."""
        generation, spans = response
        num_tokens = len(generation.response_ids)
        versions = tuple(VersionSpan(self._find_version(label, since), tokens) for label, tokens in spans)
        if model in self._adapter_versions:
            return replace(generation, versions=(VersionSpan(self._adapter_versions[model], num_tokens),))
        if versions:
            return replace(generation, versions=versions)
        if len(self._handed) - 1 != since:  # more weight syncs, or counted anew because it was out meanwhile
            raise ServerFault(
                f"the server {self.client.url} does not report weight versions, and a weight sync happened while it "
                "answered; use a newer server, or rollout.lag = 1"
            )
        return replace(generation, versions=(VersionSpan(self._handed[since][1], num_tokens),))

    def _find_version(self, label: str | None, since: int) -> int:
        """The version of a label; not checked if the server gives no label."""
        for held, version in self._handed[since:]:
            if label in (held, None):
                return version
        return self._fail_on_version(str(label), self._handed[-1][0])

    def _fail_on_version(self, label: str, needed: str) -> NoReturn:
        raise ServerFault(
            f"the server {self.client.url} has the weights {quote_line(label, limit=60)!r}, but {needed!r} were "
            "synced; does another run use this server?"
        )


def _count_seconds_left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)


# The description of a server, and the check whether a run can use it.

VLLM_FLAGS = "VLLM_SERVER_DEV_MODE=1 and --enable-scale-out"
NO_ROUTE = 404
PROCESSED = "processed_logprobs"


@dataclass(frozen=True, kw_only=True)
class ServerInfo:
    """A server's description of itself; None = it does not say."""

    model: str
    label: str
    context: int | None
    """Maximum number of tokens of a prompt and its response together."""
    precision: str | None
    gives: frozenset[str] = frozenset({SCORES, VERSIONS, TRUNCATION})
    """The outputs of its answers in addition to tokens and log-probs."""
    vocabulary: int | None = None
    takes_batches: bool = False
    """Whether it answers a list of requests as one batch."""
    logprobs_mode: str | None = None
    """vLLM's name for the kind of log-probs that it reports."""


def ask_server(client: ServerClient, *, timeout: float) -> ServerInfo:
    model, context = client.get(wire.MODELS, what="say which model it serves", timeout=timeout, read=wire.read_model)
    try:
        label = client.get(wire.WEIGHT_INFO, what="say which weights it holds", timeout=timeout, read=wire.read_label)
    except ServerFault as fault:
        if fault.status != NO_ROUTE:
            raise
        raise ServerFault(
            f"the server {client.url} has no routes for weight syncs; start it with {VLLM_FLAGS}, or with `groupwise "
            "serve`"
        ) from None
    info = _ask_optional(client, wire.BATCH_INFO, timeout, read=wire.ServerInfo.model_validate_json)
    if info is not None:
        return ServerInfo(
            model=model,
            label=label,
            context=info.context,
            precision=info.precision,
            gives=frozenset(info.gives),
            vocabulary=info.vocabulary,
            takes_batches=True,
        )
    settings = _dig(_ask_optional(client, wire.SERVER_INFO, timeout), "vllm_config", "model_config")
    dtype, mode = _dig(settings, "dtype"), _dig(settings, "logprobs_mode")
    return ServerInfo(
        model=model,
        label=label,
        context=context,
        precision=dtype.removeprefix("torch.") if isinstance(dtype, str) else None,
        logprobs_mode=mode if isinstance(mode, str) else None,
    )


def check_server(client: ServerClient, info: ServerInfo, source: ModelSource, precision: str, timeout: float) -> None:
    size = int(source.model.config.get_text_config().vocab_size)
    where = f"engine.urls: the server {client.url}"
    if info.context is not None and info.context < 2:
        raise ConfigError(f"{where} has a context of {info.context} tokens, too small for a prompt and a response")
    if info.vocabulary is not None and info.vocabulary != size:
        raise ConfigError(
            f"{where} has a vocabulary of {info.vocabulary} tokens, but the run's model has {size}; start it with the "
            "run's model"
        )
    if _dig(_ask_optional(client, wire.IS_PAUSED, timeout), "is_paused") is True:  # a run was killed in a weight sync
        let_go_on(client, info.label, timeout=timeout)

    def knows(token: int) -> bool:
        # The token is in a setting that is checked against the vocabulary but has no effect. An id beyond the
        # vocabulary in a prompt crashes some servers.
        question = wire.write_generate(Request(prompt_ids=(0,), seed=0, max_tokens=1), model=info.model)
        question["sampling_params"]["logit_bias"] = {str(token): 0.0}
        try:
            client.post(wire.GENERATE, question, what="say which tokens it knows", timeout=timeout)
        except RequestRefusedFault:
            return False
        return True

    # If a server does not give the size of its vocabulary, it must know the last token and not the next.
    if info.vocabulary is None and not (knows(size - 1) and not knows(size)):
        raise ConfigError(f"{where} does not have the {size} tokens of the run's model; start it with the run's model")
    if info.precision is not None and info.precision != precision:
        raise ConfigError(
            f"{where} computes in {quote_line(info.precision, limit=40)}, but engine.precision is {precision}; start "
            "the server with that dtype, or change the setting"
        )
    if info.logprobs_mode is not None and info.logprobs_mode != PROCESSED:
        raise ConfigError(
            f"{where} reports {quote_line(info.logprobs_mode, limit=40)}, but log-probs at the sampling temperature "
            f"are needed; start it with --logprobs-mode {PROCESSED}"
        )


def let_go_on(client: ServerClient, label: str, *, timeout: float) -> None:
    """Resume a server after an incomplete weight sync; `label` is that of its earlier weights.

    The update is finished first: a vLLM server that answers in the middle of an update crashes, and one that never
    finishes it loads no further weights. If no update was started, the server refuses this step, which does no harm.
    """
    for path, question in (("/finish_weight_update", {"weight_version": label}), ("/resume", {})):
        with suppress(EngineFault):
            client.post(path, question, what="resume after a weight sync", timeout=timeout, is_fresh=True)


def _ask_optional(client: ServerClient, path: str, timeout: float, *, read: Read = read_json) -> Any:
    return ask_optional_route(lambda: client.get(path, what="say what it is", timeout=timeout, read=read))


def _dig(value: Any, *names: str) -> Any:
    """The value at a path of names in JSON; None if there is none."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value
