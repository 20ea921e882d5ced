"""What external parts must have and return, per slot.

A missing method would be a TypeError in the middle of a run, and a list in place of an array would fail far away. So
the members of an external class are checked when its part fills a slot, before a model loads. Its methods are wrapped,
and each result is checked. An error names the part, what was found, and what is needed. Built-in parts are checked by
the tests only, and are not slowed down.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from groupwise.data.credit import Credit, TokenCredit
from groupwise.data.past_rollouts import PastRollout, ReplayedRollout
from groupwise.data.samples import Pair
from groupwise.system.errors import ConfigError, GroupwiseError, TrainingError
from groupwise.system.quoted_errors import quote_error_with_place
from groupwise.system.text import describe_value

Arguments = tuple[Any, ...]
"""The positional arguments of a method's call."""


class Required(NamedTuple):
    """A member that a slot's parts must have, or that is checked if they have it."""

    written: str
    """As it is written in code: a method's parameters in parentheses, or an attribute's type; empty = optional."""
    result: str = ""
    """The result that is needed, in words after "expected"."""
    fits: Callable[[Any, Arguments], object] | None = None
    """Whether a result is right, given the arguments of the call; None = any result is."""
    find_fault: Callable[[Any, Arguments], str | None] = lambda result, arguments: None
    """What is wrong inside a result, in words; None = the description of the whole value is enough."""


def _is_array(result: Any, kinds: str, size: int) -> bool:
    """Whether a result is a 1-D array of this size, with one of these kinds of dtype."""
    return isinstance(result, np.ndarray) and result.dtype.kind in kinds and result.shape == (size,)


def _is_finite_array(result: Any, size: int) -> bool:
    return _is_array(result, "f", size) and bool(np.isfinite(result).all())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 0


def _is_list_of(result: Any, kind: type | str) -> bool:
    """Whether a result is a list or tuple of one class; `kind` is its name if `parts` cannot import the class."""
    if not isinstance(result, list | tuple):
        return False
    return all(type(entry).__name__ == kind if isinstance(kind, str) else isinstance(entry, kind) for entry in result)


def _is_one_each(result: Any, arguments: Arguments) -> bool:
    # The entries of the inner lists are checked later, per rollout.
    return isinstance(result, list | tuple) and len(result) == len(arguments[0])


def _are_amounts(result: Any, arguments: Arguments = ()) -> bool:
    return isinstance(result, list | tuple | np.ndarray) and all(map(_is_number, result))


def _is_text(result: Any, arguments: Arguments) -> bool:
    return isinstance(result, str)


def _has(*names: str) -> Callable[[Any, Arguments], bool]:
    return lambda result, arguments: all(hasattr(result, name) for name in names)


# Results of estimators and losses. `parts` does not import torch: a tensor is a value with `detach`, a shape and a
# floating-point dtype.


def _is_credit(result: Any, arguments: Arguments) -> bool:
    table, trace = arguments[0], getattr(result, "trace", None)
    return (
        isinstance(result, Credit)
        # Rows in another order would silently give each rollout the advantages of another one.
        and isinstance(result.step_of_row, np.ndarray)
        and np.array_equal(result.step_of_row, table.step_of_row)
        and _is_finite_array(getattr(trace, "values", None), len(table))
        and _is_array(getattr(trace, "compared", None), "b", len(table))
    )


def _find_token_credit_fault(result: Any, arguments: Arguments) -> str | None:
    """Which field of a TokenCredit is wrong, and at which token; None if all are right, or it is no TokenCredit."""
    num = len(arguments[2])
    for name, kinds in (("values", "f"), ("trains", "b"), ("span", "i")) if isinstance(result, TokenCredit) else ():
        column = getattr(result, name)
        if not _is_array(column, kinds, num) and (column is not None or name != "span"):
            return f"a TokenCredit whose {name!r} is {describe_value(column)} for {num} tokens"
    if isinstance(result, TokenCredit) and (result.trains & ~np.isfinite(result.values)).any():
        first = int(np.flatnonzero(result.trains & ~np.isfinite(result.values))[0])
        return f"a TokenCredit whose 'values' is {result.values[first]} at token {first}, which trains"
    return None


def _is_tensor(result: Any, shape: tuple[int, ...]) -> bool:
    return hasattr(result, "detach") and tuple(result.shape) == shape and bool(result.is_floating_point())


def _is_one_a_token(result: Any, arguments: Arguments) -> bool:
    return _is_tensor(result, tuple(arguments[-1].logp.shape))


def _is_loss(result: Any, arguments: Arguments) -> bool:
    return _is_tensor(getattr(result, "loss", None), ()) and isinstance(getattr(result, "metrics", None), Mapping)


def _find_loss_fault(result: Any, arguments: Arguments) -> str | None:
    """Which field of a loss's result is wrong; None if it has no field `loss`."""
    if not hasattr(result, "loss"):
        return None
    name = "metrics" if _is_tensor(result.loss, ()) else "loss"
    value = getattr(result, name, None)
    dtype = f" of {value.dtype}" if value is not None and hasattr(value, "dtype") else ""
    return f"a {type(result).__name__} whose {name!r} is {describe_value(value)}{dtype}"


def _is_pair(pair: Any, table: Any) -> bool:
    if not isinstance(pair, Pair) or not all(map(_is_count, pair[:2])):
        return False
    steps, first = {pair.winner_step, pair.loser_step}, table.rollouts.first
    return (
        all(step is None or _is_count(step) for step in steps)
        # A rollout may be compared with itself if the pair names two of its steps.
        and (pair.winner != pair.loser or (len(steps) == 2 and None not in steps))
        and all(_is_number(number) and math.isfinite(number) for number in (pair.gap, pair.weight))
        and pair.weight > 0
        and max(pair[:2]) < len(first)
        and bool(table.task[first[pair.winner]] == table.task[first[pair.loser]])
    )


OPENED: Mapping[str, Mapping[str, str]] = {
    "learner": {
        "learn": "(samples, totals)",
        "imitate": "(samples, settings, *, seed, report)",
        "logps": "(pairs, *, temperature, weights)",
        "weights": "()",
        "hold_reference": "(folder)",
        "save": "(folder)",
        "load": "(folder, *, steps)",
        "export": "(folder)",
    },
    "engine": {"generate": "(requests)", "score": "(sequences, *, temperature)", "load": "(weights, *, version)"},
    "weight_sync": {"sync": "(weights, engine, *, version)"},
    "curriculum": {"next": "(num)", "observe": "(played)", "state_dict": "()", "load_state_dict": "(state)"},
    "state": {"columns": "(tasks)", "observe": "(update)", "state_dict": "()", "load_state_dict": "(state)"},
}
"""The methods that are called on the objects that parts open or start."""
LEARNER = ("steps", "vocabulary_size", *OPENED["learner"])
"""The members of a learner, see `groupwise.learner.protocol`."""
NAMES = "ClassVar[frozenset[str]] = frozenset()"
"""How a part declares a set of names."""
_NAMES = Required(NAMES, "a frozenset of names", lambda result, arguments: isinstance(result, frozenset))
_MAY_NAME = _NAMES._replace(written="")
_WORDS = Required("()", "a tuple of words", lambda result, arguments: _is_list_of(result, str))
_TOKEN_TENSOR = "a tensor of one floating-point number for each token"


def _called(*required: Any) -> dict[str, Required]:
    """The member of parts that are only called."""
    return {"__call__": Required(*required)}


REQUIRED: Mapping[str, Mapping[str, Required]] = {
    "grouper": _called(
        "(table)",
        "a NumPy array of one integer for each step (-1 = not comparable)",
        lambda result, arguments: _is_array(result, "i", len(arguments[0])) and (result >= -1).all(),
    ),
    "signal": _called(
        "(table)",
        "a NumPy array of one finite float for each step",
        lambda result, arguments: _is_finite_array(result, len(arguments[0])),
    ),
    "baseline": _called(
        "(values, groups)",
        "a NumPy array of one finite float for each value, the value minus its group's level",
        lambda result, arguments: _is_finite_array(result, len(arguments[0])),
    ),
    "scale": _called(
        "(values, groups)",
        "a NumPy array of one finite float for each group",
        lambda result, arguments: _is_finite_array(result, len(arguments[1])),
    ),
    "estimator": _called(
        "(table)",
        "a Credit with one finite value for each step of the table, by the rows of that table "
        "(`Credit.of(table, trace)`)",
        _is_credit,
    ),
    "token_credit": _called(
        "(table, credit, tokens)",
        "a TokenCredit with one float, finite where the token trains, and one boolean for each token",
        lambda result, arguments: (
            isinstance(result, TokenCredit) and _find_token_credit_fault(result, arguments) is None
        ),
        _find_token_credit_fault,
    ),
    "filter": _called(
        "(table)",
        "a NumPy array of one boolean for each step (True = it may train)",
        lambda result, arguments: _is_array(result, "b", len(arguments[0])),
    ),
    "reward": _called("(trajectory)", "a tuple of one number for each step", _are_amounts),
    "scorer": {
        "needs": _NAMES,
        "__call__": Required("(groups, tools, *, draw)", "a list of one list of rollouts for each group", _is_one_each),
    },
    "judge": _called(
        "(questions)",
        "a list of one finite number for each question",
        lambda result, arguments: (
            _is_one_each(result, arguments) and _are_amounts(result) and all(map(math.isfinite, result))
        ),
    ),
    "shaper": {
        "needs_entropy": Required("ClassVar[bool] = False"),
        "__call__": Required(
            "(group)",
            "a list of one tuple of numbers, a number for each step, for each rollout",
            lambda result, arguments: _is_one_each(result, arguments) and all(map(_are_amounts, result)),
        ),
    },
    "replay": {
        "max_log_ratio": Required("float | None = None"),
        "__call__": Required(
            "(groups, past_rollouts, *, version, draw)",
            "a list of ReplayedRollout",
            lambda result, arguments: _is_list_of(result, ReplayedRollout),
        ),
    },
    "hint": {
        "words": _WORDS,
        "choose": Required(
            "(tasks, past_rollouts, *, draw)",
            "a list of PastRollout",
            lambda result, arguments: _is_list_of(result, PastRollout),
        ),
        "text": Required("(past, say)", "text", _is_text),
        "joins_unhinted_group": Required(
            "(trajectory)", "True or False", lambda result, arguments: isinstance(result, bool | np.bool_)
        ),
    },
    "loss": {
        "needs": _NAMES,
        "unit": Required('ClassVar[str] = "sample"'),
        "__call__": Required(
            "(columns, totals)",
            "a LossResult with a loss that is a tensor of one number, and metrics",
            _is_loss,
            _find_loss_fault,
        ),
        "columns": _MAY_NAME,
        "channels": _MAY_NAME,
        "first_pass": Required(
            "",
            "a summary whose parts add up, by `+` or by a method `merge` (a list would grow with every micro-batch)",
            lambda result, arguments: (
                not isinstance(result, list | tuple | str) and (hasattr(result, "merge") or hasattr(result, "__add__"))
            ),
        ),
    },
    "critic": {
        "by": Required('Literal["token", "step"] = "token"'),
        "gamma": Required("float = 1.0"),
        "lam": Required("float = 1.0"),
        "learning_rate": Required("float = 1e-5"),
        "owns_trunk": Required("ClassVar[bool] = False"),
        **_called(
            "(value_T, old_T, return_T)",
            "a TokenLoss, whose loss is a tensor of one floating-point number for each state",
            lambda result, arguments: hasattr(result, "clipped") and _is_tensor(result.loss, tuple(arguments[0].shape)),
        ),
    },
    "pairing": _called(
        "(table)",
        "a list of Pair, each of two rollouts of one task and with a weight above 0",
        lambda result, arguments: (
            isinstance(result, list | tuple) and all(_is_pair(pair, arguments[0]) for pair in result)
        ),
    ),
    "ratio": _called("(columns)", _TOKEN_TENSOR, _is_one_a_token),
    "surrogate": _called(
        "(ratio_T, columns)",
        f"a TokenLoss, whose loss is {_TOKEN_TENSOR}",
        lambda result, arguments: hasattr(result, "clipped") and _is_one_a_token(result.loss, arguments),
    ),
    "correction": _called("(columns)", _TOKEN_TENSOR, _is_one_a_token),
    "penalty": {"weight": Required("float = 1.0"), "__call__": Required("(columns)", _TOKEN_TENSOR, _is_one_a_token)},
    "aggregate": _called(
        "(loss_T, columns, totals)", "a tensor of one number", lambda result, arguments: _is_tensor(result, ())
    ),
    "history": {
        "first_shown": Required(
            "(num_past)",
            "an integer from 0 to the number of past steps",
            lambda result, arguments: _is_count(result) and result <= arguments[0],
        )
    },
    "action_parser": {
        "read": Required(
            "(text, *, stopped, admissible)",
            "an Action with a text and a boolean",
            lambda result, arguments: isinstance(result, tuple) and [*map(type, result)] == [str, bool],
        ),
        "say": Required("(action, *, admissible)", "text", _is_text),
    },
    "template": {
        "is_one_message": Required("bool = False"),
        "asks_for_tags": Required("bool = False"),
        "words": _WORDS,
        "write_opening": Required("(instruction, goal, hint_text)", "text", _is_text),
        "write_observation": Required("(seen)", "text", _is_text),
        "write_step": Required("(past, seen, *, num_past)", "text", _is_text),
    },
    "plan": {
        "next": Required(
            "(played, wanted, *, group_size, tools, past_rollouts, draw)",
            "a list of RolloutRequest",
            lambda result, arguments: _is_list_of(result, "RolloutRequest"),
        ),
        "choose": Required(
            "(played, wanted)",
            "a list of groups, each a list of trajectories",
            lambda result, arguments: (
                isinstance(result, list | tuple) and all(_is_list_of(group, "Trajectory") for group in result)
            ),
        ),
        "words": _WORDS._replace(written=""),
    },
    "rollout_filter": _called(
        "(group, *, draw)",
        "a list of the trajectories of the group to keep",
        lambda result, arguments: _is_list_of(result, "Trajectory"),
    ),
    "curriculum": {
        "start": Required(
            "(tasks, seed)",
            "an object with next, observe, state_dict and load_state_dict",
            _has("next", "observe", "state_dict", "load_state_dict"),
        )
    },
    "schedule": _called(
        "(step)", "a number from 0 to 1", lambda result, arguments: _is_number(result) and 0 <= result <= 1
    ),
    "tracker": {
        "package": Required('ClassVar[str] = ""', "text", _is_text),
        "start": Required(
            "(config, folder, *, run_id)", "an object with run_id, log and finish", _has("run_id", "log", "finish")
        ),
    },
    "engine": {
        "gives": Required(NAMES),
        "precision": Required('str = "float32"'),
        "check_device": Required("(device)"),
        "open": Required(
            "(source)",
            "an engine with gives, version, context, generate, score and load",
            _has("gives", "version", "context", "generate", "score", "load"),
        ),
    },
    "learner": {
        "open": Required("(model, loss, *, temperature)", f"an object with {', '.join(LEARNER)}", _has(*LEARNER))
    },
    "weight_sync": {"open": Required("(folder)", "an object with sync", _has("sync"))},
    "state_rule": _called(
        "(messages)",
        "text, or None if the call cannot be compared",
        lambda result, arguments: result is None or isinstance(result, str),
    ),
    "model": {
        "open": Required(
            "(*, words, seed)",
            "a pair of a model and a tokenizer",
            lambda result, arguments: isinstance(result, tuple) and len(result) == 2,
        )
    },
}
"""The members of a slot's parts, and what their methods return. Environments are checked at each call, per rollout."""

DECLARED_BY_CLASS: Mapping[str, tuple[str, ...]] = {
    "scorer": ("needs",),
    "loss": ("needs", "columns", "channels"),
    "engine": ("gives",),
}
"""Class attributes of parts that must not be fields, since no run file sets them."""
EXTERNAL_SLOTS = frozenset({"env", "model", "engine", "tracker"})
"""Slots whose parts use other processes or servers: their exceptions are reported by the code that opens them."""


def _is_own(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == __name__.partition(".")[0]


def guard_methods(part: type, slot: str) -> None:
    """Wrap the methods of an external class, so that each result is checked."""
    if _is_own(part):
        return
    for name, required in REQUIRED.get(slot, {}).items():
        method = vars(part).get(name)
        if required.fits is None:
            continue
        if isinstance(method, property) and method.fget is not None:
            setattr(part, name, property(_guard(method.fget, part, slot, name, required), doc=method.__doc__))
        elif callable(method):
            setattr(part, name, _guard(method, part, slot, name, required))


def _guard(method: Callable[..., Any], part: type, slot: str, name: str, required: Required) -> Callable[..., Any]:
    """Wrap a method: the error for a wrong result, or for an exception, names the part."""
    fits = required.fits
    assert fits is not None, "guard_methods asked"

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
            raise TrainingError(f"{where} raised {quote_error_with_place(error, part.__module__)}; fix it") from error
        if not fits(result, arguments):
            found = required.find_fault(result, arguments) or describe_value(result)
            raise ConfigError(f"{where} returned {found}; expected {required.result}")
        return result

    return call_and_check


def check_drawn_tasks(curriculum: object, tasks: object, num: int) -> None:
    if not _is_list_of(tasks, "Task") or len(tasks) != num:  # type: ignore[arg-type]
        raise ConfigError(
            f"the curriculum {type(curriculum).__name__}: next returned {describe_value(tasks)}; expected a list of "
            f"{num} tasks"
        )


def check_members(part: Any, slot: str) -> None:
    """Raise a ConfigError if an external part lacks a member of its slot, or a method takes other parameters."""
    kind = type(part)
    if _is_own(kind):
        return
    where = f"the {slot} {kind.__module__}:{kind.__qualname__}"
    for name in DECLARED_BY_CLASS.get(slot, ()):
        if name in kind.model_fields:
            raise ConfigError(f"{where} has {name!r} as a field; write `{name}: {NAMES.partition(' =')[0]} = ...`")
    members = {name: required.written for name, required in REQUIRED.get(slot, {}).items() if required.written}
    # Some parts declare that they are called with more arguments.
    if slot == "filter" and getattr(part, "reads_credit", False):
        members["__call__"] = "(table, credit)"
    if slot == "loss" and hasattr(kind, "first_pass"):
        members |= {"first_pass": "(columns, totals)", "__call__": "(columns, totals, summary)"}
    _check(part, where, members)


def check_methods(opened: Any, kind: str, where: str) -> None:
    """Raise a ConfigError if an object that a part opened lacks a method, or a method takes other parameters."""
    if not _is_own(type(opened)):
        _check(opened, f"{where}: {type(opened).__name__}", OPENED[kind])


def _check(thing: Any, where: str, members: Mapping[str, str]) -> None:
    for name, written in members.items():
        is_method = written.startswith("(")
        taken = ", ".join(["self", *written[1:-1].split(", ")]).removesuffix(", ")
        wanted = f"def {name}({taken})" if is_method else f"{name}: {written}"
        # The class first: a property may be slow, or not ready yet, and `hasattr` finds `__call__` on every class.
        if not any(name in vars(kind) for kind in type(thing).__mro__) and not hasattr(thing, name):
            raise ConfigError(f"{where} has no {name!r}; write `{wanted}`")
        if is_method and not _takes(getattr(thing, name), written):
            raise ConfigError(f"{where}: {name!r} cannot be called with {written}; write `{wanted}`")


def _takes(method: Any, written: str) -> bool:
    by_place, _, by_name = ([name for name in names.split(", ") if name] for names in written[1:-1].partition("*"))
    try:
        inspect.signature(method).bind(*by_place, **dict.fromkeys(by_name))
    except TypeError:  # also if it cannot be called at all
        return False
    except ValueError:  # a builtin without a signature
        pass
    return True
