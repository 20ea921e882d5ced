"""Oracle of SALT: steps that several rollouts take alike share the mean of those rollouts' credit."""

from __future__ import annotations

from tests.oracles.episode import grpo, rloo
from tests.oracles.rows import Result, Row, Step, by_rollout, mean, spread, steps_of

START, END = ("start",), ("end",)
"""Markers outside the rollout; tuples, so that no normalised text equals them."""

Edge = tuple[object, ...]


def salt(
    rows: list[Row], *, history: int = 1, next_state: bool = True, count: str = "rollout", base: str = "grpo"
) -> Result:
    """A_{i,t} = A(e) where at least two rollouts carry the edge e of the step, else A_i (numbers, SALT).

    Example: credits +-0.8660 of four rollouts that all open with edge a: A(a) = 0; two good and one bad rollout go on
    with b: A(b) = (0.8660 + 0.8660 - 0.8660) / 3 = 0.2887.
    """
    values, compared = (grpo if base == "grpo" else rloo)(rows)
    steps = steps_of(rows)
    edges: dict[Step, Edge | None] = {}
    for path in by_rollout(steps).values():
        for position, step in enumerate(path):
            edges[step] = edge_of(path, position, history=history, next_state=next_state)

    def credit(step: Step) -> tuple[float, bool]:
        own = step.positions[0]
        same = [
            other
            for other in steps
            if edges[step] is not None and other.task == step.task and edges[other] == edges[step]
        ]
        carriers: dict[object, list[float]] = {}
        for other in same:
            carriers.setdefault(other.rollout, []).append(values[other.positions[0]])
        if len(carriers) < 2:
            return values[own], compared[own]
        if count == "rollout":
            return mean([mean(credits) for credits in carriers.values()]), compared[own]
        return mean([credit for credits in carriers.values() for credit in credits]), compared[own]

    return spread(rows, steps, credit)


def edge_of(path: list[Step], position: int, *, history: int, next_state: bool) -> Edge | None:
    """(norm(s_{t-h}), ..., norm(s_t), norm(a_t), norm(s_{t+1})), or None where part of it is not known.

    Example with h = 1: the first step of a rollout u, v that does "Go  left" is (START, "u", "go left", "v").
    """
    step = path[position]
    key: list[object] = []
    for back in range(history, -1, -1):
        if position < back:
            key.append(START)
            continue
        past = path[position - back]
        if past.index != step.index - back or past.state is None:
            return None
        key.append(normalise(past.state))
    if step.row.get("action") is None:
        return None
    key.append(normalise(step.row["action"]))
    if next_state:
        after = _state_after(path, position)
        if after is None:
            return None
        key.append(after)
    return tuple(key)


def _state_after(path: list[Step], position: int) -> object:
    step = path[position]
    if step.row.get("next_state") is not None:
        return normalise(step.row["next_state"])
    if position + 1 == len(path):
        return END
    follower = path[position + 1]
    if follower.index != step.index + 1 or follower.state is None:
        return None
    return normalise(follower.state)


def normalise(text: object) -> str:
    """Lower case, runs of white space as one space, none at the ends; example: " Go  LEFT" is "go left"."""
    return " ".join(str(text).lower().split())
