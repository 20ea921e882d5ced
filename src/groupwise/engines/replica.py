"""One server as the engine sees it: what it is asked, which weights it holds, and how much it did."""

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
from groupwise.parts.slots import SCORES, VERSIONS
from groupwise.system.errors import ConfigError, EngineFault
from groupwise.system.text import quote_line

if TYPE_CHECKING:
    from groupwise.engines.model_source import ModelSource

DYING_SECONDS = 30.0
"""How long a process that failed is watched: one that lost a part of itself may take a while to end."""
DYING_POLL_SECONDS = 0.1
RESUME_SECONDS = 10.0
"""How long a server may take to go on after a hand-over that failed."""

CHECKSUM_BYTES = 2**24
"""How long an answer with the digests of all weights may be; a digest and a name each."""

State = Literal["in", "on trial", "out"]
Answer = TypeVar("Answer")


class StartedServer(Protocol):
    """A server that was started here."""

    @property
    def url(self) -> str:
        """Where it listens; another one may be known after it was started again."""

    def is_running(self) -> bool:
        """Whether the process lives; it may not answer yet."""

    def start_again(self) -> None:
        """Start a process that died, and return at once: whether it answers is asked at the next hand-over."""

    def stop(self) -> None:
        """End it; once it is ended, nothing happens."""


TALLY = ("requests", "tokens", "seconds", "faults", "handover_seconds")
"""What a replica counts: requests that it answered, tokens that it sampled, the time that its requests took in all,
requests and hand-overs that it failed at, and the time of its hand-overs."""


class Replica:
    """A server, its state, and the labels of the weights that it was handed.

    Worked example: a server that dies is `out`. At the next hand-over it is well again and takes the weights: it is
    `on trial`. It agrees with the learner on the canary's prompt: it is `in`, and answers requests.
    """

    def __init__(
        self,
        number: int,
        client: ServerClient,
        facts: ServerFacts,
        *,
        vocabulary: int,
        request_timeout: float,
        handover_timeout: float,
        process: StartedServer | None = None,
    ) -> None:
        self.number, self.client, self.facts, self.process = number, client, facts, process
        self.state: State = "in"
        self.membership = 0
        """How often it has left: what was asked before says nothing of a server that came back since."""
        self._tally, self._tally_lock = dict.fromkeys(TALLY, 0.0), threading.Lock()
        self._vocabulary = vocabulary
        self._request_timeout, self._handover_timeout = request_timeout, handover_timeout
        self._handed, self._current = [(facts.label, 0)], 0
        self._model = facts.model
        self._adapters, self._adapter_versions, self._adapters_taken = list[str](), dict[str, int](), 0
        self._is_initialised = False
        self._is_reviving, self._is_given_up = False, threading.Event()

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return f"replica {self.number} ({self.client.url})"

    @property
    def version(self) -> int:
        """Version of the weights that it was handed last."""
        return self._adapter_versions[self._adapters[-1]] if self._adapters else self._handed[self._current][1]

    def count(self, **amounts: float) -> None:
        """Add to what it did, by names of `TALLY`."""
        with self._tally_lock:
            for name, amount in amounts.items():
                self._tally[name] += amount

    def take_tally(self) -> dict[str, float]:
        """What it did since this was last asked."""
        with self._tally_lock:
            tally, self._tally = self._tally, dict.fromkeys(TALLY, 0.0)
            return tally

    def generate(self, request: Request) -> Generation:
        """Answer one request."""
        since, model = self._current, self._model
        question = wire.write_generate(request, model=model)
        read = partial(wire.read_generate, request=request, vocabulary=self._vocabulary)
        response = self._ask(wire.GENERATE, question, "answer a request", request.max_tokens, read)
        self.count(requests=1, tokens=len(response.generation.response_ids))
        return self._name_versions(response, since, model)

    def generate_batch(self, requests: Sequence[Request]) -> list[Generation]:
        """Answer requests together, as one batch."""
        since, num_tokens = self._current, sum(request.max_tokens for request in requests)
        question = wire.BatchQuestion(requests=tuple(requests))
        read = partial(wire.read_batch, requests=requests, vocabulary=self._vocabulary)
        responses = self._ask(wire.BATCH_GENERATE, question, "answer a batch", num_tokens, read)
        self.count(requests=len(requests), tokens=sum(len(answer.response_ids) for answer, _ in responses))
        return [self._name_versions(response, since, self.facts.model) for response in responses]

    def score(self, sequences: Sequence[PromptAndResponse], *, temperature: float = 1.0) -> list[tuple[float, ...]]:
        """Log-probs as sampling would report them, through whatever the server has kept of earlier prompts.

        The canary asks this, so that keys and values of old weights, left behind by a hand-over, are found.
        """
        if self.facts.takes_batches:
            return self.score_batch(sequences, temperature)
        return [self._score_by_token(prompt, response, temperature) for prompt, response in sequences]

    def score_batch(self, sequences: Sequence[PromptAndResponse], temperature: float) -> list[tuple[float, ...]]:
        """Score responses together, as one batch."""
        num_tokens = sum(len(response) for _, response in sequences)
        pairs = [(list(prompt), list(response)) for prompt, response in sequences]
        question, read = {"sequences": pairs, "temperature": temperature}, partial(wire.read_scores, sequences=pairs)
        return self._ask(wire.BATCH_SCORE, question, "score a batch", num_tokens, read)

    def score_pair(self, prompt: Sequence[int], response: Sequence[int], temperature: float) -> tuple[float, ...]:
        """Score one response: in one call where the server can, at temperature 1 and without an adapter.

        A server with adapters that reads a prompt's log-probs beside requests that decode may die of it. One whose
        context is full has no room for the token that must be sampled after the prompt.
        """
        since, num_tokens = self._current, len(prompt) + len(response)
        is_full = self.facts.context is not None and num_tokens >= self.facts.context
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
        """Take over the weights of a safetensors file that the server can read too."""
        with self.hold_still(version=version, label=label) as deadline:
            if not self._is_initialised:
                self._prepare(deadline)
            self._step(deadline, "/start_weight_update", None, "begin to take new weights")
            self._step(deadline, "/update_weights", {"update_info": {"path": str(path)}}, f"read weights from {path}")
            self._step(deadline, "/finish_weight_update", {"weight_version": label}, "finish taking new weights")

    @contextmanager
    def hold_still(self, *, version: int, label: str) -> Iterator[float]:
        """Let the server pause while it takes weights over, forget what old ones computed, and go on; the deadline."""
        deadline = time.monotonic() + self._handover_timeout
        self._handed.append((label, version))  # before it begins: answers under way may name it from here on
        self._adapters.clear()
        self._model = self.facts.model
        # vLLM would forget prefixes when it pauses; it is told to once the weights are there, and asked whether it did.
        self._step(deadline, "/pause?mode=keep&clear_cache=false", None, "pause")
        try:
            yield deadline
            # Requests that stand still hold keys and values of the old weights: vLLM resets nothing while they do.
            path = "/reset_prefix_cache?reset_running_requests=true"
            answer = self._step(deadline, path, None, "forget what old weights computed")
            if _dig(answer, "success") is False:
                raise ServerFault(
                    f"the server {self.client.url} did not forget what old weights computed (it says so); look into "
                    "its log"
                )
        except Exception:
            let_go_on(self.client, self._handed[self._current][0], timeout=RESUME_SECONDS)  # or it stands still
            raise
        self._step(deadline, "/resume", None, "go on")
        what, timeout = "say which weights it holds", _count_seconds_left(deadline)
        held = self.client.get(wire.WEIGHT_INFO, what=what, timeout=timeout, read=wire.read_label)
        if held != label:
            self._fail_on_version(held, label)
        self._current = len(self._handed) - 1

    def take_adapter(self, folder: Path, *, version: int, label: str) -> None:
        """Take over an adapter of a folder that the server can read too; requests name it from here on.

        Those under way go on with the adapter that they began with, so the one before stays until the next comes.
        """
        deadline = time.monotonic() + self._handover_timeout
        # A name of its own for each hand-over: vLLM keeps prefixes by an adapter's name, and one that may be loaded in
        # place is read from its folder again at every step.
        self._adapters_taken += 1
        name = f"{self.facts.model}-{self._adapters_taken}-{label}"
        self._handed.append((label, version))  # what servers of ours call it; others name the weights below it
        question = {"lora_name": name, "lora_path": str(folder)}
        self._step(deadline, "/v1/load_lora_adapter", question, f"read an adapter from {folder}", read=read_nothing)
        self._adapter_versions[name] = version
        self._adapters.append(name)
        self._model = name
        for old in self._adapters[:-2]:
            question = {"lora_name": old}
            self._step(deadline, "/v1/unload_lora_adapter", question, "put an old adapter away", read=read_nothing)
        del self._adapters[:-2]

    def read_checksums(self) -> dict[str, Any] | None:
        """Digests of the weights that the server computes with, by its own names for them; None where it has none."""
        ask = partial(self.client.post, "/weight_checker", {"action": "checksum"}, max_bytes=CHECKSUM_BYTES)
        what, timeout = "compute checksums of its weights", self._handover_timeout
        checksums = _dig(ask_optional_route(partial(ask, what=what, timeout=timeout)), "checksums")
        return checksums if isinstance(checksums, dict) else None

    def revive(self) -> None:
        """See to it, in the background, that a process which was started here and dies is started again."""
        with self._tally_lock:
            if self.process is None or self._is_reviving:
                return
            self._is_reviving = True
        threading.Thread(target=self._revive, args=(self.process,), daemon=True, name=f"revive {self.name}").start()

    def _revive(self, process: StartedServer) -> None:
        """Wait for the process's end, which may come some seconds after its last answer, and start it again."""
        deadline = time.monotonic() + DYING_SECONDS
        try:
            while process.is_running():
                if self._is_given_up.wait(DYING_POLL_SECONDS) or time.monotonic() > deadline:
                    return  # it lives: whether it is well is asked at the next hand-over
            if not self._is_given_up.is_set():
                process.start_again()
        finally:
            self._is_reviving = False

    def give_up(self) -> None:
        """End everything that is under way: the engine is closed."""
        self._is_given_up.set()
        self.client.abort()

    def look_again(self, describe: Callable[[ServerClient], ServerFacts]) -> None:
        """See whether a server that was out is well again; a fault where it is not."""
        if self.process is not None and self.process.url.rstrip("/") != self.client.url:
            self.client.abort()
            self.client = ServerClient(self.process.url)
        self.client.check_health()
        self.facts = describe(self.client)
        self._handed, self._current, self._is_initialised = [(self.facts.label, 0)], 0, False
        self._model, self._adapters = self.facts.model, []

    def _prepare(self, deadline: float) -> None:
        """Prepare a server for its first weights; refused by one that was started without our way in for them."""
        try:
            self._step(deadline, "/init_weight_transfer_engine", {"init_info": {}}, "prepare for new weights")
        except ServerFault as fault:
            if fault.status is None:
                raise
            reason = quote_line(str(fault), limit=200)
            raise ServerFault(
                f"the server {self.client.url} has no way in for weights from a file ({reason}); start it with "
                "`groupwise serve`, or install groupwise, without what it depends on, beside vLLM and start it "
                'with --weight-transfer-config \'{"backend": "groupwise_file"}\'',
                status=fault.status,
            ) from None
        self._is_initialised = True

    def _step(self, deadline: float, path: str, question: Any, what: str, *, read: Read = read_json) -> Any:
        """A step of a hand-over. What a server refuses here, it alone refuses: the others may take it."""
        try:
            seconds = _count_seconds_left(deadline)
            return self.client.post(path, question or {}, what=what, timeout=seconds, is_fresh=True, read=read)
        except RequestRefusedFault as fault:
            raise ServerFault(str(fault)) from None

    def _ask(self, path: str, question: Any, what: str, num_tokens: int, read: Callable[[bytes], Answer]) -> Answer:
        limit, since = wire.limit_bytes(num_tokens), time.monotonic()
        post = partial(self.client.post, path, question, what=what, timeout=self._request_timeout)
        answer: Answer = post(max_bytes=limit, read=read)
        self.count(seconds=time.monotonic() - since)
        return answer

    def _name_versions(self, response: wire.SampledResponse, since: int, model: str) -> Generation:
        """A response with its versions; the server held the `since`-th weights when its request was sent."""
        generation, spans = response
        num_tokens = len(generation.response_ids)
        versions = tuple(VersionSpan(self._find_version(label, since), tokens) for label, tokens in spans)
        if model in self._adapter_versions:
            return replace(generation, versions=(VersionSpan(self._adapter_versions[model], num_tokens),))
        if versions:
            return replace(generation, versions=versions)
        if len(self._handed) - 1 != since:  # more, or counted anew: it was out meanwhile
            raise ServerFault(
                f"the server {self.client.url} does not say which weights sampled which token, and new ones came while "
                "it answered; use a newer one, or rollout.lag = 1"
            )
        return replace(generation, versions=(VersionSpan(self._handed[since][1], num_tokens),))

    def _find_version(self, label: str | None, since: int) -> int:
        """The version that a label names; nothing is checked where a server says none."""
        for held, version in self._handed[since:]:
            if label in (held, None):
                return version
        return self._fail_on_version(str(label), self._handed[-1][0])

    def _fail_on_version(self, label: str, needed: str) -> NoReturn:
        raise ServerFault(
            f"the server {self.client.url} holds the weights {quote_line(label, limit=60)!r}, but {needed!r} were "
            "handed over; does another run use this server?"
        )


def _count_seconds_left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)


# Who a server is: its model, what it reads and computes in, what it can do; refused where a run cannot use it.

VLLM_FLAGS = "VLLM_SERVER_DEV_MODE=1 and --enable-scale-out"
NO_ROUTE = 404
PROCESSED = "processed_logprobs"


@dataclass(frozen=True, kw_only=True)
class ServerFacts:
    """What a server says of itself; None = it does not say."""

    model: str
    """The name that requests call the model by."""
    label: str
    """What it calls the weights that it holds."""
    context: int | None
    """How many tokens a prompt and its response may have together."""
    precision: str | None
    """What it computes in."""
    gives: frozenset[str] = frozenset({SCORES, VERSIONS})
    """What its answers have beside tokens and log-probs."""
    vocabulary: int | None = None
    """How many token ids there are."""
    takes_batches: bool = False
    """Whether it answers a list of requests as one batch."""
    logprobs_mode: str | None = None
    """Which log-probs it reports, in vLLM's words."""


def ask_server(client: ServerClient, *, timeout: float) -> ServerFacts:
    """Ask a server who it is."""
    model, context = client.get(wire.MODELS, what="say which model it serves", timeout=timeout, read=wire.read_model)
    try:
        label = client.get(wire.WEIGHT_INFO, what="say which weights it holds", timeout=timeout, read=wire.read_label)
    except ServerFault as fault:
        if fault.status != NO_ROUTE:
            raise
        raise ServerFault(
            f"the server {client.url} has no routes for weights; start it with {VLLM_FLAGS}, or with `groupwise serve`"
        ) from None
    info = _ask_optional(client, wire.BATCH_INFO, timeout, read=wire.ServerInfo.model_validate_json)
    if info is not None:
        return ServerFacts(
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
    return ServerFacts(
        model=model,
        label=label,
        context=context,
        precision=dtype.removeprefix("torch.") if isinstance(dtype, str) else None,
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
    # A server that does not say how many tokens it has knows the last one, and not the next.
    knows = partial(_knows_token, client, facts.model, timeout=timeout)
    if facts.vocabulary is None and not (knows(size - 1) and not knows(size)):
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


def _ask_optional(client: ServerClient, path: str, timeout: float, *, read: Read = read_json) -> Any:
    return ask_optional_route(lambda: client.get(path, what="say what it is", timeout=timeout, read=read))


def _knows_token(client: ServerClient, model: str, token: int, *, timeout: float) -> bool:
    """Whether a server has a token, which is named in a setting that is checked against the vocabulary and never read:
    an id beyond it in a prompt ends some servers."""
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
