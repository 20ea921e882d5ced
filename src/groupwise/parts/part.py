"""Parts and slots: an algorithm is an expression of small named parts.

A *part* is a frozen model you can call; its fields are its configuration. A *slot* is the role a part plays, a small
protocol. A field that takes a part names the slot it fills, so a run file can name the part by its `kind`:

    {"kind": "relative", "by": {"kind": "by_task"}, "of": {"kind": "episode_return"}}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, ValidationError
from pydantic_core import ErrorDetails, core_schema

from groupwise.parts.outside import WITHOUT_TRUST, load_outside, may_run
from groupwise.parts.requirements import check_members, guard_methods
from groupwise.system.errors import ConfigError, nearest

# What fields hold: numbers, neither infinite nor NaN; where infinity means something, pydantic's own types stand.
Finite = Annotated[float, Field(allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1)]

OF_ALGORITHMS = ("credit", "losses", "rollout", "methods")
"""Packages whose parts make up an algorithm; each may have kinds of any of their slots."""

CATALOGUES: Mapping[str, tuple[str, ...]] = {
    "grouper": OF_ALGORITHMS,
    "filter": OF_ALGORITHMS,
    "admission": OF_ALGORITHMS,
    "signal": OF_ALGORITHMS,
    "baseline": OF_ALGORITHMS,
    "scale": OF_ALGORITHMS,
    "estimator": OF_ALGORITHMS,
    "token_credit": OF_ALGORITHMS,
    "loss": OF_ALGORITHMS,
    "pairing": OF_ALGORITHMS,
    "ratio": OF_ALGORITHMS,
    "surrogate": OF_ALGORITHMS,
    "correction": OF_ALGORITHMS,
    "penalty": OF_ALGORITHMS,
    "aggregate": OF_ALGORITHMS,
    "measure": OF_ALGORITHMS,
    "judge": OF_ALGORITHMS,
    "env": ("envs",),
    "model": ("models",),
    "engine": ("training",),
    "memory": OF_ALGORITHMS,
    "action_rule": OF_ALGORITHMS,
    "reward": OF_ALGORITHMS,
    "shaper": OF_ALGORITHMS,
    "replay": OF_ALGORITHMS,
    "guidance": OF_ALGORITHMS,
    "schedule": ("learner",),
    "plan": OF_ALGORITHMS,
    "template": OF_ALGORITHMS,
    "curriculum": OF_ALGORITHMS,
    "tracker": ("training",),
    "learner": ("learner",),
    "weight_transfer": ("learner",),
}
"""The packages whose `CATALOGUE` may have kinds of a slot. Named, not imported: parts live above this package."""

DEFAULT_KINDS = {
    "template": "prompt_template",
    "engine": "local",
    "learner": "local",
    "weight_transfer": "in_memory",
}
"""Slots whose tables need no `kind`, and the kind that they then are."""


class Part(BaseModel):
    """A frozen, callable piece of an algorithm."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    slot: ClassVar[str] = ""
    mixes_tasks: ClassVar[bool] = False
    """Whether it compares across tasks; then it needs the whole batch at once."""
    refused_fields: ClassVar[Mapping[str, str]] = {}
    """Settings that other tools have and this part refuses on purpose, each with the reason and what to do instead."""
    self_contained: ClassVar[bool] = False
    """Whether an environment works from its own fields alone: no other package, no file, no process, no server. Only
    these are opened to read a run of somebody else's."""

    def __init_subclass__(cls, *, slot: str = "", self_contained: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if slot and slot not in CATALOGUES:
            raise ConfigError(f"class {cls.__name__}: there is no slot {slot!r}; {nearest(slot, CATALOGUES)}")
        cls.slot = slot or cls.slot
        guard_methods(cls, cls.slot)
        cls.self_contained = self_contained  # never inherited: what a class adds may reach further

    def __init__(self, /, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            problems = _list_problems(error)
            described = "; ".join(_describe_problem(problem, type(self)) for problem in problems)
            within = problems[0].get("ctx", {}).get("error")
            key = (*map(str, problems[0]["loc"]), *(within.key if isinstance(within, ConfigError) else ()))
            raise ConfigError(f"{type(self).__name__}: {described}", key=key) from None

    def parts(self) -> Iterator[Part]:
        """This part and every part within it."""
        return (part for _, part in self.parts_by_path())

    def parts_by_path(self, path: str = "") -> Iterator[tuple[str, Part]]:
        """This part and every part within it, each with its path in the settings."""
        yield path, self
        for name in type(self).model_fields:
            yield from _walk_value(getattr(self, name), f"{path}.{name}" if path else name)

    def check_attempts(self, attempts: int) -> None:
        """Refuse a number of attempts at each task that the part cannot do with; most can do with any."""

    def config(self) -> dict[str, Any]:
        """This part as plain data, complete: what a run file would say."""
        config: dict[str, Any] = {"kind": kind_of(type(self))} if self.slot else {}
        for name in type(self).model_fields:
            if (value := getattr(self, name)) is None:
                continue
            try:
                config[name] = _to_plain(value)
            except TypeError as error:
                raise ConfigError(
                    f"{type(self).__name__}: the field {name!r} holds {error}, which a run file cannot say; use text, "
                    "numbers, booleans, other parts, and lists and tables of these"
                ) from None
        return config


def _walk_value(value: object, path: str) -> Iterator[tuple[str, Part]]:
    if isinstance(value, Part):
        yield from value.parts_by_path(path)
    elif isinstance(value, Mapping | tuple | list):
        for key, entry in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _walk_value(entry, f"{path}.{key}")


class Slot:
    """Marks a field that a part of one slot fills; takes the part, its `kind`, or a mapping with `kind` and fields."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.fill)

    def fill(self, value: object) -> Part:
        """Turn what was given into a part that fits this slot."""
        if isinstance(value, str):
            value = {"kind": value}
        if isinstance(value, Mapping):
            value = self._decode(value)
        if not isinstance(value, Part):
            raise ConfigError(f"found {value!r}; give a {self.name}, or a table with its `kind`")
        if not value.slot:
            raise ConfigError(
                f"{type(value).__name__} has no slot, and a {self.name} is needed here; write "
                f"class {type(value).__name__}(Part, slot={self.name!r})"
            )
        if value.slot != self.name:
            raise ConfigError(f"{type(value).__name__} is a {value.slot}, but a {self.name} is needed here")
        check_members(value, self.name)
        return value

    def _decode(self, value: Mapping[str, Any]) -> Part:
        if "kind" not in value and self.name in DEFAULT_KINDS:
            value = {"kind": DEFAULT_KINDS[self.name], **value}
        if "kind" not in value:
            raise ConfigError(f"the {self.name} has no `kind`. {nearest('', load_catalogue(self.name))}")
        part = find_part_class(self.name, str(value["kind"]))
        return part(**{name: setting for name, setting in value.items() if name != "kind"})


def load_catalogue(slot: str) -> Mapping[str, type[Part]]:
    """The parts that come with groupwise for a slot, by kind."""
    kinds: dict[str, type[Part]] = {}
    for package in CATALOGUES[slot]:
        kinds |= import_module(f"groupwise.{package}").CATALOGUE.get(slot, {})
    return kinds


def find_part_class(slot: str, kind: str) -> type[Part]:
    """Find a part's class by kind: a catalogue name, or `package.module:Class` for a part from elsewhere."""
    known = load_catalogue(slot)
    if kind in known:
        return known[kind]
    if ":" not in kind:
        module, dot, name = kind.rpartition(".")
        hint = f". A part of your own is named module:Class, with a colon: {f'{module}:{name}'!r}" if dot else ""
        raise ConfigError(f"there is no {slot} {kind!r}; {nearest(kind, known)}{hint}", key=("kind",))
    loaded = load_outside(slot, kind)
    if not (isinstance(loaded, type) and issubclass(loaded, Part)):
        raise ConfigError(f"{kind!r} is not a Part; derive the class from groupwise.Part with slot={slot!r}")
    return loaded


def check_may_open(part: object) -> None:
    """Refuse an environment that reaches beyond its fields, or holds one that does, where a run is only read."""
    assert isinstance(part, Part), "a slot is filled by parts"
    for env in (inner for inner in part.parts() if inner.slot == "env"):
        if env.self_contained or may_run():
            continue
        raise ConfigError(
            f"the environment {kind_of(type(env))!r} is {WITHOUT_TRUST}: it reaches beyond its own fields, for files, "
            "packages, processes or servers that this run names; add --trust if you trust whoever wrote it"
        )


def kind_of(part: type[Part]) -> str:
    """The kind under which a run file names this class."""
    for kind, known in load_catalogue(part.slot).items() if part.slot in CATALOGUES else ():
        if known is part:
            return kind
    return f"{part.__module__}:{part.__qualname__}"


def name_of(part: object) -> str:
    """A part in a few words: its class, and the fields that differ from their defaults."""
    fields = type(part).model_fields if isinstance(part, Part) else {}
    shown = [
        f"{name}={_name_value(value)}"
        for name, field in fields.items()
        if (value := getattr(part, name)) != field.default
    ]
    return f"{type(part).__name__}({', '.join(shown)})" if shown else type(part).__name__


def _name_value(value: object) -> str:
    if isinstance(value, tuple) and any(isinstance(entry, Part) for entry in value):
        return f"({', '.join(map(_name_value, value))})"
    return name_of(value) if isinstance(value, Part) else repr(value)


def _to_plain(value: object) -> Any:
    """A value as a run file would say it; a TypeError that names the type of what it cannot say."""
    if isinstance(value, Part):
        return value.config()
    if isinstance(value, tuple | list):
        return [_to_plain(entry) for entry in value]
    if isinstance(value, Mapping):
        return {str(key): _to_plain(entry) for key, entry in value.items()}
    if isinstance(value, np.generic):
        return _to_plain(value.item())
    if isinstance(value, str):
        return str(value)  # without the folder that a text of a run file knows
    if not isinstance(value, bool | int | float):
        raise TypeError("nothing" if value is None else f"a {type(value).__name__}")
    return value


def _list_problems(error: ValidationError) -> list[ErrorDetails]:
    problems = error.errors()
    inner = {problem["loc"][:-1] for problem in problems}
    # A sequence is also too short where its entries are wrong: they say enough.
    return [problem for problem in problems if problem["type"] != "too_short" or problem["loc"] not in inner]


def _describe_problem(problem: ErrorDetails, part: type[Part]) -> str:
    path = ".".join(str(key) for key in problem["loc"])
    if problem["type"] == "extra_forbidden":
        if path in part.refused_fields:
            return f"{path}: {part.refused_fields[path]}"
        return f"unknown field {path!r}; {nearest(path, part.model_fields)}"
    if problem["type"] == "missing":
        return f"field {path!r} is missing; give it"
    if problem["type"] == "value_error":
        return f"{path}: {problem['ctx']['error']}".removeprefix(": ")  # no path where several fields disagree
    return f"{path}: {problem['msg'][0].lower()}{problem['msg'][1:]}, found {problem['input']!r}"


# Settings by their paths: a run file's content, flat.


def flatten_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting by its path; tables in lists are numbered, lists of plain values are values.

    >>> flatten_settings({"env": {"kind": "lake"}, "terms": [{"weight": 1.0}], "betas": [0.9, 0.99]})
    {'env.kind': 'lake', 'terms[0].weight': 1.0, 'betas': [0.9, 0.99]}
    """
    return dict(_walk_settings(settings, ""))


def _walk_settings(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _walk_settings(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(inner, Mapping) for inner in value):
        for number, inner in enumerate(value):
            yield from _walk_settings(inner, f"{path}[{number}]")
    else:
        yield path, value
