"""Required results: what the parts of each slot must return; the methods of a user's own part are wrapped to check it.

A part that gives a list where an array is needed would fail far away, in somebody else's arithmetic. So the methods of
each class from outside groupwise are wrapped: what comes out wrong is one sentence that names the part, what came and
what is needed. Parts that come with groupwise are held to the same by the tests, and are not slowed down.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from groupwise.data.credit import Credit, TokenCredit
from groupwise.data.past_attempts import PastAttempt, RecalledAttempt
from groupwise.data.samples import Pair
from groupwise.parts.members import OPENED
from groupwise.system.errors import ConfigError, GroupwiseError, TrainingError
from groupwise.system.quoted_errors import quote_error_with_place
from groupwise.system.text import describe_value

# What a result of a part must be: in words, as a check, and what is said of one that is something else.

Arguments = tuple[Any, ...]
"""What a method was called with, by position."""
Check = Callable[[Any, Arguments], bool]
"""Whether a result is what is needed, given what the method was called with."""


class RequiredResult(NamedTuple):
    """What a method must return."""

    words: str
    """In words, after "but"."""
    fits: Check
    """Whether a result is that."""
    find_fault: Callable[[Any, Arguments], str] = lambda result, arguments: describe_value(result)
    """What came instead, in words."""


def is_array(result: Any, kinds: str, size: int) -> bool:
    """Whether a result is an array of one axis, of so many entries, of one of these kinds of dtype."""
    return isinstance(result, np.ndarray) and result.dtype.kind in kinds and result.shape == (size,)


def is_finite_array(result: Any, size: int) -> bool:
    """Whether a result is an array of so many finite floats."""
    return is_array(result, "f", size) and bool(np.isfinite(result).all())


def is_number(value: Any) -> bool:
    """Whether a value is a number, and no boolean."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def is_nonnegative_integer(value: Any) -> bool:
    """Whether a value is a whole number from 0 upwards."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 0


def is_list_of(result: Any, kind: type | str) -> bool:
    """Whether a result is a list or tuple of a record; by the name of its class, where `parts` does not know it."""
    if not isinstance(result, list | tuple):
        return False
    return all(type(entry).__name__ == kind if isinstance(kind, str) else isinstance(entry, kind) for entry in result)


def has_members(*names: str) -> Check:
    """Make the check of whether a result has methods and attributes of these names."""
    return lambda result, arguments: all(hasattr(result, name) for name in names)


TEXT = RequiredResult("text", lambda result, arguments: isinstance(result, str))
WORDS = RequiredResult("a tuple of words", lambda result, arguments: is_list_of(result, str))
NAMES = RequiredResult("a frozenset of names", lambda result, arguments: isinstance(result, frozenset))


# What the parts that plan, show, score and choose attempts must return: plans, templates, rewards, measures, ...


def check_drawn_tasks(curriculum: object, tasks: object, num: int) -> None:
    """Refuse what a curriculum at work gave for tasks, if it is something else."""
    if not is_list_of(tasks, "Task") or len(tasks) != num:  # type: ignore[arg-type]
        raise ConfigError(
            f"the curriculum {type(curriculum).__name__}: next gave {describe_value(tasks)}, but a list of {num} tasks "
            "is needed"
        )


def _are_amounts(result: Any) -> bool:
    return isinstance(result, list | tuple | np.ndarray) and all(is_number(amount) for amount in result)


def _is_one_each(result: Any, arguments: Arguments) -> bool:
    # What is inside the lists is checked where it is written down, attempt by attempt.
    return isinstance(result, list | tuple) and len(result) == len(arguments[0])


def _are_answers(result: Any, arguments: Arguments) -> bool:
    return _is_one_each(result, arguments) and all(is_number(answer) and math.isfinite(answer) for answer in result)


def _are_shares(result: Any, arguments: Arguments) -> bool:
    return _is_one_each(result, arguments) and all(map(_are_amounts, result))


def _is_action(result: Any, arguments: Arguments) -> bool:
    # An `Action` of the rollout, which `parts` does not know: what to do, and whether the form was kept.
    return isinstance(result, tuple) and [type(entry) for entry in result] == [str, bool]


def _are_groups(result: Any, arguments: Arguments) -> bool:
    return isinstance(result, list | tuple) and all(is_list_of(group, "Trajectory") for group in result)


ATTEMPT_RESULTS: Mapping[str, Mapping[str, RequiredResult]] = {
    "reward": {
        "__call__": RequiredResult(
            "a tuple of one number for each step", lambda result, arguments: _are_amounts(result)
        ),
    },
    "measure": {
        "__call__": RequiredResult("a list of one list of attempts for each group", _is_one_each),
        "needs": NAMES,
    },
    "judge": {
        "__call__": RequiredResult("a list of one finite number for each question", _are_answers),
    },
    "shaper": {
        "__call__": RequiredResult(
            "a list of one tuple of numbers, a number for each step, for each attempt", _are_shares
        ),
    },
    "replay": {
        "__call__": RequiredResult(
            "a list of RecalledAttempt", lambda result, arguments: is_list_of(result, RecalledAttempt)
        ),
    },
    "guidance": {
        "choose": RequiredResult("a list of PastAttempt", lambda result, arguments: is_list_of(result, PastAttempt)),
        "text": TEXT,
        "words": WORDS,
        "joins_unguided_group": RequiredResult(
            "True or False", lambda result, arguments: isinstance(result, bool | np.bool_)
        ),
    },
    "memory": {
        "first_shown": RequiredResult(
            "a whole number between 0 and the number of past steps",
            lambda result, arguments: is_nonnegative_integer(result) and result <= arguments[0],
        ),
    },
    "action_rule": {
        "read": RequiredResult("an Action of a text and a boolean", _is_action),
        "say": TEXT,
    },
    "template": {"write_opening": TEXT, "write_observation": TEXT, "write_step": TEXT, "words": WORDS},
    "plan": {
        "next": RequiredResult(
            "a list of AttemptRequest", lambda result, arguments: is_list_of(result, "AttemptRequest")
        ),
        "choose": RequiredResult("a list of groups, each a list of trajectories,", _are_groups),
        "words": WORDS,
    },
    "admission": {
        "__call__": RequiredResult(
            "a list of those trajectories of the group that are admitted",
            lambda result, arguments: is_list_of(result, "Trajectory"),
        ),
    },
    "curriculum": {
        "start": RequiredResult(
            "something with next, observe, state_dict and load_state_dict",
            has_members("next", "observe", "state_dict", "load_state_dict"),
        ),
    },
}


# What the parts that give credit must return: groupers, signals, estimators, token credit, filters.
#
# Axes: S steps of a table, C members of a statistic, M groups.


def _are_labels(result: Any, arguments: Arguments) -> bool:
    return is_array(result, "i", len(arguments[0])) and (not len(result) or int(result.min()) >= -1)


def _is_credit(result: Any, arguments: Arguments) -> bool:
    if not isinstance(result, Credit):
        return False
    trace, table = result.trace, arguments[0]
    # Another order of as many rows would give each attempt somebody else's credit, in silence.
    is_whole = isinstance(result.step_of_row, np.ndarray) and np.array_equal(result.step_of_row, table.step_of_row)
    has_both = hasattr(trace, "values") and hasattr(trace, "compared")
    return (
        is_whole
        and has_both
        and is_finite_array(trace.values, len(table))
        and is_array(trace.compared, "b", len(table))
    )


def _is_token_credit(result: Any, arguments: Arguments) -> bool:
    if not isinstance(result, TokenCredit):
        return False
    num = len(arguments[2])
    is_whole = is_array(result.values, "f", num) and is_array(result.trains, "b", num)
    is_whole = is_whole and (result.span is None or is_array(result.span, "i", num))
    return is_whole and bool(np.isfinite(result.values[result.trains]).all())


def _find_token_credit_fault(result: Any, arguments: Arguments) -> str:
    """Say which field of token credit is wrong, and at which token."""
    if not isinstance(result, TokenCredit):
        return describe_value(result)
    num = len(arguments[2])
    for name, kinds in (("values", "f"), ("trains", "b")):
        column = getattr(result, name)
        if not is_array(column, kinds, num):
            return f"a TokenCredit whose {name!r} is {describe_value(column)} for {num} tokens"
    if result.span is not None and not is_array(result.span, "i", num):
        return f"a TokenCredit whose 'span' is {describe_value(result.span)} for {num} tokens"
    first = int(np.flatnonzero(result.trains & ~np.isfinite(result.values))[0])
    return f"a TokenCredit whose 'values' is {result.values[first]} at token {first}, which trains"


CREDIT_RESULTS: Mapping[str, Mapping[str, RequiredResult]] = {
    "grouper": {
        "__call__": RequiredResult(
            "a NumPy array of one whole number for each step (-1 = not comparable)", _are_labels
        ),
    },
    "signal": {
        "__call__": RequiredResult(
            "a NumPy array of one finite float for each step",
            lambda result, arguments: is_finite_array(result, len(arguments[0])),
        ),
    },
    "baseline": {
        "__call__": RequiredResult(
            "a NumPy array of one finite float for each value, the value less its group's level,",
            lambda result, arguments: is_finite_array(result, len(arguments[0])),
        ),
    },
    "scale": {
        "__call__": RequiredResult(
            "a NumPy array of one finite float for each group",
            lambda result, arguments: is_finite_array(result, len(arguments[1])),
        ),
    },
    "estimator": {
        "__call__": RequiredResult(
            "a Credit with one finite value for each step of the table, by the rows of that table "
            "(`Credit.of(table, trace)`),",
            _is_credit,
        ),
    },
    "token_credit": {
        "__call__": RequiredResult(
            "a TokenCredit with one float, finite where the token trains, and one boolean for each token",
            _is_token_credit,
            _find_token_credit_fault,
        ),
    },
    "filter": {
        "__call__": RequiredResult(
            "a NumPy array of one boolean for each step (True = it may train)",
            lambda result, arguments: is_array(result, "b", len(arguments[0])),
        ),
    },
}


# What the parts of a loss must return: losses, ratios, surrogates, corrections, penalties, aggregates, pairings.
#
# `parts` knows no torch: a tensor is what has `detach`, a shape and a floating-point type. Axis: T tokens.


def _is_tensor(result: Any, shape: tuple[int, ...]) -> bool:
    return hasattr(result, "detach") and tuple(result.shape) == shape and bool(result.is_floating_point())


def _is_one_a_token(result: Any, arguments: Arguments) -> bool:
    return _is_tensor(result, tuple(arguments[-1].logp.shape))


def _is_loss(result: Any, arguments: Arguments) -> bool:
    return _is_tensor(getattr(result, "loss", None), ()) and isinstance(getattr(result, "metrics", None), Mapping)


def _find_loss_fault(result: Any, arguments: Arguments) -> str:
    """Say which field of a loss's result is wrong."""
    if not hasattr(result, "loss"):
        return describe_value(result)
    kind = type(result).__name__
    if not _is_tensor(result.loss, ()):
        dtype = f" of {result.loss.dtype}" if hasattr(result.loss, "dtype") else ""
        return f"a {kind} whose 'loss' is {describe_value(result.loss)}{dtype}"
    return f"a {kind} whose 'metrics' is {describe_value(getattr(result, 'metrics', None))}"


def _is_mergeable(result: Any, arguments: Arguments) -> bool:
    return not isinstance(result, list | tuple | str) and (hasattr(result, "merge") or hasattr(result, "__add__"))


def _are_pairs(result: Any, arguments: Arguments) -> bool:
    return isinstance(result, list | tuple) and all(_is_pair(pair, arguments[0]) for pair in result)


def _is_pair(pair: Any, table: Any) -> bool:
    if (
        not isinstance(pair, Pair)
        or not all(is_nonnegative_integer(number) for number in pair[:2])
        or not all(step is None or is_nonnegative_integer(step) for step in (pair.winner_step, pair.loser_step))
        or _is_against_itself(pair)
        or not (is_number(pair.gap) and math.isfinite(pair.gap))
    ):
        return False
    first = table.attempts.first
    is_known = max(pair[:2]) < len(first)
    is_weighed = is_number(pair.weight) and math.isfinite(pair.weight) and pair.weight > 0
    return is_known and is_weighed and bool(table.task[first[pair.winner]] == table.task[first[pair.loser]])


def _is_against_itself(pair: Pair) -> bool:
    """Whether winner and loser are one attempt, unless two of its steps are meant."""
    steps = {pair.winner_step, pair.loser_step}
    return pair.winner == pair.loser and (len(steps) == 1 or None in steps)


_TOKEN_TENSOR = "a tensor of one floating-point number for each token"

LOSS_RESULTS: Mapping[str, Mapping[str, RequiredResult]] = {
    "loss": {
        "__call__": RequiredResult(
            "a LossResult with a loss that is a tensor of one number, and metrics", _is_loss, _find_loss_fault
        ),
        "needs": NAMES,
        "columns": NAMES,
        "channels": NAMES,
        "first_pass": RequiredResult(
            "a summary whose parts add up, by `+` or by a method `merge` (a list would grow with every micro-batch),",
            _is_mergeable,
        ),
    },
    "pairing": {
        "__call__": RequiredResult(
            "a list of Pair, each of two attempts at one task and of a weight above 0,", _are_pairs
        ),
    },
    "ratio": {"__call__": RequiredResult(_TOKEN_TENSOR, _is_one_a_token)},
    "surrogate": {
        "__call__": RequiredResult(
            f"a TokenLoss, whose loss is {_TOKEN_TENSOR},",
            lambda result, arguments: hasattr(result, "clipped") and _is_one_a_token(result.loss, arguments),
        ),
    },
    "correction": {"__call__": RequiredResult(_TOKEN_TENSOR, _is_one_a_token)},
    "penalty": {"__call__": RequiredResult(_TOKEN_TENSOR, _is_one_a_token)},
    "aggregate": {
        "__call__": RequiredResult("a tensor of one number", lambda result, arguments: _is_tensor(result, ())),
    },
}


EXTERNAL_SLOTS = frozenset({"env", "model", "engine", "tracker"})
"""Slots whose parts reach beyond the process: what they raise is told where they are opened."""

LEARNER = ("steps", "vocabulary_size", *OPENED["learner"])
"""What a learner has: `groupwise.learner.protocol` says what each is for."""

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
            if slot in EXTERNAL_SLOTS:
                raise
            raise TrainingError(f"{where} raised {quote_error_with_place(error, part.__module__)}; mend it") from error
        if not required.fits(result, arguments):
            raise ConfigError(f"{where} gave {required.find_fault(result, arguments)}, but {required.words} is needed")
        return result

    return call_and_check
