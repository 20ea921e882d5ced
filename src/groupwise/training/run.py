"""A run: everything the loop works with, as `open_run` opens it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np

from groupwise.data.records import Task, Trajectory
from groupwise.data.seeds import seed_of
from groupwise.engines.engine import ClosingEngine, Engine, MeasuredEngine, ReplicatedEngine
from groupwise.learner.protocol import ClosingLearner, Learner
from groupwise.learner.weight_check import Canary
from groupwise.learner.weight_sync import WeightTransfer
from groupwise.losses.token_columns import REFERENCE_LOGP
from groupwise.parts.requirements import check_drawn_tasks
from groupwise.parts.slots import Draw
from groupwise.rollout.environment_runner import Host
from groupwise.rollout.episodes import Player
from groupwise.rollout.live_judge import LiveJudge
from groupwise.rollout.prompts import Prompter
from groupwise.rollout.tasks import LiveCurriculum
from groupwise.store.journal import Journal, Update
from groupwise.store.lock import RunLock
from groupwise.store.run_folder import RunPaths
from groupwise.training.config.run_config import RunConfig
from groupwise.training.exact_values import read_fields, write_fields
from groupwise.training.part_states import PartStates
from groupwise.training.samples import CreditedBatch

if TYPE_CHECKING:
    from groupwise.training.observer import RunObserver


# The tasks that a curriculum gave for updates that are still to be made.
#
# Where attempts play while a checkpoint is written, the curriculum has already gone on past their tasks. A run that is
# resumed there plays these attempts again, at the same tasks: what was asked for is trained, whatever stopped the run.


class DrawnTasks:
    """Tasks by the update that they were drawn for, in their order."""

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
        """Forget the tasks of an update that is made, and of those before it."""
        for drawn in (self._drawn, self._draw_again):
            for made in [update for update in drawn if update <= number]:
                del drawn[made]

    def state_dict(self, *, without: Collection[int]) -> dict[str, Any]:
        """The tasks of all updates that are still to be made, but for those whose attempts are kept."""
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
    """A run that is open: its settings, and everything that the loop works with."""

    config: RunConfig
    folder: Path
    lock: RunLock
    tokenizer: Any
    learner: Learner
    engine: Engine
    """Samples responses with a copy of the weights."""
    weight_transfer: WeightTransfer
    prompter: Prompter
    host: Host
    journal: Journal
    canary: Canary
    """Compares engine and learner after each hand-over of weights."""
    tasks: Sequence[Task]
    curriculum: LiveCurriculum
    judge: LiveJudge | None
    """Whom measures ask, with the record of what was said; None = nobody."""
    part_states: PartStates
    panels: Mapping[str, str]
    """Hash of each panel that is trained or evaluated on, by split."""
    drawn_tasks: DrawnTasks = field(default_factory=DrawnTasks)
    """What the curriculum gave for updates that are still to be made."""
    state_lock: Any = field(default_factory=RLock)
    """Held by whoever draws from the curriculum, or reads or changes part states, where attempts play meanwhile."""

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """End the environments' processes, close engine and journal, and give the folder back."""
        with ExitStack() as closing:  # the last first; whatever of it fails, the rest is closed too
            closing.callback(self.lock.release)
            closing.callback(self.journal.close)  # its log goes into it: one file less that a copy can forget
            if isinstance(self.engine, ClosingEngine):
                closing.callback(self.engine.close)
            if isinstance(self.learner, ClosingLearner):
                closing.callback(self.learner.close)
            closing.callback(self.host.shutdown)

    def updates(self, *, resume: bool = False, observers: Sequence[RunObserver] = ()) -> Iterator[Update]:
        """Make the updates one by one, each when it is asked for, and give what was written of it.

        What is due with an update (its checkpoint, an evaluation) is done before it is given. A loop that is left early
        ends the run there; `resume=True` goes on from the last checkpoint.
        """
        from groupwise.training.loop import make_updates  # the loop is about runs

        return make_updates(self, resume=resume, observers=observers)

    def draw(self, number: int) -> Draw:
        return lambda *path: np.random.default_rng(seed_of(self.config.seed, "update", number, "draw", *path))

    @property
    def player(self) -> Player:
        return Player(
            engine=self.engine,
            host=self.host,
            prompter=self.prompter,
            action_rule=self.config.rollout.action_rule,
            max_tokens=self.config.rollout.max_tokens,
        )

    @property
    def paths(self) -> RunPaths:
        return RunPaths(self.folder)

    @property
    def checkpoints(self) -> Path:
        return self.paths.checkpoints

    @property
    def needs_reference(self) -> bool:
        """Whether anything compares with the policy that the run started from."""
        loss, measures = self.config.algorithm.loss, self.config.algorithm.measures_reference
        return measures or (loss is not None and REFERENCE_LOGP in loss.needs)

    @property
    def reference(self) -> int | None:
        """The update whose policy is the reference, where a part has a say in it and anything compares with it."""
        return self.part_states.reference if self.needs_reference else None

    def start_engine(self) -> None:
        """See that the engine samples with the weights that the run starts from, as version 0."""
        if isinstance(self.engine, ReplicatedEngine):
            self.hand_over(0)  # a server may hold anything
        else:
            self.canary.check(self.engine, self.learner, version=0)

    def take_engine_metrics(self, canary_gap: float) -> dict[str, float]:
        """How far the engine is from the learner, and what it counted since it was last asked, where it counts."""
        counts = self.engine.take_metrics() if isinstance(self.engine, MeasuredEngine) else {}
        return {"engine/canary_gap": canary_gap, **counts}

    def observe(
        self, number: int, survivors: Sequence[Trajectory], batch: CreditedBatch, learned: Mapping[str, float]
    ) -> None:
        """Tell curriculum and stateful parts how an update went, and hold its policy if it is the new reference."""
        with self.state_lock:
            self.drawn_tasks.forget_until(number)
            self.curriculum.observe(survivors)
            self.part_states.observe(number, survivors, batch, learned)
        if self.reference == number:
            self.learner.hold_reference()

    def hand_over(self, version: int) -> float:
        """Give the engine the learner's weights as a version, and see that they arrived; the canary's gap."""
        self.weight_transfer.hand_over(self.learner.weights(), self.engine, version=version)
        return self.canary.check(self.engine, self.learner, version=version)
