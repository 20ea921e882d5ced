"""What a run holds in memory, as lines of a table: part, bytes, when it is there, and what to turn to have less."""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupwise.cli.terminal.screen import format_bytes

if TYPE_CHECKING:
    from groupwise.training.doctor.memory.estimate import RunMemory

TURNED = {
    "weights": "model.path, model.dtype",
    "reference": "a loss without a reference",
    "gradients": "model.lora_rank",
    "optimiser": "model.lora_rank",
    "activations": "training.learner: token_budget, checkpoint_layers",
    "work space": "training.learner: token_budget",
    "engine": "engine.precision",
    "keys and values": "engine.rows, engine.memory, rollout.memory, rollout.max_tokens",
    "reading": "engine.batch_tokens",
}
"""Settings that a part of the memory depends on."""


def list_memory(memory: RunMemory) -> list[str]:
    """The parts of the memory and its stages, a line each."""
    from groupwise.training.doctor.memory.estimate import LEARN, ROLLOUT

    lines = []
    for part, size in memory.parts.items():
        if size:
            when = "always" if part in LEARN and part in ROLLOUT else "learning" if part in LEARN else "playing"
            lines.append(f"{part:<16}{format_bytes(size):>10}  {when:<9} {TURNED[part]}")
    lines += [
        f"{'playing':<16}{format_bytes(memory.rollout):>10}",
        f"{'learning':<16}{format_bytes(memory.learn):>10}",
    ]
    return lines
