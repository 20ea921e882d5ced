"""Parts and slots: an algorithm is built of small parts.

A *part* is a frozen, callable pydantic model; its fields are its configuration. A *slot* is the role of a part, a small
protocol. A field that takes a part has a slot, so a run file can name the part by its `kind`:

    {"kind": "relative", "by": {"kind": "by_task"}, "of": {"kind": "episode_return"}}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, ValidationError
from pydantic_core import ErrorDetails, core_schema

from groupwise.parts.outside import WITHOUT_TRUST, load_outside, may_run
from groupwise.parts.requirements import check_members, guard_methods
from groupwise.system.errors import ConfigError, Problem, nearest

# Types of fields: numbers, neither infinite nor NaN. Fields where infinity has a meaning use pydantic's own types.
Finite = Annotated[float, Field(allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1)]

OF_ALGORITHMS = ("credit", "losses", "rollout", "methods")
"""Packages with the parts of an algorithm; each may have kinds of any of their slots."""

CATALOGUES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("grouper", "filter", "rollout_filter", "signal", "baseline", "scale", "estimator"), OF_ALGORITHMS),
    **dict.fromkeys(("token_credit", "loss", "pairing", "ratio", "surrogate", "correction", "penalty"), OF_ALGORITHMS),
    **dict.fromkeys(("aggregate", "scorer", "judge"), OF_ALGORITHMS),
    "env": ("envs",),
    "agent": ("agents",),
    "model": ("models",),
    "engine": ("training",),
    **dict.fromkeys(("history", "action_parser", "reward", "shaper", "replay", "hint"), OF_ALGORITHMS),
    "schedule": ("learner",),
    **dict.fromkeys(("plan", "template", "curriculum"), OF_ALGORITHMS),
    "tracker": ("training",),
    "learner": ("learner",),
    "critic": ("learner",),
    "weight_sync": ("learner",),
    "state_rule": ("agents",),
}
"""The packages whose `CATALOGUE` may have kinds of a slot. They are named, not imported: they are layers above this."""

DEFAULT_KINDS = {"template": "prompt_template", "engine": "local", "learner": "local", "weight_sync": "in_memory"}
"""The default `kind` of some slots."""


class Part(BaseModel):
    """A frozen, callable piece of an algorithm."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    slot: ClassVar[str] = ""
    mixes_tasks: ClassVar[bool] = False
    """Whether it compares across tasks; then it needs the whole batch at once."""
    refused_fields: ClassVar[Mapping[str, str]] = {}
    """Settings of other tools that this part does not have on purpose, each with the reason and what to do instead."""
    self_contained: ClassVar[bool] = False
    """Whether an environment needs only its own fields: no other package, file, process or server. Only these are
    opened to read a run of another person without `--trust`."""

    def __init_subclass__(cls, *, slot: str = "", self_contained: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if slot and slot not in CATALOGUES:
            names = nearest(slot, CATALOGUES, listed_by="docs/howto/extending/slots.md")
            raise ConfigError(f"class {cls.__name__}: there is no slot {slot!r}; {names}")
        cls.slot = slot or cls.slot
        guard_methods(cls, cls.slot)
        cls.self_contained = self_contained  # never inherited: a derived class may need more

    def __init__(self, /, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            found = error.errors()
            inner = {problem["loc"][:-1] for problem in found}
            # A sequence with wrong entries also counts as too short; the errors of the entries are enough.
            problems = [problem for problem in found if problem["type"] != "too_short" or problem["loc"] not in inner]
            raise make_config_error(problems, type(self).__name__, type(self)) from None

    def parts(self) -> Iterator[Part]:
        """This part and every part within it."""
        return (part for _, part in self.parts_by_path())

    def parts_by_path(self, path: str = "") -> Iterator[tuple[str, Part]]:
        """This part and every part within it, each with its path in the settings."""
        yield path, self
        for name in type(self).model_fields:
            yield from _walk_value(getattr(self, name), f"{path}.{name}" if path else name)

    def check_rollouts(self, rollouts: int) -> None:
        """Raise a ConfigError if the part cannot work with this number of rollouts per task."""

    def config(self) -> dict[str, Any]:
        """All settings of this part as plain data, as a run file has them."""
        config: dict[str, Any] = {"kind": kind_of(type(self))} if self.slot else {}
        for name in type(self).model_fields:
            if (value := getattr(self, name)) is None:
                continue
            try:
                config[name] = _to_plain(value)
            except TypeError as error:
                raise ConfigError(
                    f"{type(self).__name__}: the field {name!r} holds {error}, which a run file cannot store; use "
                    "text, numbers, booleans, other parts, and lists and tables of these"
                ) from None
        return config


def _walk_value(value: object, path: str) -> Iterator[tuple[str, Part]]:
    if isinstance(value, Part):
        yield from value.parts_by_path(path)
    elif isinstance(value, Mapping | tuple | list):
        for key, entry in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _walk_value(entry, f"{path}.{key}")


class Slot:
    """Marks a field that takes a part of one slot: the part, its `kind`, or a mapping with `kind` and fields."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.fill)

    def fill(self, value: object) -> Part:
        """The part for a value; a ConfigError if it does not fit this slot."""
        key = () if isinstance(value, str) else ("kind",)
        if isinstance(value, str):
            value = {"kind": value}
        if isinstance(value, Mapping):
            kind = value.get("kind", DEFAULT_KINDS.get(self.name))
            if kind is None and "kind" not in value:
                kinds = load_catalogue(self.name)
                raise ConfigError(f"the {self.name} has no `kind`. {nearest('', kinds, listed_by=page_of(self.name))}")
            part = find_part_class(self.name, str(kind), key=key)
            value = part(**{name: setting for name, setting in value.items() if name != "kind"})
        if not isinstance(value, Part):
            raise ConfigError(f"found {value!r}; give a {self.name}, or a table with its `kind`")
        if not value.slot:
            raise ConfigError(
                f"{type(value).__name__} has no slot, but a {self.name} is needed here; write class "
                f"{type(value).__name__}(Part, slot={self.name!r})"
            )
        if value.slot != self.name:
            raise ConfigError(f"{type(value).__name__} is a {value.slot}, but a {self.name} is needed here")
        check_members(value, self.name)
        return value


def page_of(slot: str) -> str:
    """The page that lists the kinds of a slot with their settings; for no slot, the page of all sections."""
    page = "environments" if slot == "env" else f"parts/{slot}" if slot in CATALOGUES else "settings"
    return f"docs/reference/{page}.md"


def load_catalogue(slot: str) -> Mapping[str, type[Part]]:
    """The built-in parts of a slot, by kind."""
    kinds: dict[str, type[Part]] = {}
    for package in CATALOGUES[slot]:
        kinds |= import_module(f"groupwise.{package}").CATALOGUE.get(slot, {})
    return kinds


def find_part_class(slot: str, kind: str, *, key: Sequence[str] = ()) -> type[Part]:
    """The class of a kind: a built-in name, or `package.module:Class` for an external part."""
    known = load_catalogue(slot)
    if kind in known:
        return known[kind]
    if ":" not in kind:
        module, dot, name = kind.rpartition(".")
        hint = f". A part of your own is named module:Class, with a colon: {f'{module}:{name}'!r}" if dot else ""
        names = nearest(kind, known, listed_by=page_of(slot))
        raise ConfigError(f"there is no {slot} {kind!r}; {names}{hint}", key=key)
    loaded = load_outside(slot, kind)
    if not (isinstance(loaded, type) and issubclass(loaded, Part)):
        raise ConfigError(f"{kind!r} is not a Part; derive the class from groupwise.Part with slot={slot!r}")
    return loaded


def check_may_open(part: object) -> None:
    """If a run is only read, raise a ConfigError for an agent, or an environment that is not self-contained."""
    assert isinstance(part, Part), "a slot is filled by parts"
    for env in part.parts():
        if env.slot in ("env", "agent") and not env.self_contained and not may_run():
            what = "agent" if env.slot == "agent" else "environment"
            raise ConfigError(
                f"the {what} {kind_of(type(env))!r} is {WITHOUT_TRUST}: it uses files, packages, processes or "
                "servers that this run names; add --trust if you trust the author of the run"
            )


def _find_kind(part: type[Part]) -> str:
    for kind, known in load_catalogue(part.slot).items() if part.slot in CATALOGUES else ():
        if known is part:
            return kind
    return f"{part.__module__}:{part.__qualname__}"


kind_of: Callable[[type[Part]], str] = lru_cache(1024)(_find_kind)
"""The kind of a class in a run file."""


def name_of(part: object) -> str:
    """A part as short text: its class, and the fields that differ from their defaults."""
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
    """A value as a run file holds it; a TypeError names the type of a value that it cannot hold."""
    if isinstance(value, Part):
        return value.config()
    if isinstance(value, tuple | list):
        return [_to_plain(entry) for entry in value]
    if isinstance(value, Mapping):
        return {str(key): _to_plain(entry) for key, entry in value.items()}
    if isinstance(value, np.generic):
        return _to_plain(value.item())
    if isinstance(value, str):
        return str(value)  # without the folder of a WrittenText
    if not isinstance(value, bool | int | float):
        raise TypeError("nothing" if value is None else f"a {type(value).__name__}")
    return value


_EXPECTED = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "an integer"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("tuple_type", "list_type"), "a list"),
    **dict.fromkeys(("dict_type", "mapping_type", "model_type"), "a table"),
    "string_type": "text",
}
"""What a field accepts, by pydantic's name of the problem; else pydantic says it."""


def make_config_error(problems: Sequence[ErrorDetails], of: str, part: type[Part] = Part) -> ConfigError:
    """The error for what pydantic found wrong with the settings of a part or a method."""
    found: list[Problem] = []
    for problem in problems:
        path, kind, said = tuple(map(str, problem["loc"])), problem["type"], problem["msg"]
        within = problem.get("ctx", {}).get("error")
        if isinstance(within, ConfigError):
            found += [inner.below(*path) for inner in within.problems]
        elif kind == "extra_forbidden" and path[-1] in part.refused_fields:
            found.append(Problem(path, part.refused_fields[path[-1]]))
        elif kind == "extra_forbidden":
            found.append(Problem.of_unknown(path, part.model_fields, listed_by=page_of(part.slot)))
        elif kind == "missing":
            found.append(Problem(path, "it is missing; give it a value"))
        elif kind == "value_error":
            found.append(Problem(path, str(within)))
        else:
            expected = _EXPECTED.get(kind) or said.removeprefix("Input should be ")
            number = "a number " if kind.startswith(("greater_than", "less_than")) else ""
            words = said[0].lower() + said[1:] if expected == said else f"expected {number}{expected}"
            found.append(Problem(path, f"{words}, found {problem['input']!r}"))
    return ConfigError(f"{of}: {ConfigError(problems=found)}", problems=found)


def flatten_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run file by their paths; tables in lists are numbered, lists of plain values are values.

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
