"""The first pass of a loss: what it must know of a whole optimiser step before it can give a gradient.

A loss whose value is no sum over samples (a softmax over a group, a pair, a bound on a mean) gets the coefficients of
its gradient from a pass without gradient over all micro-batches; what the passes found is merged here.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

from groupwise.core.errors import ConfigError
from groupwise.core.parts.part import name_of
from groupwise.core.parts.slots import Loss
from groupwise.core.text.value_words import describe_value


def has_first_pass(loss: Loss) -> bool:
    """Whether a loss has a first pass."""
    return hasattr(loss, "first_pass")


def merge_summaries(loss: Loss, summaries: Iterable[Any]) -> Any:
    """One summary of all micro-batches, in their order: by `merge` where the summaries have it, else by `+`."""
    return reduce(lambda merged, summary: _merge_two(loss, merged, summary), summaries)


def _merge_two(loss: Loss, merged: Any, summary: Any) -> Any:
    try:
        result = merged.merge(summary) if hasattr(merged, "merge") else merged + summary
    except (TypeError, RuntimeError) as error:  # torch says RuntimeError of sizes that do not fit
        reason = str(error).splitlines()[0]
        raise ConfigError(_sentence(loss, merged, summary, f"cannot be merged ({reason})")) from None
    if type(result) is not type(merged):
        raise ConfigError(_sentence(loss, merged, summary, f"merge into {describe_value(result)}"))
    return result


def _sentence(loss: Loss, merged: Any, summary: Any, what: str) -> str:
    return (
        f"algorithm.loss: {name_of(loss)}: the summaries of two micro-batches, {describe_value(merged)} and "
        f"{describe_value(summary)}, {what}; let first_pass give numbers that `+` adds up entry by entry, whatever is "
        "in the micro-batch, or an object with a method `merge` that gives one of its own kind"
    )
