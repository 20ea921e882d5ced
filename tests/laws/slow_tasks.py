"""Tasks of which some take ten times as long, an engine that answers over weight syncs, and a source that discards."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from groupwise import Part, Task, methods
from groupwise.data.records import Trajectory
from groupwise.data.seeds import seed_of
from groupwise.engines.engine import Generation, Request
from groupwise.engines.transformers_engine import TransformersEngine
from groupwise.envs import Observation, Outcome
from groupwise.learner.config import LearnerConfig
from groupwise.models import TinyModel
from groupwise.store.journal import Journal
from groupwise.training.collect.ahead import PlayedNow
from groupwise.training.collect.collect import UpdateRollouts
from groupwise.training.config.run_config import EvaluationConfig, RolloutConfig, RunConfig, TrainingConfig
from groupwise.training.observer import Stopwatch
from groupwise.training.run import Run

QUICK, SLOW = 1, 10
"""Steps of a rollout."""
WORDS = ("left", "right")
SECONDS = 20.0
"""After which a test that waits for something has failed."""
PATIENCE = 0.5
"""How long a rollout is held up at most."""


class Walks(Part, slot="env"):
    """Walk so many steps: right is worth something. Every fourth task is ten times as long as the others."""

    max_steps: int = SLOW
    num_tasks: int = 8

    def task_set(self, split: str) -> tuple[Task, ...]:
        lengths = [SLOW if number % 4 == 0 else QUICK for number in range(self.num_tasks)]
        return tuple(
            Task.create(env="walks", split=split, seed=number, payload={"length": length})
            for number, length in enumerate(lengths)
        )

    def open(self, task: Task) -> Walk:
        return Walk(int(task.payload["length"]))

    def vocabulary(self) -> tuple[str, ...]:
        return ("Walk", "step", "of", *WORDS, *map(str, range(SLOW + 1)))

    def instruction(self) -> str:
        return "Walk"


@dataclass
class Walk:
    """One rollout."""

    length: int
    steps: int = 0

    def observe(self) -> Observation:
        return Observation(text=f"step {self.steps} of {self.length}", state_key=self.steps, admissible=WORDS)

    def act(self, action: str) -> Outcome:
        self.steps += 1
        is_over = self.steps == self.length
        return Outcome(
            observation=self.observe(),
            reward=float(action == WORDS[1]) / self.length,
            accepted=action in WORDS,
            terminated=is_over,
            success=action == WORDS[1] if is_over else None,
        )


class AnsweringOn(Part, slot="engine"):
    """Samples here, in threads of its own, and answers what is under way when new weights come."""

    gives: ClassVar[frozenset[str]] = frozenset({"entropy", "scores", "versions"})
    precision: ClassVar[str] = "float32"
    supports_inflight_weight_update: ClassVar[bool] = True
    outlasts: bool = False
    """Whether a long rollout is half-way held up until weights are handed over, if they are."""

    def check_device(self, device: str) -> None:
        """Wherever the learner computes."""

    def open(self, source: Any) -> AnsweringEngine:
        return AnsweringEngine(TransformersEngine(source.copy_model()), outlasts=self.outlasts)


class AnsweringEngine:
    """Answers each request by itself, with the weights that are there when its turn comes."""

    gives = AnsweringOn.gives
    context = None

    def __init__(self, engine: TransformersEngine, *, outlasts: bool) -> None:
        self._engine, self._outlasts = engine, outlasts
        self._changed = threading.Condition()
        self._asked: dict[str | None, list[int]] = {}
        self._threads = ThreadPoolExecutor(32)

    @property
    def version(self) -> int:
        return self._engine.version

    def submit(self, requests: Sequence[Request]) -> list[Future[Generation]]:
        return [self._threads.submit(self._answer, request) for request in requests]

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        return [future.result(SECONDS) for future in self.submit(requests)]

    def score(self, sequences: Any, *, temperature: float = 1.0) -> list[tuple[float, ...]]:
        with self._changed:
            return self._engine.score(sequences, temperature=temperature)

    def load(self, weights: Mapping[str, Any], *, version: int) -> None:
        with self._changed:
            self._engine.load(weights, version=version)
            self._changed.notify_all()

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    def _answer(self, request: Request) -> Generation:
        with self._changed:
            asked = self._asked.setdefault(request.session, [])
            asked.append(self.version)
            if self._outlasts and len(asked) == SLOW // 2:
                # Not for long: where its own update is the next to be learnt, no weight sync comes before it has ended.
                self._changed.wait_for(lambda: self.version > asked[0], PATIENCE)
            return self._engine.generate([replace(request, session=None)])[0]


def make_config(lag: int | str, *, updates: int, **rollout: Any) -> RunConfig:
    """A small run over quick and slow tasks."""
    return RunConfig(
        algorithm=methods.build("dr_grpo"),
        env=Walks(),
        model=TinyModel(hidden=16, layers=1, heads=2),
        engine=AnsweringOn(outlasts=lag == "free"),
        rollout=RolloutConfig(max_tokens=1, group_size=2, workers=0, lag=lag, **rollout),
        training=TrainingConfig(
            updates=updates,
            tasks=4,
            checkpoint_every=2,
            learner=LearnerConfig(learning_rate=1e-2, token_budget=256),
        ),
        evaluation=EvaluationConfig(tasks=0),
    )


@dataclass(frozen=True)
class Mix:
    """How often each task, and each length, was tried."""

    tasks: Counter[str]
    lengths: Counter[int]


def read_asked_mix(run: Run, updates: int) -> Mix:
    """What a run's curriculum has to ask for, by its order alone."""
    order = run.config.training.curriculum.start(run.tasks, seed_of(run.config.seed, "curriculum"))
    tasks = [task for _ in range(updates) for task in order.next(run.config.training.tasks)]
    rollouts = run.config.rollout.group_size
    return Mix(
        Counter({task: num * rollouts for task, num in Counter(task.id for task in tasks).items()}),
        Counter({steps: num * rollouts for steps, num in Counter(task.payload["length"] for task in tasks).items()}),
    )


def read_trained_mix(folder: Path) -> Mix:
    """What was trained, by the journal."""
    with Journal(folder / "journal.sqlite", read_only=True) as journal:
        assert all(kept == 1.0 for _, kept in journal.curve("advantage/kept")), "a filter dropped something"
        rollouts = [rollout for number in journal.update_numbers() for rollout in journal.trajectories(number)]
    return Mix(Counter(rollout["task"] for rollout in rollouts), Counter(len(rollout["steps"]) for rollout in rollouts))


class Discarding(PlayedNow):
    """Trains on whatever ends first, and discards what has become too old meanwhile, as one should not.

    An update lasts as long as two steps of a rollout: quick tasks are there at once, slow ones five updates later.
    """

    def __init__(self, run: Run, max_staleness: int) -> None:
        super().__init__(run)
        self._max_age = max_staleness
        self._under_way: list[tuple[int, Trajectory]] = []

    def take(self, number: int, clock: Stopwatch) -> UpdateRollouts:
        rollouts = super().take(number, clock)
        self._under_way += [(number + len(trajectory.steps) // 2, trajectory) for trajectory in rollouts.chosen]
        ended = [trajectory for end, trajectory in self._under_way if end <= number]
        self._under_way = [(end, trajectory) for end, trajectory in self._under_way if end > number]
        young = [trajectory for trajectory in ended if number - 1 - min(trajectory.versions) <= self._max_age]
        return replace(rollouts, chosen=young)
