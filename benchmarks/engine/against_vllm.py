"""Our engine against vLLM in one process a shape, by turns: the agent load, and batches of prompts.

The same random weights in bfloat16, log-probs of what was sampled returned by all, temperature 1 over the whole
vocabulary, prefix caching on and CUDA graphs captured for the batches that decode. Ours also gives entropies, and each
of its requests has a seed of its own: vLLM with a seed a request means the same, without seeds it does less. Every
repeat has prompts of its own, the same for every side.
"""

from __future__ import annotations

import json
import shlex
import statistics
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import transformers

from benchmarks.engine import loads, sides
from benchmarks.engine.shapes import make_model
from benchmarks.result_file import write_result
from groupwise.system.errors import GroupwiseError

BATCHES = ((256, 400), (256, 200))
"""Rows, and tokens of a prompt on average."""
AGENT = "agent"
"""What the load of agents is called among the cases."""
CHECKED = 16
"""Responses of vLLM whose log-probs are computed again by ours."""
Time = Callable[[loads.Generate, int], float]
"""Seconds of a load, by the number of the repeat."""


def compare(
    shapes: Sequence[str], names: Sequence[str], *, repeats: int, batches: int, device: str, seconds: int
) -> dict[str, Any]:
    """The result over some shapes, each in a process of its own, which may take some seconds."""
    by_shape: dict[str, Any] = {}
    for shape in shapes:
        with TemporaryDirectory() as place:
            path = Path(place) / "result.json"
            options = ["--shapes", shape, "--repeats", str(repeats), "--device", device]
            options += ["--batches", str(batches), "--sides", *names]
            command = [sys.executable, "-m", "benchmarks.engine", "vllm", *options, "--write", str(path)]
            try:
                subprocess.run(command, check=False, timeout=seconds)
            except subprocess.TimeoutExpired:
                print(f"{shape}: stopped after {seconds} s", flush=True)
            if path.exists():
                by_shape |= json.loads(path.read_text())["shapes"]
    return by_shape


def measure_shape(
    shape: str, names: Sequence[str], *, repeats: int, batches: int, device: str, write: Path | None
) -> dict[str, Any]:
    """What every side takes for every load; written after every load, since a process may be stopped."""
    began = time.perf_counter()
    model = make_model(shape, device)
    vocabulary = int(model.config.vocab_size)
    result: dict[str, Any] = {"open_seconds": {}, "cases": {}}
    engines: dict[str, Any] = {}
    for name in names:
        before = time.perf_counter()
        try:
            engines |= {name: engines.get(_find_twin(name)) or sides.open_side(name, model)}
        except Exception as error:  # a side that does not open leaves the others' numbers
            result.setdefault("failed", {})[name] = repr(error)[:500]
            continue
        result["open_seconds"][name] = time.perf_counter() - before
        print(f"{shape}, {name}: opened in {result['open_seconds'][name]:.1f} s", flush=True)
    for case, time_load in list_loads(vocabulary, batches, device).items():
        result["cases"][case] = measure_case(case, time_load, engines, repeats)
        print(f"{shape}, {case} ({time.perf_counter() - began:.0f} s): {describe(result['cases'][case])}", flush=True)
        write_result({"shapes": {shape: result}}, write)
    result["captures"] = {
        name: getattr(engine, "num_captures", 0) for name, engine in engines.items() if "vLLM" not in name
    }
    result["logp_gap"] = _measure_gap(engines, vocabulary)
    return result


def list_loads(vocabulary: int, batches: int, device: str) -> dict[str, Time]:
    """The loads by name; on a CPU a few rows show that the script runs."""
    on_gpu = device == "cuda"
    rollouts = loads.ROLLOUTS if on_gpu else loads.GROUP

    def time_agents(generate: loads.Generate, number: int) -> float:
        return loads.time_agents(generate, vocabulary, number=number, rollouts=rollouts)

    def time_batch(rows: int, mean: int, generate: loads.Generate, number: int) -> float:
        return loads.time_batch(generate, vocabulary, number=number, rows=rows if on_gpu else 8, mean=mean)

    cases: dict[str, Time] = {AGENT: time_agents}
    return cases | {
        f"{rows} x {mean}+{loads.BATCH_TOKENS}": partial(time_batch, rows, mean) for rows, mean in BATCHES[:batches]
    }


def measure_case(case: str, time_load: Time, engines: dict[str, Any], repeats: int) -> dict[str, Any]:
    """Medians of every side, which take turns; the first call of each is reported by itself."""
    generates = {name: sides.choose_generate(name, engine) for name, engine in engines.items()}
    first = {name: time_load(generate, 0) for name, generate in generates.items()}
    took: dict[str, list[float]] = {name: [] for name in generates}
    for number in range(1, repeats + 1):
        for name, generate in generates.items():
            took[name].append(time_load(generate, number))
    results: dict[str, Any] = {}
    for name, seconds in took.items():
        median = statistics.median(seconds)
        results[name] = {"first_seconds": first[name], "seconds": seconds, "median_seconds": median}
        if case == AGENT:
            num = loads.TURNS * (loads.ROLLOUTS if torch.cuda.is_available() else loads.GROUP)
            results[name]["responses_per_second"] = num / median
    for theirs in results.values():
        theirs["ours_is_faster"] = {
            name: theirs["median_seconds"] / results[name]["median_seconds"]
            for name in results
            if name in (sides.OURS, sides.COMPILED, sides.PLAIN)
        }
    return results


def describe(case: dict[str, Any]) -> str:
    """A line about a case."""
    return "; ".join(f"{name} {result['median_seconds']:.3f} s" for name, result in case.items())


def describe_command(chosen: Namespace) -> str:
    """The command with all that decides what is measured; not where the result was written."""
    options = [f"--{name}={getattr(chosen, name)}" for name in ("repeats", "batches", "seconds", "device")]
    lists = ["--shapes", *chosen.shapes, "--sides", *chosen.sides]
    return shlex.join(["python", "-m", "benchmarks.engine", chosen.what, *lists, *options])


def describe_conditions(chosen: Namespace) -> dict[str, Any]:
    """What a result was measured with."""
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    if sides.has_vllm():
        from importlib.metadata import version

        versions["vllm"] = version("vllm")
    return {
        "command": describe_command(chosen),
        "sides": list(chosen.sides),
        "precision": "bfloat16",
        "agent": {
            "rollouts": loads.ROLLOUTS,
            "group": loads.GROUP,
            "turns": loads.TURNS,
            "opening": loads.OPENING,
            "sampled": loads.SAMPLED,
            "new": loads.NEW,
        },
        "vllm_settings": {"max_num_seqs": sides.MAX_ROWS, "cudagraph_capture_sizes": sides.GRAPH_SIZES},
        "device": torch.cuda.get_device_name(0) if torch.cuda.is_available() else "cpu",
        "versions": versions,
    }


def _find_twin(name: str) -> str:
    """The side that is the same engine."""
    return {sides.SEEDED: sides.UNSEEDED, sides.UNSEEDED: sides.SEEDED}.get(name, name)


def _measure_gap(engines: dict[str, Any], vocabulary: int) -> dict[str, Any]:
    """How far the log-probs that each side reports are from those of a second look by ours, in nats."""
    if sides.OURS not in engines:
        return {}
    gaps = {}
    draw = np.random.default_rng(7)
    prompts = [loads.draw_ids(draw, 40, vocabulary) for _ in range(CHECKED)]
    for name, engine in engines.items():
        try:
            answers = sides.choose_generate(name, engine)(
                [
                    loads.Request(prompt_ids=prompt, seed=row, max_tokens=loads.SAMPLED, session=f"{name} {row}")
                    for row, prompt in enumerate(prompts)
                ]
            )
            scored = engines[sides.OURS].score(
                [(prompt, answer.response_ids) for prompt, answer in zip(prompts, answers, strict=True)]
            )
        except GroupwiseError as error:
            gaps[name] = {"failed": str(error)}
            continue
        apart = np.abs(np.concatenate([np.subtract(a.logp, b) for a, b in zip(answers, scored, strict=True)]))
        gaps[name] = {"mean": float(apart.mean()), "largest": float(apart.max())}
    return gaps
