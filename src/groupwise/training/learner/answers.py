"""What a learner answers, checked before anything is built on it: a learner of a user's own may answer anything."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from groupwise.core.errors import ConfigError, TrainingError
from groupwise.core.parts.members import check_methods
from groupwise.core.score_requests import PromptAndResponse
from groupwise.core.segments import FloatArray
from groupwise.core.text.value_words import describe_value
from groupwise.training.learner.protocol import Learned

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
