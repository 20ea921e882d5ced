"""How a reward function is called, by the names of what it takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from groupwise.core.errors import ConfigError, RecordError
from groupwise.core.records import Trajectory
from groupwise.core.text.safe_text import quote_line
from groupwise.core.text.value_words import describe_value

EMPTY = inspect.Parameter.empty
NOT_NAMED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
OF_ATTEMPT = ("prompts", "completions", "completion_ids")
"""What every attempt has, by the names that TRL calls them."""
SIGNATURES = "(trajectory), (trajectory, responses) or TRL's (completions, **kwargs)"


class UnfitCall(RecordError):
    """What a function takes or returns that does not fit an attempt; whoever calls it says which attempt, and which."""


class CallsFunction(Protocol):
    """Calls a function with what it takes of an attempt."""

    def __call__(
        self, function: Callable[..., Any], trajectory: Trajectory, responses: Sequence[str], *, messages: bool
    ) -> Any: ...


def choose_call(function: Callable[..., Any], place: str) -> CallsFunction:
    """Choose how a function is called; refused, with a sentence, where it takes what nobody has."""
    try:
        signature = inspect.signature(function).replace(return_annotation=EMPTY)
    except (TypeError, ValueError):
        raise ConfigError(f"rewards: the function {place!r} does not say what it takes; give it {SIGNATURES}") from None
    parameters = signature.parameters
    named = [name for name, parameter in parameters.items() if parameter.kind not in NOT_NAMED]
    needed = [name for name in named if parameters[name].default is EMPTY]
    is_awaited = inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function)
    if "completions" in named and not is_awaited:
        return call_as_trl
    positional = [name for name in needed if parameters[name].kind is not inspect.Parameter.KEYWORD_ONLY]
    if not is_awaited and positional == needed and len(needed) == 1 and "responses" not in named:
        return _call_with_trajectory
    if not is_awaited and named[1:2] == ["responses"] and set(needed) <= set(named[:2]):
        return _call_with_responses
    kind = "is awaited or yields, and " if is_awaited else ""
    raise ConfigError(
        f"rewards: the function {place!r} {kind}takes {signature}; give it {SIGNATURES}, and let it return numbers"
    )


def _call_with_trajectory(
    function: Callable[..., Any], trajectory: Trajectory, responses: Sequence[str], *, messages: bool
) -> Any:
    return function(trajectory)


def _call_with_responses(
    function: Callable[..., Any], trajectory: Trajectory, responses: Sequence[str], *, messages: bool
) -> Any:
    return function(trajectory, responses)


def call_as_trl(
    function: Callable[..., Any], trajectory: Trajectory, responses: Sequence[str], *, messages: bool
) -> Any:
    """Call with a batch of one attempt, all by name; what it does not take is left out, as are columns nobody reads."""
    parameters = inspect.signature(function).parameters
    seen = [step.observation or "" for step in trajectory.steps]
    prompt: Any = seen[0] if seen else ""
    completion: Any = responses[-1] if responses else ""
    if messages:
        prompt, completion = [{"role": "user", "content": prompt}], _write_messages(seen, responses)
    known: dict[str, list[Any]] = {name: [value] for name, value in trajectory.task.payload.items()}
    known |= {"prompts": [prompt], "completions": [completion]}
    known["completion_ids"] = [[token for step in trajectory.steps for token in step.response_ids]]
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    missing = list_missing_columns(function, trajectory.task.payload)
    if missing:
        raise UnfitCall(
            f"takes {missing[0]!r}, which the task's payload does not have "
            f"({', '.join(sorted(trajectory.task.payload)) or 'it is empty'}); add it to the tasks, or give a default"
        )
    said = function(**{name: value for name, value in known.items() if takes_any or name in parameters})
    if not isinstance(said, list | tuple) or len(said) != 1:
        raise UnfitCall(
            f"was handed a batch of 1 completion and returned {describe_value(said)}; return a list of one "
            "number for each"
        )
    return 0.0 if said[0] is None else read_element(said[0], 0)


def read_element(value: object, number: int) -> float:
    """A number out of the list that a function returned; `number` is its place there."""
    amount = read_number(value)
    if amount is None:
        quoted = quote_line(repr(value), limit=60)
        raise UnfitCall(
            f"returned a list whose element {number} is {describe_value(value)}, found {quoted}; expected a number"
        )
    return amount


def read_number(value: object) -> float | None:
    """What a function returned as a number, also one of numpy or torch; None if it is none."""
    if isinstance(value, str | bytes) or value is None:
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):  # torch's, of a tensor of several
        return None


def list_missing_columns(function: Callable[..., Any], payload: Mapping[str, Any]) -> list[str]:
    """What a function with TRL's signature needs by name, and neither an attempt nor its task's payload has."""
    return [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind not in NOT_NAMED and parameter.default is EMPTY and name not in (*OF_ATTEMPT, *payload)
    ]


def _write_messages(seen: Sequence[str], responses: Sequence[str]) -> list[dict[str, str]]:
    """What was said after the first observation, in turns."""
    turns = [{"role": "assistant", "content": responses[0]}] if responses else []
    for observation, response in zip(seen[1:], responses[1:], strict=True):
        turns += [{"role": "user", "content": observation}, {"role": "assistant", "content": response}]
    return turns
