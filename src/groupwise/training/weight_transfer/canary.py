"""The canary: after each hand-over of weights the engine must agree with the learner on a fixed prompt.

Weights that never arrive look like staleness for weeks. One short score a hand-over finds it at once, also where an
update moves the weights so little that the old ones would pass for the new: then the engine agrees better with what the
learner said before, or says to the last bit what it said itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from transformers import PreTrainedModel

from groupwise.core.errors import TrainingError
from groupwise.core.policy_questions import PromptAndResponse
from groupwise.engines.engine import Engine
from groupwise.training.learner.answers import read_scores


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """How far engine and learner may differ, in nats."""

    gap: float
    """Most that they may differ by."""
    rounding: float
    """What rounding alone makes of a difference: an update that moved the learner by less does not tell an engine that
    stayed behind from one that did not."""


ALLOWED = {"float32": Allowed(gap=1e-3, rounding=1e-5), "bfloat16": Allowed(gap=1.0, rounding=0.05)}
"""By the precision of the engine."""


def allowed_for(precision: str, model: PreTrainedModel) -> Allowed:
    """What suits an engine's setting and a model: one that was loaded in a narrow type computes in it either way."""
    is_narrow = precision == "bfloat16" or any(value.dtype.itemsize < 4 for value in model.parameters())
    return ALLOWED["bfloat16" if is_narrow else "float32"]


class Scores(Protocol):
    """What the canary asks of a learner."""

    def logps(self, pairs: Sequence[PromptAndResponse]) -> list[tuple[float, ...]]:
        """Log-probability of each response token given its prompt, under the weights that were handed over."""


class Canary:
    """A fixed prompt and response that engine and learner must score alike."""

    def __init__(
        self, prompt_ids: Sequence[int], response_ids: Sequence[int], *, allowed: Allowed = ALLOWED["float32"]
    ) -> None:
        self._prompt, self._response = tuple(prompt_ids), tuple(response_ids)
        self._allowed = allowed
        self._before: Sequence[float] | None = None
        self._found: Sequence[float] = ()
        self._noise = 0.0

    def check(self, engine: Engine, learner: Scores, *, version: int) -> float:
        """The largest gap in log-prob; stops the run where it is too large, or where the engine stayed behind."""
        if engine.version != version:
            raise TrainingError(
                f"the engine reports weights of version {engine.version}, but version {version} was handed over; "
                "its `load` did not take, or training.weight_transfer never called it"
            )
        pairs, num = [(self._prompt, self._response)], len(self._response)
        found = read_scores(engine.score(pairs), num, f"the engine {type(engine).__name__}: score")
        wanted = read_scores(learner.logps(pairs), num, f"the learner {type(learner).__name__}: logps")
        gap = _distance(found, wanted)
        moved = 0.0 if self._before is None else _distance(wanted, self._before)
        if not gap <= self._allowed.gap or self._has_stayed(found, gap, moved):  # NaN is no agreement
            raise TrainingError(
                f"after the hand-over of version {version} the engine and the learner disagree by {gap:.3g} nats on a "
                f"fixed prompt (allowed {self._allowed.gap:g}; the update moved the learner by {moved:.3g}): the "
                "engine did not take the weights over, or training.weight_transfer never gave them to it"
            )
        self._before, self._found, self._noise = wanted, found, max(self._noise, gap)
        return gap

    def _has_stayed(self, found: Sequence[float], gap: float, moved: float) -> bool:
        """Whether the learner moved and the engine did not.

        Then the engine says the same to the last bit, or is about as far from the learner as the learner came, and
        farther than it ever was.
        """
        least = self._allowed.rounding
        is_apart = gap > max(0.5 * moved, least, 4 * self._noise)
        return moved > least and (is_apart or [*found] == [*self._found])


def _distance(some: Sequence[float], others: Sequence[float]) -> float:
    gaps = [abs(float(a) - float(b)) for a, b in zip(some, others, strict=True)]
    return math.nan if any(map(math.isnan, gaps)) else max(gaps)
