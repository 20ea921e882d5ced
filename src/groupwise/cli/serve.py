"""`groupwise serve`: start model servers for runs that name their URLs."""

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

from groupwise.cli.arguments import argument, need_trainer, option
from groupwise.cli.screen import print_line
from groupwise.system.errors import ConfigError

if TYPE_CHECKING:
    from groupwise.engines.server_processes import MakeCommand, ServerProcess

MAX_PORT = 65535


class ServedBy(StrEnum):
    """The engine of the servers."""

    VLLM = "vllm"
    GROUPWISE = "groupwise"


class Precision(StrEnum):
    """The number format of the servers."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


def serve(
    model: Annotated[Path, argument("FOLDER", "Model folder in the Hugging Face layout.")],
    replicas: Annotated[int, option("N", "Number of servers.", min=1)] = 1,
    engine: Annotated[ServedBy, option("vllm|groupwise", "Engine of the servers.")] = ServedBy.VLLM,
    port: Annotated[
        int, option("N", "Port of the first server, the next ones follow; 0 = free ports.", min=0, max=MAX_PORT)
    ] = 0,
    host: Annotated[
        str, option("HOST", "Address to listen on; 0.0.0.0 = reachable from other machines, without a password.")
    ] = "127.0.0.1",
    python: Annotated[str, option("FILE", "Python interpreter of the environment with vLLM.")] = "python",
    precision: Annotated[
        Precision, option("float32|bfloat16", "Number format of the computation.")
    ] = Precision.FLOAT32,
    max_model_len: Annotated[
        int, option("N", "Largest number of tokens of prompt plus response (vLLM only); 0 = the model's limit.", min=0)
    ] = 0,
    gpu_memory: Annotated[
        float, option("NUMBER", "Fraction of the GPU memory per vLLM server; 0 = run on the CPU.", min=0, max=1)
    ] = 0.0,
    gpu: Annotated[list[str] | None, option("N", "GPU of a server. Repeat for the next servers.")] = None,
    lora_rank: Annotated[int, option("N", "Rank of the LoRA adapter that a run trains; 0 = none.", min=0)] = 0,
    lora_targets: Annotated[
        str, option("NAMES", "Layers of the adapter, comma-separated (our engine); default: all linear.")
    ] = "",
    start_timeout: Annotated[float, option("SECONDS", "Seconds to wait until all are healthy.", min=1)] = 600.0,
) -> None:
    """Start model servers for runs. Their URLs are printed when all are healthy. Ctrl-C stops them."""
    from groupwise.engines.server_processes import start_servers

    if not model.is_dir():
        raise ConfigError(f"{model} is not a folder; give a model folder in the Hugging Face layout")
    if not any((model / name).is_file() for name in ("config.json", "adapter_config.json")):
        raise ConfigError(f"{model} has no config.json; give a model folder in the Hugging Face layout")
    options: dict[str, Any] = {"precision": precision.value, "lora_rank": lora_rank, "max_model_len": max_model_len}
    options["host"] = host
    if lora_targets and (not lora_rank or engine is ServedBy.VLLM):
        raise ConfigError(
            "--lora-targets needs --lora-rank and --engine groupwise; for vLLM remove it, since vLLM reads the layers "
            "from each adapter"
        )
    if engine is ServedBy.VLLM:
        make_command = _make_vllm_command(model, python=python, gpu_memory=gpu_memory, **options)
    else:
        make_command = _make_own_command(model, lora_targets=lora_targets, **options)
    if port and port + replicas - 1 > MAX_PORT:
        raise ConfigError(f"--port: {replicas} servers from port {port} exceed {MAX_PORT}; give a lower port")
    place: dict[str, Any] = {"port": port, "host": host, "gpus": gpu or ()}
    start = partial(start_servers, make_command, replicas=replicas, start_timeout=start_timeout, **place)
    kind = "vllm" if engine is ServedBy.VLLM else "server"
    _serve_until_interrupted(start, f'kind = "{kind}"\nprecision = "{precision.value}"', host)
    print_line("stopped")


def _serve_until_interrupted(start: Callable[..., list[ServerProcess]], settings: str, host: str) -> None:
    """Start servers, print the run file's section for them, and wait until Ctrl-C."""
    from groupwise.engines.server_processes import EVERYWHERE, stop_servers

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the servers as Ctrl-C does
    processes: list[ServerProcess] = []
    with TemporaryDirectory(prefix="groupwise-servers-") as logs:
        try:
            processes = start(folder=Path(logs))
            name = socket.gethostname() if host == EVERYWHERE else host
            urls = [f"http://{name}:{process.port}" for process in processes]
            print_line("\n".join([*urls, "", "[engine]", settings, f"urls = {json.dumps(urls)}"]))
            print_line(f"\nLogs are in {logs}; Ctrl-C stops the servers.")
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
        raise ConfigError(f"{model} is an adapter; serve its base model with --lora-rank")
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
        raise ConfigError("--max-model-len works with vLLM only; our engine uses the model's limit")
    options: dict[str, object] = {"precision": precision, "lora-rank": lora_rank, "host": host}
    options |= {"lora-targets": lora_targets} if lora_targets else {}
    return lambda port: groupwise_command(str(model.resolve()), port=port, options=options)


def _watch(processes: list[ServerProcess]) -> None:
    """Restart servers that die, until Ctrl-C."""
    while True:
        for process in processes:
            if not process.is_running():  # waits a moment for its end
                print_line(f"{process.name} at {process.url} has died and is restarted")
                process.start_again()
