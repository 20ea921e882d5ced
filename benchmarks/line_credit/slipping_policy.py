"""What the lines of a worked sum are worth: exact, under a policy that slips at rates that are known.

The value of a line is the change in the probability of a right answer: V_k - V_(k-1), where V_k is the probability
that the answer comes out right, given the lines up to k. Under `SlippingPolicy` it can be computed without sampling,
so that credit inside an answer can be held against the truth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np


@dataclass(frozen=True, kw_only=True)
class SlippingPolicy:
    """A policy that works a sum in lines; a result is now and then one too large or one too small, equally often.

    It goes on from what it wrote, so a slip is carried along, and a second one may mend the first. It slips more often
    where the last digits make a carry, so some lines are worth more attention than others. The last line copies the
    last result, with slips of its own; an answer that it is made to give early is worked out in the head, with a slip
    for each number that is left.
    """

    slip: float = 0.03
    """How often a line without a carry is wrong."""
    slip_at_carry: float = 0.2
    """How often a line with a carry is wrong."""
    slip_in_copying: float = 0.02
    """How often the last line says another number than the last result."""
    slip_in_head: float = 0.3
    """How often a number that is added in the head is added wrongly."""

    def result_chances(self, before: int, term: int) -> Mapping[int, float]:
        """How likely each result of the line `before + term = ` is."""
        return _spread(before + term, self.slip_at_carry if before % 10 + term % 10 >= 10 else self.slip)

    def answer_chances(self, terms: Sequence[int], results: Sequence[int]) -> Mapping[int, float]:
        """How likely each total is, if it is said now, after lines with these results."""
        before = results[-1] if results else terms[0]
        chances: Mapping[int, float] = _spread(before, self.slip_in_copying)
        for term in terms[1 + len(results) :]:
            chances = _chain(chances, {said: _spread(said + term, self.slip_in_head) for said in chances})
        return chances

    def chance_of_right(self, terms: Sequence[int], results: Sequence[int]) -> float:
        """The probability of a right answer, given lines with these results: V, exactly."""
        reached: Mapping[int, float] = {results[-1] if results else terms[0]: 1.0}
        for term in terms[1 + len(results) :]:
            reached = _chain(reached, {before: self.result_chances(before, term) for before in reached})
        total = sum(terms)
        return sum(chance * _spread(result, self.slip_in_copying).get(total, 0.0) for result, chance in reached.items())

    def line_values(self, terms: Sequence[int], results: Sequence[int], total: int) -> list[float]:
        """What each line changed, the last line included: they add up to right or wrong less the first chance."""
        chances = [self.chance_of_right(terms, results[:num]) for num in range(len(results) + 1)]
        chances.append(float(total == sum(terms)))
        return [after - before for before, after in pairwise(chances)]

    def work(
        self, terms: Sequence[int], results: Sequence[int], rng: np.random.Generator
    ) -> tuple[tuple[int, ...], int]:
        """Go on after lines with these results: all results, and the total that the last line says."""
        written = list(results)
        for term in terms[1 + len(results) :]:
            written.append(_draw_number(self.result_chances(written[-1] if written else terms[0], term), rng))
        return tuple(written), _draw_number(self.answer_chances(terms, written), rng)


def _spread(right: int, slip: float) -> dict[int, float]:
    """A number that is right but for slips of one."""
    return {right: 1.0 - slip, right - 1: slip / 2, right + 1: slip / 2}


def _chain(first: Mapping[int, float], then: Mapping[int, Mapping[int, float]]) -> dict[int, float]:
    """Chances after two draws, the second of which depends on the first."""
    chances: dict[int, float] = {}
    for value, chance in first.items():
        for following, share in then[value].items():
            chances[following] = chances.get(following, 0.0) + chance * share
    return chances


def _draw_number(chances: Mapping[int, float], rng: np.random.Generator) -> int:
    return int(rng.choice(list(chances), p=list(chances.values())))
