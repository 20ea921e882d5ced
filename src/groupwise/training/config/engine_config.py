"""The settings of engines, in this process and in others; without torch, so that run files decode without it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from groupwise.parts.outside import WITHOUT_TRUST, may_run
from groupwise.parts.part import Part, kind_of, name_of
from groupwise.parts.path_settings import make_absolute, resolve_by
from groupwise.parts.slots import ENTROPY, REFUSED_SAMPLING, REFUSED_SHARING, SCORES, VERSIONS
from groupwise.system.errors import ConfigError

if TYPE_CHECKING:
    from groupwise.engines.engine import Engine
    from groupwise.engines.model_source import ModelSource
    from groupwise.engines.replica import StartedServer


class LocalEngine(Part, slot="engine"):
    """Samples in the trainer's own process, with a copy of the model on the same device, or with the learner's own."""

    gives: ClassVar[frozenset[str]] = frozenset({ENTROPY, SCORES, VERSIONS})
    """All that an engine can give."""
    refused_fields: ClassVar[Mapping[str, str]] = REFUSED_SAMPLING

    precision: Literal["float32", "bfloat16"] = "float32"
    """What the engine computes in: float32 = its weights as the model was loaded; bfloat16 = cast at each hand-over."""
    share_weights: bool = False
    """Whether the engine reads the learner's own weights instead of a copy: one model in memory, and a hand-over copies
    nothing. Their precision must be the engine's; needs `rollout.lag = 0` and the local learner."""
    decoding: Literal["auto", "eager", "graphs"] = "auto"
    """How tokens are decoded: graphs = in lanes, a CUDA graph a step; auto = graphs on a GPU where the model allows."""
    rows: Annotated[int, Field(ge=1)] = 256
    """Most responses that decode at a time, with graphs."""
    memory: Annotated[float, Field(gt=0, le=1)] = 0.3
    """Share of the GPU's memory that keys and values may take, with graphs."""
    compile_parts: Literal["auto"] | bool = "auto"
    """Whether norms and feed-forward parts are compiled, with graphs: faster, after half a minute at the start; auto =
    where there are no layers of our own for the model. What fails its trial is left out, and the log says so."""
    batch_tokens: Annotated[int, Field(ge=1)] = 32768
    """Most tokens of a batch: of prompts that are read together, and, without graphs, of prompts and responses."""

    def check_device(self, device: str) -> None:
        """Refuse graphs where there is no GPU."""
        from groupwise.engines.open_engine import check_decoding

        check_decoding(self.decoding, device)

    def open(self, source: ModelSource) -> Engine:
        """An engine over a copy of the model, or over the model's own weights."""
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


# Engines in other processes: servers of ours and vLLM's, that are there or that the run starts; without torch.


class RemoteEngineConfig(Part):
    """What servers have in common, whosever they are."""

    refused_fields: ClassVar[Mapping[str, str]] = {**REFUSED_SAMPLING, **REFUSED_SHARING}

    starts_others: ClassVar[bool] = False
    """Whether the servers that it starts are programs that the run file names."""

    supports_inflight_weight_update: ClassVar[bool] = True
    """They answer several threads, and requests that are under way when new weights come: `rollout.lag = "free"`."""

    urls: tuple[str, ...] = ()
    """Servers that are there already, as `groupwise serve` prints them; the run hands them its weights. Empty = those
    that the variable GROUPWISE_ENGINE_URLS names; without it the run starts its own, and stops them."""
    replicas: Annotated[int, Field(ge=0)] = 0
    """Servers that the run starts; 0 = one, or none where `urls` names some."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """What the servers compute in; one that is there already must compute in it too."""
    request_timeout: Annotated[float, Field(gt=0)] = 600.0
    """Seconds that an answer may take; then it is asked for elsewhere, and the server is out until the next hand-over
    of weights."""
    handover_timeout: Annotated[float, Field(gt=0)] = 300.0
    """Seconds that a server may take to take new weights over."""
    start_timeout: Annotated[float, Field(gt=0)] = 600.0
    """Seconds until servers that the run starts, or that were launched beside it, must be healthy."""
    gpus: tuple[str, ...] = ()
    """GPUs of servers that the run starts, such as ["1", "2"], in turn (CUDA_VISIBLE_DEVICES). Empty = those that the
    trainer sees."""

    @model_validator(mode="after")
    def _names_or_starts(self) -> RemoteEngineConfig:
        if self.urls and self.replicas:
            raise ValueError(
                f"urls names {len(self.urls)} server{'s' if len(self.urls) > 1 else ''} and replicas asks for "
                f"{self.replicas} more; give urls for servers that are there, or replicas to let the run start them"
            )
        return self

    def check_device(self, device: str) -> None:
        """Refuse servers that are not there; what the learner computes on does not matter to them."""
        from groupwise.engines.http_client import open_clients

        self._check_may_open()
        urls = choose_urls(self.urls)
        if urls and not self.urls:
            wait_for_launched(urls, timeout=self.start_timeout)
        for client in open_clients(urls) if self.urls else ():
            with client:
                client.check_health()

    def _check_may_open(self) -> None:
        """Refuse servers that somebody else's run names, and programs that it would start, where it is only read."""
        # Servers of the variable are whoever's who runs this, and then no program is started.
        if (self.urls or (self.starts_others and not choose_urls(self.urls))) and not may_run():
            reach = "connects to the servers" if self.urls else "starts the program"
            raise ConfigError(
                f"the engine {kind_of(type(self))!r} is {WITHOUT_TRUST}: it {reach} that this run names; add --trust "
                "if you trust whoever wrote it"
            )

    def open(self, source: ModelSource) -> Engine:
        """An engine over servers that are there, or that are started here."""
        from groupwise.engines.client import open_server_engine

        urls = choose_urls(self.urls)
        processes = [] if urls else self._start_servers(source)
        return open_server_engine(
            urls or [process.url for process in processes],
            source=source,
            precision=self.precision,
            request_timeout=self.request_timeout,
            handover_timeout=self.handover_timeout,
            max_in_flight=getattr(self, "max_in_flight", 1),
            processes=processes,
        )

    def _start_servers(self, source: ModelSource) -> list[StartedServer]:
        raise NotImplementedError


class ServerEngineConfig(RemoteEngineConfig, slot="engine"):
    """Samples with our own engine in other processes, here or on other machines, as the local engine would, to the
    bit."""

    gives: ClassVar[frozenset[str]] = frozenset({ENTROPY, SCORES, VERSIONS})
    """All that an engine can give."""

    decoding: Literal["auto", "eager", "graphs"] = "auto"
    """How servers that the run starts decode: graphs = in lanes, a CUDA graph a step; auto = graphs on a GPU where the
    model allows."""
    rows: Annotated[int, Field(ge=1)] = 256
    """Most responses that decode at a time in a server, with graphs."""
    memory: Annotated[float, Field(gt=0, le=1)] = 0.3
    """Share of the GPU's memory that keys and values of a server may take, with graphs."""
    compile_parts: Literal["auto"] | bool = "auto"
    """Whether norms and feed-forward parts are compiled, with graphs: faster, after half a minute at the start; auto =
    where there are no layers of our own for the model. What fails its trial is left out, and the log says so."""
    batch_tokens: Annotated[int, Field(ge=1)] = 32768
    """Most tokens of a batch: of prompts that are read together, and, without graphs, of prompts and responses."""

    def check_device(self, device: str) -> None:
        """Refuse servers that are not there, or an environment without what they need."""
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
    """Samples with vLLM servers, which live in an environment of their own."""

    gives: ClassVar[frozenset[str]] = frozenset({SCORES, VERSIONS})
    """vLLM gives no entropies."""
    starts_others: ClassVar[bool] = True
    """`python` may be anything."""

    max_in_flight: Annotated[int, Field(ge=1)] = 128
    """Most requests that are under way at a server; others wait here."""
    python: Annotated[str, resolve_by(lambda text: make_absolute(text) if "/" in text else text)] = "python"
    """The interpreter of an environment with vLLM, for servers that the run starts."""
    memory: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of a GPU's memory that each server takes; none = they compute on the CPU."""
    context: Annotated[int, Field(ge=2)] | None = None
    """Tokens that a prompt and its response may have together; none = what the model allows."""
    flags: tuple[str, ...] = ()
    """Further flags of vLLM, such as ["--max-num-seqs", "64"]."""

    def check_device(self, device: str) -> None:
        """Refuse servers that are not there, or an environment without vLLM."""
        super().check_device(device)
        if not choose_urls(self.urls):
            from groupwise.engines.vllm.command import find_vllm

            find_vllm(self.python)

    def check_model(self, model: Any) -> None:
        """Refuse a model that vLLM would refuse, where its settings tell."""
        from groupwise.engines.vllm.command import MIN_CPU_HEAD, check_heads

        if choose_urls(self.urls) or self.memory is not None:
            return
        hidden, heads, path = (getattr(model, name, None) for name in ("hidden", "heads", "path"))
        if hidden and heads and hidden // heads < MIN_CPU_HEAD:
            raise ConfigError(
                f"model.heads: {heads} heads of {hidden // heads} each, but vLLM on a CPU refuses heads narrower than "
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
    """Samples with vLLM in the trainer's own process, with a copy of the model; needs vLLM beside groupwise."""

    gives: ClassVar[frozenset[str]] = frozenset({SCORES, VERSIONS})
    """No entropies: vLLM does not compute them."""
    refused_fields: ClassVar[Mapping[str, str]] = {**REFUSED_SAMPLING, **REFUSED_SHARING}

    precision: Literal["float32", "bfloat16"] = "float32"
    """What vLLM computes in; weights are cast at each hand-over."""
    context: Annotated[int, Field(ge=2)] | None = None
    """Tokens that a prompt and its response may have together; none = what the model allows."""
    memory: Annotated[float, Field(gt=0, le=1)] = 0.4
    """Share of the GPU's memory that vLLM may take."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of vLLM's `LLM`, by their names there, such as `attention_backend`."""

    def check_device(self, device: str) -> None:
        """Refuse where vLLM is not installed."""
        from groupwise.engines.vllm.in_process import check_vllm_is_here

        check_vllm_is_here()

    def open(self, source: ModelSource) -> Engine:
        """VLLM over a copy of the model."""
        from groupwise.engines.vllm.in_process import open_vllm_engine

        return open_vllm_engine(
            source, precision=self.precision, context=self.context, gpu_memory=self.memory, further=self.options
        )


# Servers that whoever launched the run has started beside it, named by a variable and not by the run file.

VARIABLE = "GROUPWISE_ENGINE_URLS"
"""Their URLs, separated by spaces or commas: the same run file then serves a laptop, Slurm and Kubernetes."""
POLL_SECONDS = 1.0

_log = logging.getLogger(__name__)


def read_launched_urls() -> tuple[str, ...]:
    """The URLs that the variable names; empty where it is not set."""
    return tuple(os.environ.get(VARIABLE, "").replace(",", " ").split())


def choose_urls(named: tuple[str, ...]) -> tuple[str, ...]:
    """The servers to use: those of the run file or those of the variable; different ones at once are refused."""
    launched = read_launched_urls()
    if named and launched and set(named) != set(launched):
        raise ConfigError(
            f"engine.urls names {', '.join(named)}, but the variable {VARIABLE} names {', '.join(launched)}; leave the "
            "setting out, or unset the variable"
        )
    return named or launched


def check_uses_servers(engine: Part) -> None:
    """Refuse an engine of this process where servers were launched for it: they would stand idle, unnoticed."""
    launched = read_launched_urls()
    if launched:
        raise ConfigError(
            f"the variable {VARIABLE} names {len(launched)} server{'s' if len(launched) > 1 else ''}, but the engine "
            f'{name_of(engine)} uses none; set engine.kind = "server" or "vllm", or unset the variable'
        )


def wait_for_launched(urls: tuple[str, ...], *, timeout: float) -> None:
    """Wait until servers answer that were launched together with the run, and may still be loading."""
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
