"""One measurement, as both trainers are told of it: a file of plain values. It imports neither of them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

ROLLOUTS = 8
"""Rollouts at a task: the size of a group."""
LEARNING_RATE = 1e-4
CLIP = 0.2
KL = 0.04
"""Weight of the penalty where there is a reference."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What to train, on what, and how much of it is timed."""

    model: str
    """Folder of the model and the tokenizer that both load."""
    folder: str
    """Where the trainer may write."""
    threads: int
    """Threads of torch."""
    tasks: int
    """Tasks of an update."""
    examples: int
    """Questions with their answers that each prompt shows first."""
    max_tokens: int
    """Tokens of every response: none ends before."""
    warm: int
    """Updates before the clock starts."""
    updates: int
    """Updates that are timed."""
    kl: bool
    """Whether a reference is scored and a KL penalty added."""

    @property
    def rollouts(self) -> int:
        """Rollouts of an update."""
        return self.tasks * ROLLOUTS

    @property
    def asked(self) -> dict[str, list[str]]:
        """The tasks by column: `prompt`, the text whose tokens are ours, and `asked`, what the reward reads."""
        tasks: dict[str, list[str]] = json.loads(tasks_path(Path(self.model), self.examples).read_text())
        return tasks

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Job:
        return cls(**json.loads(path.read_text()))


def tasks_path(model: Path, examples: int) -> Path:
    """Where the tasks lie, beside the model."""
    return model / f"asked_{examples}.json"
