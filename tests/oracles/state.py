"""Oracles of the methods that compare steps taken in the same state: GiGPO and Step-GRPO."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from tests.oracles.rows import (
    Result,
    Row,
    Step,
    by_task,
    deviation,
    episode_returns,
    returns_to_go,
    rollout_means,
    spread,
    steps_of,
    zscore,
)

EPS = 1e-6


def gigpo(
    rows: list[Row],
    *,
    step_weight: float = 1.0,
    gamma: float = 0.95,
    scale: str = "std",
    similarity: float | None = None,
    invalid_penalty: float = 0.1,
    refused_penalty: float = 0.0,
    peers: str = "any",
    reference: bool = False,
) -> Result:
    """A = A_E + step_weight A_S: the rollout among rollouts, the step among steps in its state (numbers, GiGPO).

    Example (numbers, Routes, gamma 0.9): rollout A of returns 10, 0, 10 has A_E = 3.3333 / 5.7735 = 0.5774; its first
    step has R = 8.1 among 8.1, 0, 7.29 in s0: A_S = 2.97 / 4.4611 = 0.6658; A = 1.2431.

    With `peers` "other_rollouts" (ours), a state that a single rollout visits compares nobody.
    """
    steps = steps_of(rows)
    episode = episode_term(steps, scale=scale, invalid_penalty=invalid_penalty, reference=reference)
    ahead = penalise(returns_to_go(steps, gamma), invalid_penalty, refused_penalty)
    groups = state_groups(steps, similarity=similarity, reference=reference)

    def credit(step: Step) -> tuple[float, bool]:
        first, has_rollouts = episode[step]
        members = groups.get(step, [])
        has_steps = len(members) > 1 if peers == "any" else hold_two_rollouts(members)
        second = _relative(ahead[step], [ahead[other] for other in members], scale) if has_steps else 0.0
        return first + step_weight * second, has_rollouts or has_steps

    return spread(rows, steps, credit)


def step_grpo(rows: list[Row], *, eps: float = EPS) -> Result:
    """z-score of the step's reward among the steps with the same state (numbers, Step-GRPO).

    Example: 0.95, 0.40, 0.80, 0 have mean 0.5375 and sample std 0.42696: the first gets 0.4125 / 0.42696 = 0.9661.
    """
    steps = steps_of(rows)
    groups = state_groups(steps, similarity=None, reference=False)

    def credit(step: Step) -> tuple[float, bool]:
        rewards = [other.reward for other in groups.get(step, [])]
        if len(rewards) < 2:
            return 0.0, False
        return zscore(step.reward, rewards, ddof=1, eps=eps), True

    return spread(rows, steps, credit)


def episode_term(
    steps: list[Step], *, scale: str, invalid_penalty: float, reference: bool
) -> dict[Step, tuple[float, bool]]:
    """A_E of each step: its rollout's return against the rollouts of the task.

    The release takes the statistics over rows, lets a lone row's score through, and takes the invalid penalty off the
    row's own score (numbers, GiGPO released). The method's default leaves the score alone: among rollouts of equal
    return, of which each has some malformed steps, the deviation of the rollouts' means is 0, and 0.05 / 1e-6 would be
    50,000.
    Example: returns 1 and 0 of two steps each, one step of the first malformed, penalty 0.1, mean only: every step of
    the first gets 0.5; in the release the scores are 0.9, 1, 0, 0 and the malformed step gets 0.9 - 0.475 = 0.425.
    """
    returns = episode_returns(steps)
    score = {step: returns[step.who] for step in steps}
    if reference:
        score = penalise(score, invalid_penalty)
    terms = {}
    for members in by_task(steps).values():
        scores = [score[step] for step in members]
        numbers = scores if reference else rollout_means(members, score)
        for step in members:
            if len(numbers) == 1:
                terms[step] = (score[step] if reference else 0.0, False)
            else:
                terms[step] = (_relative(score[step], numbers, scale), True)
    return terms


def penalise(numbers: dict[Step, float], invalid_penalty: float, refused_penalty: float = 0.0) -> dict[Step, float]:
    """Each step's number, less a penalty where its response is malformed, after discounting (numbers, GiGPO released).

    The penalty on actions that the environment refused is ours. Example: a return of 4, malformed and refused, with
    penalties 0.1 and 0.25, becomes 3.9; well formed and refused, it becomes 3.75.
    """
    less = {}
    for step, value in numbers.items():
        less[step] = value
        if step.is_malformed:
            less[step] = value - invalid_penalty
        elif refused_penalty and step.is_refused:
            less[step] = value - refused_penalty
    return less


def state_groups(steps: list[Step], *, similarity: float | None, reference: bool) -> dict[Step, list[Step]]:
    """The steps of the same task and state, for each step that has a state."""
    members: dict[object, list[Step]] = {}
    label: dict[Step, object] = {}
    seen: dict[object, list[str]] = {}
    for step in sorted(steps, key=lambda step: (step.task, step.rollout, step.index)):
        if step.state is None:
            continue
        state = step.state
        if similarity is not None:
            known = seen.setdefault(step.task, [])
            state = _representative(str(step.state), known, similarity, reference)
        label[step] = (step.task, state)
        members.setdefault(label[step], []).append(step)
    return {step: members[key] for step, key in label.items()}


def hold_two_rollouts(members: list[Step]) -> bool:
    """Whether steps of one task come from more than one rollout."""
    return any(member.rollout != members[0].rollout for member in members)


def _representative(state: str, known: list[str], similarity: float, reference: bool) -> str:
    """The first known state that is near enough, or the state itself, which becomes known.

    Example at 0.95: "... see a mug 1." and "... see a mug 2." have ratio 0.975: one group in the release, two here.
    """
    for candidate in known:
        is_near = SequenceMatcher(None, state, candidate).ratio() >= similarity
        if is_near and (reference or re.findall(r"\d+", state) == re.findall(r"\d+", candidate)):
            return candidate
    known.append(state)
    return state


def _relative(own: float, numbers: list[float], scale: str) -> float:
    return zscore(own, numbers, ddof=1, eps=EPS) if scale == "std" else deviation(own, numbers)
