"""The canary: after each hand-over of weights the engine must agree with the learner on a fixed prompt.

Weights that never arrive look like staleness for weeks. One short score a hand-over finds it at once, also where an
update moves the weights so little that the old ones would pass for the new: then the engine agrees better with what the
learner said before.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from groupwise.core.errors import TrainingError
from groupwise.engines.engine import Engine

LEAST_MOVE = 1e-5
"""Nats by which an update must have moved the learner before an engine can be told to have stayed behind: below it lies
the rounding of float32."""


class Canary:
    """A fixed prompt and response that engine and learner must score alike."""

    def __init__(self, prompt_ids: Sequence[int], response_ids: Sequence[int], *, tolerance: float = 1e-3) -> None:
        self._prompt, self._response = tuple(prompt_ids), tuple(response_ids)
        self._tolerance = tolerance
        self._before: list[float] | None = None
        self._noise = 0.0

    def check(self, engine: Engine, model: PreTrainedModel, *, version: int) -> float:
        """The largest gap in log-prob; stops the run where it is too large, or where the engine stayed behind."""
        if engine.version != version:
            raise TrainingError(
                f"the engine reports weights of version {engine.version}, but version {version} was handed over; "
                "its `load` did not take"
            )
        [found] = engine.score([(self._prompt, self._response)])
        wanted = self._said_by(model)
        gap = _distance(found, wanted)
        moved = 0.0 if self._before is None else _distance(wanted, self._before)
        if gap > self._tolerance or self._has_stayed(gap, moved):
            raise TrainingError(
                f"after the hand-over of version {version} the engine and the learner disagree by {gap:.3g} nats on a "
                f"fixed prompt (allowed {self._tolerance:g}; the update moved the learner by {moved:.3g}): the engine "
                "did not take the weights over"
            )
        self._before, self._noise = wanted, max(self._noise, gap)
        return gap

    def _has_stayed(self, gap: float, moved: float) -> bool:
        """Whether the engine is about as far from the learner as the learner came, and farther than it ever was."""
        return moved > LEAST_MOVE and gap > max(0.5 * moved, LEAST_MOVE, 4 * self._noise)

    @torch.no_grad()
    def _said_by(self, model: PreTrainedModel) -> list[float]:
        ids = torch.tensor([[*self._prompt, *self._response]], device=next(model.parameters()).device)
        was_training = model.training
        logits = model.eval()(input_ids=ids).logits[0, len(self._prompt) - 1 : -1]
        model.train(was_training)
        told: list[float] = logits.float().log_softmax(-1).gather(1, ids[0, len(self._prompt) :, None])[:, 0].tolist()
        return told


def _distance(some: Sequence[float], others: Sequence[float]) -> float:
    return max(abs(float(a) - float(b)) for a, b in zip(some, others, strict=True))
