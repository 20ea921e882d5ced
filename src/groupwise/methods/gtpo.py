from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from groupwise.credit import NumberState, ZeroSpread, read_remembered, train_all
from groupwise.data.credit import Credit, Derivation, TokenCredit
from groupwise.data.segments import BoolArray, FloatArray
from groupwise.data.step_table import StepTable
from groupwise.data.token_table import TokenTable
from groupwise.losses import Plain, PolicyLoss, SequenceMean
from groupwise.methods.dr_grpo import dr_grpo
from groupwise.methods.method import method
from groupwise.parts import Algorithm, Finite, NotNegative, ObservedUpdate, Part, Positive

LN_2 = math.log(2)
INITIAL_ENTROPY, UNKNOWN = "initial_entropy", -1.0
"""A column of the step table, and its value before the first update is finished."""


@method
def gtpo(*, boost: Finite = 2.0, entropy_weight: Finite = 0.1, max_entropy: Finite = LN_2) -> Algorithm:
    """GTPO (2025, arXiv:2508.03772): tokens that good and bad answers share are reinforced in good and spared in bad
    ones.

    A_t = delta * (R - mean(R) - entropy_weight * H) * lambda_t,   lambda_t = boost, 0 or 1;   delta = 0 where unsure

    Choices: those of the part `conflict_tokens`; formula of the code's readme, ln 2 for the largest mean entropy H.
    Zero-variance groups are dropped, because the formula would push every answer down there. No clip, no KL, no
    reference; each answer counts the same. The source makes one optimizer step per batch, so its ratios are all 1. With
    minibatches or more passes, ours are the real ratios, without a clip.
    """
    return Algorithm(
        advantage=dr_grpo().advantage,
        filters=(ZeroSpread(),),
        token_credit=ConflictTokens(boost=boost, entropy_weight=entropy_weight, max_entropy=max_entropy),
        loss=PolicyLoss(surrogate=Plain(), aggregate=SequenceMean()),
    )


class ConflictTokens(Part, slot="token_credit"):
    """If good and bad answers begin or end alike, reinforce those tokens in the good and spare them in the bad ones.

        A_t = delta * (A - entropy_weight * H) * lambda_t,   H = mean entropy of the answer's tokens
        delta = 0 where H > max_entropy and the initial policy's mean H < max_entropy, else 1
        lambda_t = boost in an answer with A > 0, 0 in one with A < 0, where t is a conflict token; else 1

    A conflict token is at the same position, with the same id, in an answer with A > 0 and in one with A < 0 of its
    group; so are all tokens before it. The same is done from the end of the answers, and the two factors are
    multiplied.

    Source: GTPO (arXiv:2508.03772), formula of its code's readme. **Choices.** max_entropy is the formula's ln 2 (the
    release drops every answer above 0.7). A group is the steps of one index of a task. The initial policy's entropy is
    that of the first update's answers; without a remembered one, a table counts as the first update. An answer with
    delta 0 has advantage 0 and still counts in denominators. The release also divides by an answer's number of conflict
    tokens (`divides_by_conflicts`). An answer with A = 0 has no conflict tokens; drop zero-variance groups with a
    filter.
    """

    needs_entropy: ClassVar[bool] = True
    boost: NotNegative = 2.0
    """Weight of a conflict token of a good answer."""
    entropy_weight: NotNegative = 0.1
    """Cost of a nat of an answer's mean entropy: gamma."""
    max_entropy: Positive = math.log(2)
    """Mean entropy above which an answer has no advantage."""
    divides_by_conflicts: bool = False
    """Whether the advantage of an answer is divided by its number of conflict tokens, as in the release."""

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        mean_entropy, initial = self._measure_entropy(table, tokens)
        forward, backward = (find_conflicts(table, credit, tokens, end=end) for end in ("first", "last"))
        good = (credit.values > 0)[tokens.row]
        factor = np.where(forward, np.where(good, self.boost, 0.0), 1.0)
        factor = factor * np.where(backward, np.where(good, self.boost, 0.0), 1.0)
        if self.divides_by_conflicts:
            conflicts = np.bincount(tokens.row, weights=forward | backward, minlength=len(table))
            factor = factor / np.maximum(conflicts, 1.0)[tokens.row]
        value = np.where(
            (mean_entropy > self.max_entropy) & (initial < self.max_entropy),
            0.0,
            credit.values - self.entropy_weight * mean_entropy,
        )
        return train_all(factor * value[tokens.row], self)

    def _measure_entropy(self, table: StepTable, tokens: TokenTable) -> tuple[FloatArray, float]:
        """The mean entropy of each answer (S), and that of the initial policy's answers."""
        length = np.bincount(tokens.row, minlength=len(table))
        entropy = np.bincount(tokens.row, weights=tokens.column("entropy", table), minlength=len(table))
        mean_entropy = np.divide(entropy, length, out=np.zeros(len(table)), where=length > 0)
        initial = float(mean_entropy[length > 0].mean()) if length.any() else 0.0
        known = read_remembered(table, INITIAL_ENTROPY, UNKNOWN)
        return mean_entropy, initial if known == UNKNOWN else known

    def derive(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> Derivation:
        step, (_, initial) = int(tokens.row[token]), self._measure_entropy(table, tokens)
        group = [s for s in range(len(table)) if (table.task[s], table.step[s]) == (table.task[step], table.step[step])]
        answers = {s: [k for k, of in enumerate(tokens.row.tolist()) if of == s] for s in group}
        own, position, earned = answers[step], int(tokens.position[token]), float(credit.values[step])
        mean_entropy = math.fsum(float(tokens.entropy[k]) for k in own) / len(own)
        by_ids = {s: [int(tokens.token[k]) for k in answer] for s, answer in answers.items()}
        signs = {s: float(credit.values[s]) for s in group}
        runs = _measure_run(by_ids, signs, step), _measure_run({s: ids[::-1] for s, ids in by_ids.items()}, signs, step)
        factor, from_end = 1.0, len(own) - 1 - position
        for is_in_run in (position < runs[0], from_end < runs[1]):
            factor *= (self.boost if earned > 0 else 0.0) if is_in_run else 1.0
        if self.divides_by_conflicts:
            factor /= max(1, sum(place < runs[0] or len(own) - 1 - place < runs[1] for place in range(len(own))))
        is_unsure = mean_entropy > self.max_entropy > initial
        value = 0.0 if is_unsure else factor * (earned - self.entropy_weight * mean_entropy)
        words = f"{factor:.6g} x ({earned:.6g} - {self.entropy_weight:.6g} x entropy {mean_entropy:.6g}) = {value:.6g}"
        lines = (
            f"mean entropy of the {len(own)} tokens of the answer: {mean_entropy:.6g}; the initial policy's: "
            f"{initial:.6g}; too large above {self.max_entropy:.6g}",
            f"of the answer, good and bad answers to the task share the first {runs[0]} and the last {runs[1]} tokens; "
            f"this is number {position + 1}, so its factor is {factor:.6g}",
        )
        formula = f"entropy {mean_entropy:.6g} is too large: 0" if is_unsure else words
        return Derivation(value=value, formula=formula, lines=lines)

    def start(self, *, seed: int) -> InitialEntropy:
        return InitialEntropy(INITIAL_ENTROPY, UNKNOWN)


class InitialEntropy(NumberState):
    """The mean entropy of the first update's answers."""

    def observe(self, update: ObservedUpdate) -> None:
        steps = [step for trajectory in update.trajectories for step in trajectory.steps]
        entropies = [step.entropy[step.forced :] for step in steps if len(step.entropy) > step.forced]
        if self._value == UNKNOWN and entropies:
            self._value = math.fsum(math.fsum(entropy) / len(entropy) for entropy in entropies) / len(entropies)


def find_conflicts(table: StepTable, credit: Credit, tokens: TokenTable, *, end: str) -> BoolArray:
    """Which tokens (K) are in the unbroken run of conflict tokens from the first, or from the last, token of their
    answer.
    """
    place = tokens.position if end == "first" else tokens.step_length - 1 - tokens.position
    sign = np.sign(credit.values)[tokens.row]
    keys = np.stack([table.task[tokens.row], table.step[tokens.row], place, tokens.token])
    _, key = np.unique(keys, axis=1, return_inverse=True)
    key = key.reshape(-1)
    in_good, in_bad = (np.bincount(key, weights=sign == which) > 0 for which in (1, -1))
    is_shared = (in_good & in_bad)[key] & (sign != 0)
    first_break = np.full(len(table), np.iinfo(np.int64).max)
    np.minimum.at(first_break, tokens.row[~is_shared], place[~is_shared])
    in_run: BoolArray = is_shared & (place < first_break[tokens.row])
    return in_run


def _measure_run(ids: Mapping[int, Sequence[int]], credit: Mapping[int, float], step: int) -> int:
    """How many first tokens of an answer good and bad answers share at the same place."""
    if credit[step] == 0:
        return 0
    for place, token in enumerate(ids[step]):
        holders = [credit[s] for s, answer in ids.items() if len(answer) > place and answer[place] == token]
        if not (max(holders) > 0 > min(holders)):
            return place
    return len(ids[step])
