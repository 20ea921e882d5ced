"""What each slot's parts must return, checked where a part of a user's own returns it.

A part that gives a list where an array is needed would fail far away, in somebody else's arithmetic. So each class from
outside groupwise has its methods watched: what comes out wrong is one sentence that names the part, what came and what
is needed. Parts that come with groupwise are held to the same by the tests, and are not slowed down.

Axes: S steps of a table, C members of a statistic, M groups, T tokens.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from groupwise.core.credit import Credit
from groupwise.core.errors import ConfigError, GroupwiseError, TrainingError
from groupwise.core.pairs import Pair
from groupwise.core.parts.exceptions import tell_exception
from groupwise.core.past_attempts import PastAttempt, Recalled
from groupwise.core.token_credit import TokenCredit

Check = Callable[[Any, tuple[Any, ...]], bool]
"""Whether a result is what is needed, given what the method was called with."""


OWN_WAYS = frozenset({"env", "model", "engine", "tracker"})
"""Slots whose parts reach beyond the process: what they raise is told where they are opened."""


class Needed(NamedTuple):
    """What a method must return."""

    words: str
    """In words, after "but"."""
    fits: Check
    """Whether a result is that."""
    find_fault: Callable[[Any, tuple[Any, ...]], str] = lambda result, given: describe(result)
    """What came instead, in words."""


def watch(part: type, slot: str) -> None:
    """See to it that the methods of a class return what its slot needs, unless the class is one of groupwise's own."""
    if part.__module__.partition(".")[0] == __name__.partition(".")[0]:
        return
    for name, needed in NEEDED.get(slot, {}).items():
        method = vars(part).get(name)
        if isinstance(method, property) and method.fget is not None:
            setattr(part, name, property(_watched(method.fget, part, slot, name, needed), doc=method.__doc__))
        elif callable(method):
            setattr(part, name, _watched(method, part, slot, name, needed))


def describe(value: object) -> str:
    """What came, in a few words.

    >>> describe([1, 2]), describe(0.5), describe(np.zeros((2, 3)))
    ('a list of 2', 'the float 0.5', 'an array of 2 x 3 float64')
    """
    if value is None:
        return "nothing"
    if isinstance(value, np.ndarray):
        found = f"an array of {' x '.join(map(str, value.shape)) or 'no axis,'} {value.dtype}"
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            found += f" with {value[~np.isfinite(value)].flat[0]} in it"
        return found
    if isinstance(value, bool | int | float):
        return f"the {type(value).__name__} {value}"
    size = f" of {len(value)}" if isinstance(value, Sequence | Mapping) and not isinstance(value, str) else ""
    shape = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
    return f"a {type(value).__name__}{size}{shape}"


def check_tasks(curriculum: object, tasks: object, num: int) -> None:
    """Refuse what a curriculum at work gave for tasks, if it is something else."""
    if not _list_of(tasks, "Task") or len(tasks) != num:  # type: ignore[arg-type]
        raise ConfigError(
            f"the curriculum {type(curriculum).__name__}: next gave {describe(tasks)}, but a list of {num} tasks is "
            "needed"
        )


def _watched(method: Callable[..., Any], part: type, slot: str, name: str, needed: Needed) -> Callable[..., Any]:
    @functools.wraps(method)
    def checked(self: Any, *given: Any, **named: Any) -> Any:
        where = f"the {slot} {part.__module__}:{part.__qualname__}{'' if name == '__call__' else f': {name}'}"
        try:
            result = method(self, *given, **named)
        except GroupwiseError:
            raise
        except Exception as error:
            if slot in OWN_WAYS:
                raise
            raise TrainingError(f"{where} raised {tell_exception(error, part.__module__)}; mend it") from error
        if not needed.fits(result, given):
            raise ConfigError(f"{where} gave {needed.find_fault(result, given)}, but {needed.words} is needed")
        return result

    return checked


def _array(result: Any, kinds: str, size: int) -> bool:
    return isinstance(result, np.ndarray) and result.dtype.kind in kinds and result.shape == (size,)


def _numbers(result: Any, size: int) -> bool:
    return _array(result, "f", size) and bool(np.isfinite(result).all())


def _labels(result: Any, given: tuple[Any, ...]) -> bool:
    return _array(result, "i", len(given[0])) and (not len(result) or int(result.min()) >= -1)


def _credit(result: Any, given: tuple[Any, ...]) -> bool:
    if not isinstance(result, Credit):
        return False
    trace, num = result.trace, len(given[0])
    # Another order of as many rows would give each attempt somebody else's credit, in silence.
    is_whole = isinstance(result.step_of_row, np.ndarray) and np.array_equal(result.step_of_row, given[0].step_of_row)
    has_both = hasattr(trace, "values") and hasattr(trace, "compared")
    return is_whole and has_both and _numbers(trace.values, num) and _array(trace.compared, "b", num)


def _token_credit(result: Any, given: tuple[Any, ...]) -> bool:
    if not isinstance(result, TokenCredit):
        return False
    num = len(given[2])
    is_whole = _array(result.values, "f", num) and _array(result.trains, "b", num)
    return is_whole and bool(np.isfinite(result.values[result.trains]).all())


def _token_credit_fault(result: Any, given: tuple[Any, ...]) -> str:
    """Which field of token credit is wrong, and at which token."""
    if not isinstance(result, TokenCredit):
        return describe(result)
    num = len(given[2])
    for name, kinds in (("values", "f"), ("trains", "b")):
        column = getattr(result, name)
        if not _array(column, kinds, num):
            return f"a TokenCredit whose {name!r} is {describe(column)} for {num} tokens"
    first = int(np.flatnonzero(result.trains & ~np.isfinite(result.values))[0])
    return f"a TokenCredit whose 'values' is {result.values[first]} at token {first}, which trains"


def _loss_fault(result: Any, given: tuple[Any, ...]) -> str:
    """Which field of a loss's result is wrong."""
    if not hasattr(result, "loss"):
        return describe(result)
    kind = type(result).__name__
    if not _is_tensor(result.loss, ()):
        dtype = f" of {result.loss.dtype}" if hasattr(result.loss, "dtype") else ""
        return f"a {kind} whose 'loss' is {describe(result.loss)}{dtype}"
    return f"a {kind} whose 'metrics' is {describe(getattr(result, 'metrics', None))}"


def _list_of(result: Any, name: str) -> bool:
    """Whether a result is a list or tuple of a record; by the name of its class, where core does not know it."""
    return isinstance(result, list | tuple) and all(type(entry).__name__ == name for entry in result)


def _texts(result: Any, given: tuple[Any, ...]) -> bool:
    return isinstance(result, list | tuple) and all(isinstance(word, str) for word in result)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 0


def _amounts(result: Any) -> bool:
    return isinstance(result, list | tuple | np.ndarray) and all(_is_number(amount) for amount in result)


def _facts(result: Any, given: tuple[Any, ...]) -> bool:
    # What is inside the lists is checked where it is written down, attempt by attempt.
    return isinstance(result, list | tuple) and len(result) == len(given[0])


def _is_text(result: Any, given: tuple[Any, ...]) -> bool:
    return isinstance(result, str)


def _is_action(result: Any, given: tuple[Any, ...]) -> bool:
    # An `Action` of the rollout, which core does not know: what to do, and whether the form was kept.
    return isinstance(result, tuple) and [type(entry) for entry in result] == [str, bool]


def _has(*names: str) -> Check:
    return lambda result, given: all(hasattr(result, name) for name in names)


def _per_token(result: Any, given: tuple[Any, ...]) -> bool:
    return _is_tensor(result, tuple(given[-1].logp.shape))


def _is_mergeable(result: Any) -> bool:
    return not isinstance(result, list | tuple | str) and (hasattr(result, "merge") or hasattr(result, "__add__"))


def _is_pair(pair: Any, table: Any) -> bool:
    if not isinstance(pair, Pair) or not all(_is_count(number) for number in pair[:2]) or pair.winner == pair.loser:
        return False
    first = table.attempts.first
    is_known = max(pair[:2]) < len(first)
    is_weighed = _is_number(pair.weight) and math.isfinite(pair.weight) and pair.weight > 0
    return is_known and is_weighed and bool(table.task[first[pair.winner]] == table.task[first[pair.loser]])


def _is_tensor(result: Any, shape: tuple[int, ...]) -> bool:
    return hasattr(result, "detach") and tuple(result.shape) == shape and bool(result.is_floating_point())


_TENSOR = "a tensor of one floating-point number for each token"
_WORDS = Needed("a tuple of words", _texts)
_TEXT = Needed("text", _is_text)
LEARNER = (
    *("steps", "vocabulary_size", "learn", "imitate", "logps", "weights", "hold_reference"),
    *("save", "load", "export"),
)
"""What a learner has: `groupwise.training.learner.protocol` says what each is for."""
_NAMES = Needed("a frozenset of names", lambda result, given: isinstance(result, frozenset))

NEEDED: Mapping[str, Mapping[str, Needed]] = {
    "grouper": {
        "__call__": Needed("a NumPy array of one whole number for each step (-1 = not comparable)", _labels),
    },
    "signal": {
        "__call__": Needed(
            "a NumPy array of one finite float for each step", lambda result, given: _numbers(result, len(given[0]))
        ),
    },
    "baseline": {
        "__call__": Needed(
            "a NumPy array of one finite float for each value, the value less its group's level,",
            lambda result, given: _numbers(result, len(given[0])),
        ),
    },
    "scale": {
        "__call__": Needed(
            "a NumPy array of one finite float for each group", lambda result, given: _numbers(result, len(given[1]))
        ),
    },
    "estimator": {
        "__call__": Needed(
            "a Credit with one finite value for each step of the table, by the rows of that table "
            "(`Credit.of(table, trace)`),",
            _credit,
        ),
    },
    "token_credit": {
        "__call__": Needed(
            "a TokenCredit with one float, finite where the token trains, and one boolean for each token",
            _token_credit,
            _token_credit_fault,
        ),
    },
    "filter": {
        "__call__": Needed(
            "a NumPy array of one boolean for each step (True = it may train)",
            lambda result, given: _array(result, "b", len(given[0])),
        ),
    },
    "reward": {
        "__call__": Needed("a tuple of one number for each step", lambda result, given: _amounts(result)),
    },
    "measure": {
        "__call__": Needed("a list of one list of attempts for each group", _facts),
        "needs": Needed("a frozenset of names", lambda result, given: isinstance(result, frozenset)),
    },
    "judge": {
        "__call__": Needed(
            "a list of one finite number for each question",
            lambda result, given: (
                isinstance(result, list | tuple)
                and len(result) == len(given[0])
                and all(_is_number(each) and math.isfinite(each) for each in result)
            ),
        ),
    },
    "shaper": {
        "__call__": Needed(
            "a list of one tuple of numbers, a number for each step, for each attempt",
            lambda result, given: (
                isinstance(result, list | tuple) and len(result) == len(given[0]) and all(map(_amounts, result))
            ),
        ),
    },
    "replay": {
        "__call__": Needed(
            "a list of Recalled",
            lambda result, given: isinstance(result, list | tuple) and all(isinstance(r, Recalled) for r in result),
        ),
    },
    "guidance": {
        "choose": Needed(
            "a list of PastAttempt",
            lambda result, given: isinstance(result, list | tuple) and all(isinstance(r, PastAttempt) for r in result),
        ),
        "text": _TEXT,
        "words": _WORDS,
        "joins_unguided_group": Needed("True or False", lambda result, given: isinstance(result, bool | np.bool_)),
    },
    "loss": {
        "__call__": Needed(
            "a LossResult with a loss that is a tensor of one number, and metrics",
            lambda result, given: (
                _is_tensor(getattr(result, "loss", None), ()) and isinstance(getattr(result, "metrics", None), Mapping)
            ),
            _loss_fault,
        ),
        "needs": _NAMES,
        "columns": _NAMES,
        "channels": _NAMES,
        "first_pass": Needed(
            "a summary whose parts add up, by `+` or by a method `merge` (a list would grow with every micro-batch),",
            lambda result, given: _is_mergeable(result),
        ),
    },
    "pairing": {
        "__call__": Needed(
            "a list of Pair, each of two attempts at one task and of a weight above 0,",
            lambda result, given: isinstance(result, list | tuple) and all(_is_pair(pair, given[0]) for pair in result),
        ),
    },
    "ratio": {"__call__": Needed(_TENSOR, _per_token)},
    "surrogate": {
        "__call__": Needed(
            f"a TokenLoss, whose loss is {_TENSOR},",
            lambda result, given: hasattr(result, "clipped") and _per_token(result.loss, given),
        ),
    },
    "correction": {"__call__": Needed(_TENSOR, _per_token)},
    "penalty": {"__call__": Needed(_TENSOR, _per_token)},
    "aggregate": {"__call__": Needed("a tensor of one number", lambda result, given: _is_tensor(result, ()))},
    "memory": {
        "first_shown": Needed(
            "a whole number between 0 and the number of past steps",
            lambda result, given: _is_count(result) and result <= given[0],
        ),
    },
    "action_rule": {
        "read": Needed("an Action of a text and a boolean", _is_action),
        "say": _TEXT,
    },
    "template": {"opening": _TEXT, "observation": _TEXT, "step": _TEXT, "words": _WORDS},
    "plan": {
        "next": Needed("a list of AttemptRequest", lambda result, given: _list_of(result, "AttemptRequest")),
        "choose": Needed(
            "a list of groups, each a list of trajectories,",
            lambda result, given: (
                isinstance(result, list | tuple) and all(_list_of(group, "Trajectory") for group in result)
            ),
        ),
        "words": _WORDS,
    },
    "admission": {
        "__call__": Needed(
            "a list of those trajectories of the group that are admitted",
            lambda result, given: _list_of(result, "Trajectory"),
        ),
    },
    "curriculum": {
        "start": Needed(
            "something with next, observe, state_dict and load_state_dict",
            _has("next", "observe", "state_dict", "load_state_dict"),
        ),
    },
    "schedule": {
        "__call__": Needed(
            "a share between 0 and 1",
            lambda result, given: _is_number(result) and math.isfinite(result) and 0 <= result <= 1,
        ),
    },
    "tracker": {
        "start": Needed("something with run_id, log and finish", _has("run_id", "log", "finish")),
        "package": _TEXT,
    },
    "engine": {
        "open": Needed(
            "an engine, with gives, version, context, generate, score and load,",
            _has("gives", "version", "context", "generate", "score", "load"),
        ),
    },
    "learner": {"open": Needed(f"something with {', '.join(LEARNER)}", _has(*LEARNER))},
    "weight_transfer": {"open": Needed("something with hand_over", _has("hand_over"))},
    "model": {
        "open": Needed(
            "a pair of a model and a tokenizer", lambda result, given: isinstance(result, tuple) and len(result) == 2
        ),
    },
}
"""What the methods of each slot's parts return. Environments are checked where they are asked, attempt by attempt."""
