"""Attempts with help in their prompt: which tasks get some, and what their successes are worth without it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from groupwise.core.records import Origin, Task, Trajectory
from groupwise.core.seeds import seed_of
from groupwise.rollout.collect import Attempt
from groupwise.rollout.plans import Group
from groupwise.training.run import Run

MARK = "~"
"""Parts the id of a task from that of the help its prompt holds."""


def guided_attempts(run: Run, number: int, tasks: Sequence[Task], tried: Counter[str]) -> list[Attempt]:
    """Attempts with help, a group of its own for each task that gets some; one that comes again gets further ones."""
    guidance = run.config.algorithm.guidance
    if guidance is None:
        return []
    by_id = {task.id: task for task in tasks}
    found: list[Attempt] = []
    for past in guidance.chosen([task.id for task in tasks], run.journal.history, draw=run.draw(number)):
        source = run.journal.history.read(past)
        help_text = guidance.text(source, run.prompter.text)
        # Another prompt is another problem: its attempts are compared with each other, and remembered apart.
        digest = hashlib.blake2b(help_text.encode(), digest_size=4).hexdigest()
        task = replace(by_id[past.task], id=f"{past.task}{MARK}{digest}")
        first = tried[task.id]
        tried[task.id] += run.config.rollout.plan.attempts
        found += [
            Attempt(
                task=task,
                number=attempt,
                seed=seed_of(run.config.seed, "update", number, task.id, attempt),
                origin=Origin.REFLECTED,
                help_text=help_text,
                parent=source.id,
            )
            for attempt in range(first, tried[task.id])
        ]
    return found


def told_without_help(run: Run, groups: Sequence[Group]) -> dict[str, list[Trajectory]]:
    """Successes with help as if they had been sampled without it, by the task they join; nothing unless asked for."""
    guidance = run.config.algorithm.guidance
    if guidance is None:
        return {}
    groups_by_task = {group[0].task.id: group for group in groups}
    found: dict[str, list[Trajectory]] = {}
    for trajectory in (trajectory for group in groups for trajectory in group):
        bare = trajectory.task.id.rpartition(MARK)[0]
        has_help = trajectory.origin is Origin.REFLECTED
        if not has_help or bare not in groups_by_task or not guidance.joins_bare_group(trajectory):
            continue
        group, joined = groups_by_task[bare], found.setdefault(bare, [])
        steps = [replace(step, prompt_ids=step.bare_prompt_ids, bare_prompt_ids=()) for step in trajectory.steps]
        joined.append(
            replace(
                trajectory,
                id=f"{trajectory.id}{MARK}",
                task=group[0].task,
                attempt=max(one.attempt for one in group) + 1 + len(joined),
                steps=tuple(steps),
                origin=Origin.GUIDED,
                off_policy=True,
                parent=trajectory.id,
            )
        )
    return found
