"""Replay: past attempts that join an update, read back, held against the policy of today, numbered after the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from groupwise.core.past_attempts import RecalledAttempt
from groupwise.core.records import Origin, SetAside, Trajectory
from groupwise.training.run import Run


def recall_attempts(
    run: Run, number: int, groups: Sequence[Sequence[Trajectory]], set_aside: Sequence[SetAside] = ()
) -> tuple[list[RecalledAttempt], int]:
    """Recall the past attempts that join the groups; they, and how many were left out as too far from the policy.

    Their numbers come after those of the groups' own attempts, also of the ones that were set aside.
    """
    replay = run.config.algorithm.replay
    if replay is None:
        return [], 0
    wanted = replay(groups, run.journal.past_attempts, version=number - 1, draw=run.draw(number))
    read = [replace(member, trajectory=run.journal.past_attempts.read(member.past)) for member in wanted]
    scored = _score_distance(run, read)
    limit = replay.max_log_ratio
    near = [member for member in scored if limit is None or (member.log_ratio or 0.0) <= limit]
    return _number_members(run, near, groups, set_aside), len(scored) - len(near)


def _score_distance(run: Run, recalled: Sequence[RecalledAttempt]) -> list[RecalledAttempt]:
    """Write down how far the policy has moved away from each past attempt, a token on average.

    Those that are measured against the policy of the present also get the log-probs that they have under it.
    """
    steps = [
        (i, step)
        for i, member in enumerate(recalled)
        for step in (member.trajectory.steps if member.trajectory else ())
    ]
    scores = run.engine.score(
        [(step.prompt_ids, step.response_ids) for _, step in steps], temperature=run.config.rollout.temperature
    )
    by_member: list[list[tuple[float, ...]]] = [[] for _ in recalled]
    total, tokens = dict.fromkeys(range(len(recalled)), 0.0), Counter[int]()
    for (i, step), now in zip(steps, scores, strict=True):
        total[i] += sum(abs(a - b) for a, b in zip(now, step.logp_behaviour, strict=True))
        tokens[i] += len(now)
        by_member[i].append(tuple(now))
    return [
        replace(
            member,
            log_ratio=total[i] / max(tokens[i], 1),
            logps_now=tuple(by_member[i]) if member.ratio == "recomputed" else (),
        )
        for i, member in enumerate(recalled)
    ]


def _number_members(
    run: Run,
    recalled: Sequence[RecalledAttempt],
    groups: Sequence[Sequence[Trajectory]],
    set_aside: Sequence[SetAside],
) -> list[RecalledAttempt]:
    """Make past attempts members of their groups: numbered after the group's own, and marked as off-policy."""
    tasks = {trajectory.task.id: trajectory.task for group in groups for trajectory in group}
    following = Counter({group[0].task.id: max(trajectory.attempt for trajectory in group) + 1 for group in groups})
    for trajectory in (aside.trajectory for aside in set_aside):
        following[trajectory.task.id] = max(following[trajectory.task.id], trajectory.attempt + 1)
    members: list[RecalledAttempt] = []
    for past in recalled:
        assert past.trajectory is not None, "it was read"
        trajectory = replace(
            past.trajectory,
            task=tasks.get(past.task, past.trajectory.task),
            attempt=following[past.task],
            origin=Origin.REPLAYED,
            off_policy=True,
            parent=past.trajectory.id,
        )
        following[past.task] += 1
        credit = run.journal.past_attempts.credit_of(past.past) if past.keeps_credit else ()
        members.append(replace(past, trajectory=trajectory, credit=credit))
    return sorted(members, key=lambda member: member.keeps_credit)  # those that are not compared come last
