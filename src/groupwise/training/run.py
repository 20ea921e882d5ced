"""A run: everything the loop works with, opened from its configuration."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from groupwise.core.errors import ConfigError
from groupwise.core.journal import Journal
from groupwise.core.records import Task
from groupwise.core.seeds import seed_of
from groupwise.engines.transformers_engine import TransformersEngine
from groupwise.rollout.hosts import Host, open_host
from groupwise.rollout.prompts import Prompter
from groupwise.tasks.curriculum import LiveCurriculum
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
    host: Host
    journal: Journal
    canary: Canary
    tasks: Sequence[Task]
    curriculum: LiveCurriculum

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints go."""
        return self.folder / "checkpoints"


def open_run(config: RunConfig, folder: Path, *, model_and_tokenizer: tuple[Any, Any] | None = None) -> Run:
    """Open everything a run needs; what cannot work is refused before a model loads."""
    if config.algorithm.loss is None:
        raise ConfigError("the algorithm has no loss; choose a recipe that has one, or add [algorithm.loss]")
    host = open_host(config.env, workers=config.rollout.workers, timeout=config.rollout.env_timeout)
    seed = seed_of(config.seed, "model")
    model, tokenizer = model_and_tokenizer or config.model.open(words=config.env.vocabulary(), seed=seed)
    model = model.to(_device(config.device))
    # The engine holds weights of its own, so that a hand-over is a real one and the canary can sing.
    engine = TransformersEngine(copy.deepcopy(model))
    learner = Learner(model, config.algorithm.loss, config.training.learner, temperature=config.rollout.temperature)
    prompter = Prompter(
        tokenizer,
        template=config.rollout.template,
        memory=config.rollout.memory,
        instruction=config.env.instruction(),
    )
    folder.mkdir(parents=True, exist_ok=True)
    words = prompter.opening_ids("")
    tasks = config.env.panel("train")
    return Run(
        config=config,
        folder=folder,
        tokenizer=tokenizer,
        learner=learner,
        engine=engine,
        prompter=prompter,
        host=host,
        journal=Journal(folder / "journal.sqlite"),
        canary=Canary(words, (*words[-4:], prompter.frame.end_id)),
        tasks=tasks,
        curriculum=config.training.curriculum.start(tasks, seed_of(config.seed, "curriculum")),
    )


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device: {name!r} cannot be used ({reason}); give cpu, cuda, or auto") from None
    return device


def parameter_hash(model: torch.nn.Module) -> str:
    """A digest of all weights, to the bit."""
    import hashlib

    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
