"""The learner protocol: the learner owns the weights of a run, and no other component holds the model.

It learns from samples, scores texts, returns its weights by name, and saves and loads all its state. A learner may run
in this process, in several, or on another machine.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
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
    """Weights by name, all at once or one after the other."""

ReportEpoch = Callable[[Sequence[float], int], None]
"""Called after each epoch of imitation with the losses so far, and how many epochs there will be."""


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What a learner reports per update."""

    metrics: dict[str, float]
    """The loss and its metrics, the gradient norm, the learning rate."""


class Learner(Protocol):
    """What the run needs of a learner."""

    @property
    def steps(self) -> int:
        """Optimizer steps made so far."""

    @property
    def vocabulary_size(self) -> int:
        """Number of token ids of the model."""

    def learn(self, samples: Sequence[Sample], totals: Totals) -> Learned:
        """Make the optimizer steps of an update. If it raises, the weights are unchanged."""

    def imitate(
        self, samples: Sequence[Sample], settings: WarmStartConfig, *, seed: int, report: ReportEpoch | None = None
    ) -> list[float]:
        """Supervised fine-tuning on samples, tokens weighted by `advantage`; returns the mean loss of each epoch."""

    def logps(
        self, pairs: Sequence[PromptAndResponse], *, temperature: float = 1.0, weights: PolicyRole = "current"
    ) -> list[tuple[float, ...]]:
        """Log-probs of the tokens of each response, under the weights that `weights()` returns.

        The weight check compares them with those of the engine after a weight sync.
        """

    def weights(self) -> NamedWeights:
        """The trained weights by name, for the engine; if the model has an adapter, only the adapter's."""

    def hold_reference(self, folder: Path | None = None) -> None:
        """Set the reference policy of the loss: the checkpoint in `folder`; None = the current weights."""

    def save(self, folder: Path) -> None:
        """Write all that `load` needs into an existing folder, in files of any name.

        The run adds the tokenizer, and `state.json` with the digest of every file and the number of steps.
        """

    def load(self, folder: Path, *, steps: int) -> None:
        """Load bit-exactly what `save` wrote after `steps` optimizer steps. If it raises, nothing is loaded.

        The run has compared every file with its digest. An unreadable file may raise any exception of its reader.
        """

    def export(self, folder: Path) -> None:
        """Write the policy as a complete Hugging Face model folder; an adapter is merged into its model."""


@runtime_checkable
class ClosingLearner(Protocol):
    """A learner that uses more than this process and must be closed at the end."""

    def close(self) -> None:
        """Release what the learner holds outside this process; what is already gone is no error."""


@runtime_checkable
class GivesValues(Protocol):
    """A learner with a critic."""

    def values(self, samples: Sequence[Sample]) -> list[tuple[float, ...]]:
        """What the critic says of the state before each token of each response."""


@runtime_checkable
class GivesEntropies(Protocol):
    """A learner that can measure the entropies that an engine does not give; outside learners need not."""

    def entropies(self, pairs: Sequence[PromptAndResponse], *, temperature: float = 1.0) -> list[tuple[float, ...]]:
        """Entropy of the distribution of each response token, in nats, under the weights that `weights()` returns."""


class LearnerPart(Protocol):
    """Fills the slot `learner`: opens a learner on the model of the run."""

    def open(self, model: Any, loss: Loss, *, temperature: float) -> Learner:
        """Open a learner that minimizes a loss; it owns the transformers model from now on.

        The temperature divides the logits, as in sampling. If the algorithm has a critic, it is passed as `critic`.
        Then the learner also has `values`, and `learn` trains the critic on `Sample.targets`.
        """


LearnerSlot = Annotated[LearnerPart, Slot("learner")]
"""A field of a run file that a learner fills."""


# Checks of what a learner returns: a user's own learner may return anything.

EXTRA = "extra/"
"""Prefix of the metrics that come from outside groupwise."""


def check_opened(learner: Any, where: str) -> None:
    """Fail if a learner's methods do not accept what the run passes, or its counts are not numbers."""
    check_methods(learner, "learner", where)
    for name in ("steps", "vocabulary_size"):
        count = getattr(learner, name)
        if not isinstance(count, int | np.integer) or isinstance(count, bool):
            raise ConfigError(f"{where}: {name!r} is {describe_value(count)}; the property must return an integer")


def check_learned(learner: Any, learned: Any) -> None:
    """Fail before the weight sync if `learn` returned no valid `Learned`."""
    where = f"the learner {type(learner).__name__}: learn returned"
    if not isinstance(learned, Learned) or not isinstance(learned.metrics, dict):
        raise TrainingError(f"{where} {describe_value(learned)}; return Learned(metrics=...), with numbers by name")
    for name, value in learned.metrics.items():
        if not is_metric(name, value):
            raise TrainingError(
                f"{where} {describe_value(value)} for the metric {name!r}; give a finite number, or leave it out"
            )


def is_metric(name: str, value: Any) -> bool:
    """Whether a metric can be recorded: a number of Python or NumPy; NaN if there was nothing to measure.

    Metrics of groupwise may be infinite, if the policy diverged. In a metric from outside, infinity is a mistake.
    """
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return is_number and not (name.startswith(EXTRA) and math.isinf(value))


def read_scores(answer: Any, num: int, whose: str) -> list[float]:
    """Read the log-probs of one response of `num` tokens, as a learner or an engine returned them."""
    try:
        [scores] = answer
        logps = list(map(float, scores))
    except (TypeError, ValueError):
        logps = []
    if len(logps) != num:
        inner = answer[0] if isinstance(answer, list | tuple) and len(answer) == 1 else answer
        raise TrainingError(
            f"{whose} returned {describe_value(inner)} for a response of {num} tokens; return a list with one tuple "
            "per pair, with one log-prob per token of its response"
        )
    return logps


def read_entropies(answer: Any, pairs: Sequence[PromptAndResponse], whose: str) -> list[tuple[float, ...]]:
    """Read the entropies of responses, as a learner returned them: one finite number per token."""
    try:
        entropies = [tuple(map(float, given)) for given in answer]
    except (TypeError, ValueError):
        entropies = []
    is_whole = [len(given) for given in entropies] == [len(response) for _, response in pairs]
    if not is_whole or not all(map(math.isfinite, chain.from_iterable(entropies))):
        raise TrainingError(
            f"{whose} returned {describe_value(answer)} as the entropies of {len(pairs)} responses; return a list with "
            "one tuple per response, with one finite number per token"
        )
    return entropies


def read_hidden_states(answer: Any, pairs: Sequence[PromptAndResponse], whose: str) -> list[FloatArray]:
    """Read the hidden states of responses, as a learner returned them: finite, tokens by width."""
    if not isinstance(answer, list | tuple) or len(answer) != len(pairs):
        raise TrainingError(
            f"{whose} returned {describe_value(answer)} as the hidden states of {len(pairs)} responses; return a list "
            "with one array of tokens by width per response"
        )
    states = []
    for given, (_, response) in zip(answer, pairs, strict=True):
        is_table = isinstance(given, np.ndarray) and given.ndim == 2 and given.dtype.kind == "f" and given.shape[1] > 0
        if not is_table or len(given) != len(response) or not np.isfinite(given).all():
            raise TrainingError(
                f"{whose} returned {describe_value(given)} as the hidden states of a response of {len(response)} "
                "tokens; return a NumPy array of tokens by width, of finite floats"
            )
        states.append(given.astype(np.float64, copy=False))
    return states


def collect_weights(weights: NamedWeights) -> dict[str, torch.Tensor]:
    """The weights as a dict; TrainingError if a learner returned something else."""
    try:
        table = dict(weights)
        is_table = all(isinstance(name, str) and hasattr(value, "detach") for name, value in table.items())
    except (TypeError, ValueError):
        is_table = False
    if not is_table:
        raise TrainingError(
            f"the learner's weights() returned {describe_value(weights)}; return tensors by name, or pairs of a name "
            "and a tensor"
        )
    return table


def hash_weights(weights: NamedWeights) -> str:
    """A digest of the bits of weights and of their names."""
    digest = hashlib.sha256()
    for name, value in sorted(collect_weights(weights).items()):
        plain = value.detach().cpu().contiguous()
        # NumPy has no bfloat16; float32 represents each of its numbers exactly.
        digest.update(name.encode())
        digest.update((plain.float() if plain.dtype.itemsize == 2 else plain).numpy().tobytes())
    return digest.hexdigest()
