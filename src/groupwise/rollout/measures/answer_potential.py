"""How sure and how right the policy would be if it answered now: a potential after each line of an answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field

from groupwise.core.errors import RecordError
from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import Draw
from groupwise.core.records import Trajectory
from groupwise.engines.engine import Generation, Request
from groupwise.rollout.measures.forced_answers import Separators
from groupwise.rollout.measures.segment_cuts import LARGEST_SEED, cut_after_separators, take_answer, take_sampled
from groupwise.rollout.measures.tools import Tools


class AnswerPotential(Part, slot="measure"):
    """Cut answers into lines, and see after each but the last how sure the policy is of an answer and of the right one.

        Conf = mean over probes of exp(-mean token entropy),   Acc = geometric mean of the right answer's probabilities
        Phi = 1.5 Acc Conf + 0.5 Acc - Conf:   sure and right 1, sure and wrong -1, unsure and right 0.5, else 0

    It writes the facts `potential_ends` (sampled tokens up to the end of each line) and `potentials` (Phi after each
    line; the last line, which says the answer, leaves it as it was, and an answer of one line has 0). The token credit
    `potential_credit` reads them.

    Source: SPAE (arXiv:2601.03823), from notes on the paper and its example of a probe. **Choices.** How the right
    answer's tokens are averaged differs between its descriptions; the geometric mean is ours, at the run's temperature.
    The right answer is the fact `gold` of the step, as the environment tells it. Lines end as for `forced_answers`.
    Attempts are one answer.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"generate", "score"})
    needs_entropy: ClassVar[bool] = True
    writes: ClassVar[frozenset[str]] = frozenset({"potential_ends", "potentials"})
    stub: str = "answer"
    """What makes the policy answer; it is put after the lines so far."""
    gold: str = "gold_answer"
    """The fact that holds the right answer, as text."""
    separators: Separators = ("\n\n", ";")
    """What a line ends with."""
    min_tokens: Annotated[int, Field(ge=1)] = 1
    """Tokens that a line has at least."""
    max_lines: Annotated[int, Field(ge=1)] = 16
    """Lines that an answer has at most."""
    probes: Annotated[int, Field(ge=1)] = 5
    """Answers that are sampled after each line."""
    probe_tokens: Annotated[int, Field(ge=1)] = 10
    """Tokens of a probe at most."""
    temperature: Annotated[float, Field(gt=0)] = 0.6
    """Temperature of the probes."""

    @property
    def reads(self) -> frozenset[str]:
        """The facts that it reads."""
        return frozenset({self.gold})

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        """The lines of each answer, and the potential after each."""
        stub, attempts = tools.encode(self.stub), [trajectory for group in groups for trajectory in group]
        ends = [self._cut(trajectory, tools) for trajectory in attempts]
        places = [
            (trajectory, trajectory.steps[0].prompt_ids + trajectory.steps[0].response_ids[:end] + stub)
            for trajectory, of_answer in zip(attempts, ends, strict=True)
            for end in (trajectory.steps[0].forced + inner for inner in of_answer[:-1])
        ]
        levels = iter(self._find_potentials(places, tools, draw))
        facts = []
        for of_answer in ends:
            inner = [next(levels) for _ in of_answer[:-1]]
            facts.append({"potential_ends": of_answer, "potentials": [*inner, inner[-1] if inner else 0.0]})
        remaining = iter(facts)
        return [[[next(remaining)] for _ in group] for group in groups]

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
                seed=int(draw(trajectory.task.id, trajectory.attempt, number, len(prompt)).integers(LARGEST_SEED)),
                max_tokens=self.probe_tokens,
                temperature=self.temperature,
                stop_ids=tools.stop_ids,
            )
            for trajectory, prompt in places
            for number in range(self.probes)
        ]
        sureness = [_measure_sureness(probe) for probe in tools.generate(requests)]
        levels = []
        for number, logps in enumerate(scored):
            conf = math.fsum(sureness[number * self.probes : (number + 1) * self.probes]) / self.probes
            levels.append(compute_potential(math.exp(math.fsum(logps) / len(logps)), conf))
        return levels

    def _read_gold(self, trajectory: Trajectory) -> str:
        gold = trajectory.steps[0].facts.get(self.gold)
        if not isinstance(gold, str) or not gold:
            raise RecordError(
                f"task {trajectory.task.id!r}, attempt {trajectory.attempt}: the step has no text as the fact "
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


def _measure_sureness(probe: Generation) -> float:
    if not probe.entropy:
        raise RecordError(
            "answer_potential reads the entropies of sampled tokens, which the engine did not give; use one that does"
        )
    return math.exp(-math.fsum(probe.entropy) / len(probe.entropy))
