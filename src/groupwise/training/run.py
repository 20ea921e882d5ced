"""A run: everything the loop works with, opened from its configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from groupwise.core.errors import ConfigError, FileError
from groupwise.core.journal.journal import Journal
from groupwise.core.parts.members import check_methods
from groupwise.core.parts.part import Part, name_of
from groupwise.core.parts.slots import Draw, Loss
from groupwise.core.records import Task
from groupwise.core.run_folder import JOURNAL, RunPaths
from groupwise.core.run_lock import RunLock
from groupwise.core.seeds import seed_of
from groupwise.core.text.value_words import describe_value
from groupwise.engines.engine import Engine
from groupwise.engines.model_source import ModelSource
from groupwise.envs.part_queries import ask_instruction, ask_max_steps, ask_panel
from groupwise.losses.token_columns import REFERENCE_LOGP
from groupwise.rollout.hosts.host import Fault, Host, NoExpert, open_host
from groupwise.rollout.measures.tools import check_learner, check_measures
from groupwise.rollout.plans.plan import TopUp
from groupwise.rollout.player import Player
from groupwise.rollout.prompts.prompter import Prompter
from groupwise.tasks.curriculum import LiveCurriculum
from groupwise.training.engine.needs import check_engine_gives
from groupwise.training.learner.answers import check_opened
from groupwise.training.learner.protocol import Learner
from groupwise.training.loss_context import check_loss_context
from groupwise.training.panels import check_panels
from groupwise.training.part_states import PartStates
from groupwise.training.run_config import RunConfig, is_ours
from groupwise.training.weight_transfer.canary import Canary, allowed_for
from groupwise.training.weight_transfer.protocol import WeightTransfer

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
    weight_transfer: WeightTransfer
    prompter: Prompter
    host: Host
    journal: Journal
    canary: Canary
    tasks: Sequence[Task]
    curriculum: LiveCurriculum
    part_states: PartStates
    """What stateful parts remember, by path."""
    panels: Mapping[str, str]
    """Hash of each panel that is trained or evaluated on, by split."""

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the environments' processes, close the journal, and give the folder back."""
        self.host.shutdown()
        self.journal.close()  # its log goes into it: one file less that a copy can forget
        self.lock.release()

    def draw(self, number: int) -> Draw:
        """Random generators of an update, by name."""
        return lambda *path: np.random.default_rng(seed_of(self.config.seed, "update", number, "draw", *path))

    @property
    def player(self) -> Player:
        """Plays attempts with the engine's weights."""
        return Player(
            engine=self.engine,
            host=self.host,
            prompter=self.prompter,
            action_rule=self.config.rollout.action_rule,
            max_tokens=self.config.rollout.max_tokens,
        )

    @property
    def paths(self) -> RunPaths:
        """Where the run's files are."""
        return RunPaths(self.folder)

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints go."""
        return self.paths.checkpoints

    @property
    def needs_reference(self) -> bool:
        """Whether anything compares with the policy that the run started from."""
        loss, measures = self.config.algorithm.loss, self.config.algorithm.measures_reference
        return measures or (loss is not None and REFERENCE_LOGP in loss.needs)

    def hand_over(self, version: int) -> float:
        """Give the engine the learner's weights as a version, and see that they arrived; the canary's gap."""
        self.weight_transfer.hand_over(self.learner.weights(), self.engine, version=version)
        return self.canary.check(self.engine, self.learner, version=version)


def open_run(
    config: RunConfig,
    folder: Path | str,
    *,
    model_and_tokenizer: tuple[Any, Any] | None = None,
    read_only: bool = False,
) -> Run:
    """Open everything a run needs; what cannot work is refused before a model loads.

    The folder is locked until `train` returns, or the run is gone. With `read_only` it is not: somebody else may write
    there meanwhile, this run does not.

    Args:
        config: the run, as `load_run` reads it from a file, or made of its parts.
        folder: where the run is, or will be.
        model_and_tokenizer: to take the place of those that `config.model` would open.
        read_only: whether nothing is written into the folder.
    """
    if not isinstance(config, RunConfig):
        raise ConfigError(
            f"open_run was given {describe_value(config)} for the run's settings; read them first: "
            "open_run(load_run('run.toml'), 'runs/first')"
        )
    lock = RunLock(Path(folder))
    if not read_only:
        lock.acquire()
    with lock.released_if_refused():
        return _open(config, Path(folder), lock, model_and_tokenizer)


def _open(config: RunConfig, folder: Path, lock: RunLock, model_and_tokenizer: tuple[Any, Any] | None) -> Run:
    loss, device = _check_algorithm(config), choose_device(config.device)
    check_engine_gives(config, device=device.type)
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
    part_states = PartStates.start(config, seed=config.seed, tasks=tasks)
    panels = check_panels(config)
    model, tokenizer = model_and_tokenizer or config.model.open(
        words=config.words(), seed=seed_of(config.seed, "model")
    )
    model = model.to(device)
    engine = open_run_engine(config, model, tokenizer)
    canary_allows = allowed_for(config.engine.precision, model)
    learner = _open_learner(config, model, loss)
    prompter = Prompter(
        tokenizer,
        template=config.rollout.template,
        memory=config.rollout.memory,
        instruction=ask_instruction(config.env),
    )
    opening = prompter.opening_ids("")[:CANARY_TOKENS]
    paths = RunPaths(folder)
    journal = Journal(paths.journal, read_only=not lock.is_held)
    if lock.is_held:
        journal.name_panels(panels)
    return Run(
        config=config,
        folder=folder,
        lock=lock,
        tokenizer=tokenizer,
        learner=learner,
        engine=engine,
        weight_transfer=_open_transfer(config, paths.weights if lock.is_held else None),
        prompter=prompter,
        host=host,
        journal=journal,
        panels=panels,
        canary=Canary(opening, (*opening[-4:], prompter.frame.end_id), allowed=canary_allows),
        tasks=tasks,
        curriculum=_start_curriculum(config, tasks),
        part_states=part_states,
    )


def _start_curriculum(config: RunConfig, tasks: Sequence[Task]) -> LiveCurriculum:
    part = config.training.curriculum
    curriculum = part.start(tasks, seed_of(config.seed, "curriculum"))
    check_methods(curriculum, "curriculum", f"training.curriculum ({name_of(part)})")
    return curriculum


def _check_algorithm(config: RunConfig) -> Loss:
    """The loss that there is; refuse an algorithm that needs what nothing computes, or another number of attempts."""
    loss = config.algorithm.loss
    if loss is None:
        raise ConfigError("the algorithm has no loss; choose a recipe that has one, or add [algorithm.loss]")
    check_loss_context(config.algorithm, loss)
    check_measures(config.algorithm)
    for part in config.algorithm.parts():
        part.check_attempts(config.rollout.plan.attempts)
    return loss


def open_run_engine(config: RunConfig, model: PreTrainedModel, tokenizer: Any) -> Engine:
    """The engine that the run file names, for a loaded model; refused where it gives less than its part promised."""
    source = ModelSource(model=model, tokenizer=tokenizer, path=getattr(config.model, "path", None))
    engine: Engine = config.engine.open(source)
    check_methods(engine, "engine", f"engine ({name_of(config.engine)})")
    for gift in sorted(config.engine.gives - engine.gives):
        raise ConfigError(
            f"engine: {name_of(config.engine)} says that it gives {gift!r}, but its engine does not; take it out of "
            "the part's `gives`"
        )
    return engine


def _open_learner(config: RunConfig, model: PreTrainedModel, loss: Loss) -> Learner:
    """The learner that the run file names, on a model that is its own from here on."""
    part = config.training.learner
    learner = part.open(model, loss, temperature=config.rollout.temperature)
    check_opened(learner, f"training.learner ({name_of(part)})")
    check_learner(config.algorithm, learner)
    return learner


def _open_transfer(config: RunConfig, folder: Path | None) -> WeightTransfer:
    part = config.training.weight_transfer
    opened = part.open(folder)
    check_methods(opened, "weight_transfer", f"training.weight_transfer ({name_of(part)})")
    return opened


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
    paths = RunPaths(folder)
    if not paths.journal.exists():
        return
    try:
        Journal(paths.journal, read_only=True).close()
    except FileError as error:
        if not paths.latest.exists():
            raise
        raise FileError(
            f"{error}. To begin again from its first checkpoint, move {JOURNAL} and what begins with its name out of "
            f"{folder}, write `0000` into {paths.latest} and resume"
        ) from None


def _check_rescue(config: RunConfig, tasks: Sequence[Task]) -> None:
    """Refuse a past that could not be found again."""
    assert isinstance(config.rollout.plan, Part), "a slot is filled by parts"
    if config.algorithm.replay is not None and any(isinstance(part, TopUp) for part in config.rollout.plan.parts()):
        raise ConfigError(
            "rollout.plan: top_up leaves out the groups whose attempts all did equally well, which algorithm.replay is "
            "there for; use the plan flat, or leave out algorithm.replay"
        )
    again = ask_panel(config.env, "train") if config.reads_past_attempts else tasks
    for one, other in zip(tasks, again, strict=False):
        if one.id != other.id:
            raise ConfigError(
                f"env: asked twice for its training tasks, it calls the same one {one.id!r} and {other.id!r}, so that "
                "past attempts cannot be found by task; derive ids from the content (`Task.create`), or leave out "
                "algorithm.replay and algorithm.guidance"
            )


def choose_device(name: str) -> torch.device:
    """Where a run computes, by the name that its run file gives."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device: {name!r} cannot be used ({reason}); give cpu, cuda, or auto") from None
    return device
