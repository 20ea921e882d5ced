"""The learner protocol: whoever owns the weights of a run, and what the run asks of them.

Nobody else holds the model. A learner in this process, one that is spread over several, one at the other end of a
network and one that wraps another are all asked the same: to learn from samples, to say what its weights make of a
text, to give the weights out by name, and to save all its state in a folder and load it again.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, runtime_checkable

import numpy as np

from groupwise.data.samples import PolicyRole, PromptAndResponse, Sample, Totals
from groupwise.data.segments import FloatArray
from groupwise.parts.part import Slot
from groupwise.parts.requirements import check_methods
from groupwise.parts.slots import Loss
from groupwise.system.errors import ConfigError, TrainingError
from groupwise.system.text import describe_value

if TYPE_CHECKING:
    import torch

    from groupwise.training.config.run_config import WarmStartConfig

    NamedWeights = Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]]
    """Weights by name, as a learner gives them out: all at once, or one after the other."""

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
        self, pairs: Sequence[PromptAndResponse], *, temperature: float = 1.0, weights: PolicyRole = "current"
    ) -> list[tuple[float, ...]]:
        """Log-probability of each response token given its prompt, under the weights that `weights()` would give.

        The canary compares this with what the engine says after a hand-over.
        """

    def weights(self) -> NamedWeights:
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
        """Open the learner on a model of transformers, which it owns from here on, to minimise a loss.

        The temperature divides the logits, as it does where responses are sampled.
        """


LearnerSlot = Annotated[LearnerPart, Slot("learner")]
"""A field of a run file that a learner fills."""


# What a learner answers, checked before anything is built on it: a learner of a user's own may answer anything.

EXTRA = "extra/"
"""What the names of metrics from elsewhere begin with."""


def check_opened(learner: Any, where: str) -> None:
    """Refuse a learner whose methods take something else than the run gives, or whose counts are none."""
    check_methods(learner, "learner", where)
    for name in ("steps", "vocabulary_size"):
        count = getattr(learner, name)
        if not isinstance(count, int | np.integer) or isinstance(count, bool):
            raise ConfigError(f"{where}: {name!r} is {describe_value(count)}; let the property give a whole number")


def check_learned(learner: Any, learned: Any) -> None:
    """Refuse what `learn` gave if it is no account of an update, before the weights are handed over."""
    where = f"the learner {type(learner).__name__}: learn gave"
    if not isinstance(learned, Learned) or not isinstance(learned.metrics, dict):
        raise TrainingError(f"{where} {describe_value(learned)}; return Learned(metrics=...), with numbers by name")
    for name, value in learned.metrics.items():
        if not is_metric(name, value):
            raise TrainingError(
                f"{where} {describe_value(value)} for the metric {name!r}; give a finite number, or leave it out"
            )


def is_metric(name: str, value: Any) -> bool:
    """Whether a metric can be written down: a number, of Python or of NumPy; NaN where there was nothing to measure.

    Infinity is a number of ours, of a policy that ran away; of somebody else's it is a mistake.
    """
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return is_number and not (name.startswith(EXTRA) and math.isinf(value))


def read_scores(answer: Any, num: int, whose: str) -> list[float]:
    """Read the log-probs of one response of `num` tokens, as a learner or an engine gave them; else an error."""
    try:
        [scores] = answer
        logps = [float(score) for score in scores]
    except (TypeError, ValueError):
        logps = []
    if len(logps) != num:
        inner = answer[0] if isinstance(answer, list | tuple) and len(answer) == 1 else answer
        raise TrainingError(
            f"{whose} gave {describe_value(inner)} for a response of {num} tokens; give a list with a tuple for each "
            "pair, a log-prob for each token of its response"
        )
    return logps


def read_hidden_states(answer: Any, pairs: Sequence[PromptAndResponse], whose: str) -> list[FloatArray]:
    """Read the hidden states of responses, as a learner gave them: finite, tokens by one width; else an error."""
    if not isinstance(answer, list | tuple) or len(answer) != len(pairs):
        raise TrainingError(
            f"{whose} gave {describe_value(answer)} as the hidden states of {len(pairs)} responses; give a list with "
            "an array of tokens by width for each"
        )
    states = []
    for given, (_, response) in zip(answer, pairs, strict=True):
        is_table = isinstance(given, np.ndarray) and given.ndim == 2 and given.dtype.kind == "f" and given.shape[1] > 0
        if not is_table or len(given) != len(response) or not np.isfinite(given).all():
            raise TrainingError(
                f"{whose} gave {describe_value(given)} as the hidden states of a response of {len(response)} tokens; "
                "give a NumPy array of tokens by width, of finite floats"
            )
        states.append(given.astype(np.float64, copy=False))
    return states


def collect_weights(weights: NamedWeights) -> dict[str, torch.Tensor]:
    """The weights as a table; TrainingError where a learner gave something else."""
    try:
        table = dict(weights)
        is_table = all(isinstance(name, str) and hasattr(value, "detach") for name, value in table.items())
    except (TypeError, ValueError):
        is_table = False
    if not is_table:
        raise TrainingError(
            f"the learner's weights() gave {describe_value(weights)}, but tensors by name, or pairs of a name and a "
            "tensor, are needed"
        )
    return table


def hash_weights(weights: NamedWeights) -> str:
    """A digest of weights and their names, to the bit."""
    digest = hashlib.sha256()
    for name, value in sorted(collect_weights(weights).items()):
        plain = value.detach().cpu().contiguous()
        # NumPy knows no bfloat16; every one of its numbers is a float32.
        digest.update(name.encode())
        digest.update((plain.float() if plain.dtype.itemsize == 2 else plain).numpy().tobytes())
    return digest.hexdigest()
