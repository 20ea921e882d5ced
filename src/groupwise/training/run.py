"""A run: everything the loop works with, opened from its configuration."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch

from groupwise.core.errors import ConfigError
from groupwise.core.journal import Journal
from groupwise.core.records import Task
from groupwise.core.seeds import seed_of
from groupwise.engines.transformers_engine import TransformersEngine
from groupwise.losses.columns import REFERENCE_LOGP
from groupwise.rollout.collect import Attempt
from groupwise.rollout.hosts import InProcess
from groupwise.rollout.prompts import Prompter
from groupwise.training.canary import Canary
from groupwise.training.learner import Learner
from groupwise.training.run_config import RunConfig


@dataclass
class Run:
    """The living parts of a run."""

    config: RunConfig
    folder: Path
    tokenizer: Any
    learner: Learner
    engine: TransformersEngine
    prompter: Prompter
    host: InProcess
    journal: Journal
    canary: Canary
    tasks: Sequence[Task]

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints go."""
        return self.folder / "checkpoints"

    def attempts(self, number: int) -> list[Attempt]:
        """The attempts of an update: tasks by turns through a panel shuffled anew each time round."""
        config = self.config.training
        first = (number - 1) * config.tasks
        chosen = [self._task(position) for position in range(first, first + config.tasks)]
        return [
            Attempt(task=task, number=attempt, seed=seed_of(self.config.seed, "update", number, task.id, attempt))
            for task in {task.id: task for task in chosen}.values()
            for attempt in range(config.attempts)
        ]

    def _task(self, position: int) -> Task:
        turn, place = divmod(position, len(self.tasks))
        order = list(range(len(self.tasks)))
        Random(seed_of(self.config.seed, "panel", turn)).shuffle(order)
        return self.tasks[order[place]]


def open_run(config: RunConfig, folder: Path, *, model_and_tokenizer: tuple[Any, Any] | None = None) -> Run:
    """Open everything a run needs; what cannot work is refused before a model loads."""
    if config.algorithm.loss is None:
        raise ConfigError("the algorithm has no loss; choose a recipe that has one, or add [algorithm.loss]")
    seed = seed_of(config.seed, "model")
    model, tokenizer = model_and_tokenizer or config.model.open(words=config.env.vocabulary(), seed=seed)
    # The engine holds weights of its own, so that a hand-over is a real one and the canary can sing.
    engine = TransformersEngine(copy.deepcopy(model))
    needs_reference = REFERENCE_LOGP in config.algorithm.loss.needs
    reference = copy.deepcopy(model).eval().requires_grad_(False) if needs_reference else None
    learner = Learner(
        model,
        config.algorithm.loss,
        config.training.learner,
        temperature=config.rollout.temperature,
        reference=reference,
    )
    prompter = Prompter(
        tokenizer,
        template=config.rollout.template,
        memory=config.rollout.memory,
        instruction=config.env.instruction(),
    )
    folder.mkdir(parents=True, exist_ok=True)
    words = prompter.opening_ids("")
    return Run(
        config=config,
        folder=folder,
        tokenizer=tokenizer,
        learner=learner,
        engine=engine,
        prompter=prompter,
        host=InProcess(config.env),
        journal=Journal(folder / "journal.sqlite"),
        canary=Canary(words, (*words[-4:], prompter.frame.end_id)),
        tasks=config.env.panel("train"),
    )


def parameter_hash(model: torch.nn.Module) -> str:
    """A digest of all weights, to the bit."""
    import hashlib

    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
