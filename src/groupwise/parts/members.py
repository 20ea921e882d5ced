"""What the parts of each slot must have: methods that take what they will be called with, and attributes.

A method that is missing, or that takes something else, would be a TypeError in the middle of a run. So each class from
outside groupwise is looked at once, where its part fills a slot, before a model loads; what lives (a learner, a state)
is looked at where it is opened. The tables are all there is to it: a slot's entry says what its parts are written with.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from groupwise.system.errors import ConfigError

NAMES = "ClassVar[frozenset[str]] = frozenset()"
"""How a part declares names."""

MEMBERS: Mapping[str, Mapping[str, str]] = {
    "grouper": {"__call__": "(table)"},
    "signal": {"__call__": "(table)"},
    "baseline": {"__call__": "(values, groups)"},
    "scale": {"__call__": "(values, groups)"},
    "estimator": {"__call__": "(table)"},
    "token_credit": {"__call__": "(table, credit, tokens)"},
    "filter": {"__call__": "(table)"},
    "reward": {"__call__": "(trajectory)"},
    "measure": {"needs": NAMES, "__call__": "(groups, tools, *, draw)"},
    "judge": {"__call__": "(questions)"},
    "shaper": {"needs_entropy": "ClassVar[bool] = False", "__call__": "(group)"},
    "replay": {
        "max_log_ratio": "float | None = None",
        "__call__": "(groups, past_attempts, *, version, draw)",
    },
    "guidance": {
        "words": "()",
        "choose": "(tasks, past_attempts, *, draw)",
        "text": "(past, say)",
        "joins_unguided_group": "(trajectory)",
    },
    "loss": {"needs": NAMES, "unit": 'ClassVar[str] = "sample"', "__call__": "(columns, totals)"},
    "pairing": {"__call__": "(table)"},
    "ratio": {"__call__": "(columns)"},
    "surrogate": {"__call__": "(ratio_T, columns)"},
    "correction": {"__call__": "(columns)"},
    "penalty": {"weight": "float = 1.0", "__call__": "(columns)"},
    "aggregate": {"__call__": "(loss_T, columns, totals)"},
    "memory": {"first_shown": "(num_past)"},
    "action_rule": {"read": "(text, *, stopped, admissible)", "say": "(action, *, admissible)"},
    "template": {
        "is_one_message": "bool = False",
        "asks_for_tags": "bool = False",
        "words": "()",
        "write_opening": "(instruction, goal, guidance_text)",
        "write_observation": "(seen)",
        "write_step": "(past, seen, *, num_past)",
    },
    "plan": {
        "attempts": "int = 8",
        "next": "(played, wanted, *, tools, past_attempts, draw)",
        "choose": "(played, wanted)",
    },
    "admission": {"__call__": "(group, *, draw)"},
    "curriculum": {"start": "(tasks, seed)"},
    "schedule": {"__call__": "(step)"},
    "tracker": {"package": 'ClassVar[str] = ""', "start": "(config, folder, *, run_id)"},
    "engine": {
        "gives": NAMES,
        "precision": 'str = "float32"',
        "check_device": "(device)",
        "open": "(source)",
    },
    "learner": {"open": "(model, loss, *, temperature)"},
    "weight_transfer": {"open": "(folder)"},
    "model": {"open": "(*, words, seed)"},
}
"""What the parts of a slot have, as one would write it: what a method takes, in parentheses, or an attribute's type.
Environments are checked where they are asked, attempt by attempt."""

REQUIRED_CLASS_ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "measure": ("needs",),
    "loss": ("needs", "columns", "channels"),
    "engine": ("gives",),
}
"""Names that a class declares of itself, and that no run file sets: they are no fields."""

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
    "engine": {
        "generate": "(requests)",
        "score": "(sequences, *, temperature)",
        "load": "(weights, *, version)",
    },
    "weight_transfer": {"hand_over": "(weights, engine, *, version)"},
    "curriculum": {"next": "(num)", "observe": "(played)", "state_dict": "()", "load_state_dict": "(state)"},
    "state": {"columns": "(tasks)", "observe": "(update)", "state_dict": "()", "load_state_dict": "(state)"},
}
"""What is called of something that a part opens or starts."""


def check_members(part: Any, slot: str) -> None:
    """Refuse a part that lacks what its slot needs, unless its class is one of groupwise's own."""
    kind = type(part)
    if kind.__module__.partition(".")[0] == __name__.partition(".")[0]:
        return
    where = f"the {slot} {kind.__module__}:{kind.__qualname__}"
    for name in REQUIRED_CLASS_ATTRIBUTES.get(slot, ()):
        if name in kind.model_fields:
            raise ConfigError(f"{where} has {name!r} as a field; write `{name}: {NAMES.partition(' =')[0]} = ...`")
    _check(part, where, _members_of(part, slot))


def check_methods(opened: Any, kind: str, where: str) -> None:
    """Refuse something that a part opened whose methods do not take what they will be called with."""
    if type(opened).__module__.partition(".")[0] != __name__.partition(".")[0]:
        _check(opened, f"{where}: {type(opened).__name__}", OPENED[kind])


def _members_of(part: Any, slot: str) -> Mapping[str, str]:
    """What a part must have; what some of them declare of themselves changes how they are called."""
    members = MEMBERS.get(slot, {})
    if slot == "filter" and getattr(part, "reads_credit", False):
        return {**members, "__call__": "(table, credit)"}
    if slot == "loss" and hasattr(type(part), "first_pass"):
        return {**members, "first_pass": "(columns, totals)", "__call__": "(columns, totals, summary)"}
    return members


def _check(thing: Any, where: str, members: Mapping[str, str]) -> None:
    for name, written in members.items():
        is_method = written.startswith("(")
        taken = ", ".join(["self", *written[1:-1].split(", ")]).removesuffix(", ")
        wanted = f"def {name}({taken})" if is_method else f"{name}: {written}"
        # Asked of the class first: a property may be dear to compute, or need what is not there yet.
        # Every class can be called, so that `hasattr` would find `__call__` on each.
        is_there = any(name in vars(kind) for kind in type(thing).__mro__) or hasattr(thing, name)
        if not is_there:
            raise ConfigError(f"{where} has no {name!r}; write `{wanted}`")
        if is_method and not _takes(getattr(thing, name), written):
            raise ConfigError(f"{where}: {name!r} cannot be called with {written}; write `{wanted}`")


def _takes(method: Any, written: str) -> bool:
    """Whether a method can be called with what is written, in that order."""
    if not callable(method):
        return False
    by_place, _, by_name = written[1:-1].partition("*")
    try:
        inspect.signature(method).bind(*_names(by_place), **dict.fromkeys(_names(by_name)))
    except TypeError:
        return False
    except ValueError:  # nobody can say what it takes
        return True
    return True


def _names(written: str) -> list[str]:
    return [name for name in written.replace(" ", "").split(",") if name]
