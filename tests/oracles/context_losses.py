"""Oracles of losses over groups: the formulas over the whole batch at once, with autograd and without a first pass."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tests.oracles.losses import Token

Groups = Mapping[int, int]
"""Group of each trajectory."""


def rollouts_of(tokens: Sequence[Token]) -> dict[int, list[int]]:
    """Positions of the tokens that train, by trajectory."""
    own: dict[int, list[int]] = {}
    for place, token in enumerate(tokens):
        if token.trains:
            own.setdefault(token.trajectory, []).append(place)
    return own


def regression(tokens: Sequence[Token], groups: Groups, logp: list[Tensor], *, floor: float, length: str) -> Tensor:
    """mean_i (A_i - P_i)^2; R = .2, -.1, .05, -.15 with A = +-.866024: .130693 by their deviation, .391986 by .5."""
    own = rollouts_of(tokens)
    total = torch.zeros((), dtype=torch.float64)
    for group in {groups[number] for number in own}:
        members = [places for number, places in own.items() if groups[number] == group]
        credit = [math.fsum(tokens[i].advantage for i in places) / len(places) for places in members]
        if all(value == 0 for value in credit):
            continue
        changes = [sum((logp[i] - tokens[i].old for i in places), torch.zeros(())) for places in members]
        if length == "mean":
            changes = [change / len(places) for change, places in zip(changes, members, strict=True)]
        mean = sum(changes, torch.zeros(())) / len(changes)
        squares = math.fsum(float((change - mean).detach()) ** 2 for change in changes)
        spread = max(math.sqrt(squares / max(len(changes) - 1, 1)), floor) or 1.0
        for change, value in zip(changes, credit, strict=True):
            total = total + (value - (change - mean) / spread) ** 2
    return total / max(len(own), 1)


def llds(tokens: Sequence[Token], logp: list[Tensor], *, weight: float, gate: str, per: str) -> Tensor:
    """What LLDS adds; D = .2, -.1, .1 and -.3, .05, 0: only the first action is active, (.2 + .1) / 3 = .1."""
    actions: dict[object, list[int]] = {}
    for place, token in enumerate(tokens):
        if token.trains:
            key = token.trajectory if gate == "trajectory" else (token.trajectory, token.step)
            actions.setdefault(key, []).append(place)
    total, active, everything = torch.zeros((), dtype=torch.float64), 0, 0
    for places in actions.values():
        everything += len(places)
        drops = [tokens[i].old - logp[i] for i in places]
        fell = math.fsum(float(drop.detach()) for drop in drops) > 0
        if fell and math.fsum(tokens[i].advantage for i in places) >= 0:
            active += len(places)
            total = total + sum((drop for drop in drops if float(drop.detach()) > 0), torch.zeros(()))
    return weight * total / max(active if per == "active" else everything, 1)


def disco(
    tokens: Sequence[Token],
    groups: Groups,
    logp: list[Tensor],
    *,
    solved: Mapping[int, bool],
    score: str,
    negatives: str,
    tau: float,
    kl: str,
    max_kl: float,
    stiffness: float,
) -> Tensor:
    """-mean J + (stiffness / 2) [KL - max_kl]_+^2, group by group."""
    own = rollouts_of(tokens)
    if not own:
        return torch.zeros((), dtype=torch.float64)
    changes = {i: logp[i] - tokens[i].old for places in own.values() for i in places}
    goals = []
    for group in {groups[number] for number in own}:
        scores: dict[bool, list[Tensor]] = {True: [], False: []}
        for number, places in own.items():
            if groups[number] == group:
                values = [logp[i] if score == "log_likelihood" else changes[i].exp() for i in places]
                scores[solved[number]].append(torch.stack(values).mean())
        if scores[True] and scores[False]:
            failed = torch.stack(scores[False])
            level = failed.mean() if negatives == "mean" else tau * (failed / tau).exp().mean().log()
            goals.append(torch.stack(scores[True]).mean() - level)
        else:
            goals.append(torch.zeros((), dtype=torch.float64))
    moved = torch.stack([-c if kl == "difference" else c.exp() - 1 - c for c in changes.values()]).mean()
    return -torch.stack(goals).mean() + stiffness / 2 * (moved - max_kl).clamp(min=0) ** 2
