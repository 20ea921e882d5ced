"""Past attempts that join an update: read back, measured against the policy of today, numbered after the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from groupwise.core.past_attempts import RecalledAttempt
from groupwise.core.records import Origin, SetAside, Trajectory
from groupwise.training.run import Run


def recall(
    run: Run, number: int, groups: Sequence[Sequence[Trajectory]], set_aside: Sequence[SetAside] = ()
) -> tuple[list[RecalledAttempt], int]:
    """The past attempts that join the groups, and how many were left out for being too far from the policy.

    Their numbers come after those of the groups' own attempts, also of the ones that were set aside.
    """
    replay = run.config.algorithm.replay
    if replay is None:
        return [], 0
    wanted = replay(groups, run.journal.past_attempts, version=number - 1, draw=run.draw(number))
    read = [replace(one, trajectory=run.journal.past_attempts.read(one.past)) for one in wanted]
    measured = _measured(run, read)
    limit = replay.max_log_ratio
    near = [one for one in measured if limit is None or (one.log_ratio or 0.0) <= limit]
    return _numbered(run, near, groups, set_aside), len(measured) - len(near)


def _measured(run: Run, recalled: Sequence[RecalledAttempt]) -> list[RecalledAttempt]:
    """How far the policy has moved away from each past attempt, a token on average."""
    steps = [(i, step) for i, one in enumerate(recalled) for step in (one.trajectory.steps if one.trajectory else ())]
    scores = run.engine.score(
        [(step.prompt_ids, step.response_ids) for _, step in steps], temperature=run.config.rollout.temperature
    )
    total, tokens = dict.fromkeys(range(len(recalled)), 0.0), Counter[int]()
    for (i, step), now in zip(steps, scores, strict=True):
        total[i] += sum(abs(a - b) for a, b in zip(now, step.logp_behaviour, strict=True))
        tokens[i] += len(now)
    return [replace(one, log_ratio=total[i] / max(tokens[i], 1)) for i, one in enumerate(recalled)]


def _numbered(
    run: Run,
    recalled: Sequence[RecalledAttempt],
    groups: Sequence[Sequence[Trajectory]],
    set_aside: Sequence[SetAside],
) -> list[RecalledAttempt]:
    """The past attempts as members of their groups: numbered after the group's own, and marked as off-policy."""
    tasks = {trajectory.task.id: trajectory.task for group in groups for trajectory in group}
    following = Counter({group[0].task.id: max(one.attempt for one in group) + 1 for group in groups})
    for each in set_aside:
        following[each.trajectory.task.id] = max(following[each.trajectory.task.id], each.trajectory.attempt + 1)
    found: list[RecalledAttempt] = []
    for one in recalled:
        assert one.trajectory is not None, "it was read"
        member = replace(
            one.trajectory,
            task=tasks.get(one.task, one.trajectory.task),
            attempt=following[one.task],
            origin=Origin.REPLAYED,
            off_policy=True,
            parent=one.trajectory.id,
        )
        following[one.task] += 1
        credit = run.journal.past_attempts.credit_of(one.past) if one.keeps_credit else ()
        found.append(replace(one, trajectory=member, credit=credit))
    return sorted(found, key=lambda one: one.keeps_credit)  # those that are not compared come last
