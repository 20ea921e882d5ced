"""The attempts that a plan requests: what it may choose from, their numbers and seeds, and what they train on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from groupwise.core.errors import ConfigError
from groupwise.core.records import Origin, Task, Trajectory
from groupwise.core.seeds import seed_of
from groupwise.engines.engine import Engine
from groupwise.rollout.episodes import Attempt
from groupwise.rollout.plans.guided import strip_guidance
from groupwise.rollout.plans.requests import AttemptRequest
from groupwise.rollout.prompts.prompter import Prompter
from groupwise.training.run import Run


@dataclass
class RunPlanTools:
    """What a run's plan can ask for: tasks, and the words of the tokenizer."""

    run: Run
    number: int
    """Of the update that the plan is for."""
    prompter: Prompter
    """Has the tokenizer that the plan's words are turned into tokens with; a thread that plays has one of its own."""
    handed_out: set[str] = field(default_factory=set)
    """Ids of the tasks that the curriculum gave for this update."""

    @property
    def tasks(self) -> Sequence[Task]:
        """The whole training panel."""
        return self.run.tasks

    def fresh(self, num: int) -> list[Task]:
        """The next tasks of the run's curriculum, which goes on by as many."""
        if type(num) is not int or num < 0:
            raise ConfigError(f"the plan asked tools.fresh for {num!r} tasks; ask for a whole number, 0 or more")
        with self.run.state_lock:
            tasks = self.run.drawn_tasks.draw(self.number, num, self.run.curriculum)
        self.handed_out |= {task.id for task in tasks}
        return tasks

    def columns(self, tasks: Sequence[Task]) -> Mapping[str, Mapping[str, float]]:
        """What the run's stateful parts know of tasks, by the name of the column and the id of the task."""
        with self.run.state_lock:
            return self.run.part_states.columns(tasks)

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of a text."""
        return self.prompter.encode(text)

    def text(self, token_ids: Sequence[int]) -> str:
        """What a response says."""
        return self.prompter.text(token_ids)

    def knows(self, task_id: str) -> bool:
        """Whether a task may be attempted: the curriculum gave it, or the panel has it."""
        return task_id in self.handed_out or any(task.id == task_id for task in self.run.tasks)


def make_attempts(run: Run, number: int, request: AttemptRequest, tried: Counter[str]) -> list[Attempt]:
    """Make the attempts of a request; a task that comes again within an update gets further ones, not the same."""
    task = request.group_task
    first = tried[task.id]
    tried[task.id] += request.attempts
    return [
        Attempt(
            task=task,
            number=attempt,
            seed=seed_of(run.config.seed, "update", number, task.id, attempt),
            origin=request.origin,
            guidance_text=request.guidance_text,
            forced=request.forced,
            trains_forced=request.trains_forced,
            temperature=request.temperature,
            parent=request.parent,
        )
        for attempt in range(first, tried[task.id])
    ]


def prepare_to_train(request: AttemptRequest, trajectory: Trajectory) -> Trajectory:
    """Give an attempt the prompt that its request lets it train with, and mark it where that makes it off-policy."""
    if request.loss_context == "unguided":
        trajectory = strip_guidance(trajectory)
    return replace(trajectory, off_policy=True) if request.origin is Origin.GUIDED else trajectory


def score_forced(
    engine: Engine, attempts: Sequence[Attempt], played: Sequence[Trajectory], temperature: float
) -> list[Trajectory]:
    """Give attempts the policy's own log-probs of the tokens that were forced on them, in place of zeros."""
    scored = list(played)
    numbers = [n for n, attempt in enumerate(attempts) if attempt.forced and played[n].steps]
    for asked in sorted({attempts[n].temperature or temperature for n in numbers}):
        alike = [n for n in numbers if (attempts[n].temperature or temperature) == asked]
        pairs = [(played[n].steps[0].prompt_ids, attempts[n].forced) for n in alike]
        for n, logps in zip(alike, engine.score(pairs, temperature=asked), strict=True):
            first, *rest = played[n].steps
            first = replace(first, logp_behaviour=(*logps, *first.logp_behaviour[len(logps) :]))
            scored[n] = replace(played[n], steps=(first, *rest))
    return scored
