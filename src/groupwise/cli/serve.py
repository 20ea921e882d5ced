"""`groupwise serve`: servers of a model, for runs that name their URLs."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groupwise.cli.arguments import need_trainer
from groupwise.cli.screen import print_line
from groupwise.system.errors import ConfigError

if TYPE_CHECKING:
    from groupwise.engines.server_processes import MakeCommand, ServerProcess

MAX_PORT = 65535


class ServedBy(StrEnum):
    """Whose engine computes."""

    VLLM = "vllm"
    GROUPWISE = "groupwise"


class Precision(StrEnum):
    """What an engine computes in."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


def serve(
    model: Annotated[Path, typer.Argument(help="A model's folder in the Hugging Face layout.")],
    replicas: Annotated[int, typer.Option(min=1, help="How many servers.")] = 1,
    engine: Annotated[ServedBy, typer.Option(help="Whose engine computes.")] = ServedBy.VLLM,
    port: Annotated[
        int, typer.Option(min=0, max=MAX_PORT, help="The first server's; the next ones follow. 0 = any that are free.")
    ] = 0,
    host: Annotated[
        str,
        typer.Option(help="Where servers listen; 0.0.0.0 = for other machines too, whoever reaches them: no password."),
    ] = "127.0.0.1",
    python: Annotated[str, typer.Option(help="The interpreter of an environment with vLLM.")] = "python",
    precision: Annotated[Precision, typer.Option(help="What the servers compute in.")] = Precision.FLOAT32,
    max_model_len: Annotated[
        int, typer.Option(min=0, help="Most tokens of a prompt and its response, for vLLM; 0 = what the model allows.")
    ] = 0,
    gpu_memory: Annotated[
        float, typer.Option(min=0, max=1, help="Share of a GPU's memory for each vLLM server; 0 = on the CPU.")
    ] = 0.0,
    gpu: Annotated[
        list[str] | None, typer.Option(metavar="NUMBER", help="A GPU; give it again for the next server.")
    ] = None,
    lora_rank: Annotated[int, typer.Option(min=0, help="Rank of the adapter that a run will train; 0 = none.")] = 0,
    lora_targets: Annotated[
        str, typer.Option(metavar="NAMES", help="Layers that it sits on, by commas, for our engine; none = all linear.")
    ] = "",
    start_timeout: Annotated[float, typer.Option(min=1, help="Seconds until all must be healthy.")] = 600.0,
) -> None:
    """Start servers of a model, wait until they are healthy, and print their URLs; Ctrl-C ends them."""
    from groupwise.engines.server_processes import start_servers

    if not model.is_dir():
        raise ConfigError(f"{model} is no folder; give a model's, in the Hugging Face layout")
    if not any((model / name).is_file() for name in ("config.json", "adapter_config.json")):
        raise ConfigError(f"{model} has no config.json, so it holds no model; give a model's folder")
    options: dict[str, Any] = {"precision": precision.value, "lora_rank": lora_rank, "max_model_len": max_model_len}
    options |= {"host": host}
    if lora_targets and (not lora_rank or engine is ServedBy.VLLM):
        raise ConfigError(
            "--lora-targets is for an adapter of our own engine: give --lora-rank and --engine groupwise, or leave it "
            "out; vLLM reads the layers off each adapter"
        )
    if engine is ServedBy.VLLM:
        make_command = _make_vllm_command(model, python=python, gpu_memory=gpu_memory, **options)
    else:
        make_command = _make_own_command(model, lora_targets=lora_targets, **options)
    if port and port + replicas - 1 > MAX_PORT:
        raise ConfigError(f"--port: {replicas} servers from port {port} on go beyond {MAX_PORT}; give a lower one")
    place: dict[str, Any] = {"port": port, "host": host, "gpus": gpu or ()}
    start = partial(start_servers, make_command, replicas=replicas, start_timeout=start_timeout, **place)
    kind = "vllm" if engine is ServedBy.VLLM else "server"
    _serve_until_interrupted(start, f'kind = "{kind}"\nprecision = "{precision.value}"', host)
    print_line("stopped")


def _serve_until_interrupted(start: Callable[..., list[ServerProcess]], settings: str, host: str) -> None:
    """Start servers, print what a run file says to use them, and stay until Ctrl-C."""
    from groupwise.engines.server_processes import EVERYWHERE, stop_servers

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the servers as Ctrl-C does
    processes: list[ServerProcess] = []
    with TemporaryDirectory(prefix="groupwise-servers-") as logs:
        try:
            processes = start(folder=Path(logs))
            name = socket.gethostname() if host == EVERYWHERE else host
            urls = [f"http://{name}:{process.port}" for process in processes]
            print_line("\n".join([*urls, "", "[engine]", settings, f"urls = {json.dumps(urls)}"]))
            print_line(f"\nLogs are in {logs}; Ctrl-C ends the servers.")
            _watch(processes)
        except KeyboardInterrupt:
            pass
        finally:
            stop_servers(processes)


def _make_vllm_command(
    model: Path, *, python: str, gpu_memory: float, precision: str, lora_rank: int, max_model_len: int, host: str
) -> MakeCommand:
    from groupwise.engines.server_processes import SERVED_NAME
    from groupwise.engines.vllm.command import vllm_command

    if not (model / "config.json").is_file():
        raise ConfigError(f"{model} holds an adapter; serve the model that it sits on, with --lora-rank")
    return lambda port: vllm_command(
        model.resolve(),
        port=port,
        served_model_name=SERVED_NAME,
        dtype=precision,
        max_model_len=max_model_len or None,
        python=python,
        lora_rank=lora_rank,
        gpu_memory=gpu_memory or None,
        extra=("--host", host),
    )


def _make_own_command(
    model: Path, *, precision: str, lora_rank: int, lora_targets: str, max_model_len: int, host: str
) -> MakeCommand:
    from groupwise.engines.server_processes import check_can_serve, groupwise_command

    need_trainer()
    check_can_serve()
    if max_model_len:
        raise ConfigError("--max-model-len is vLLM's; our own engine takes what the model allows")
    options: dict[str, object] = {"precision": precision, "lora-rank": lora_rank, "host": host}
    options |= {"lora-targets": lora_targets} if lora_targets else {}
    return lambda port: groupwise_command(str(model.resolve()), port=port, options=options)


def _watch(processes: list[ServerProcess]) -> None:
    """Stay until Ctrl-C; a server that dies is started again, and said so."""
    while True:
        for process in processes:
            if not process.is_running():  # waits a moment for it to end
                print_line(f"{process.name} at {process.url} has died, and is started again")
                process.start_again()
