from __future__ import annotations

from pydantic import NonNegativeInt

from groupwise.credit import ByTask, Deviation, DropSolved, EpisodeReturn, Relative, check_range
from groupwise.data.segments import FloatArray
from groupwise.data.step_table import StepTable
from groupwise.losses import Clip, PolicyLoss, TokenMean
from groupwise.methods.method import method
from groupwise.parts import Algorithm, Finite, Part, SignalPart


@method
def ngrpo(*, best: Finite = 1.0, virtual: NonNegativeInt = 1, eps: Finite = 1e-6, reference: bool = False) -> Algorithm:
    """NGRPO (github.com/nangongrui-ngr/NGRPO): a made-up perfect rollout in each group, so that all-wrong groups train.

    A_i = (R_i - mean(R + {best})) / (std(R + {best}) + eps)

    Choices: `best` is the return of a perfect rollout; a larger return is an error. A single rollout is compared with
    the made-up one; the release gives it R (`reference=True`). Tasks that every rollout solved are dropped, as
    released. Solved is a score of `best`, by the column `accuracy` if there is one, because a shaped return would hide
    it. Clip 0.16 below and 0.24 above, mean over tokens, no KL.
    """
    credit = Relative(
        by=ByTask(),
        of=Bounded(of=EpisodeReturn(), best=best) if virtual else EpisodeReturn(),
        scale=Deviation(eps=eps),
        alone="raw" if reference else "zero",
        virtual=(best,) * virtual,
        virtual_is_company=not reference,
    )
    return Algorithm(
        advantage=credit,
        filters=(DropSolved(best=best),),
        loss=PolicyLoss(surrogate=Clip(low=0.16, high=0.24), aggregate=TokenMean()),
    )


class Bounded(Part, slot="signal"):
    """Another signal with an upper bound; a larger value is an error, because `best` is then wrong.

    For methods with a made-up perfect rollout in each group (NGRPO): no real rollout may be better.
    """

    of: SignalPart
    """The signal that is bounded."""
    best: Finite
    """The largest value that the signal can have."""

    def __call__(self, table: StepTable) -> FloatArray:
        signal = table.ask_once(self.of)
        above = f"above `best`, {self.best:g}; set `best` to what a perfect rollout earns"
        check_range(table, signal, "the return is", above, high=self.best)
        return signal
