"""A run: everything the loop works with, as `open_run` opens it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np

from groupwise.agents.chat import AgentPrompter
from groupwise.data.exact_values import read_fields, write_fields
from groupwise.data.records import Task, Trajectory
from groupwise.data.seeds import seed_of
from groupwise.engines.engine import ClosingEngine, Engine, ReplicatedEngine
from groupwise.learner.protocol import ClosingLearner, Learner
from groupwise.learner.weight_check import WeightCheck
from groupwise.learner.weight_sync import WeightSync
from groupwise.parts.requirements import check_drawn_tasks
from groupwise.parts.slots import Draw
from groupwise.rollout.actions import ActionParser, continue_thought
from groupwise.rollout.environment_runner import Host
from groupwise.rollout.episodes import Player
from groupwise.rollout.live_judge import LiveJudge
from groupwise.rollout.prompts import Prompter
from groupwise.rollout.tasks import LiveCurriculum
from groupwise.store.journal import Journal, Update
from groupwise.store.lock import RunLock
from groupwise.store.run_folder import RunPaths
from groupwise.training.config.run_config import RunConfig
from groupwise.training.part_states import PartStates
from groupwise.training.samples import CreditedBatch

if TYPE_CHECKING:
    from groupwise.training.observer import RunObserver


class DrawnTasks:
    """The tasks that a curriculum gave for updates that are not made yet, by update.

    If rollouts are sampled ahead, the curriculum is already past their tasks when a checkpoint is written. A resumed
    run samples rollouts of the same tasks again.
    """

    def __init__(self) -> None:
        self._drawn: dict[int, list[Task]] = {}
        self._draw_again: dict[int, list[Task]] = {}

    def draw(self, number: int, num: int, curriculum: LiveCurriculum) -> list[Task]:
        again = self._draw_again.get(number, [])[:num]
        self._draw_again[number] = self._draw_again.get(number, [])[num:]
        tasks = curriculum.next(num - len(again)) if num > len(again) else []
        check_drawn_tasks(curriculum, tasks, num - len(again))
        self._drawn.setdefault(number, []).extend([*again, *tasks])
        return [*again, *tasks]

    def forget_until(self, number: int) -> None:
        """Forget the tasks of the updates up to `number`, which are made."""
        for drawn in (self._drawn, self._draw_again):
            for update in list(drawn):
                if update <= number:
                    del drawn[update]

    def state_dict(self, *, without: Collection[int]) -> dict[str, Any]:
        """The tasks of all updates that are not made yet, except the updates `without`, whose rollouts are kept."""
        numbers = sorted({*self._drawn, *(number for number, tasks in self._draw_again.items() if tasks)} - {*without})
        return {
            str(number): [
                write_fields(task) for task in (*self._drawn.get(number, ()), *self._draw_again.get(number, ()))
            ]
            for number in numbers
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._drawn.clear()
        self._draw_again = {
            int(number): [Task(**read_fields(task)) for task in tasks] for number, tasks in state.items()
        }


@dataclass
class Run:
    """An open run: its settings, and all objects that the loop uses."""

    config: RunConfig
    folder: Path
    lock: RunLock
    tokenizer: Any
    learner: Learner
    engine: Engine
    """Samples responses with a copy of the weights."""
    weight_sync: WeightSync
    prompter: Prompter
    host: Host
    journal: Journal
    weight_check: WeightCheck
    """Checks that engine and learner agree after each weight sync."""
    tasks: Sequence[Task]
    curriculum: LiveCurriculum
    judge: LiveJudge | None
    """The judge that scorers ask, with a record of its answers; None = no judge."""
    part_states: PartStates
    task_sets: Mapping[str, str]
    """Hash of each task set that is trained or evaluated on, by split."""
    measures_entropies: bool = False
    """Whether the learner measures the entropies of sampled tokens, because the engine does not give them."""
    drawn_tasks: DrawnTasks = field(default_factory=DrawnTasks)
    state_lock: Any = field(default_factory=RLock)
    """Held while a thread draws from the curriculum, or reads or changes part states."""

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """End the environments' processes, close engine and journal, and unlock the folder."""
        with ExitStack() as closing:  # in reverse order; if one fails, the others are still closed
            closing.callback(self.lock.release)
            closing.callback(self.journal.close)  # merges its log file, which a copy could forget
            if isinstance(self.engine, ClosingEngine):
                closing.callback(self.engine.close)
            if isinstance(self.learner, ClosingLearner):
                closing.callback(self.learner.close)
            closing.callback(self.host.shutdown)

    def updates(self, *, resume: bool = False, observers: Sequence[RunObserver] = ()) -> Iterator[Update]:
        """Make the updates one by one, and yield each after its checkpoint and evaluation, if they are due.

        If the caller stops iterating, the run ends there; `resume=True` continues from the last checkpoint.
        """
        from groupwise.training.loop import make_updates  # the loop is about runs

        return make_updates(self, resume=resume, observers=observers)

    def draw(self, number: int) -> Draw:
        return lambda *path: np.random.default_rng(seed_of(self.config.seed, "update", number, "draw", *path))

    @property
    def action_parser(self) -> ActionParser:
        if isinstance(self.prompter, AgentPrompter):
            return self.prompter.action_parser
        return continue_thought(self.config.rollout.action_parser, self.prompter.frame.thought)

    @property
    def player(self) -> Player:
        return Player(
            engine=self.engine,
            host=self.host,
            prompter=self.prompter,
            action_parser=self.action_parser,
            max_tokens=self.config.rollout.max_tokens,
        )

    @cached_property
    def paths(self) -> RunPaths:
        return RunPaths(self.folder)

    @property
    def checkpoints(self) -> Path:
        return self.paths.checkpoints

    @property
    def reference(self) -> int | None:
        """The update whose policy is the reference, if a part chooses it and it is used."""
        return self.part_states.reference if self.part_states.parts and self.config.needs_reference else None

    def start_engine(self) -> None:
        """Check that the engine samples with the run's first weights, as version 0."""
        if isinstance(self.engine, ReplicatedEngine):
            self.sync(0)  # a server may hold anything
        else:
            self.weight_check.check(self.engine, self.learner, version=0)

    def observe(
        self, number: int, survivors: Sequence[Trajectory], batch: CreditedBatch, learned: Mapping[str, float]
    ) -> None:
        """Give curriculum and stateful parts the update, and keep its policy if it is the new reference."""
        with self.state_lock:
            self.drawn_tasks.forget_until(number)
            self.curriculum.observe(survivors)
            if self.part_states.parts:
                self.part_states.observe(number, survivors, batch, learned)
        if self.reference == number:
            self.learner.hold_reference()

    def sync(self, version: int) -> float:
        """Sync the learner's weights to the engine as a version, and check them; returns the difference."""
        self.weight_sync.sync(self.learner.weights(), self.engine, version=version)
        return self.weight_check.check(self.engine, self.learner, version=version)
