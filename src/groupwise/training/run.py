"""A run: everything the loop works with, opened from its configuration."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from groupwise.core.errors import ConfigError, nearest
from groupwise.core.journal import Journal
from groupwise.core.parts import Draw, Loss, name_of
from groupwise.core.records import Task
from groupwise.core.seeds import seed_of
from groupwise.engines.engine import Engine
from groupwise.engines.open_engine import check_decoding, open_engine
from groupwise.engines.transformers_engine import TransformersEngine
from groupwise.envs.environment import Expert
from groupwise.losses.columns import COLUMN_OF
from groupwise.rollout.hosts import Host, open_host
from groupwise.rollout.plans import TopUp
from groupwise.rollout.prompts import Prompter
from groupwise.tasks.curriculum import LiveCurriculum
from groupwise.training.canary import Canary, allowed_for
from groupwise.training.learner import Learner
from groupwise.training.panels import check_panels
from groupwise.training.run_config import RunConfig

JOURNAL = "journal.sqlite"
CANARY_TOKENS = 64
"""Most tokens of the prompt that engine and learner must score alike: enough to run every weight."""


@dataclass
class Run:
    """The living parts of a run."""

    config: RunConfig
    folder: Path
    tokenizer: Any
    learner: Learner
    engine: Engine
    prompter: Prompter
    host: Host
    journal: Journal
    canary: Canary
    tasks: Sequence[Task]
    curriculum: LiveCurriculum
    panels: Mapping[str, str]
    """Hash of each panel that is trained or evaluated on, by split."""

    def draw(self, number: int) -> Draw:
        """Random generators of an update, by name."""
        return lambda *path: np.random.default_rng(seed_of(self.config.seed, "update", number, "draw", *path))

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints go."""
        return self.folder / "checkpoints"


def open_run(config: RunConfig, folder: Path, *, model_and_tokenizer: tuple[Any, Any] | None = None) -> Run:
    """Open everything a run needs; what cannot work is refused before a model loads."""
    loss, device = _check_possible(config), _device(config.device)
    check_decoding(config.engine.decoding, device)
    if config.threads:
        torch.set_num_threads(config.threads)
    _check_journal(folder)
    panels = check_panels(config)
    host = open_host(config.env, workers=config.rollout.workers, timeout=config.rollout.env_timeout)
    seed = seed_of(config.seed, "model")
    model, tokenizer = model_and_tokenizer or config.model.open(words=config.words(), seed=seed)
    model = model.to(device)
    # The engine holds weights of its own, so that a hand-over is a real one and the canary can sing.
    engine = open_engine(copy.deepcopy(model), **config.engine.config())
    learner = Learner(model, loss, config.training.learner, temperature=config.rollout.temperature)
    prompter = Prompter(
        tokenizer,
        template=config.rollout.template,
        memory=config.rollout.memory,
        instruction=config.env.instruction(),
    )
    folder.mkdir(parents=True, exist_ok=True)
    opening = prompter.opening_ids("")[:CANARY_TOKENS]
    tasks = config.env.panel("train")
    journal = Journal(folder / JOURNAL)
    journal.name_panels(panels)
    return Run(
        config=config,
        folder=folder,
        tokenizer=tokenizer,
        learner=learner,
        engine=engine,
        prompter=prompter,
        host=host,
        journal=journal,
        panels=panels,
        canary=Canary(
            opening, (*opening[-4:], prompter.frame.end_id), allowed=allowed_for(config.engine.precision, model)
        ),
        tasks=tasks,
        curriculum=config.training.curriculum.start(tasks, seed_of(config.seed, "curriculum")),
    )


def _check_possible(config: RunConfig) -> Loss:
    """Refuse what no part can see alone; the loss that there is."""
    loss, tasks = config.algorithm.loss, config.env.panel("train")
    if loss is None:
        raise ConfigError("the algorithm has no loss; choose a recipe that has one, or add [algorithm.loss]")
    for need in sorted(loss.needs - COLUMN_OF.keys()):
        raise ConfigError(f"algorithm.loss: it needs {need!r}, which nothing here computes; {nearest(need, COLUMN_OF)}")
    if config.evaluation.tasks:
        config.env.panel(config.evaluation.split)
    if config.warm_start is not None and not isinstance(config.env.open(tasks[0]), Expert):
        raise ConfigError("the environment has no expert to start from; leave out [warm_start]")
    for part in config.algorithm.parts():
        part.check_attempts(config.rollout.plan.attempts)
    _check_rescue(config, tasks)
    return loss


def _check_journal(folder: Path) -> None:
    """Refuse a journal that this version cannot go on with, before a model loads."""
    if (folder / JOURNAL).exists():
        Journal(folder / JOURNAL, read_only=True).close()


def _check_rescue(config: RunConfig, tasks: Sequence[Task]) -> None:
    """Refuse shapers whose entropies no engine gives, and a past that could not be found again."""
    for shaper in config.algorithm.shapers:
        if shaper.needs_entropy and not TransformersEngine.gives_entropy:
            raise ConfigError(
                f"algorithm.shapers: {name_of(shaper)} reads the entropies of sampled tokens, which the engine does "
                "not give; use an engine that does, or leave the shaper out"
            )
    if config.algorithm.replay is not None and isinstance(config.rollout.plan, TopUp):
        raise ConfigError(
            "rollout.plan: top_up leaves out the groups whose attempts all did equally well, which algorithm.replay is "
            "there for; use the plan flat, or leave out algorithm.replay"
        )
    again = config.env.panel("train") if config.algorithm.reads_history else tasks
    for one, other in zip(tasks, again, strict=False):
        if one.id != other.id:
            raise ConfigError(
                f"env: asked twice for its training tasks, it calls the same one {one.id!r} and {other.id!r}, so that "
                "past attempts cannot be found by task; derive ids from the content (`Task.create`), or leave out "
                "algorithm.replay and algorithm.guidance"
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
