"""The settings of engines, in this process and in others. They need no torch."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from groupwise.parts.outside import WITHOUT_TRUST, may_run
from groupwise.parts.part import Count, Part, PositiveShare, kind_of, name_of
from groupwise.parts.path_settings import make_absolute, resolve_by
from groupwise.parts.slots import ENTROPY, REFUSED_SAMPLING, REFUSED_SHARING, SCORES, TRUNCATION, VERSIONS
from groupwise.system.errors import ConfigError

if TYPE_CHECKING:
    from groupwise.engines.engine import Engine
    from groupwise.engines.model_source import ModelSource
    from groupwise.engines.replica import StartedServer


class DecodingConfig(Part):
    """How groupwise's own engine decodes, in the trainer's process or in a server that the run starts."""

    gives: ClassVar[frozenset[str]] = frozenset({ENTROPY, SCORES, VERSIONS, TRUNCATION})
    """All that an engine can give."""

    decoding: Literal["auto", "eager", "graphs"] = "auto"
    """How tokens are decoded: graphs = one CUDA graph per step; auto = graphs on a GPU if the model allows it."""
    rows: Count = 256
    """With graphs: largest number of responses that decode at a time, in each process."""
    memory: PositiveShare = 0.3
    """With graphs: fraction of the GPU's memory for keys and values, in each process."""
    compile_parts: Literal["auto"] | bool = "auto"
    """With graphs: whether norms and feed-forward layers are compiled. Faster, but the start takes half a minute
    longer. auto = if groupwise has no layers of its own for the model. Layers that fail a test are not compiled; the
    log says so."""
    batch_tokens: Count = 32768
    """Largest number of tokens per batch of prompts; without graphs, of prompts and responses."""


class LocalEngine(DecodingConfig, slot="engine"):
    """Samples in the trainer's process, with a copy of the model or with the learner's own weights."""

    refused_fields: ClassVar[Mapping[str, str]] = REFUSED_SAMPLING

    precision: Literal["float32", "bfloat16"] = "float32"
    """The engine's precision: float32 = weights as the model was loaded; bfloat16 = cast at each weight sync."""
    share_weights: bool = False
    """Whether the engine reads the learner's own weights: there is one model in memory, and a weight sync copies
    nothing. Needs the same precision, `rollout.lag = 0` and the local learner."""

    def check_device(self, device: str) -> None:
        from groupwise.engines.open_engine import check_decoding

        check_decoding(self.decoding, device)

    def open(self, source: ModelSource) -> Engine:
        from groupwise.engines.open_engine import check_shared_weights, open_engine

        if self.share_weights:
            check_shared_weights(source.model, self.precision)
        return open_engine(
            source.share_model() if self.share_weights else source.copy_model(),
            precision=self.precision,
            decoding=self.decoding,
            rows=self.rows,
            memory=self.memory,
            compile_parts=self.compile_parts,
            batch_tokens=self.batch_tokens,
        )


class RemoteEngineConfig(Part):
    """The settings that all servers share."""

    refused_fields: ClassVar[Mapping[str, str]] = {**REFUSED_SAMPLING, **REFUSED_SHARING}

    starts_others: ClassVar[bool] = False
    """Whether the run file names the program of the servers."""

    supports_inflight_weight_update: ClassVar[bool] = True
    """Servers answer requests during a weight sync, which `rollout.lag = "free"` needs."""

    urls: tuple[str, ...] = ()
    """URLs of running servers, as `groupwise serve` prints them; the run syncs its weights to them. Empty = the servers
    in the variable GROUPWISE_ENGINE_URLS; without it, the run starts and stops its own servers."""
    replicas: Annotated[int, Field(ge=0)] = 0
    """Number of servers that the run starts; 0 = one, or none if `urls` is given."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """The servers' precision; a running server must have the same."""
    request_timeout: Annotated[float, Field(gt=0)] = 600.0
    """Seconds that an answer may take. After that, another server is asked, and this one is not used until the next
    weight sync."""
    sync_timeout: Annotated[float, Field(gt=0)] = 300.0
    """Seconds that a weight sync may take per server."""
    start_timeout: Annotated[float, Field(gt=0)] = 600.0
    """Seconds until started or launched servers must be healthy."""
    gpus: tuple[str, ...] = ()
    """GPUs of the servers that the run starts, such as ["1", "2"], in order (CUDA_VISIBLE_DEVICES). Empty = the GPUs
    that the trainer sees."""

    @model_validator(mode="after")
    def _names_or_starts(self) -> RemoteEngineConfig:
        if self.urls and self.replicas:
            raise ValueError(
                f"urls names {len(self.urls)} server{'s' if len(self.urls) > 1 else ''} and replicas asks for "
                f"{self.replicas} more; give urls of running servers, or replicas to let the run start them"
            )
        return self

    def check_device(self, device: str) -> None:
        """Check that the servers run; the learner's device does not matter."""
        from groupwise.engines.http_client import open_clients

        urls = choose_urls(self.urls)
        # Without trust, servers that a run file names, and programs that it would start, are rejected. The servers of
        # the variable are the user's own, and then no program is started.
        if (self.urls or (self.starts_others and not urls)) and not may_run():
            reach = "connects to the servers" if self.urls else "starts the program"
            raise ConfigError(
                f"the engine {kind_of(type(self))!r} is {WITHOUT_TRUST}: it {reach} that this run names; add --trust "
                "if you trust its author"
            )
        if urls and not self.urls:
            wait_for_launched(urls, timeout=self.start_timeout)
        for client in open_clients(urls) if self.urls else ():
            with client:
                client.check_health()

    def open(self, source: ModelSource) -> Engine:
        from groupwise.engines.client import open_server_engine

        urls = choose_urls(self.urls)
        processes = [] if urls else self._start_servers(source)
        return open_server_engine(
            urls or [process.url for process in processes],
            source=source,
            precision=self.precision,
            request_timeout=self.request_timeout,
            sync_timeout=self.sync_timeout,
            max_in_flight=getattr(self, "max_in_flight", 1),
            processes=processes,
        )

    def _start_servers(self, source: ModelSource) -> list[StartedServer]:
        raise NotImplementedError


class ServerEngineConfig(DecodingConfig, RemoteEngineConfig, slot="engine"):
    """Samples with groupwise's engine in other processes or on other machines, bit-exact like the local engine."""

    def check_device(self, device: str) -> None:
        super().check_device(device)
        if not choose_urls(self.urls):
            from groupwise.engines.server_processes import check_can_serve

            check_can_serve()

    def _start_servers(self, source: ModelSource) -> list[StartedServer]:
        from groupwise.engines.server_launch import start_own_servers

        return start_own_servers(
            source,
            replicas=self.replicas or 1,
            gpus=self.gpus,
            start_timeout=self.start_timeout,
            options={
                "precision": self.precision,
                "decoding": self.decoding,
                "rows": self.rows,
                "memory": self.memory,
                "compile-parts": self.compile_parts is True,
                "no-compile-parts": self.compile_parts is False,
                "batch-tokens": self.batch_tokens,
            },
        )


class VllmServerConfig(RemoteEngineConfig, slot="engine"):
    """Samples with vLLM servers, which have their own Python environment."""

    gives: ClassVar[frozenset[str]] = frozenset({SCORES, VERSIONS, TRUNCATION})
    """vLLM gives no entropies."""
    starts_others: ClassVar[bool] = True
    """`python` may be any program."""

    max_in_flight: Count = 128
    """Largest number of open requests per server; others wait."""
    python: Annotated[str, resolve_by(lambda text: make_absolute(text) if "/" in text else text)] = "python"
    """The Python interpreter with vLLM, for servers that the run starts."""
    memory: PositiveShare | None = None
    """Fraction of a GPU's memory per server; none = servers on the CPU."""
    context: Annotated[int, Field(ge=2)] | None = None
    """Largest number of tokens of prompt and response together; none = the model's limit."""
    flags: tuple[str, ...] = ()
    """Further flags of vLLM, such as ["--max-num-seqs", "64"]."""

    def check_device(self, device: str) -> None:
        super().check_device(device)
        if not choose_urls(self.urls):
            from groupwise.engines.vllm.command import find_vllm

            find_vllm(self.python)

    def check_model(self, model: Any) -> None:
        """Check from a model's settings that vLLM can load it."""
        from groupwise.engines.vllm.command import MIN_CPU_HEAD, check_heads

        if choose_urls(self.urls) or self.memory is not None:
            return
        hidden, heads, path = (getattr(model, name, None) for name in ("hidden", "heads", "path"))
        if hidden and heads and hidden // heads < MIN_CPU_HEAD:
            raise ConfigError(
                f"model.heads: {heads} heads of {hidden // heads} each, but vLLM on a CPU needs heads of at least "
                f"{MIN_CPU_HEAD}; use fewer heads or the local engine"
            )
        if path and (Path(path).expanduser() / "config.json").is_file():
            check_heads(Path(path).expanduser(), on_gpu=False)

    def _start_servers(self, source: ModelSource) -> list[StartedServer]:
        from groupwise.engines.server_launch import start_vllm_servers

        return start_vllm_servers(
            source,
            replicas=self.replicas or 1,
            gpus=self.gpus,
            start_timeout=self.start_timeout,
            precision=self.precision,
            max_model_len=self.context,
            python=self.python,
            gpu_memory=self.memory,
            extra=self.flags,
        )


class VllmInProcess(Part, slot="engine"):
    """Samples with vLLM in the trainer's process, with a copy of the model. vLLM must be installed there."""

    gives: ClassVar[frozenset[str]] = frozenset({SCORES, VERSIONS, TRUNCATION})
    """No entropies: vLLM does not compute them."""
    refused_fields: ClassVar[Mapping[str, str]] = {**REFUSED_SAMPLING, **REFUSED_SHARING}

    precision: Literal["float32", "bfloat16"] = "float32"
    """vLLM's precision; weights are cast at each weight sync."""
    context: Annotated[int, Field(ge=2)] | None = None
    """Largest number of tokens of prompt and response together; none = the model's limit."""
    memory: PositiveShare = 0.4
    """Fraction of the GPU's memory for vLLM."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of vLLM's `LLM`, such as `attention_backend`."""

    def check_device(self, device: str) -> None:
        from groupwise.engines.vllm.in_process import check_vllm_is_here

        check_vllm_is_here()

    def open(self, source: ModelSource) -> Engine:
        from groupwise.engines.vllm.in_process import open_vllm_engine

        return open_vllm_engine(
            source, precision=self.precision, context=self.context, gpu_memory=self.memory, further=self.options
        )


VARIABLE = "GROUPWISE_ENGINE_URLS"
"""URLs of servers that were launched with the run, separated by spaces or commas. One run file then works anywhere."""
POLL_SECONDS = 1.0

_log = logging.getLogger(__name__)


def read_launched_urls() -> tuple[str, ...]:
    """The URLs in the variable; empty if it is not set."""
    return tuple(os.environ.get(VARIABLE, "").replace(",", " ").split())


def choose_urls(named: tuple[str, ...]) -> tuple[str, ...]:
    """The servers of the run file or of the variable; they must not differ."""
    launched = read_launched_urls()
    if named and launched and set(named) != set(launched):
        raise ConfigError(
            f"engine.urls names {', '.join(named)}, but the variable {VARIABLE} names {', '.join(launched)}; leave the "
            "setting out, or unset the variable"
        )
    return named or launched


def check_uses_servers(engine: Part) -> None:
    """If servers were launched for the run, reject an engine that does not use them."""
    launched = read_launched_urls()
    if launched:
        raise ConfigError(
            f"the variable {VARIABLE} names {len(launched)} server{'s' if len(launched) > 1 else ''}, but the engine "
            f'{name_of(engine)} uses none; set engine.kind = "server" or "vllm", or unset the variable'
        )


def wait_for_launched(urls: tuple[str, ...], *, timeout: float) -> None:
    """Wait for servers that were launched with the run and may still be loading."""
    from groupwise.engines.http_client import ServerFault, open_clients

    deadline = time.monotonic() + timeout
    for client in open_clients(urls, setting=VARIABLE):
        has_said = False
        while True:
            try:
                with client:
                    client.check_health()
                break
            except ServerFault as fault:
                if time.monotonic() > deadline:
                    raise ConfigError(
                        f"{VARIABLE}: {fault} ({timeout:g} seconds, engine.start_timeout, have passed)"
                    ) from None
                if not has_said:
                    _log.warning("waiting up to %g seconds for the server %s", timeout, client.url)
                    has_said = True
            time.sleep(POLL_SECONDS)
