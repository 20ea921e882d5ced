"""BFCL's simulated services in one attempt's hands: calls, copies, fingerprints, and the state its answers lead to."""

from __future__ import annotations

import copy
import decimal
import inspect
import json
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import sha256
from importlib import import_module
from itertools import count
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

from groupwise.core.errors import EnvironmentFault, RecordError
from groupwise.envs.bfcl.calls import Call, read_calls
from groupwise.envs.bfcl.files import ENV, MODULES, SIMULATORS, Category, Conversation, read_conversations
from groupwise.envs.kit.eval_scan import refuse_eval

STATELESS = ("MathAPI",)
"""Services that begin with nothing."""
COSTLY = ("exponent", "precision", "decimal_places")
"""Arguments with which a number can grow beyond all bounds."""
MAX_COSTLY_VALUE = 1_000
"""What they may be at most."""
MAX_OBJECTS = 20_000
"""Files and folders, each counted as often as a way leads to it: copies of folders that hold each other multiply."""
PASSING = ("_last_modified", "_api_description")
"""What a service keeps and no function shows: the time of day, and words about itself."""

LEAVES = frozenset((str, int, float, bool, type(None)))
"""Kinds of values that most of a state is made of, and that are written as they are."""


class Result(NamedTuple):
    """What came of a call: the text, and whether there is such a function with such arguments."""

    text: str
    fits: bool


class Services:
    """The services of one attempt.

    A call is carried out as the package's own executor does it, and its result has the same text. That one finds the
    services by name in a module that all attempts share, and evaluates what the policy wrote; this one does neither.
    """

    def __init__(self, conversation: Conversation) -> None:
        self._methods = _find_owners(conversation.classes)
        self.instances: dict[str, Any] = {name: _start_service(name, conversation) for name in conversation.classes}
        """The package's own objects, by class, for its checkers."""

    def call(self, call: Call) -> Result:
        """Carry out a call."""
        owner = self._methods.get(call.name)
        if owner is None:
            return Result(f"Error during execution: name {call.name!r} is not defined", False)
        method = getattr(self.instances[owner], call.name)
        arguments = _bind_arguments(owner, call)
        if arguments is not None and any(_is_costly(arguments.get(name)) for name in COSTLY):
            return Result("Error during execution: the number is too large", True)
        with _restore_precision():
            try:
                text = _write_result(method(*copy.deepcopy(call.values), **copy.deepcopy(dict(call.named))))
            except Exception as error:  # the simulators raise anything; the package tells it as a result
                text = f"Error during execution: {error}"
        return Result(text, arguments is not None)

    def normalise_call(self, call: Call) -> tuple[str, Mapping[str, Any] | None]:
        """A call in a form that compares: the same arguments, by place or by name, are equal."""
        owner = self._methods.get(call.name)
        return call.name, None if owner is None else _bind_arguments(owner, call)

    def fork(self) -> Services:
        """An independent copy."""
        twin = Services.__new__(Services)
        twin._methods, twin.instances = self._methods, copy.deepcopy(self.instances)
        return twin

    def digest(self) -> str:
        """Fingerprint of everything that a later call may depend on."""
        try:
            written = _write_state(self.instances, (), count())
        except RecursionError:
            raise EnvironmentFault(
                "bfcl: the services hold folders within folders beyond all bounds; end the attempt"
            ) from None
        return sha256(written.encode(errors="surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class AnsweredTurn:
    """What the answers of a turn lead to."""

    calls: tuple[Call, ...]
    """The calls."""
    results: tuple[str, ...]
    """What they tell."""
    instances: Mapping[str, Any]
    """The services after them; for reading alone."""
    digests: tuple[str, ...]
    """Fingerprint of the services before each call, and after the last."""


@lru_cache(maxsize=256)
def play_answers(category: Category, id: str) -> tuple[AnsweredTurn, ...]:
    """A task, played as its answers say."""
    conversation = read_conversations(category)[id]
    services, turns = Services(conversation), []
    for answers in conversation.answers:
        calls = tuple(call for answer in answers for call in _read_answer(id, answer))
        digests, results = [services.digest()], []
        for call in calls:
            results.append(services.call(call).text)
            digests.append(services.digest())
        after = MappingProxyType(services.fork().instances)
        turns.append(AnsweredTurn(calls=calls, results=tuple(results), instances=after, digests=tuple(digests)))
    return tuple(turns)


def _read_answer(id: str, answer: str) -> tuple[Call, ...]:
    calls = read_calls(answer)
    if calls is None:
        raise RecordError(f"bfcl {id}: the answer {answer!r} is not a call with plain values; report it to the package")
    return calls


def _start_service(name: str, conversation: Conversation) -> Any:
    service = _load_class(name)()
    if name not in STATELESS:
        scenario = copy.deepcopy(dict(conversation.scenario.get(name, {})))
        service._load_scenario(scenario, long_context=conversation.is_long)
    return service


@cache
def _load_class(name: str) -> Any:
    module = import_module(f"{SIMULATORS}.{MODULES[name]}")
    refuse_eval(ENV, name, Path(str(module.__file__)))
    return getattr(module, name)


@cache
def _find_owners(classes: tuple[str, ...]) -> dict[str, str]:
    """The service of each function; where two have one of the same name, the later service's counts."""
    return {
        method: name
        for name in classes
        for method, _ in inspect.getmembers(_load_class(name), inspect.isfunction)
        if not method.startswith("_")
    }


def _bind_arguments(owner: str, call: Call) -> Mapping[str, Any] | None:
    """The arguments by name, or None where they do not fit."""
    try:
        return dict(_inspect_signature(owner, call.name).bind(*call.values, **call.named).arguments)
    except TypeError:
        return None


@cache
def _inspect_signature(owner: str, name: str) -> inspect.Signature:
    """How a service's function is called, without `self`."""
    return inspect.signature(getattr(_load_class(owner)(), name))


def _is_costly(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) > MAX_COSTLY_VALUE


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


def _write_result(result: Any) -> str:
    if type(result) is dict:
        try:
            return json.dumps(result)
        except (TypeError, ValueError):  # numbers of other kinds, or a cycle
            return str(result)
    return str(result)


def _write_state(value: Any, above: tuple[int, ...], counted: Iterator[int]) -> str:
    """A value as text that is equal for equal values, whatever order and objects they are made of."""
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
                f"bfcl: the services hold more than {MAX_OBJECTS} files and folders; end the attempt"
            )
        kept = {key: entry for key, entry in vars(value).items() if key not in PASSING}
        return f"{kind.__name__}{_write_state(kept, (*above, id(value)), counted)}"
    return repr(value)
