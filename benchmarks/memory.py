"""Memory of real runs on a GPU, compared with the prediction of `doctor`, by stage.

    python -m benchmarks.memory [RUN ...] [--write benchmarks/results/memory.json]

`household`, two updates of 8 tasks of 8 rollouts, full history in the prompt, engine and learner on one GPU. Models
have random weights and are loaded from a folder; their responses have the maximum length. The environment executes an
admissible action for any response. The runs are processes that run at the same time; each counts its own tensors by
`torch.cuda.max_memory_allocated`, per stage. The reserve of the allocator is recorded too. *tiny* only shows that the
script runs, on a CPU, where nothing is measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.result_file import write_result
from groupwise import RunObserver, train
from groupwise.data.seeds import seed_of
from groupwise.models.tiny import EXTRA_WORDS, make_word_tokenizer
from groupwise.parts.part import Part
from groupwise.rollout.actions import Action, Admissible
from groupwise.training.config.run_config import RunConfig
from groupwise.training.config.run_file import decode_run
from groupwise.training.doctor.doctor import plan_run_model
from groupwise.training.doctor.memory import estimate_memory
from groupwise.training.open_run import open_run

SHAPES: dict[str, tuple[str, dict[str, int]]] = {
    "tiny": ("LlamaConfig", {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                             "num_key_value_heads": 2, "intermediate_size": 192, "vocab_size": 2_000}),
    "135M": ("LlamaConfig", {"hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9,
                             "num_key_value_heads": 3, "intermediate_size": 1536, "vocab_size": 49_152}),
    "1.5B": ("Qwen2Config", {"hidden_size": 1536, "num_hidden_layers": 28, "num_attention_heads": 12,
                             "num_key_value_heads": 2, "intermediate_size": 8960, "vocab_size": 151_936}),
    "3B": ("Qwen2Config", {"hidden_size": 2048, "num_hidden_layers": 36, "num_attention_heads": 16,
                           "num_key_value_heads": 2, "intermediate_size": 11_008, "vocab_size": 151_936}),
    "0.5B": ("Qwen2Config", {"hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14,
                             "num_key_value_heads": 2, "intermediate_size": 4864, "vocab_size": 151_936}),
}  # fmt: skip
"""SmolLM2 and Qwen2.5 by size."""

RUNS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "tiny": ("tiny", {}, {"precision": "bfloat16"}),
    "lora": ("135M", {"dtype": "bfloat16", "lora_rank": 16}, {"precision": "bfloat16"}),
    "full": ("1.5B", {}, {"precision": "bfloat16"}),
    "checkpointed": ("1.5B", {}, {"precision": "bfloat16", "checkpoint_layers": True}),
    "qlora": ("3B", {"dtype": "bfloat16", "lora_rank": 16, "quantise": "4bit"}, {"precision": "bfloat16"}),
    "other": ("0.5B", {}, {"precision": "bfloat16"}),
}
"""Shape, and settings of model and learner, of each run."""
STAGES = ("rollout", "learn")
TASKS, ROLLOUTS, UPDATES, STEPS, TOKEN_BUDGET = 8, 8, 2, 10, 8_192


class AnyAction(Part, slot="action_parser"):
    """Executes one of the admissible actions, chosen by the response."""

    def read(self, text: str, *, stopped: bool, admissible: Admissible = None) -> Action:
        listed = admissible or ("look",)
        return Action(text=listed[seed_of(0, text) % len(listed)], well_formed=True)

    def say(self, action: str, *, admissible: Admissible = None) -> str:
        return action


class Measured(Exception):
    """Raised after the last update: writing its checkpoint would take longer than all measurements."""


class Peaks(RunObserver):
    """The largest peak of each stage over all updates; ends the run before its last checkpoint."""

    def __init__(self) -> None:
        self.stage, self.allocated, self.reserved = "", dict[str, int](), dict[str, int]()

    def on_stage(self, name: str, number: int) -> None:
        if self.stage:
            held = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
            for peaks, peak in zip((self.allocated, self.reserved), held, strict=True):
                peaks[self.stage] = max(peaks.get(self.stage, 0), peak)
        if (name, number) == ("checkpoint", UPDATES):
            raise Measured
        torch.cuda.reset_peak_memory_stats()
        self.stage = name


def write_model(folder: Path, shape: str, words: tuple[str, ...]) -> None:
    """Write a model with random weights, and a tokenizer of the words, filled up to the vocabulary size."""
    kind, settings = SHAPES[shape]
    known = dict.fromkeys((*words, *EXTRA_WORDS))
    fillers = settings["vocab_size"] - len(make_word_tokenizer(known))
    tokenizer = make_word_tokenizer((*known, *(f"filler{number}" for number in range(fillers))))
    config = getattr(transformers, kind)(
        **settings,
        tie_word_embeddings=True,
        max_position_embeddings=4096,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def make_config(name: str, folder: str) -> RunConfig:
    _, model, learner = RUNS[name]
    is_tiny = name == "tiny"
    return decode_run(
        {
            "algorithm": {"method": "hgpo"},
            "env": {"kind": "household", "max_steps": 3 if is_tiny else STEPS},
            "rewards": [{"kind": "benchmarks.vllm_update.model:DrawnReward"}],
            "model": {"kind": "pretrained", "path": folder, **model},
            "engine": {"precision": "bfloat16"},
            "rollout": {
                "max_tokens": 16,
                "history": {"kind": "full"},
                "group_size": ROLLOUTS,
                "action_parser": {"kind": "benchmarks.memory:AnyAction"},
            },
            "training": {
                "updates": UPDATES,
                "tasks": 2 if is_tiny else TASKS,
                "checkpoint_every": 1000,
                "learner": {"learning_rate": 1e-6, "token_budget": TOKEN_BUDGET, **learner},
            },
            "evaluation": {"tasks": 0},
        }
    )


def measure(name: str) -> dict[str, Any]:
    """Predict, run and scorer, in this process."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "model"
        words = decode_run(
            {"algorithm": {"method": "hgpo"}, "env": {"kind": "household"}, "model": {"kind": "tiny"}}
        ).words()
        write_model(place, RUNS[name][0], words)
        config = make_config(name, str(place))
        predicted = estimate_memory(config, *plan_run_model(config))
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        peaks = Peaks() if torch.cuda.is_available() else None
        run = open_run(config, Path(folder) / "run")
        with suppress(Measured):
            train(run, observers=[peaks] if peaks else [])
        run.host.shutdown()
    result: dict[str, Any] = {"parts": dict(predicted.parts)}
    for stage in STAGES:
        result[stage] = {"predicted": getattr(predicted, stage)}
        if peaks:
            result[stage] |= {
                "measured": peaks.allocated[stage],
                "error": getattr(predicted, stage) / peaks.allocated[stage] - 1,
                "reserved": peaks.reserved[stage],
            }
    if peaks:
        largest = max(peaks.allocated.values())
        result["peak"] = {"predicted": predicted.peak, "measured": largest, "error": predicted.peak / largest - 1}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", choices=[*RUNS, []], default=["lora", "full", "checkpointed", "qlora"])
    parser.add_argument("--alone", action="store_true", help="the one run in this process; its result as JSON")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    if options.alone:
        print(json.dumps(measure(options.runs[0])))
        return
    results = {}
    commands = {name: [sys.executable, "-m", "benchmarks.memory", name, "--alone"] for name in options.runs}
    started = {name: subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for name, command in commands.items()}
    for name, process in started.items():  # side by side: each counts its own tensors
        put_out, _ = process.communicate()
        if process.returncode == 0:
            results[name] = json.loads(put_out.splitlines()[-1])
            print(name, json.dumps(results[name]), flush=True)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    command_line = f"python -m benchmarks.memory {' '.join(options.runs)}"
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    write_result({"runs": results, "command": command_line, "device": device, "versions": versions}, options.write)


if __name__ == "__main__":
    main()
