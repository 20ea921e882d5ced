from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import PositiveFloat

from groupwise.credit import AnswerSegments, WhitenedTokens, join_numbers, read_segments, train_all
from groupwise.data.credit import Credit, Derivation, TokenCredit
from groupwise.data.records import Trajectory
from groupwise.data.segments import FloatArray
from groupwise.data.step_table import StepTable
from groupwise.data.token_table import TokenTable
from groupwise.engines.engine import Request
from groupwise.losses import Clip, PolicyLoss, TokenMean
from groupwise.methods.after_vsrm import Separators
from groupwise.methods.dr_grpo import dr_grpo
from groupwise.methods.method import method
from groupwise.parts import Algorithm, Count, Draw, Finite, NotNegative, Part, Share
from groupwise.rollout.scorers import LARGEST_SEED, Tools, cut_after_separators, sort_by_step, take_answer, take_sampled
from groupwise.system.errors import RecordError


@method
def spae(
    *, alpha: Share = 0.5, xi: Finite = 0.5, saturated_above: Finite = 0.9, stub: str = "answer", probes: Count = 5
) -> Algorithm:
    """SPAE (2026, arXiv:2601.03823, from notes): lines that made the answer known get more advantage, later lines get
    less.

    Phi = 1.5 Acc Conf + 0.5 Acc - Conf,   A_k = A * f(lines since known) + xi * g(change of Phi), z-scored

    Choices: those of the parts `answer_potential` and `potential_credit`. A is the return minus the group's mean.
    Probes of at most ten tokens at temperature 0.6 after each line. Clip 0.2 and 0.28, mean over tokens, no KL, as
    DAPO.
    """
    part = PotentialCredit(alpha=alpha, xi=xi, saturated_above=saturated_above)
    return Algorithm(
        advantage=dr_grpo().advantage,
        token_credit=WhitenedTokens(of=part),
        scorers=(AnswerPotential(stub=stub, probes=probes),),
        loss=PolicyLoss(surrogate=Clip(low=0.2, high=0.28), aggregate=TokenMean()),
    )


ENDS, POTENTIALS = "potential_ends", "potentials"


class PotentialCredit(Part, slot="token_credit"):
    """Reduce the advantage of lines after the answer was known, and add each line's change in the potential.

        d_k = Phi_k - Phi_(k-1),   Phi_0 = 0;   C_k = lines before k with Phi > saturated_above
        A_k = A * (1 - alpha * (1 - exp(-C_k))) + xi * (exp(minmax(d_k)) - mean over all lines of exp(minmax(d)))

    minmax maps the smallest d of the batch to 0 and the largest to 1.

    Source: SPAE (arXiv:2601.03823), from notes on the paper; its A is the return minus the group's mean. **Choices.**
    The batch is the lines of the steps that train; if all d are equal, nothing is added. Negative advantages are
    reduced too, as in the notes, unless `damps_praise_only`. For the z-score at the end, `whitened_tokens` is around
    it.
    """

    mixes_tasks: ClassVar[bool] = True
    reads: ClassVar[frozenset[str]] = frozenset({ENDS, POTENTIALS})
    alpha: Share = 0.5
    """Largest fraction by which the advantage of later lines is reduced."""
    xi: NotNegative = 0.5
    """Weight of the change in potential."""
    saturated_above: float = 0.9
    """Potential above which the answer is known."""
    damps_praise_only: bool = False
    """Whether negative advantages keep their size."""

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        lines = read_segments(table, tokens, ends=ENDS, numbers=POTENTIALS, more=0)
        own = credit.values[lines.step]
        known = [[level > self.saturated_above for level in levels] for levels in lines.numbers]
        before = join_numbers([[float(sum(flags[:line])) for line in range(len(flags))] for flags in known])
        damping = 1.0 - self.alpha * (1.0 - np.exp(-before))
        if self.damps_praise_only:
            damping = np.where(own > 0, damping, 1.0)
        values = own * damping + self.xi * self._weigh_changes(table, lines)
        return train_all(values[lines.of_token], self)

    def _weigh_changes(self, table: StepTable, lines: AnswerSegments) -> FloatArray:
        change = join_numbers([np.diff([0.0, *levels]).tolist() for levels in lines.numbers])
        counted = change[table.trains[lines.step]]
        if not len(counted) or counted.min() == counted.max():
            return np.zeros(len(change))
        low, high = counted.min(), counted.max()
        gain: FloatArray = np.exp((change - low) / (high - low)) - np.exp((counted - low) / (high - low)).mean()
        return gain

    def derive(self, table: StepTable, credit: Credit, tokens: TokenTable, token: int) -> Derivation:
        step = int(tokens.row[token])
        has_tokens = set(tokens.row.tolist())
        line = sum(1 for end in table.column(ENDS)[step] if end <= int(tokens.position[token]))
        levels = table.column(POTENTIALS)[step]
        changes = [
            after - before
            for number, potentials in enumerate(table.column(POTENTIALS))
            if number in has_tokens and table.trains[number]
            for before, after in zip([0.0, *potentials], potentials, strict=False)
        ]
        change, gain = levels[line] - (levels[line - 1] if line else 0.0), 0.0
        if len(set(changes)) > 1:
            low, high = min(changes), max(changes)
            raised = [math.exp((other - low) / (high - low)) for other in changes]
            gain = math.exp((change - low) / (high - low)) - math.fsum(raised) / len(raised)
        own = float(credit.values[step])
        known = sum(level > self.saturated_above for level in levels[:line])
        damping = 1.0 - self.alpha * (1.0 - math.exp(-known))
        damping = 1.0 if self.damps_praise_only and own <= 0 else damping
        value = own * damping + self.xi * gain
        lines = (
            f"it is in line {line + 1} of {len(levels)}, which changed the potential by {change:.6g}",
            f"changes of the {len(changes)} lines that count run from {min(changes, default=0.0):.6g} to "
            f"{max(changes, default=0.0):.6g}; compared with all of them, this one gains {gain:.6g}",
            f"lines before it with a potential above {self.saturated_above:.6g}: {known}, which leaves {damping:.6g} "
            "of the advantage",
        )
        formula = f"{own:.6g} x {damping:.6g} + {self.xi:.6g} x {gain:.6g} = {value:.6g}"
        return Derivation(value=value, formula=formula, lines=lines)


class AnswerPotential(Part, slot="scorer"):
    """Split responses into lines, and scorer after each but the last how sure the policy is of an answer and of the
    right one.

        Conf = mean over probes of exp(-mean token entropy),   Acc = geometric mean of the right answer's probabilities
        Phi = 1.5 Acc Conf + 0.5 Acc - Conf:   sure and right 1, sure and wrong -1, unsure and right 0.5, else 0

    It writes the step info `potential_ends` (sampled tokens up to the end of each line) and `potentials` (Phi after
    each line). The last line holds the answer and keeps the previous Phi; a response of one line has 0. The token
    credit `potential_credit` reads them.

    Source: SPAE (arXiv:2601.03823), from notes on the paper and its example of a probe. **Choices.** Descriptions
    differ in how the right answer's tokens are averaged; the geometric mean is ours, at the run's temperature. The
    right answer is the step info `gold` of the environment. Lines end as for `forced_answers`. Rollouts have one step.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"generate", "score"})
    needs_entropy: ClassVar[bool] = True
    writes: ClassVar[frozenset[str]] = frozenset({"potential_ends", "potentials"})
    stub: str = "answer"
    """Text after the lines so far that makes the policy answer."""
    gold: str = "gold_answer"
    """The step info with the right answer, as text."""
    separators: Separators = ("\n\n", ";")
    """What a line ends with."""
    min_tokens: Count = 1
    """Fewest tokens of a line."""
    max_lines: Count = 16
    """Most lines of a response."""
    probes: Count = 5
    """Probes after each line."""
    probe_tokens: Count = 10
    """Most tokens of a probe."""
    temperature: PositiveFloat = 0.6
    """Temperature of the probes."""

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({self.gold})

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        stub, rollouts = tools.encode(self.stub), [trajectory for group in groups for trajectory in group]
        ends = [self._cut(trajectory, tools) for trajectory in rollouts]
        places = [
            (trajectory, trajectory.steps[0].prompt_ids + trajectory.steps[0].response_ids[:end] + stub)
            for trajectory, of_answer in zip(rollouts, ends, strict=True)
            for end in (trajectory.steps[0].forced + inner for inner in of_answer[:-1])
        ]
        levels = iter(self._find_potentials(places, tools, draw))
        info = []
        for of_answer in ends:
            inner = [next(levels) for _ in of_answer[:-1]]
            info.append({"potential_ends": of_answer, "potentials": [*inner, inner[-1] if inner else 0.0]})
        return sort_by_step(groups, info)

    def _find_potentials(
        self, places: Sequence[tuple[Trajectory, tuple[int, ...]]], tools: Tools, draw: Draw
    ) -> list[float]:
        if not places:
            return []
        gold = [tools.encode(self._read_gold(trajectory)) for trajectory, _ in places]
        scored = tools.score([(prompt, ids) for (_, prompt), ids in zip(places, gold, strict=True)])
        requests = [
            Request(
                prompt_ids=prompt,
                seed=int(draw(trajectory.task.id, trajectory.rollout, number, len(prompt)).integers(LARGEST_SEED)),
                max_tokens=self.probe_tokens,
                temperature=self.temperature,
                stop_ids=tools.stop_ids,
            )
            for trajectory, prompt in places
            for number in range(self.probes)
        ]
        sureness = []
        for probe in tools.generate(requests):
            if not probe.entropy:
                raise RecordError(
                    "answer_potential reads the entropies of sampled tokens, which the engine did not give; use one "
                    "that does"
                )
            sureness.append(math.exp(-math.fsum(probe.entropy) / len(probe.entropy)))
        levels = []
        for number, logps in enumerate(scored):
            conf = math.fsum(sureness[number * self.probes : (number + 1) * self.probes]) / self.probes
            levels.append(compute_potential(math.exp(math.fsum(logps) / len(logps)), conf))
        return levels

    def _read_gold(self, trajectory: Trajectory) -> str:
        gold = trajectory.steps[0].info.get(self.gold)
        if not isinstance(gold, str) or not gold:
            raise RecordError(
                f"{trajectory.describe()}: the step has no text as the info value "
                f"{self.gold!r}, which answer_potential reads; use an environment that tells the right answer"
            )
        return gold

    def _cut(self, trajectory: Trajectory, tools: Tools) -> list[int]:
        return cut_after_separators(
            tools.pieces(take_sampled(take_answer(trajectory, "answer_potential"))),
            separators=self.separators,
            min_tokens=self.min_tokens,
            max_segments=self.max_lines,
        )


def compute_potential(accuracy: float, confidence: float) -> float:
    """Phi: sure and right 1, sure and wrong -1, unsure and right 0.5, unsure and wrong 0.

    >>> compute_potential(0.5, 0.5)
    0.125
    """
    return 1.5 * accuracy * confidence + 0.5 * accuracy - confidence
