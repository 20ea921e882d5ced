"""A plan with guidance: the attempts of another plan, and beside them attempts with guidance in their prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from groupwise.data.records import Origin, Trajectory
from groupwise.parts.part import Part
from groupwise.parts.slots import Draw, GuidancePart
from groupwise.rollout.plans import MARK, AttemptRequest, Group, PlanSlot, PlanTools, Played
from groupwise.store.attempt_index import PastAttempts


class Guided(Part, slot="plan"):
    """Another plan, with a further group for each of its tasks that the guidance chooses.

    A recipe's `algorithm.guidance` makes this plan of `rollout.plan`; a run file may also name it.
    """

    plan: PlanSlot
    """Who is attempted without guidance."""
    guidance: GuidancePart
    """Which of these tasks are also attempted with guidance, and what it says."""

    @property
    def attempts(self) -> int:
        return self.plan.attempts

    def words(self) -> tuple[str, ...]:
        return (*plan_words(self.plan), *self.guidance.words())

    def next(
        self, played: Played, wanted: int, *, tools: PlanTools, past_attempts: PastAttempts, draw: Draw
    ) -> list[AttemptRequest]:
        requests = self.plan.next(played, wanted, tools=tools, past_attempts=past_attempts, draw=draw)
        by_id = {request.task.id: request.task for request in requests if not request.is_guided}
        guided = []
        for past in self.guidance.choose(list(by_id), past_attempts, draw=draw):
            source = past_attempts.read(past)
            guided.append(
                AttemptRequest(
                    task=by_id[past.task],
                    attempts=self.attempts,
                    guidance_text=self.guidance.text(source, tools.text),
                    parent=source.id,
                )
            )
        return [*requests, *guided]

    def choose(self, played: Played, wanted: int) -> list[Group]:
        groups = self.plan.choose(played, wanted)
        merged = merge_by_task(groups)
        group_of = {group[0].task.id: group for group in merged}
        joining = [trajectory for turn in played.rounds for group in turn.joining for trajectory in group]
        copies: dict[str, list[Trajectory]] = {}
        for trajectory in (trajectory for group in merged for trajectory in group):
            unguided = group_of.get(trajectory.task.id.rpartition(MARK)[0])
            if trajectory.origin is not Origin.REFLECTED or unguided is None:
                continue
            if not self.guidance.joins_unguided_group(trajectory):
                continue
            # A copy as if sampled without guidance, numbered after all at the task that it joins.
            task = unguided[0].task
            joined = copies.setdefault(task.id, [])
            numbers = [member.attempt for member in (*unguided, *joining) if member.task.id == task.id]
            joined.append(
                replace(
                    strip_guidance(trajectory),
                    id=f"{trajectory.id}{MARK}",
                    task=task,
                    attempt=max(numbers) + 1 + len(joined),
                    origin=Origin.GUIDED,
                    off_policy=True,
                    parent=trajectory.id,
                )
            )
        return [*groups, *copies.values()]


def strip_guidance(trajectory: Trajectory) -> Trajectory:
    """Give an attempt the prompts that it would have had without guidance; its responses stay."""
    steps = [replace(step, prompt_ids=step.unguided_prompt_ids, unguided_prompt_ids=()) for step in trajectory.steps]
    return replace(trajectory, steps=tuple(steps))


def merge_by_task(groups: Sequence[Group]) -> list[list[Trajectory]]:
    """Make one group of each task: a task that came in several rounds is compared as a whole."""
    merged: dict[str, list[Trajectory]] = {}
    for group in groups:
        for trajectory in group:
            merged.setdefault(trajectory.task.id, []).append(trajectory)
    return list(merged.values())


def plan_words(plan: object) -> tuple[str, ...]:
    """The words that a plan says beside the environment's own; most say none."""
    words = getattr(plan, "words", None)
    return tuple(words()) if words else ()
