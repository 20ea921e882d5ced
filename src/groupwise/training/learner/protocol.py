"""The learner protocol: whoever owns the weights of a run, and what the run asks of them.

Nobody else holds the model. A learner in this process, one that is spread over several, one at the other end of a
network and one that wraps another are all asked the same: to learn from samples, to say what its weights make of a
text, to give the weights out by name, and to save all its state in a folder and load it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, runtime_checkable

from groupwise.core.parts.part import Slot
from groupwise.core.parts.slots import Loss
from groupwise.core.sample import Sample
from groupwise.core.score_requests import PromptAndResponse, Whose
from groupwise.core.totals import Totals

if TYPE_CHECKING:
    import torch

    from groupwise.training.run_config import WarmStartConfig

ReportEpoch = Callable[[Sequence[float], int], None]
"""Called after each epoch of imitation with the losses so far, and how many epochs there will be."""


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What a learner reports of one update."""

    metrics: dict[str, float]
    """The loss and what the loss measured, the gradient, the step size."""


class Learner(Protocol):
    """The weights of a run and how they change."""

    @property
    def steps(self) -> int:
        """Optimiser steps made so far."""

    @property
    def vocabulary_size(self) -> int:
        """How many token ids the model knows."""

    def learn(self, samples: Sequence[Sample], totals: Totals) -> Learned:
        """Make an update's optimiser steps. Where it raises, the weights are as they were."""

    def imitate(
        self, samples: Sequence[Sample], settings: WarmStartConfig, *, seed: int, report: ReportEpoch | None = None
    ) -> list[float]:
        """Learn to say what samples say, tokens weighted by `advantage`; the mean loss of each epoch."""

    def logps(
        self, pairs: Sequence[PromptAndResponse], *, temperature: float = 1.0, weights: Whose = "current"
    ) -> list[tuple[float, ...]]:
        """Log-probability of each response token given its prompt, under the weights that `weights()` would give.

        The canary compares this with what the engine says after a hand-over.
        """

    def weights(self) -> Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]]:
        """The weights that train, by name, for the engine; of a model with an adapter, the adapter's."""

    def hold_reference(self, folder: Path | None = None) -> None:
        """Keep a policy as the reference that a loss compares with: that of a checkpoint's folder; None = this one."""

    def save(self, folder: Path) -> None:
        """Write all that `load` needs into a folder, which exists; its files, and their names, are the learner's own.

        The tokenizer and `state.json`, with the digest of every file and the number of steps, are written beside them.
        """

    def load(self, folder: Path, *, steps: int) -> None:
        """Load what `save` wrote after so many optimiser steps, to the bit; nothing is loaded where it raises.

        Every file has been compared with its digest. A file that cannot be read may raise what its reader raises.
        """

    def export(self, folder: Path) -> None:
        """Write the policy alone as a Hugging Face model folder that needs no other: an adapter is merged."""


@runtime_checkable
class ClosingLearner(Protocol):
    """A learner with more than this process to it, which must be let go in the end."""

    def close(self) -> None:
        """Let go of what the learner holds elsewhere; what is gone already is no error."""


class LearnerPart(Protocol):
    """Fills the slot `learner`: opens a learner on the run's model."""

    def open(self, model: Any, loss: Loss, *, temperature: float) -> Learner:
        """Open the learner.

        Args:
            model: a model of transformers, on its device; the learner owns it from here on.
            loss: what is minimised.
            temperature: divides the logits, as it does where responses are sampled.
        """


LearnerSlot = Annotated[LearnerPart, Slot("learner")]
"""A field of a run file that a learner fills."""
