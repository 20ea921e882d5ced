"""Parts and slots: an algorithm is an expression of small named parts.

A *part* is a frozen model you can call; its fields are its configuration. A *slot* is the role a part plays, a small
protocol. A field that takes a part names the slot it fills, so a run file can name the part by its `kind`:

    {"kind": "relative", "by": {"kind": "by_task"}, "of": {"kind": "episode_return"}}
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, ClassVar, Protocol

import numpy as np
from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError
from pydantic_core import ErrorDetails, core_schema

from groupwise.core.credit import Credit
from groupwise.core.errors import ConfigError, nearest
from groupwise.core.history import History, PastAttempt, Recalled
from groupwise.core.part_results import watch
from groupwise.core.records import Trajectory
from groupwise.core.segments import BoolArray, FloatArray, IntArray, Segments
from groupwise.core.step_table import StepTable
from groupwise.core.token_credit import TokenCredit
from groupwise.core.token_table import TokenTable
from groupwise.core.totals import Totals
from groupwise.core.trust import WITHOUT_TRUST, load_outside, may_run

CATALOGUES = {
    "grouper": "groupwise.groups:GROUPERS",
    "filter": "groupwise.groups:FILTERS",
    "signal": "groupwise.advantages:SIGNALS",
    "baseline": "groupwise.advantages:BASELINES",
    "scale": "groupwise.advantages:SCALES",
    "estimator": "groupwise.advantages:ESTIMATORS",
    "token_credit": "groupwise.advantages:TOKEN_CREDITS",
    "loss": "groupwise.losses:LOSSES",
    "ratio": "groupwise.losses:RATIOS",
    "surrogate": "groupwise.losses:SURROGATES",
    "correction": "groupwise.losses:CORRECTIONS",
    "penalty": "groupwise.losses:PENALTIES",
    "aggregate": "groupwise.losses:AGGREGATES",
    "measure": "groupwise.rollout.measures:MEASURES",
    "judge": "groupwise.rollout.measures:JUDGES",
    "env": "groupwise.envs:ENVS",
    "model": "groupwise.engines:MODELS",
    "memory": "groupwise.rollout:MEMORIES",
    "action_rule": "groupwise.rollout:ACTION_RULES",
    "reward": "groupwise.rewards:REWARDS",
    "shaper": "groupwise.rewards:SHAPERS",
    "replay": "groupwise.groups:REPLAYS",
    "guidance": "groupwise.rollout:GUIDANCES",
    "schedule": "groupwise.training:SCHEDULES",
    "plan": "groupwise.rollout:PLANS",
    "template": "groupwise.rollout:TEMPLATES",
    "curriculum": "groupwise.tasks:CURRICULA",
    "tracker": "groupwise.training.trackers:TRACKERS",
}
"""Where each slot's catalogue stands: a literal dict of kind -> class. Named, not imported: parts live above core."""

DEFAULT_KINDS = {"template": "prompt_template"}
"""Slots whose tables need no `kind`, and the kind that they then are."""


class Part(BaseModel):
    """A frozen, callable piece of an algorithm."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    slot: ClassVar[str] = ""
    mixes_tasks: ClassVar[bool] = False
    """Whether it compares across tasks; then it needs the whole batch at once."""
    stays_inside: ClassVar[bool] = False
    """Whether an environment works from its own fields alone: no other package, no file, no process, no server. Only
    these are opened to read a run of somebody else's."""

    def __init_subclass__(cls, *, slot: str = "", stays_inside: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if slot and slot not in CATALOGUES:
            raise ConfigError(f"class {cls.__name__}: there is no slot {slot!r}; {nearest(slot, CATALOGUES)}")
        cls.slot = slot or cls.slot
        watch(cls, cls.slot)
        cls.stays_inside = stays_inside  # never inherited: what a class adds may reach further

    def __init__(self, /, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise ConfigError(f"{type(self).__name__}: {_sentences(error, type(self))}") from None

    def parts(self) -> Iterator[Part]:
        """This part and every part within it."""
        yield self
        for name in type(self).model_fields:
            value = getattr(self, name)
            for inner in value if isinstance(value, tuple) else (value,):
                if isinstance(inner, Part):
                    yield from inner.parts()

    def check_attempts(self, attempts: int) -> None:
        """Refuse a number of attempts at each task that the part cannot do with; most can do with any."""

    def config(self) -> dict[str, Any]:
        """This part as plain data, complete: what a run file would say."""
        fields = {name: self._plain_field(name) for name in type(self).model_fields}
        kind = {"kind": kind_of(type(self))} if self.slot else {}
        return kind | {name: value for name, value in fields.items() if value is not None}

    def _plain_field(self, name: str) -> Any:
        value = getattr(self, name)
        try:
            return None if value is None else _plain(value)
        except TypeError as error:
            raise ConfigError(
                f"{type(self).__name__}: the field {name!r} holds {error}, which a run file cannot say; use text, "
                "numbers, booleans, other parts, and lists and tables of these"
            ) from None


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
        return value

    def _decode(self, value: Mapping[str, Any]) -> Part:
        if "kind" not in value and self.name in DEFAULT_KINDS:
            value = {"kind": DEFAULT_KINDS[self.name], **value}
        if "kind" not in value:
            raise ConfigError(f"the {self.name} has no `kind`. {nearest('', catalogue(self.name))}")
        part = part_class(self.name, str(value["kind"]))
        return part(**{name: given for name, given in value.items() if name != "kind"})


def catalogue(slot: str) -> Mapping[str, type[Part]]:
    """The parts that come with groupwise for a slot, by kind."""
    module, name = CATALOGUES[slot].split(":")
    found: Mapping[str, type[Part]] = getattr(import_module(module), name)
    return found


def part_class(slot: str, kind: str) -> type[Part]:
    """Find a part's class by kind: a catalogue name, or `package.module:Class` for a part from elsewhere."""
    known = catalogue(slot)
    if kind in known:
        return known[kind]
    if ":" not in kind:
        raise ConfigError(f"there is no {slot} {kind!r}; {nearest(kind, known)}")
    found = load_outside(slot, kind)
    if not (isinstance(found, type) and issubclass(found, Part)):
        raise ConfigError(f"{kind!r} is not a Part; derive the class from groupwise.Part with slot={slot!r}")
    return found


def check_may_open(part: object) -> None:
    """Refuse an environment that reaches beyond its fields where a run is only read."""
    assert isinstance(part, Part), "a slot is filled by parts"
    if not part.stays_inside and not may_run():
        raise ConfigError(
            f"the environment {kind_of(type(part))!r} is {WITHOUT_TRUST}: it reaches beyond its own fields, for files, "
            "packages, processes or servers that this run names; add --trust if you trust whoever wrote it"
        )


def kind_of(part: type[Part]) -> str:
    """The kind under which a run file names this class."""
    for kind, known in catalogue(part.slot).items() if part.slot in CATALOGUES else ():
        if known is part:
            return kind
    return f"{part.__module__}:{part.__qualname__}"


def name_of(part: object) -> str:
    """A part in a few words: its class, and the fields that differ from their defaults."""
    fields = type(part).model_fields if isinstance(part, Part) else {}
    shown = [
        f"{name}={name_of(value) if isinstance(value, Part) else repr(value)}"
        for name, field in fields.items()
        if (value := getattr(part, name)) != field.default
    ]
    return f"{type(part).__name__}({', '.join(shown)})" if shown else type(part).__name__


Draw = Callable[..., np.random.Generator]
"""A random generator by name: the same name gives the same numbers."""


class Grouper(Protocol):
    """Says who is compared with whom: a label a step, -1 = not comparable."""

    def __call__(self, table: StepTable) -> IntArray: ...


class Signal(Protocol):
    """Says what is compared: a number a step."""

    def __call__(self, table: StepTable) -> FloatArray: ...


class Baseline(Protocol):
    """Takes the group's own level out of its members' values; returns the centred values."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray: ...


class Scale(Protocol):
    """Says how far apart a group's members lie: a number a group."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray: ...


class Estimator(Protocol):
    """Turns a table into credit."""

    def __call__(self, table: StepTable) -> Credit: ...


class TokenCreditPart(Protocol):
    """Turns the credit of steps into that of their sampled tokens, and says which of these train.

    `credit` is handed over in the table's order of steps.
    """

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit: ...


class Filter(Protocol):
    """Says which steps may train: True a step to keep. Groups still count the steps it drops."""

    def __call__(self, table: StepTable) -> BoolArray: ...


class CreditFilter(Protocol):
    """A filter that declares `reads_credit = True`: it is asked once there is credit, so that credit cannot depend on
    it.

    `credit` is handed over in the table's order of steps; `table.trains` says what the other filters leave.
    """

    reads_credit: ClassVar[bool]

    def __call__(self, table: StepTable, credit: Credit) -> BoolArray: ...


class Measure(Protocol):
    """Finds something out about attempts before they are compared: a mapping of facts for each step of each attempt.

    Facts are written down with the steps and become columns of the table, so that credit can be derived again without
    whatever was asked. `tools` is what it may ask, `groupwise.rollout.measures.Tools`; `draw(...)` gives a random
    generator by name.
    """

    @property
    def needs(self) -> frozenset[str]:
        """What of the tools it asks: generate, score, reference, hidden, judge."""

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Any, *, draw: Draw) -> list[Any]: ...


class Judge(Protocol):
    """Answers questions about attempts, `groupwise.rollout.measures.Question`: a finite number for each."""

    def __call__(self, questions: Sequence[Any]) -> list[float]: ...


class Shaper(Protocol):
    """Adds to what a group's attempts earned by comparing them: a number for each step of each attempt."""

    @property
    def needs_entropy(self) -> bool:
        """Whether it reads the entropies of the sampled tokens, which not every engine records."""

    def __call__(self, group: Sequence[Trajectory]) -> list[tuple[float, ...]]: ...


class Replay(Protocol):
    """Says which past attempts join the groups of an update.

    `version` is the version of the weights that are about to learn; `draw(...)` gives a random generator by name.
    """

    @property
    def most_log_ratio(self) -> float | None:
        """How far, in nats a token, the policy may have moved away from a past attempt; None = however far."""

    def __call__(
        self, groups: Sequence[Sequence[Trajectory]], history: History, *, version: int, draw: Draw
    ) -> list[Recalled]: ...


class Guidance(Protocol):
    """Says which tasks get further attempts with help in their prompt, and what the help says."""

    def words(self) -> tuple[str, ...]:
        """What it says beside the environment's own words, for a tokenizer made from scratch."""

    def chosen(self, tasks: Sequence[str], history: History, *, draw: Draw) -> list[PastAttempt]:
        """The past attempts that help is made of, one for each task that gets some."""

    def text(self, past: Trajectory, say: Callable[[Sequence[int]], str]) -> str:
        """The help itself; `say` turns sampled ids into text."""

    def joins_bare_group(self, trajectory: Trajectory) -> bool:
        """Whether an attempt with help also trains without it, among the attempts at the task itself."""


class Loss(Protocol):
    """Makes the number that is minimised of a micro-batch's token columns; its shares of an update add up.

    The columns and the result hold tensors, which core does not name: see `groupwise.losses`. One that has
    `ignores_zero_credit`, and says so, is not shown samples without credit.
    """

    @property
    def needs(self) -> frozenset[str]: ...

    @property
    def unit(self) -> str: ...

    def __call__(self, columns: Any, totals: Totals) -> Any: ...


GrouperPart = Annotated[Grouper, Slot("grouper")]
SignalPart = Annotated[Signal, Slot("signal")]
BaselinePart = Annotated[Baseline, Slot("baseline")]
ScalePart = Annotated[Scale, Slot("scale")]
EstimatorPart = Annotated[Estimator, Slot("estimator")]
FilterPart = Annotated[Filter | CreditFilter, Slot("filter")]
TokenCreditSlot = Annotated[TokenCreditPart, Slot("token_credit")]
MeasurePart = Annotated[Measure, Slot("measure")]
JudgePart = Annotated[Judge, Slot("judge")]
ShaperPart = Annotated[Shaper, Slot("shaper")]
ReplayPart = Annotated[Replay, Slot("replay")]
GuidancePart = Annotated[Guidance, Slot("guidance")]
LossPart = Annotated[Loss, Slot("loss")]


def _plain(value: object) -> Any:
    """A value as a run file would say it; a TypeError that names the type of what it cannot say."""
    if isinstance(value, Part):
        return value.config()
    if isinstance(value, tuple | list):
        return [_plain(entry) for entry in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, np.generic):
        return _plain(value.item())
    if not isinstance(value, str | bool | int | float):
        raise TypeError("nothing" if value is None else f"a {type(value).__name__}")
    return value


def _sentences(error: ValidationError, part: type[Part]) -> str:
    problems = error.errors()
    inner = {problem["loc"][:-1] for problem in problems}
    # A sequence is also too short where its entries are wrong: they say enough.
    told = [problem for problem in problems if problem["type"] != "too_short" or problem["loc"] not in inner]
    return "; ".join(_sentence(problem, part.model_fields) for problem in told)


def _sentence(problem: ErrorDetails, fields: Iterable[str]) -> str:
    path = ".".join(str(key) for key in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"unknown field {path!r}; {nearest(path, fields)}"
    if problem["type"] == "missing":
        return f"field {path!r} is missing; give it"
    if problem["type"] == "value_error":
        return f"{path}: {problem['ctx']['error']}".removeprefix(": ")  # no path where several fields disagree
    return f"{path}: {problem['msg'][0].lower()}{problem['msg'][1:]}, found {problem['input']!r}"
