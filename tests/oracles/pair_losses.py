"""Oracles of the losses over pairs: the formulas over the whole batch at once, pair by pair, with autograd."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from groupwise.data.samples import Pair
from tests.oracles.losses import Token

Member = Callable[[str], Tensor]
"""Reads a sum over the tokens of one side of a pair: `logp`, `old`, `ref`, `num`."""
PairOracle = Callable[[Member, Member, float], Tensor]


def simpo(winner: Member, loser: Member, gap: float, *, beta: float, margin: float) -> Tensor:
    means = [side("logp") / side("num") for side in (winner, loser)]
    return -torch.nn.functional.logsigmoid(beta * (means[0] - means[1]) - beta * margin)


def dpo(winner: Member, loser: Member, gap: float, *, beta: float, reference: bool = True) -> Tensor:
    ratios = [side("logp") - (side("ref") if reference else 0.0) for side in (winner, loser)]
    return -torch.nn.functional.logsigmoid(beta * (ratios[0] - ratios[1]))


def rpo(winner: Member, loser: Member, gap: float, *, beta: float, eta: float) -> Tensor:
    return dpo(winner, loser, gap, beta=beta) + eta * -winner("logp") / winner("num")


def step_apo(winner: Member, loser: Member, gap: float, *, beta: float, alpha: float) -> Tensor:
    ratios = [side("logp") - side("ref") for side in (winner, loser)]
    return -torch.nn.functional.logsigmoid(beta * (ratios[0] - ratios[1]) + alpha * -gap)


def p3o(winner: Member, loser: Member, gap: float, *, clip: str, width: float, joint_width: float) -> Tensor:
    """Case by case, as a reader of the formulas would decide; a bound that acts leaves a constant."""
    h = gap / 2
    r_w, r_l = winner("logp") - winner("old"), loser("logp") - loser("old")
    D, D_old = winner("logp") - loser("logp"), winner("old") - loser("old")
    if clip == "separate":
        rho_w, rho_l = r_w.exp(), r_l.exp()
        praise = -h * rho_w if float(rho_w.detach()) <= 1 + width else -h * (1 + width) + 0 * rho_w
        blame = h * rho_l if float(rho_l.detach()) >= 1 - width else h * (1 - width) + 0 * rho_l
        return praise + blame
    joint = float((r_w + r_l).exp().detach())
    if clip == "none":
        return -h * joint * D
    W = min(max(joint, 1 - width), 1 + width)
    moved = float((D - D_old).detach())
    return -h * W * D if moved <= joint_width else -h * W * (D_old + joint_width) + 0 * D


def by_oracle(
    tokens: Sequence[Token], pairs: Sequence[Pair], term: PairOracle, *, per: str = "weight"
) -> tuple[float, list[float]]:
    """The loss and its slope by each token's log-prob."""
    logp = [torch.tensor(token.logp, dtype=torch.float64, requires_grad=True) for token in tokens]

    def side(trajectory: int, step: int | None) -> Member:
        own = [
            i
            for i, token in enumerate(tokens)
            if token.trains and token.trajectory == trajectory and step in (None, token.step)
        ]

        def read(name: str) -> Tensor:
            if name == "num":
                return torch.tensor(float(len(own)), dtype=torch.float64)
            return sum(
                (
                    logp[i] if name == "logp" else torch.tensor(getattr(tokens[i], name), dtype=torch.float64)
                    for i in own
                ),
                0.0,
            )

        return read

    terms = [
        pair.weight * term(side(pair.winner, pair.winner_step), side(pair.loser, pair.loser_step), pair.gap)
        for pair in pairs
    ]
    if not terms:
        return 0.0, [0.0] * len(tokens)
    divisor = sum(pair.weight for pair in pairs) if per == "weight" else len(pairs)
    value = torch.stack(terms).sum() / divisor
    value.backward()
    return float(value.detach()), [0.0 if x.grad is None else float(x.grad) for x in logp]
