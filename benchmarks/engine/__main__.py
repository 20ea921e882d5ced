"""Measure the static-cache engine.

    python -m benchmarks.engine [generate] [--cases 2] [--write FILE]           against `generate` of transformers
    python -m benchmarks.engine vllm --shapes 135M 1.5B 7B [--write FILE]       against vLLM 0.24
    python -m benchmarks.engine profile --shapes 1.5B --sides ours [--write FILE]    where the time goes

All need a GPU; on a CPU a few rows show that the scripts run (`--shapes tiny`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.engine import against_generate, against_vllm, profiling, shapes, sides
from benchmarks.result_file import write_result

MAX_SECONDS = 300
"""Seconds that a shape may take against vLLM."""


def read_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """What is measured, and how often."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("generate", "vllm", "profile"), default="generate")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--write", type=Path)
    generate = parser.add_argument_group("generate")
    generate.add_argument("--model", help="folder of SmolLM2-135M; random weights of its shape otherwise")
    generate.add_argument("--compile", action="store_true", help="compile norms and feed-forward parts of the engine")
    generate.add_argument("--static", action="store_true", help="also time generate with a static, compiled cache")
    generate.add_argument("--no-kernel", action="store_true", help="attend with torch instead of the kernel")
    generate.add_argument("--cases", type=int, default=len(against_generate.CASES), help="only the first of them")
    others = parser.add_argument_group("vllm and profile")
    others.add_argument("--shapes", nargs="+", choices=shapes.NAMES, default=["135M", "1.5B", "7B"])
    others.add_argument("--sides", nargs="+", choices=sides.NAMES, default=list(sides.COMPARED))
    others.add_argument("--batches", type=int, default=2, help="loads of batches beside the agents', vllm only")
    others.add_argument("--seconds", type=int, default=MAX_SECONDS, help="that a shape may take")
    return parser.parse_args(words)


def compare_with_vllm(chosen: argparse.Namespace) -> None:
    """One shape in this process, several in one each."""
    if len(chosen.shapes) > 1:
        by_shape = against_vllm.compare(
            chosen.shapes,
            chosen.sides,
            repeats=chosen.repeats,
            batches=chosen.batches,
            device=chosen.device,
            seconds=chosen.seconds,
        )
    else:
        [shape] = chosen.shapes
        by_shape = {
            shape: against_vllm.measure_shape(
                shape,
                chosen.sides,
                repeats=chosen.repeats,
                batches=chosen.batches,
                device=chosen.device,
                write=chosen.write,
            )
        }
    write_result({**against_vllm.describe_conditions(chosen), "shapes": by_shape}, chosen.write)


def profile(chosen: argparse.Namespace) -> None:
    """Every shape in turn, with every side of ours that was chosen."""
    by_shape: dict[str, Any] = {}
    for shape in chosen.shapes:
        for side in [name for name in chosen.sides if "vLLM" not in name]:
            part = profiling.profile_agents(shape, side, device=chosen.device)
            by_shape.setdefault(shape, {})[side] = part
            print(json.dumps({shape: {side: part}}, indent=1), flush=True)
            write_result(
                {
                    "command": against_vllm.describe_command(chosen),
                    "device": torch.cuda.get_device_name(0) if torch.cuda.is_available() else "cpu",
                    "shapes": by_shape,
                },
                chosen.write,
            )
            if torch.cuda.is_available():
                torch.cuda.empty_cache()


def main() -> None:
    """Measure what was asked for."""
    chosen = read_arguments()
    {"generate": against_generate.measure_cases, "vllm": compare_with_vllm, "profile": profile}[chosen.what](chosen)


if __name__ == "__main__":
    main()
