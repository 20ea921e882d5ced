"""A learner around another one: it keeps an exponential moving average of the weights, beside them in each checkpoint.

[training.learner]
kind = "averaged_learner:AveragedLearner"
decay = 0.9
of = { kind = "local", learning_rate = 1e-3 }
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from groupwise.extend import Learned, Learner, LearnerConfig, LearnerSlot, Loss, Part, Sample, Totals

AVERAGE = "average.safetensors"


class AveragedLearner(Part, slot="learner"):
    """Another learner, and the moving average of its weights."""

    of: LearnerSlot = LearnerConfig()
    """The learner that learns."""
    decay: Annotated[float, Field(ge=0, lt=1)] = 0.99
    """Share of the average that stays at each update."""

    def open(self, model: Any, loss: Loss, *, temperature: float) -> Averaging:
        """Open the other learner and begin to average."""
        return Averaging(self.of.open(model, loss, temperature=temperature), self.decay)


class Averaging:
    """Passes everything on, and averages."""

    def __init__(self, learner: Learner, decay: float) -> None:
        self._learner, self._decay = learner, decay
        self._average = self._copy()

    @property
    def steps(self) -> int:
        """Those of the other learner."""
        return self._learner.steps

    @property
    def vocabulary_size(self) -> int:
        """That of the other learner."""
        return self._learner.vocabulary_size

    def learn(self, samples: Sequence[Sample], totals: Totals) -> Learned:
        """Let the other learn, then move the average."""
        learned = self._learner.learn(samples, totals)
        distance = 0.0
        for name, value in dict(self._learner.weights()).items():
            self._average[name].lerp_(value, 1 - self._decay)
            distance += float((self._average[name] - value).square().sum())
        return Learned(metrics={**learned.metrics, "extra/distance_to_average": distance**0.5})

    def imitate(self, samples: Sequence[Sample], settings: Any, *, seed: int, report: Any = None) -> list[float]:
        """Let the other imitate; the average begins where that ends."""
        losses = self._learner.imitate(samples, settings, seed=seed, report=report)
        self._average = self._copy()
        return losses

    def logps(self, pairs: Sequence[Any], **settings: Any) -> list[tuple[float, ...]]:
        """What the other says."""
        return self._learner.logps(pairs, **settings)

    def weights(self) -> Iterable[tuple[str, Any]]:
        """Those of the other, one after the other."""
        return iter(dict(self._learner.weights()).items())

    def hold_reference(self, folder: Path | None = None) -> None:
        """The other's reference."""
        self._learner.hold_reference(folder)

    def save(self, folder: Path) -> None:
        """The other's files, and the average beside them."""
        from safetensors.torch import save_file

        self._learner.save(folder)
        save_file(self._average, folder / AVERAGE)

    def load(self, folder: Path, *, steps: int) -> None:
        """Both."""
        from safetensors.torch import load_file

        average = load_file(folder / AVERAGE)
        self._learner.load(folder, steps=steps)
        self._average = average

    def export(self, folder: Path) -> None:
        """The other's policy, and the average beside it."""
        from safetensors.torch import save_file

        self._learner.export(folder)
        save_file(self._average, folder / AVERAGE)

    def _copy(self) -> dict[str, Any]:
        weights: Mapping[str, Any] = dict(self._learner.weights())
        return {name: value.clone() for name, value in weights.items()}
