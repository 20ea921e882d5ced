"""A run: everything the loop works with, opened from its configuration."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from groupwise.core.errors import ConfigError, FileError, nearest
from groupwise.core.journal import Journal
from groupwise.core.journal_file import JOURNAL
from groupwise.core.parts import Draw, Loss, name_of
from groupwise.core.records import Task
from groupwise.core.run_lock import RunLock
from groupwise.core.seeds import seed_of
from groupwise.engines.engine import Engine
from groupwise.engines.open_engine import check_decoding, open_engine
from groupwise.engines.transformers_engine import TransformersEngine
from groupwise.envs.asking import ask_instruction, ask_max_steps, ask_panel
from groupwise.losses.columns import COLUMN_OF
from groupwise.rollout.hosts import Fault, Host, NoExpert, open_host
from groupwise.rollout.measures.tools import check_measures
from groupwise.rollout.plans import TopUp
from groupwise.rollout.prompts import Prompter
from groupwise.tasks.curriculum import LiveCurriculum
from groupwise.training.canary import Canary, allowed_for
from groupwise.training.checkpoint_state import LATEST
from groupwise.training.learner import Learner
from groupwise.training.panels import check_panels
from groupwise.training.run_config import RunConfig, is_ours

NO_EXPERT = "the environment has no expert to start from; leave out [warm_start]"
CANARY_TOKENS = 64
"""Most tokens of the prompt that engine and learner must score alike: enough to run every weight."""


@dataclass
class Run:
    """The living parts of a run."""

    config: RunConfig
    folder: Path
    lock: RunLock
    """The right to write into the folder."""
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


def open_run(
    config: RunConfig, folder: Path, *, model_and_tokenizer: tuple[Any, Any] | None = None, read_only: bool = False
) -> Run:
    """Open everything a run needs; what cannot work is refused before a model loads.

    The folder is locked until `train` returns, or the run is gone. With `read_only` it is not: somebody else may write
    there meanwhile, this run does not.
    """
    lock = RunLock(folder)
    if not read_only:
        lock.acquire()
    with lock.released_if_refused():
        return _open(config, folder, lock, model_and_tokenizer)


def _open(config: RunConfig, folder: Path, lock: RunLock, model_and_tokenizer: tuple[Any, Any] | None) -> Run:
    loss, device = _check_algorithm(config), _device(config.device)
    check_decoding(config.engine.decoding, device)
    if config.threads:
        torch.set_num_threads(config.threads)
    _check_journal(folder)
    host = _open_host(config)
    try:
        return _open_in(host, config, folder, lock, model_and_tokenizer, loss, device)
    except BaseException:
        host.shutdown()
        raise


def _open_in(
    host: Host,
    config: RunConfig,
    folder: Path,
    lock: RunLock,
    model_and_tokenizer: tuple[Any, Any] | None,
    loss: Loss,
    device: torch.device,
) -> Run:
    """The run with an open host."""
    tasks = _check_tasks(config, host)
    panels = check_panels(config)
    seed = seed_of(config.seed, "model")
    model, tokenizer = model_and_tokenizer or config.model.open(words=config.words(), seed=seed)
    model = model.to(device)
    # The engine holds weights of its own, so that a hand-over is a real one and the canary can sing.
    engine = open_engine(copy.deepcopy(model), **config.engine.config())
    temperature, keeps_reference = config.rollout.temperature, config.algorithm.measures_reference
    learner = Learner(model, loss, config.training.learner, temperature=temperature, keeps_reference=keeps_reference)
    prompter = Prompter(
        tokenizer,
        template=config.rollout.template,
        memory=config.rollout.memory,
        instruction=ask_instruction(config.env),
    )
    opening = prompter.opening_ids("")[:CANARY_TOKENS]
    journal = Journal(folder / JOURNAL, read_only=not lock.is_held)
    if lock.is_held:
        journal.name_panels(panels)
    return Run(
        config=config,
        folder=folder,
        lock=lock,
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


def _check_algorithm(config: RunConfig) -> Loss:
    """The loss that there is; refuse an algorithm that needs what nothing computes, or another number of attempts."""
    loss = config.algorithm.loss
    if loss is None:
        raise ConfigError("the algorithm has no loss; choose a recipe that has one, or add [algorithm.loss]")
    for need in sorted(loss.needs - COLUMN_OF.keys()):
        raise ConfigError(f"algorithm.loss: it needs {need!r}, which nothing here computes; {nearest(need, COLUMN_OF)}")
    check_measures(config.algorithm)
    for part in config.algorithm.parts():
        part.check_attempts(config.rollout.plan.attempts)
    return loss


def _open_host(config: RunConfig) -> Host:
    """Where the environments run. Those from elsewhere are asked for their tasks and words there first, where an exit
    costs a worker and not the run."""
    splits = dict.fromkeys(["train", config.evaluation.split] if config.evaluation.tasks else ["train"])
    rehearsed = () if is_ours(config.env) else tuple(splits)
    return open_host(config.env, workers=config.num_workers, timeout=config.rollout.env_timeout, rehearsed=rehearsed)


def _check_tasks(config: RunConfig, host: Host) -> tuple[Task, ...]:
    """The training tasks; environments that cannot do what is asked of them are refused."""
    tasks = ask_panel(config.env, "train")
    if not tasks:
        raise ConfigError(f"env: {name_of(config.env)} has no training tasks; give its train panel some")
    ask_max_steps(config.env)
    if config.evaluation.tasks:
        ask_panel(config.env, config.evaluation.split)
    if config.warm_start is not None:
        _check_expert(host, tasks[0])
    _check_rescue(config, tasks)
    return tasks


def _check_expert(host: Host, task: Task) -> None:
    """Refuse a warm start without an expert. An environment that fails here says nothing of whether it has one."""
    if isinstance(host.open({0: task})[0], Fault):
        return
    if isinstance(host.ask_experts([0])[0], NoExpert):
        raise ConfigError(NO_EXPERT)
    host.close([0])


def _check_journal(folder: Path) -> None:
    """Refuse a journal that this version cannot go on with, before a model loads."""
    if not (folder / JOURNAL).exists():
        return
    try:
        Journal(folder / JOURNAL, read_only=True).close()
    except FileError as error:
        if not (folder / "checkpoints" / LATEST).exists():
            raise
        raise FileError(
            f"{error}. To begin again from its first checkpoint, move {JOURNAL} and what begins with its name out of "
            f"{folder}, write `0000` into {folder / 'checkpoints' / LATEST} and resume"
        ) from None


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
    again = ask_panel(config.env, "train") if config.algorithm.reads_history else tasks
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
