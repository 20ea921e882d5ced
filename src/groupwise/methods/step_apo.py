from __future__ import annotations

from itertools import combinations
from typing import Literal

import numpy as np

from groupwise.credit import ByState, ReturnToGo
from groupwise.data.samples import Pair, differ
from groupwise.data.step_table import StepTable
from groupwise.losses import PairTerms, Tensor
from groupwise.methods.dpo import Dpo
from groupwise.methods.grpo import grpo
from groupwise.methods.method import method
from groupwise.methods.terms import Pairs
from groupwise.parts import Algorithm, Finite, GrouperPart, NotNegative, Part, Positive, Share, SignalPart, name_of


@method
def step_apo(
    *, beta: Finite = 0.3, alpha: Finite = 1.0, gamma: Share = 1.0, pairs: Pairs = "best_against_worst"
) -> Algorithm:
    """Step-APO (CPL, Wang et al. 2024, arXiv:2409.08642): DPO between steps of one state, with the value difference as
    margin.

    loss = mean over pairs of -log sigmoid(z),   z = beta * (log-ratio of winner - of loser) - alpha * (Q_w - Q_l)

    Choices: in the source, steps and Q come from a tree search. Here they are steps of several rollouts in one state,
    and Q is the later return, discounted by `gamma`. alpha fits returns of about 1. A state that only one rollout
    visited has no pair.
    """
    siblings = Siblings(
        by=ByState(), of=ReturnToGo(gamma=gamma), which="all" if pairs == "all" else "best_against_worst"
    )
    return Algorithm(advantage=grpo().advantage, pairing=siblings, loss=StepApo(beta=beta, alpha=alpha))


class StepApo(Dpo, slot="loss"):
    """DPO between steps, with the winner's larger value as margin.

        z_p = beta * ( (logp - logp_ref of the winner) - (logp - logp_ref of the loser) ) - alpha * (Q_winner - Q_loser)

    Source: Step-APO of CPL (Wang et al. 2024, arXiv:2409.08642, "CPL: Critical plan step learning"), beta 0.3, alpha 1,
    read in its code. Choices: Q is what the pairing compares (`Pair.gap`). In the source it comes from a tree search,
    here it is the return of the rollouts from the state on. Use it with the pairing `siblings`.
    """

    beta: Positive = 0.3
    """Scale of the difference within a pair."""
    alpha: NotNegative = 1.0
    """How much of the difference in value is the margin; 0 = DPO."""

    def _margins(self, pairs: PairTerms) -> Tensor:
        return self.alpha * pairs.gap


class Siblings(Part, slot="pairing"):
    """Pair steps of one state by how well the rollouts continued from there.

    Source: CPL (Wang et al. 2024, arXiv:2409.08642) pairs the children of a node of its search tree, all of them or the
    best and the worst. Choices: a state is one that several rollouts visited, so no tree is needed; the value of a step
    is `of`. CPL pairs a Q above 0 with one below, and scales the Q of solutions by 0.3; here any two values that differ
    are a pair, unscaled. A pair's gap is the difference of the values. Two steps with the same action are no pair, if
    the table has actions; nor are two steps of one rollout. Best against worst is the pair with the largest gap among
    the others, the first of several. Steps that may not train are left out. Each state counts the same by default,
    however many pairs it has.
    """

    by: GrouperPart
    """Which steps have one state, such as `by_state`."""
    of: SignalPart
    """The value of a step, such as `return_to_go`."""
    which: Literal["best_against_worst", "all"] = "best_against_worst"
    """One pair per state, or every two steps whose values differ."""
    counts: Literal["state", "pair"] = "state"
    """What counts the same: every state that has a pair, or every pair."""

    def __call__(self, table: StepTable) -> list[Pair]:
        label, value = table.ask_once(self.by), table.ask_once(self.of).tolist()
        action = table.codes("action").tolist() if "action" in table.extra else [-1] * len(table)
        states: dict[int, list[int]] = {}
        for step in np.flatnonzero(table.trains & (label >= 0)).tolist():
            states.setdefault(int(label[step]), []).append(step)
        pairs = []
        for steps in states.values():
            differing = [
                (a, b) if value[a] > value[b] else (b, a)
                for a, b in combinations(steps, 2)
                if differ(value[a], value[b])
                and table.rollout[a] != table.rollout[b]
                and (action[a] < 0 or action[a] != action[b])
            ]
            if self.which == "best_against_worst" and differing:
                differing = [max(differing, key=lambda pair: value[pair[0]] - value[pair[1]])]
            weight = 1.0 if self.counts == "pair" else 1 / max(len(differing), 1)
            rollout, index = table.rollout.tolist(), table.step.tolist()
            pairs += [
                Pair(rollout[a], rollout[b], weight, value[a] - value[b], index[a], index[b]) for a, b in differing
            ]
        return pairs

    def describe_pair(self, table: StepTable, pair: Pair) -> str:
        value = table.ask_once(self.of)
        places = [np.flatnonzero((table.rollout == number) & (table.step == index)) for number, index in pair.members]
        winner, loser = (float(value[place[0]]) for place in places)
        return f"two steps in one state: {name_of(self.of)} {winner:.6g} against {loser:.6g}"
