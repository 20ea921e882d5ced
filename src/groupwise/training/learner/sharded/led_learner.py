"""A sharded learner as the run sees it on rank 0, and what the other ranks do: whatever rank 0 asks for.

The run, with its environments, engine and journal, exists on rank 0 alone. Each method that it calls is sent to the
others with its arguments, and all ranks do it together.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from groupwise.core.errors import TrainingError
from groupwise.core.sample import Sample
from groupwise.core.score_requests import PromptAndResponse, Whose
from groupwise.core.segments import FloatArray
from groupwise.core.totals import Totals
from groupwise.training.learner.protocol import Learned, ReportEpoch
from groupwise.training.learner.sharded.rank_learner import RankLearner
from groupwise.training.learner.sharded.ranks import AgreedFault

if TYPE_CHECKING:
    from groupwise.training.run_config import WarmStartConfig


@dataclass(frozen=True, kw_only=True)
class Command:
    """Something that all ranks do together."""

    method: str
    """A method of `RankLearner`."""
    args: tuple[Any, ...] = ()
    """Its arguments."""
    options: dict[str, Any] = field(default_factory=dict)
    """Its arguments by name."""


STOP = "stop"
"""The command after which followers leave."""


class LedLearner:
    """The learner of a run: rank 0's part of it, which takes the other ranks along."""

    def __init__(self, own: RankLearner) -> None:
        self._own, self._is_open = own, True

    @property
    def steps(self) -> int:
        """Optimiser steps made so far."""
        return self._own.steps

    @property
    def vocabulary_size(self) -> int:
        """How many token ids the model knows."""
        return self._own.vocabulary_size

    def learn(self, samples: Sequence[Sample], totals: Totals) -> Learned:
        """Make an update's optimiser steps, each rank on its samples."""
        learned: Learned = self._lead("learn", samples, totals)
        return learned

    def imitate(
        self, samples: Sequence[Sample], settings: WarmStartConfig, *, seed: int, report: ReportEpoch | None = None
    ) -> list[float]:
        """Learn to say what samples say; the mean loss of each epoch, reported here alone."""
        losses: list[float] = self._lead("imitate", samples, settings, seed=seed, here={"report": report})
        return losses

    def logps(
        self, pairs: Sequence[PromptAndResponse], *, temperature: float = 1.0, weights: Whose = "current"
    ) -> list[tuple[float, ...]]:
        """Log-probability of each response token given its prompt."""
        scores: list[tuple[float, ...]] = self._lead("logps", pairs, temperature=temperature, weights=weights)
        return scores

    def hidden_states(self, pairs: Sequence[PromptAndResponse]) -> list[FloatArray]:
        """The last hidden state at each response token, for (prompt, response) pairs: tokens by width, in float64."""
        states: list[FloatArray] = self._lead("hidden_states", pairs)
        return states

    def weights(self) -> dict[str, torch.Tensor]:
        """The trained weights by name, put together."""
        whole: dict[str, torch.Tensor] = self._lead("give_weights")
        return whole

    def hold_reference(self, folder: Path | None = None) -> None:
        """Keep a policy as the reference."""
        self._lead("hold_reference", folder)

    def save(self, folder: Path) -> None:
        """Write the files that the local learner would write."""
        self._lead("save", folder)

    def load(self, folder: Path, *, steps: int) -> None:
        """Load what `save` wrote, or what the local learner did."""
        self._lead("load", folder, steps=steps)

    def export(self, folder: Path) -> None:
        """Write the model as Hugging Face reads it."""
        self._lead("export", folder)

    def close(self) -> None:
        """Let the other ranks go."""
        if self._is_open:
            self._is_open = False
            with suppress(TrainingError):  # who is gone already needs no telling
                self._own.ranks.broadcast(Command(method=STOP))
            self._own.ranks.leave()

    def _lead(self, method: str, *args: Any, here: dict[str, Any] | None = None, **options: Any) -> Any:
        ranks = self._own.ranks
        try:
            ranks.broadcast(Command(method=method, args=args, options=options))
            with ranks.name_faults():
                return getattr(self._own, method)(*args, **options, **(here or {}))
        except AgreedFault:  # all ranks said the same, and wait for what comes next
            raise
        except BaseException as error:
            self._is_open = False
            ranks.leave(error)
            raise


def follow(own: RankLearner) -> None:
    """Do what rank 0 asks for until it lets this rank go; a fault that rank 0 does not share ends this rank."""
    ranks = own.ranks
    try:
        while True:
            command: Command = ranks.broadcast(None)
            if command.method == STOP:
                break
            try:
                with ranks.name_faults():
                    getattr(own, command.method)(*command.args, **command.options)
            except AgreedFault:
                continue  # rank 0 raises the same, and decides what is done about it
    except BaseException as error:
        ranks.leave(error)
        raise
    ranks.leave()
