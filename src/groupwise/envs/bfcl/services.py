"""BFCL's simulated services in one rollout's hands: calls, copies, fingerprints, and the state its answers lead to."""

from __future__ import annotations

import ast
import copy
import decimal
import inspect
import json
import warnings
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from groupwise.envs.kit.packages import refuse_eval, report_missing_package
from groupwise.system.errors import ConfigError, EnvironmentFault, RecordError

STATELESS = ("MathAPI",)
"""Services that begin with nothing."""
COSTLY = ("exponent", "precision", "decimal_places")
"""Arguments with which a number can grow beyond all bounds."""
MAX_COSTLY_VALUE = 1_000
"""What they may be at most."""
MAX_OBJECTS = 20_000
"""Files and folders, counted once per path: copies of nested folders multiply."""
PASSING = ("_last_modified", "_api_description")
"""Attributes that no function shows: the time, and a description."""

LEAVES = frozenset((str, int, float, bool, type(None)))
"""Kinds of values that most of a state is made of, and that are written as they are."""


class Result(NamedTuple):
    """The text of a call's result, and whether the function exists and takes these arguments."""

    text: str
    fits: bool


class Services:
    """The services of one rollout.

    A call has the same result text as in the package's own executor. That one shares services between rollouts in a
    module, and evaluates what the policy wrote; this one does neither.
    """

    def __init__(self, conversation: Conversation) -> None:
        self._methods = _find_owners(conversation.classes)
        self.instances: dict[str, Any] = {name: _load_class(name)() for name in conversation.classes}
        """The package's own objects, by class, for its checkers."""
        for name, service in self.instances.items():
            if name not in STATELESS:
                scenario = copy.deepcopy(dict(conversation.scenario.get(name, {})))
                service._load_scenario(scenario, long_context=conversation.is_long)

    def call(self, call: Call) -> Result:
        owner = self._methods.get(call.name)
        if owner is None:
            return Result(f"Error during execution: name {call.name!r} is not defined", False)
        method = getattr(self.instances[owner], call.name)
        arguments = _bind_arguments(owner, call)
        amounts = [(arguments or {}).get(name) for name in COSTLY]
        if any(isinstance(amount, int | float) and abs(amount) > MAX_COSTLY_VALUE for amount in amounts):
            return Result("Error during execution: the number is too large", True)
        with _restore_precision():
            try:
                result = method(*copy.deepcopy(call.values), **copy.deepcopy(dict(call.named)))
                try:
                    text = json.dumps(result) if type(result) is dict else str(result)
                except (TypeError, ValueError):  # numbers of other kinds, or a cycle
                    text = str(result)
            except Exception as error:  # the simulators raise anything; the package tells it as a result
                text = f"Error during execution: {error}"
        return Result(text, arguments is not None)

    def normalise_call(self, call: Call) -> tuple[str, Mapping[str, Any] | None]:
        """A call in a form that compares: the same arguments, by place or by name, are equal."""
        owner = self._methods.get(call.name)
        return call.name, None if owner is None else _bind_arguments(owner, call)

    def fork(self) -> Services:
        twin = Services.__new__(Services)
        twin._methods, twin.instances = self._methods, copy.deepcopy(self.instances)
        return twin

    def digest(self) -> str:
        """Fingerprint of everything that a later call may depend on."""
        try:
            written = _write_state(self.instances, (), count())
        except RecursionError:
            raise EnvironmentFault("bfcl: the services have too many nested folders; the rollout ends") from None
        return sha256(written.encode(errors="surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class AnsweredTurn:
    """What the answers of a turn lead to."""

    calls: tuple[Call, ...]
    results: tuple[str, ...]
    instances: Mapping[str, Any]
    """The services after them; for reading alone."""
    digests: tuple[str, ...]
    """Fingerprint of the services before each call, and after the last."""


@lru_cache(maxsize=256)
def play_answers(category: Category, id: str) -> tuple[AnsweredTurn, ...]:
    """A task with its stored answers carried out."""
    conversation = read_conversations(category)[id]
    services, turns = Services(conversation), []
    for answers in conversation.answers:
        read = [(answer, read_calls(answer)) for answer in answers]
        for answer, found in read:
            if found is None:
                raise RecordError(
                    f"bfcl {id}: the answer {answer!r} is not a call with plain values; report it to the package"
                )
        calls = tuple(call for _, found in read for call in found or ())
        digests, results = [services.digest()], []
        for call in calls:
            results.append(services.call(call).text)
            digests.append(services.digest())
        after = MappingProxyType(services.fork().instances)
        turns.append(AnsweredTurn(calls=calls, results=tuple(results), instances=after, digests=tuple(digests)))
    return tuple(turns)


@cache
def _load_class(name: str) -> Any:
    module = import_module(f"{SIMULATORS}.{MODULES[name]}")
    refuse_eval(ENV, name, Path(str(module.__file__)))
    return getattr(module, name)


@cache
def _find_owners(classes: tuple[str, ...]) -> dict[str, str]:
    """The service of each function; if two have the same function, the later one."""
    return {
        method: name
        for name in classes
        for method, _ in inspect.getmembers(_load_class(name), inspect.isfunction)
        if not method.startswith("_")
    }


def _bind_arguments(owner: str, call: Call) -> Mapping[str, Any] | None:
    try:
        return dict(_inspect_signature(owner, call.name).bind(*call.values, **call.named).arguments)
    except TypeError:
        return None


@cache
def _inspect_signature(owner: str, name: str) -> inspect.Signature:
    return inspect.signature(getattr(_load_class(owner)(), name))


@contextmanager
def _restore_precision() -> Iterator[None]:
    """For one call alone: the mathematical service sets the precision of the whole process."""
    mpmath: Any = import_module("mpmath")
    digits = mpmath.mp.dps
    with decimal.localcontext():
        try:
            yield
        finally:
            mpmath.mp.dps = digits


def _write_state(value: Any, above: tuple[int, ...], counted: Iterator[int]) -> str:
    """A value as text; equal values give equal text, in any order of entries and with any objects."""
    kind = type(value)
    if kind in LEAVES:
        return repr(value)
    if kind is dict or isinstance(value, dict):
        # Most are leaves, and a call for each of them would be most of the work.
        written = [
            f"{key!r}:{entry!r}" if type(entry) in LEAVES else f"{key!r}:{_write_state(entry, above, counted)}"
            for key, entry in value.items()
        ]
        return f"{{{','.join(sorted(written))}}}"
    if kind is list or isinstance(value, list | tuple):
        return f"[{','.join([_write_state(entry, above, counted) for entry in value])}]"
    if isinstance(value, set | frozenset):
        return f"({','.join(sorted([_write_state(entry, above, counted) for entry in value]))})"
    if isinstance(value, Random):
        version, numbers, spare = value.getstate()
        return f"Random({version}, {sha256(array('Q', numbers)).hexdigest()}, {spare})"
    if hasattr(value, "__dict__") and not isinstance(value, type):
        if id(value) in above:  # a folder knows the folder above it
            return "^"
        if next(counted) == MAX_OBJECTS:
            raise EnvironmentFault(
                f"bfcl: the services have more than {MAX_OBJECTS} files and folders; the rollout ends"
            )
        kept = {key: entry for key, entry in vars(value).items() if key not in PASSING}
        return f"{kind.__name__}{_write_state(kept, (*above, id(value)), counted)}"
    return repr(value)


# Function calls in a response: read as Python or JSON, never evaluated.

MAX_RESPONSE_CHARACTERS = 20_000
MAX_CALLS = 100
MAX_DEPTH = 20
"""Levels that the values of an argument may nest."""
MAX_BITS = 4096


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A call of a function with arguments that are plain values.

    Worked example: `mv(source='a.txt', destination='temp')` has the name "mv" and two arguments by name.
    """

    name: str
    values: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)


def read_calls(text: str) -> tuple[Call, ...] | None:
    """The calls of a response, or None where it is something else.

    A response is one call, `cd(folder='temp')`, or a list of calls in the order in which they are carried out. A call
    may also be a JSON object with `name` and `arguments`. The empty list is no call.

    >>> [call.name for call in read_calls("[cd(folder='temp'), ls()]") or ()]
    ['cd', 'ls']
    >>> read_calls("I moved the file."), read_calls("[]")
    (None, ())
    """
    text = text.strip()
    if len(text) > MAX_RESPONSE_CHARACTERS:
        return None
    json_calls = _read_json(text)
    calls = _read_python(text) if json_calls is None else json_calls
    if calls is None or len(calls) > MAX_CALLS:
        return None
    return calls if all(_is_bounded((*call.values, *call.named.values())) for call in calls) else None


def _is_bounded(values: Iterable[Any]) -> bool:
    """Whether values are small enough for a service; level by level, so that nesting needs no stack."""
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for value in values:
            kind = type(value)
            if kind is int and value.bit_length() > MAX_BITS:
                return False
            if kind in (list, tuple, set):
                inner += value
            elif kind is dict:
                inner += value.values()
        if not inner:
            return True
        values = inner
    return False


def _read_json(text: str) -> tuple[Call, ...] | None:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    entries = content if isinstance(content, list) else [content]
    calls = []
    for entry in entries:
        match entry:
            case {"name": str(name), "arguments": dict(arguments)} if len(entry) == 2:
                calls.append(Call(name=name, named=arguments))
            case _:
                return None
    return tuple(calls)


def _read_python(text: str) -> tuple[Call, ...] | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd escapes in a text are the policy's affair
            expression = ast.parse(text, mode="eval").body
        return tuple(
            _read_call(node) for node in (expression.elts if isinstance(expression, ast.List) else [expression])
        )
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None


def _read_call(node: ast.expr) -> Call:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError("not a call of a named function")
    named: dict[str, Any] = {}
    for keyword in node.keywords:
        if keyword.arg is None or keyword.arg in named:
            raise ValueError("arguments that are unpacked, or given twice")
        named[keyword.arg] = ast.literal_eval(keyword.value)
    return Call(name=node.func.id, values=tuple(ast.literal_eval(value) for value in node.args), named=named)


# BFCL's multi-turn tasks as the `bfcl-eval` package ships them: requests, answers, and the functions' documents.

ENV = "bfcl"
PACKAGE = "bfcl_eval"
SIMULATORS = f"{PACKAGE}.eval_checker.multi_turn_eval.func_source_code"
FILES = "BFCL_v4_multi_turn_{}.json"
Category = Literal["base", "miss_func", "miss_param", "long_context"]
"""The plain tasks; a function that comes too late; a value that comes too late; results that are very long."""
MODULES = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}
"""The simulated services, and the files that their code and documents are in."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversation:
    """A task of BFCL.

    Worked example: id "multi_turn_base_0", number 0, requests ("Move 'final_report.pdf' ...", ...), answers
    (("cd(folder='document')", ...), ...), classes ("TwitterAPI", "GorillaFileSystem").
    """

    id: str
    number: int
    """Its number: tasks of the same number tell one story in each category."""
    requests: tuple[str, ...]
    """What the user asks, turn by turn; empty in a turn that only brings functions."""
    answers: tuple[tuple[str, ...], ...]
    """The calls that do it, turn by turn; none where it cannot be done yet."""
    classes: tuple[str, ...]
    scenario: Mapping[str, Any]
    """What each service begins with."""
    is_long: bool
    functions: tuple[Mapping[str, Any], ...]
    """Documents of the functions that there are from the beginning."""
    late: Mapping[int, tuple[Mapping[str, Any], ...]]
    """Documents of the functions that come in a later turn."""
    digest: str
    """Fingerprint of all of it, and of the services' code."""


@cache
def read_conversations(category: Category) -> dict[str, Conversation]:
    folder = find_package_folder() / "data"
    name = FILES.format(category)
    answers = {row["id"]: row["ground_truth"] for row in _read_rows(folder / "possible_answer" / name)}
    return {row["id"]: _make_conversation(row, answers[row["id"]], category) for row in _read_rows(folder / name)}


@cache
def find_package_folder() -> Path:
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations or find_spec("mpmath") is None:
        raise report_missing_package(ENV, then="pip install --no-deps bfcl-eval")
    return Path(next(iter(spec.submodule_search_locations)))


@cache
def read_source(name: str) -> str:
    path = find_package_folder().joinpath(*SIMULATORS.split(".")[1:], f"{name}.py")
    return path.read_text(encoding="utf-8")


@cache
def read_documents(name: str) -> tuple[Mapping[str, Any], ...]:
    return tuple(_read_rows(find_package_folder() / "data" / "multi_turn_func_doc" / f"{MODULES[name]}.json"))


def _make_conversation(row: Mapping[str, Any], answers: list[list[str]], category: Category) -> Conversation:
    known = {document["name"]: document for name in row["involved_classes"] for document in read_documents(name)}
    late = {
        int(turn): tuple(known.pop(name) for name in names if name in known)
        for turn, names in row.get("missed_function", {}).items()
    }
    for name in row.get("excluded_function", ()):
        known.pop(name, None)
    code = [read_source(MODULES[name]) for name in row["involved_classes"]]
    content = json.dumps([row, answers, *known.values(), *late.values(), *code], sort_keys=True)
    return Conversation(
        id=str(row["id"]),
        number=int(str(row["id"]).rpartition("_")[2]),
        requests=tuple("\n".join(message["content"] for message in turn) for turn in row["question"]),
        answers=tuple(tuple(turn) for turn in answers),
        classes=tuple(row["involved_classes"]),
        scenario=row["initial_config"],
        is_long=category == "long_context",
        functions=tuple(known.values()),
        late=late,
        digest=sha256(content.encode()).hexdigest()[:16],
    )


def _read_rows(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"bfcl: the installed bfcl-eval has no file {path.name}; pip install --no-deps bfcl-eval==2026.3.23"
        ) from None
    return [json.loads(line) for line in text.splitlines() if line.strip()]
