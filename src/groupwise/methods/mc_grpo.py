from __future__ import annotations

import numpy as np

from groupwise.credit import ByTask, EpisodeReturn, Median, MedianAbsoluteDeviation, Relative
from groupwise.data.segments import BoolArray, Segments
from groupwise.data.step_table import StepTable
from groupwise.losses import Clip, Kl, PolicyLoss, SequenceMean
from groupwise.methods.method import method
from groupwise.parts import Algorithm, Finite, Part
from groupwise.system.errors import ConfigError


@method
def mc_grpo(*, eps: Finite = 1e-3, reference: bool = False) -> Algorithm:
    """MC-GRPO (2026, arXiv:2601.22582, and its release): the median as baseline, one more rollout than is trained on.

    A_i = (R_i - median(R)) / (MAD(R) + eps); the rollout at the median is dropped

    Choices: the number of rollouts must be odd, one more than is trained on; an even number is an error. If an
    environment error leaves an even number, the lower of the middle two is the median. With 0/1 rewards and an odd
    group the median distance is always 0 and the released advantage is +-1000. If it is under a thousandth of the
    range, we divide by the sample standard deviation; `reference=True` keeps the release. Loss as for GRPO, with the
    released KL weight 0.04.
    """
    scale = MedianAbsoluteDeviation(eps=eps, fallback=0.0 if reference else 1e-3)
    return Algorithm(
        advantage=Relative(by=ByTask(), of=EpisodeReturn(), baseline=Median(), scale=scale),
        filters=(DropPivot(),),
        loss=PolicyLoss(surrogate=Clip(), aggregate=SequenceMean(), penalties=(Kl(estimator="k3", weight=0.04),)),
    )


class DropPivot(Part, slot="filter"):
    """In each task, drop the one rollout at the median: its advantage is 0 by construction.

    Source: MC-GRPO. Choice: of several rollouts at the median, the one with the lowest id.
    """

    def check_rollouts(self, rollouts: int) -> None:
        if rollouts % 2 == 0:
            raise ConfigError(
                f"rollout.group_size is {rollouts}, but the filter drop_pivot drops the rollout at the median, and "
                f"only an odd number has one; give {rollouts + 1} to train on {rollouts}"
            )

    def __call__(self, table: StepTable) -> BoolArray:
        first_step = table.rollouts.first
        returns = table.episode_return[first_step]
        tasks = Segments.of(table.task[first_step])
        at_median = returns == tasks.spread(tasks.lower_median(returns), np.nan)
        pivots = np.flatnonzero(at_median)[::-1]
        pivot_of_task = np.empty(len(tasks), dtype=np.int64)
        pivot_of_task[tasks.label[pivots]] = pivots  # written last to first, so the lowest rollout stays
        kept = np.ones(len(table.rollouts), dtype=np.bool_)
        kept[pivot_of_task] = False
        return kept[table.rollout]
