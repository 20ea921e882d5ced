"""The canary: after each hand-over of weights the engine must agree with the learner on a fixed prompt.

Weights that never arrive look like staleness for weeks. One short score a hand-over finds it at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from groupwise.core.errors import TrainingError
from groupwise.engines.engine import Engine


class Canary:
    """A fixed prompt and response that engine and learner must score alike."""

    def __init__(self, prompt_ids: Sequence[int], response_ids: Sequence[int], *, tolerance: float = 1e-3) -> None:
        self._prompt, self._response = tuple(prompt_ids), tuple(response_ids)
        self._tolerance = tolerance

    @torch.no_grad()
    def check(self, engine: Engine, model: PreTrainedModel, *, version: int) -> float:
        """The largest gap in log-prob; stops the run where it is too large."""
        if engine.version != version:
            raise TrainingError(
                f"the engine reports weights of version {engine.version}, but version {version} was handed over; "
                "its `load` did not take"
            )
        [found] = engine.score([(self._prompt, self._response)])
        ids = torch.tensor([[*self._prompt, *self._response]], device=next(model.parameters()).device)
        was_training = model.training
        logits = model.eval()(input_ids=ids).logits[0, len(self._prompt) - 1 : -1]
        model.train(was_training)
        wanted = logits.float().log_softmax(-1).gather(1, ids[0, len(self._prompt) :, None])[:, 0].tolist()
        gap = max(abs(float(a) - float(b)) for a, b in zip(found, wanted, strict=True))
        if gap > self._tolerance:
            raise TrainingError(
                f"after the hand-over of version {version} the engine and the learner disagree by {gap:.3g} nats on a "
                f"fixed prompt (allowed {self._tolerance:g}): the engine did not take the weights over"
            )
        return gap
