"""The attempts of an update: played, scored, and chosen by the plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from groupwise.core.errors import TrainingError
from groupwise.core.records import FAULTS, Task, Trajectory
from groupwise.core.seeds import seed_of
from groupwise.rewards import rescored
from groupwise.rollout.collect import Attempt, Sampling, collect
from groupwise.rollout.plans import Group
from groupwise.training.run import Run


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """What was played for an update."""

    played: Sequence[Trajectory]
    """Every attempt, faults included."""
    survivors: Sequence[Trajectory]
    """The attempts that ended without a fault, scored."""
    chosen: Sequence[Trajectory]
    """Those of them that are compared and trained on, group by group."""

    @property
    def faults(self) -> list[Trajectory]:
        """The attempts that a fault ended."""
        return [trajectory for trajectory in self.played if not _survived(trajectory)]


def gather(run: Run, number: int) -> Gathered:
    """Play attempts until the plan has enough groups."""
    plan, wanted = run.config.rollout.plan, run.config.training.tasks
    rounds: list[list[Group]] = []
    played: list[Trajectory] = []
    tried: Counter[str] = Counter()
    while missing := plan.missing(rounds, wanted):
        attempts = _attempts(run, number, run.curriculum.next(missing), tried)
        new = play(run, attempts, temperature=run.config.rollout.temperature)
        played += new
        rounds.append(
            _groups([rescored(trajectory, run.config.rewards) for trajectory in new if _survived(trajectory)])
        )
    groups = [group for groups in rounds for group in groups]
    survivors = [trajectory for group in groups for trajectory in group]
    _check_enough(played, survivors, number, run.config.training.least_survivors)
    chosen = [trajectory for group in plan.chosen(groups, wanted) for trajectory in group]
    return Gathered(played=played, survivors=survivors, chosen=chosen)


def play(run: Run, attempts: Sequence[Attempt], *, temperature: float) -> list[Trajectory]:
    """Play attempts with the run's engine and environments."""
    return collect(
        attempts,
        host=run.host,
        engine=run.engine,
        prompter=run.prompter,
        rule=run.config.rollout.action_rule,
        sampling=Sampling(max_tokens=run.config.rollout.max_tokens, temperature=temperature),
    )


def _attempts(run: Run, number: int, tasks: Sequence[Task], tried: Counter[str]) -> list[Attempt]:
    """Attempts at tasks; one that comes again within an update gets further attempts, not the same ones."""
    found: list[Attempt] = []
    for task in tasks:
        first = tried[task.id]
        tried[task.id] += run.config.rollout.plan.attempts
        found += [
            Attempt(task=task, number=attempt, seed=seed_of(run.config.seed, "update", number, task.id, attempt))
            for attempt in range(first, tried[task.id])
        ]
    return found


def _groups(trajectories: Sequence[Trajectory]) -> list[Group]:
    groups: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        groups.setdefault(trajectory.task.id, []).append(trajectory)
    return list(groups.values())


def _survived(trajectory: Trajectory) -> bool:
    return trajectory.stop not in FAULTS and bool(trajectory.steps)


def _check_enough(played: Sequence[Trajectory], survivors: Sequence[Trajectory], number: int, least: float) -> None:
    """Too few attempts without a fault stop the run, with the causes."""
    if len(survivors) >= max(least * len(played), 1):
        return
    causes = Counter(trajectory.error or trajectory.stop.value for trajectory in played if not _survived(trajectory))
    listed = "; ".join(f"{count} x {cause}" for cause, count in causes.most_common(3))
    raise TrainingError(
        f"update {number}: only {len(survivors)} of {len(played)} attempts survived ({listed}); mend the environment"
    )
