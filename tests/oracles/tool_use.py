"""Oracles of tool economy: the credit of right rollouts by their tool calls, and the clipped losses of two channels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tests.oracles.losses import Counted, Token, clip, token_ratio
from tests.oracles.rows import Result, Row, by_rollout, number, steps_of, zscore


def count_calls(entry: object) -> float:
    """The calls of a step: a number, a list of them, or nothing."""
    if entry is None:
        return 0.0
    return float(len(entry)) if isinstance(entry, list) else number(entry)


def economy(rows: list[Row], *, calls: str | None = None, above: float = 0.5, eps: float = 1e-6) -> Result:
    """z-score of 1 / (T + 1) among the right; T = 0, 1, 3 right and 2 wrong: 1.0911, -0.2182, -0.8729, 0."""
    paths = by_rollout(steps_of(rows))
    economy_of: dict[tuple[object, object], float] = {}
    for who, path in paths.items():
        first = path[0].row
        earned = number(first["outcome"]) if "outcome" in first else math.fsum(step.reward for step in path)
        if number(first.get("accuracy", earned)) > above:
            total = len(path) - 1 if calls is None else math.fsum(count_calls(step.row.get(calls)) for step in path)
            economy_of[who] = 1 / (total + 1)
    values, compared = [], []
    for row in rows:
        own = economy_of.get((row["task"], row["rollout"]))
        peers = [value for (task, _), value in economy_of.items() if task == row["task"]]
        compared.append(own is not None and len(peers) > 1)
        values.append(zscore(own, peers, ddof=1, eps=eps) if own is not None and len(peers) > 1 else 0.0)
    return values, compared


def sum_clipped_channels(
    tokens: Sequence[Token], channel: Mapping[int, float], *, weight: float, low: float, high: float
) -> list[Counted]:
    """Both clipped losses of each token that trains, and their slopes; the channel is given by trajectory."""
    trained = [token for token in tokens if token.trains]
    terms = []
    for token, rho in zip(trained, token_ratio(trained), strict=True):
        other = Token(**{**vars(token), "advantage": channel[token.trajectory]})
        first, second = (clip(which, rho.value, low=low, high=high) for which in (token, other))
        slope = (first.by_ratio + weight * second.by_ratio) * rho.slope
        terms.append(Counted(first.value + weight * second.value, slope))
    return terms
