"""The attempts of an update: played, scored, shaped, chosen by the plan, and joined by past ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from groupwise.core.errors import TrainingError
from groupwise.core.history import Recalled
from groupwise.core.part_results import check_tasks
from groupwise.core.records import FAULTS, Origin, Task, Trajectory
from groupwise.core.seeds import seed_of
from groupwise.rewards import rescored, shaped
from groupwise.rollout.collect import Attempt, Sampling, collect
from groupwise.rollout.plans import Group
from groupwise.rollout.waiting import Waiting
from groupwise.training.guided import guided_attempts, told_without_help
from groupwise.training.measuring import measure
from groupwise.training.recall import recall
from groupwise.training.run import Run


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """What an update learns from."""

    played: Sequence[Trajectory]
    """Every attempt, faults included."""
    survivors: Sequence[Trajectory]
    """The attempts without help that ended without a fault, scored: these speak for the policy."""
    chosen: Sequence[Trajectory]
    """The attempts that are compared and trained on, group by group."""
    recalled: Sequence[Recalled] = ()
    """Past attempts that take part."""
    left_out: int = 0
    """Past attempts that were wanted, but that the policy has moved too far away from."""
    waiting: Waiting = field(default_factory=Waiting)
    """What environments took."""
    spent_on_measures: Mapping[str, float] = field(default_factory=dict)
    """What measures were given to read, sampled and asked, as metrics; nothing where there are none."""

    @property
    def faults(self) -> list[Trajectory]:
        """The attempts that a fault ended."""
        return [trajectory for trajectory in self.played if not _survived(trajectory)]


@dataclass
class _Rounds:
    """What the rounds of an update brought so far."""

    played: list[Trajectory] = field(default_factory=list)
    bare: list[list[Group]] = field(default_factory=list)
    helped: list[Group] = field(default_factory=list)
    tried: Counter[str] = field(default_factory=Counter)
    waiting: Waiting = field(default_factory=Waiting)


def gather(run: Run, number: int) -> Gathered:
    """Play attempts until the plan has enough groups, then let past ones join."""
    plan, wanted, rounds = run.config.rollout.plan, run.config.training.tasks, _Rounds()
    while missing := plan.missing(rounds.bare, wanted):
        tasks = run.curriculum.next(missing)
        check_tasks(run.curriculum, tasks, missing)
        _play_round(run, number, tasks, rounds)
    groups = [group for groups in rounds.bare for group in groups]
    survivors = [trajectory for group in groups for trajectory in group]
    bare = [trajectory for trajectory in rounds.played if trajectory.origin is Origin.FRESH]
    _check_enough(bare, survivors, number, run.config.training.least_survivors)
    # A task that came in several rounds is one group: its attempts are compared, and joined, together.
    own = _groups([trajectory for group in (*plan.chosen(groups, wanted), *rounds.helped) for trajectory in group])
    measured, spent = measure(run, number, _joined(run, own))
    chosen = [shaped(group, run.config.algorithm.shapers) for group in measured]
    recalled, left_out = recall(run, number, chosen)
    return Gathered(
        played=rounds.played,
        survivors=survivors,
        chosen=[trajectory for group in chosen for trajectory in group],
        recalled=recalled,
        left_out=left_out,
        waiting=rounds.waiting,
        spent_on_measures=spent,
    )


def play(
    run: Run, attempts: Sequence[Attempt], *, temperature: float, waiting: Waiting | None = None
) -> list[Trajectory]:
    """Play attempts with the run's engine and environments; `waiting` is told what environments took."""
    return collect(
        attempts,
        host=run.host,
        engine=run.engine,
        prompter=run.prompter,
        rule=run.config.rollout.action_rule,
        sampling=Sampling(max_tokens=run.config.rollout.max_tokens, temperature=temperature),
        waiting=waiting,
    )


def _play_round(run: Run, number: int, tasks: Sequence[Task], rounds: _Rounds) -> None:
    """One round: attempts at tasks, and in the same breath those with help."""
    attempts = _attempts(run, number, tasks, rounds.tried) + guided_attempts(run, number, tasks, rounds.tried)
    played = play(run, attempts, temperature=run.config.rollout.temperature, waiting=rounds.waiting)
    rounds.played += played
    scored = [rescored(trajectory, run.config.rewards) for trajectory in played if _survived(trajectory)]
    rounds.bare.append(_groups([trajectory for trajectory in scored if trajectory.origin is Origin.FRESH]))
    rounds.helped += _groups([trajectory for trajectory in scored if trajectory.origin is not Origin.FRESH])


def _joined(run: Run, groups: Sequence[Group]) -> list[list[Trajectory]]:
    """The groups, with what succeeded with help beside what was tried without, where that is asked for."""
    extra = told_without_help(run, groups)
    return [[*group, *extra.get(group[0].task.id, ())] for group in groups]


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
