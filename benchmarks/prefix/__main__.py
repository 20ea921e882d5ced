"""Prefix-shared training against rows, on recorded rollouts.

    python -m benchmarks.prefix --part cpu [--threads 1] [--write benchmarks/results/prefix_cpu.json]
    python -m benchmarks.prefix --part gpu [--shape 1.5B 0.5B] [--quick] [--write benchmarks/results/prefix_gpu.json]

The layouts are those of `layouts.py`, timed by turns, medians reported, gradients compared. Rollouts come from the
files that `record.py` wrote; where one is missing, made-up tokens of the same shape take its place and the result says
so. A section that fails leaves its error in the result, which is written after each section; what a file has on other
shapes stays in it.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.prefix import on_cpu, on_gpu
from benchmarks.prefix.recordings import DATA
from benchmarks.prefix.shapes import BUDGETS, SHAPES, UPDATE
from benchmarks.result_file import read_commit


class Result:
    """What was found so far, as JSON."""

    def __init__(self, content: dict[str, Any], path: Path | None) -> None:
        self.content, self._path = content, path

    def measure(self, sections: dict[str, Callable[[], Any]], into: dict[str, Any]) -> None:
        """Measure section by section; an error is a result too."""
        for name, section in sections.items():
            try:
                into[name] = section()
            except Exception as error:  # whatever a device or a kernel raises: the other sections still count
                traceback.print_exc()
                into[name] = {"error": f"{type(error).__name__}: {error}"[:500]}
            print(f"{name}: {json.dumps(into[name])[:600]}", flush=True)
            self.write()
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def write(self) -> None:
        """Write all of it anew."""
        if self._path:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps(round_numbers(self.content), indent=1) + "\n")


def round_numbers(value: Any) -> Any:
    """Numbers to five digits."""
    if isinstance(value, dict):
        return {key: round_numbers(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [round_numbers(each) for each in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def cpu_part(options: argparse.Namespace) -> None:
    torch.set_num_threads(options.threads)
    result = Result({**_about(), "clock": "processor time" if options.threads == 1 else "wall time"}, options.write)
    result.measure(on_cpu.sections(options.data, options.repeats, quick=options.quick), result.content)


def gpu_part(options: argparse.Namespace) -> None:
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("--part gpu: there is no CUDA device; give --device cpu --shape tiny to try the script without one")
    result = Result({**_about(), "gpu": on_gpu.machine(), "compiled_layers": options.compile_layers}, options.write)
    result.content["shapes"] = _other_shapes(options)
    for shape in options.shape:
        settings = _settings(shape, options)
        into = result.content["shapes"][shape] = {
            "command": result.content["command"],
            "commit": result.content["commit"],
            "token_budget": settings.budget,
            "raw_tokens": settings.raw_tokens,
        }
        result.measure(on_gpu.Bench(shape, settings).sections(), into)
    result.measure(on_gpu.general_sections(settings), result.content)


def _settings(shape: str, options: argparse.Namespace) -> on_gpu.Settings:
    budget = options.budget or BUDGETS[shape]
    raw_tokens = options.raw_tokens or UPDATE * budget
    return on_gpu.Settings(
        data=options.data,
        device=options.device,
        budget=budget,
        raw_tokens=raw_tokens // 2 if options.quick else raw_tokens,
        repeats=2 if options.quick else options.repeats,
        seconds=options.seconds / 4 if options.quick else options.seconds,
        checkpointed=options.checkpoint,
        compiled=options.compile_layers,
        quick=options.quick,
    )


def _other_shapes(options: argparse.Namespace) -> dict[str, Any]:
    """What the file that will be written has on shapes that are not measured now."""
    if not (options.write and options.write.is_file()):
        return {}
    before = json.loads(options.write.read_text(encoding="utf-8"))
    return {shape: result for shape, result in before.get("shapes", {}).items() if shape not in options.shape}


def _about() -> dict[str, Any]:
    return {
        "command": " ".join(["python -m benchmarks.prefix", *without_paths(sys.argv[1:])]),
        "commit": read_commit(),
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}, "
        f"torch {torch.__version__}, transformers {transformers.__version__}",
    }


def without_paths(words: Sequence[str]) -> list[str]:
    """A command's words without the folders of whoever ran it."""
    return [
        word
        for before, word in zip(("", *words), words, strict=False)
        if not {before, word} & {"--write", "--data"} and not word.startswith(("--write=", "--data="))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("cpu", "gpu"), required=True)
    parser.add_argument("--shape", nargs="+", choices=tuple(SHAPES), default=["1.5B", "0.5B"])
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the recorded rollouts")
    parser.add_argument("--write", type=Path, help="write the result as JSON")
    parser.add_argument("--quick", action="store_true", help="fewer cases and tokens")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="of the processor's part")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="of the GPU's part")
    parser.add_argument("--budget", type=int, help="tokens of a micro-batch; otherwise the shape's own")
    parser.add_argument("--raw-tokens", type=int, help="tokens of a case before any sharing; otherwise eight budgets")
    parser.add_argument("--seconds", type=float, default=400.0, help="after which a shape's other cases are left out")
    parser.add_argument("--checkpoint", choices=("no", "some", "yes"), default="some", help="gradient checkpointing")
    parser.add_argument("--compile-layers", action="store_true")
    options = parser.parse_args()
    (cpu_part if options.part == "cpu" else gpu_part)(options)


if __name__ == "__main__":
    main()
