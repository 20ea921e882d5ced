"""Time of an HGPO update on a GPU, stage by stage, from sampling to the journal.

    python -m benchmarks.gpu_update [--model FOLDER] [--updates 4] [--write benchmarks/results/gpu_update.json]

`household`, 16 tasks of 8 rollouts, full history in the prompt. The static-cache engine samples in bfloat16 with CUDA
graphs; the learner computes in bfloat16 with shared prefixes. Without `--model` the weights are random, with the width
and depth of SmolLM2-135M and the environment's vocabulary. Then every rollout runs to the step limit, and every
response to the token limit. The first updates, which compile and capture, are not counted; medians of the others.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.loop.ours import Clock
from benchmarks.result_file import write_result
from groupwise import train
from groupwise.models.forward import Forward
from groupwise.store.journal import Update
from groupwise.training.config.run_config import RunConfig
from groupwise.training.config.run_file import decode_run
from groupwise.training.open_run import open_run
from groupwise.training.run import Run

WARM = 2
TASKS, ROLLOUTS = 16, 8
RANDOM = {"kind": "tiny", "hidden": 576, "layers": 30, "heads": 9, "expansion": 3, "context": 4096}


class Stages(Clock):
    """Seconds by stage and part of each update."""

    def __init__(self) -> None:
        super().__init__(warm=-1)
        self.updates: list[dict[str, float]] = []

    def on_stage(self, name: str, number: int) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # so the optimizer's step counts as the learner's time
        super().on_stage(name, number)

    def on_update(self, update: Update) -> None:
        super().on_update(update)
        self.updates.append({**self.whole, **self.inside, "tokens": update.metrics["learner/tokens"]})
        self.updates[-1] |= {name: update.metrics[name] for name in ("learner/token_ratio", "rollout/total_steps")}
        self.whole, self.inside = {}, {}


def config(model: str | None, updates: int, device: str) -> RunConfig:
    on_gpu = device == "cuda"
    return decode_run(
        {
            "algorithm": {"method": "hgpo"},
            "device": device,
            "env": {"kind": "household", "max_steps": 20},
            "model": {"kind": "pretrained", "path": model} if model else RANDOM if on_gpu else {"kind": "tiny"},
            "engine": {"precision": "bfloat16"} if on_gpu else {},
            "rollout": {"max_tokens": 16, "history": {"kind": "full"}, "group_size": ROLLOUTS},
            "training": {
                "updates": updates,
                "tasks": TASKS,
                "checkpoint_every": 1000,
                "learner": {
                    "learning_rate": 1e-6,
                    "token_budget": 16384,
                    "precision": "bfloat16" if on_gpu else "float32",
                },
            },
            "evaluation": {"tasks": 0},
        }
    )


def watch(run: Run, clock: Clock) -> None:
    """Timers around calls inside a stage; each call waits for the GPU."""
    clock.wrap(run.engine, "generate", "model")
    for name in ("open", "act", "close"):
        clock.wrap(run.host, name, "environments")
    clock.wrap(Forward, "lay_out", "pack")


def parts(update: dict[str, float]) -> dict[str, float]:
    """Seconds of an update, each counted once."""
    played = update["rollout: model"] + update["rollout: environments"]
    return {
        "rollout: model": update["rollout: model"],
        "rollout: environments": update["rollout: environments"],
        "rollout: prompts and records": update["rollout"] - played,
        "credit and samples": update["advantages"],
        "learn: pack": update["learn: pack"],
        "learn: model": update["learn"] - update["learn: pack"],
        "weight sync and weight check": update["sync"],
        "journal": update["write"],
    }


def measure(model: str | None, updates: int, device: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        run = open_run(config(model, WARM + updates, device), Path(folder))
        clock = Stages()
        watch(run, clock)
        train(run, observers=[clock])
        engine = type(run.engine).__name__
        run.host.shutdown()
    counted = clock.updates[WARM:]
    updates_in_parts = [parts(update) for update in counted]
    middle = {name: statistics.median(each[name] for each in updates_in_parts) for name in updates_in_parts[0]}
    whole = sum(middle.values())
    return {
        "seconds": whole,
        "parts": middle,
        "shares": {name: value / whole for name, value in middle.items()},
        "outside_the_model": 1 - (middle["rollout: model"] + middle["learn: model"]) / whole,
        "environment_steps": counted[-1]["rollout/total_steps"],
        "trained_tokens": counted[-1]["tokens"],
        "token_ratio": counted[-1]["learner/token_ratio"],
        "engine": engine,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder of a model; none = random weights")
    parser.add_argument("--updates", type=int, default=4)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("there is no CUDA device; give --device cpu to try the script without one")
    result = measure(options.model, options.updates, options.device)
    result |= {
        "command": f"python -m benchmarks.gpu_update --updates {options.updates}",
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }
    print(json.dumps(result, indent=2))
    write_result(result, options.write)


if __name__ == "__main__":
    main()
