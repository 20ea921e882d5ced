"""Required results: what the parts of each slot must return; the methods of a user's own part are wrapped to check it.

A part that gives a list where an array is needed would fail far away, in somebody else's arithmetic. So the methods of
each class from outside groupwise are wrapped: what comes out wrong is one sentence that names the part, what came and
what is needed. Parts that come with groupwise are held to the same by the tests, and are not slowed down.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

from groupwise.core.errors import ConfigError, GroupwiseError, TrainingError
from groupwise.core.parts.attempt_results import ATTEMPT_RESULTS
from groupwise.core.parts.credit_results import CREDIT_RESULTS
from groupwise.core.parts.loss_results import LOSS_RESULTS
from groupwise.core.parts.members import OPENED
from groupwise.core.parts.result_checks import TEXT, RequiredResult, has_members, is_number
from groupwise.core.text.exceptions import quote_error_with_place

REACHING_OUT = frozenset({"env", "model", "engine", "tracker"})
"""Slots whose parts reach beyond the process: what they raise is told where they are opened."""

LEARNER = ("steps", "vocabulary_size", *OPENED["learner"])
"""What a learner has: `groupwise.training.learner.protocol` says what each is for."""

REQUIRED_RESULTS: Mapping[str, Mapping[str, RequiredResult]] = {
    **CREDIT_RESULTS,
    **ATTEMPT_RESULTS,
    **LOSS_RESULTS,
    "schedule": {
        "__call__": RequiredResult(
            "a share between 0 and 1",
            lambda result, arguments: is_number(result) and math.isfinite(result) and 0 <= result <= 1,
        ),
    },
    "tracker": {
        "start": RequiredResult("something with run_id, log and finish", has_members("run_id", "log", "finish")),
        "package": TEXT,
    },
    "engine": {
        "open": RequiredResult(
            "an engine, with gives, version, context, generate, score and load,",
            has_members("gives", "version", "context", "generate", "score", "load"),
        ),
    },
    "learner": {"open": RequiredResult(f"something with {', '.join(LEARNER)}", has_members(*LEARNER))},
    "weight_transfer": {"open": RequiredResult("something with hand_over", has_members("hand_over"))},
    "model": {
        "open": RequiredResult(
            "a pair of a model and a tokenizer",
            lambda result, arguments: isinstance(result, tuple) and len(result) == 2,
        ),
    },
}
"""What the methods of each slot's parts return. Environments are checked where they are asked, attempt by attempt."""


def guard_methods(part: type, slot: str) -> None:
    """Have the methods of a class checked for what its slot needs, unless the class is one of groupwise's own."""
    if part.__module__.partition(".")[0] == __name__.partition(".")[0]:
        return
    for name, required in REQUIRED_RESULTS.get(slot, {}).items():
        method = vars(part).get(name)
        if isinstance(method, property) and method.fget is not None:
            setattr(part, name, property(_guard(method.fget, part, slot, name, required), doc=method.__doc__))
        elif callable(method):
            setattr(part, name, _guard(method, part, slot, name, required))


def _guard(
    method: Callable[..., Any], part: type, slot: str, name: str, required: RequiredResult
) -> Callable[..., Any]:
    """Wrap a method: a wrong result, or an exception, is told in a sentence that names the part."""

    @functools.wraps(method)
    def call_and_check(self: Any, *arguments: Any, **by_name: Any) -> Any:
        where = f"the {slot} {part.__module__}:{part.__qualname__}{'' if name == '__call__' else f': {name}'}"
        try:
            result = method(self, *arguments, **by_name)
        except GroupwiseError:
            raise
        except Exception as error:
            if slot in REACHING_OUT:
                raise
            raise TrainingError(f"{where} raised {quote_error_with_place(error, part.__module__)}; mend it") from error
        if not required.fits(result, arguments):
            raise ConfigError(f"{where} gave {required.find_fault(result, arguments)}, but {required.words} is needed")
        return result

    return call_and_check
