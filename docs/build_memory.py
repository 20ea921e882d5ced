"""Write the table in gpu_memory.md of what models of several sizes take, from the model that `doctor` has of it.

python docs/build_memory.py [--check]

Shapes are Qwen2.5's. The table is below `<!-- table: memory -->`; the text around it is written by hand.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig
from table_text import table
from transformers import Qwen2Config

from groupwise.learner.config import LearnerConfig
from groupwise.models.outline import ModelPlan
from groupwise.training.config.engine_config import LocalEngine
from groupwise.training.doctor.memory import RunMemory, estimate_engine, rehearse_update
from groupwise.training.doctor.memory_passes import MicroBatchShape, PassBytes, Rehearsal
from groupwise.training.needed_memory import count_weights

PAGE = Path(__file__).parent / "howto" / "gpu_memory.md"
TABLE = re.compile(r"(<!-- table: memory -->\n)(?:\|.*\n)*")
SHAPES = {
    "0.5B": (896, 24, 14, 2, 4_864, 151_936, True),
    "1.5B": (1_536, 28, 12, 2, 8_960, 151_936, True),
    "7B": (3_584, 28, 28, 4, 18_944, 152_064, False),
    "14B": (5_120, 48, 40, 8, 13_824, 152_064, False),
    "32B": (5_120, 64, 40, 8, 27_648, 152_064, False),
}
"""Width, layers, heads, heads of keys, feed-forward width, vocabulary, whether head and embedding are one."""
LAYERS = (2, 4)
"""Layers of the models that are counted: all are alike, so that what each adds is known from two such models."""
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "all weights, float32": ({}, {}, {}),
    "all weights, lean": (
        {"dtype": torch.bfloat16},
        {"optimizer": "adamw_8bit", "bfloat16_weights": "stochastic_rounding"},
        {"share_weights": True},
    ),
    "LoRA, rank 16": ({"dtype": torch.bfloat16, "lora": 16}, {}, {}),
    "QLoRA, rank 16": ({"dtype": torch.bfloat16, "lora": 16, "is_quantised": True}, {}, {}),
}
"""Settings of the model, of the learner and of the engine."""
GPUS = (80e9, 141e9)
ROOM = 0.9
"""Share of a GPU that tensors may take: the context, and what lies idle between tensors, need the rest."""
TOKENS, TRAINED, ROWS, LONGEST = 8_192, 2_048, 64, 2_048
"""Tokens of a micro-batch, those that train; responses at a time, and tokens of one with its prompt."""
REHEARSAL = Rehearsal(
    longest=LONGEST,
    read=ROWS * 128,
    micro_batch=MicroBatchShape(tokens=TOKENS, predicting=TRAINED, keys=2 * TOKENS),
    num_micro_batches=2,
)


@cache
def count(size: str, kind: str) -> RunMemory:
    """What a model of a size takes, trained in a way, with its engine on the one GPU."""
    few, many = (_count_layers(plan(size, kind, num), kind) for num in LAYERS)
    extra = (SHAPES[size][1] - LAYERS[1]) / (LAYERS[1] - LAYERS[0])
    deep = {name: many[name] + extra * (many[name] - few[name]) for name in many}
    passed = PassBytes(kept=deep.pop("kept"), there=deep.pop("there"), back=deep.pop("back"))
    parts = {**deep, "activations": passed.kept, "work space": passed.peak - passed.kept}
    return RunMemory(parts=parts, is_rehearsed=False)


def _count_layers(shallow: ModelPlan, kind: str) -> dict[str, float]:
    """Everything that grows with the layers, each by itself, so that a line through two models gives the third."""
    _, of_learner, of_engine = KINDS[kind]
    learner = LearnerConfig(precision="bfloat16", checkpoint_layers=True, token_budget=TOKENS, **of_learner)
    engine = LocalEngine(precision="bfloat16", rows=ROWS, **of_engine)
    return {
        **count_weights(shallow, learner),
        **vars(rehearse_update(shallow, learner, REHEARSAL)),
        **estimate_engine(engine, shallow, REHEARSAL, requests=ROWS, gpu=max(GPUS)),
    }


def plan(size: str, kind: str, layers: int) -> ModelPlan:
    """A model of a size with so many layers, as it is loaded for a kind of training."""
    hidden, _, heads, key_heads, wide, vocabulary, is_tied = SHAPES[size]
    config = Qwen2Config(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        intermediate_size=wide,
        vocab_size=vocabulary,
        tie_word_embeddings=is_tied,
    )
    settings = dict(KINDS[kind][0])
    rank = settings.pop("lora", 0)
    return ModelPlan(config=config, lora=LoraConfig(r=rank, target_modules="all-linear") if rank else None, **settings)


def count_gpus(memory: RunMemory, size: float, *, may_divide: bool) -> str:
    """GPUs that a run needs: one with its engine, or so many for a learner in shares, with its engine elsewhere."""
    if memory.peak <= ROOM * size:
        return "1"
    parts = memory.parts
    divided = sum(parts[name] for name in ("weights", "gradients", "optimizer"))
    room = ROOM * size - parts["activations"] - parts["work space"]
    if not may_divide or room <= 0:
        return "-"
    return str(max(2, math.ceil(divided / room)))


def row(size: str, kind: str) -> list[str]:
    """Cells of a size and a kind of training, in gigabytes, and GPUs."""
    counted = count(size, kind)
    parts = counted.parts
    cells = [
        parts["weights"],
        parts["gradients"] + parts["optimizer"],
        parts["activations"] + parts["work space"],
        parts["engine"],
        parts["keys and values"],
        counted.peak,
    ]
    needed = [count_gpus(counted, gpu, may_divide=not kind.startswith("QLoRA")) for gpu in GPUS]
    return [f"{size}, {kind}", *(f"{cell / 1e9:.1f}" for cell in cells), *needed]


HEAD = (
    "model",
    "weights",
    "gradients and optimizer state",
    "micro-batch",
    "engine's weights",
    "keys and values",
    "total",
    "GPUs of 80 GB",
    "GPUs of 141 GB",
)


def memory() -> str:
    """Gigabytes by size and kind of training."""
    return table(HEAD, [row(size, kind) for size in SHAPES for kind in KINDS])


def page(text: str) -> str:
    """The page with a current table."""
    return TABLE.sub(lambda match: match.group(1) + memory(), text)


def main() -> None:
    """Write the page; with --check, report whether it is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    text = PAGE.read_text(encoding="utf-8")
    new = page(text)
    if parser.parse_args().check:
        sys.exit(f"{PAGE} is not as this script would write it" if new != text else 0)
    PAGE.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
