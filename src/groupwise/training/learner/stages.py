"""Stages of an update: some losses learn the turns of attempts one after the other, each in the light of those before.

Such a loss says which turns are learnt together (`order_turns`), and after each stage what became of them (`carry`), as
the log of a factor on the credit of what is still to come. Axis: R trajectories of the update.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from groupwise.core.errors import ConfigError
from groupwise.core.parts.part import name_of
from groupwise.core.parts.slots import Loss
from groupwise.core.sample import Sample
from groupwise.training.learner.micro_batches import MicroBatch


def split_into_stages(loss: Loss, samples: Sequence[Sample]) -> list[list[Sample]]:
    """The samples of each stage, in the order in which they are learnt; one stage, unless the loss orders turns."""
    if not hasattr(loss, "order_turns") or not samples:
        return [list(samples)]
    num_turns = max(sample.step for sample in samples) + 1
    order = [list(turns) for turns in loss.order_turns(num_turns)]
    if sorted(turn for turns in order for turn in turns) != list(range(num_turns)):
        raise ConfigError(
            f"algorithm.loss: {name_of(loss)} orders {num_turns} turns as {order}; give each turn from 0 to "
            f"{num_turns - 1} once"
        )
    stages = [[sample for sample in samples if sample.step in turns] for turns in order]
    return [stage for stage in stages if stage]


def scale_credit(micro: MicroBatch, log_factor_R: torch.Tensor) -> MicroBatch:
    """The micro-batch with the credit of each token times the factor of its trajectory."""
    return replace(micro, advantage=micro.advantage * log_factor_R.exp()[micro.trajectory].to(micro.advantage))
