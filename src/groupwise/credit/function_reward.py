"""Rewards from a plain Python function of a trajectory, or with the signature that TRL's trainers call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import field_validator

from groupwise.credit.rewards import pay_last
from groupwise.data.records import Trajectory
from groupwise.parts.outside import FunctionPlace, is_function_place, load_function, may_run
from groupwise.parts.part import Finite, Part
from groupwise.system.errors import ConfigError, RecordError
from groupwise.system.quoted_errors import quote_error, quote_line_in
from groupwise.system.text import describe_value, quote_line


class FunctionReward(Part, slot="reward"):
    """Call your own function to reward a rollout.

        def reward(trajectory) -> float | list[float]
        def reward(trajectory, responses) -> float | list[float]      # with the responses as texts
        def reward(completions, **kwargs) -> list[float]              # TRL's signature, for batches of one rollout

    A number is the reward of the last step; a list has one reward per step. TRL's signature is that of GRPOTrainer's
    `reward_funcs` (prompts, completions, completion_ids and the columns of the dataset). Here the columns are the
    fields of the task's payload, and None is 0.
    """

    reads_responses: ClassVar[bool] = True
    """It also gets the texts of the responses."""
    function: FunctionPlace
    """Where the function is: "file.py:name", or "package.module:name"."""
    weight: Finite = 1.0
    """What it is multiplied by."""
    messages: bool = False
    """Whether a function with TRL's signature gets prompts and completions as messages, as in conversational datasets;
    else as text: the first observation, and the last response.
    """
    judges: bool = True
    """Whether it judges how well the task was done; False = it only shapes the return, beside a reward that judges."""

    solved_at: Finite | None = None
    """The smallest reward of a rollout, times the weight, with which its task counts as solved in filters and
    evaluations. None = the environment decides.
    """

    @field_validator("function")
    @classmethod
    def _can_be_called(cls, function: str) -> str:
        if not is_function_place(function):
            raise ValueError(f"{function!r} is not the place of a function; write file.py:name or package.module:name")
        if may_run():  # reading a run calls nothing
            find_signature(load_function("reward", function), function)
        return function

    @property
    def score_name(self) -> str:
        """The name of its total among the scores of a rollout: the function's name."""
        return self.function.rpartition(":")[2]

    def _call_as_trl(self, function: Callable[..., Any], trajectory: Trajectory, responses: Sequence[str]) -> Any:
        """Call with a batch of one rollout, all by name; leave out arguments that the function does not take."""
        parameters = inspect.signature(function).parameters
        seen = [step.observation or "" for step in trajectory.steps]
        prompt: Any = seen[0] if seen else ""
        completion: Any = responses[-1] if responses else ""
        if self.messages:
            prompt, completion = [{"role": "user", "content": prompt}], []
            for place, response in enumerate(responses):
                completion += [{"role": "user", "content": seen[place]}] if place else []
                completion.append({"role": "assistant", "content": response})
        known: dict[str, list[Any]] = {name: [value] for name, value in trajectory.task.payload.items()}
        known |= {"prompts": [prompt], "completions": [completion]}
        known["completion_ids"] = [[token for step in trajectory.steps for token in step.response_ids]]
        takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
        missing = list_missing_columns(function, trajectory.task.payload)
        if missing:
            raise UnfitCall(
                f"takes {missing[0]!r}, which the task's payload does not have "
                f"({', '.join(sorted(trajectory.task.payload)) or 'it is empty'}); add it to the tasks, or give a "
                "default"
            )
        said = function(**{name: value for name, value in known.items() if takes_any or name in parameters})
        if not isinstance(said, list | tuple) or len(said) != 1:
            raise UnfitCall(
                f"got a batch of 1 completion and returned {describe_value(said)}; return a list of one number for each"
            )
        return 0.0 if said[0] is None else read_element(said[0], 0)

    def find_missing_column(self, payload: Mapping[str, Any]) -> str:
        """The column that a function with TRL's signature needs and a task's payload lacks; empty = none."""
        function = load_function("reward", self.function)
        takes_columns = find_signature(function, self.function) == "completions"
        return next(iter(list_missing_columns(function, payload)), "") if takes_columns else ""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        """The rewards if responses cannot be decoded: actions are used instead."""
        return self.pay(trajectory, [step.action or "" for step in trajectory.steps])

    def pay(self, trajectory: Trajectory, responses: Sequence[str]) -> tuple[float, ...]:
        where = f"{trajectory.describe()}: reward {self.function!r}"
        function = load_function("reward", self.function)
        takes = find_signature(function, self.function)
        try:
            if takes == "completions":
                said = self._call_as_trl(function, trajectory, responses)
            else:
                said = function(trajectory) if takes == "trajectory" else function(trajectory, list(responses))
            if isinstance(said, list | tuple):
                amounts = [read_element(entry, number) for number, entry in enumerate(said)]
            elif (amount := read_number(said)) is None:
                raise UnfitCall(f"returned {describe_value(said)}; return a number, or a list of one for each step")
            else:
                amounts = list(pay_last(trajectory, amount))
        except UnfitCall as fault:
            raise RecordError(f"{where} {fault}") from None
        except (ConfigError, RecordError):
            raise
        except Exception as error:  # a user's function may raise anything
            line = quote_line_in(error, function)
            raise RecordError(f"{where} raised {quote_error(error)}{line}; fix the function") from None
        return tuple(self.weight * amount for amount in amounts)


# How a reward function is called, by the names of its arguments.

EMPTY = inspect.Parameter.empty
NOT_NAMED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
OF_ROLLOUT = ("prompts", "completions", "completion_ids")
"""What every rollout has, by TRL's names."""
SIGNATURES = "(trajectory), (trajectory, responses) or TRL's (completions, **kwargs)"


class UnfitCall(RecordError):
    """A function takes or returns something that does not fit a rollout; the caller adds which."""


def find_signature(
    function: Callable[..., Any], place: str
) -> Literal["trajectory", "trajectory and responses", "completions"]:
    """Find which of the three signatures a function has; any other is an error."""
    try:
        signature = inspect.signature(function).replace(return_annotation=EMPTY)
    except (TypeError, ValueError):
        raise ConfigError(f"the function {place!r} has no readable signature; give it {SIGNATURES}") from None
    parameters = signature.parameters
    named = [name for name, parameter in parameters.items() if parameter.kind not in NOT_NAMED]
    needed = [name for name in named if parameters[name].default is EMPTY]
    is_awaited = inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function)
    if "completions" in named and not is_awaited:
        return "completions"
    positional = [name for name in needed if parameters[name].kind is not inspect.Parameter.KEYWORD_ONLY]
    if not is_awaited and positional == needed and len(needed) == 1 and "responses" not in named:
        return "trajectory"
    if not is_awaited and named[1:2] == ["responses"] and set(needed) <= set(named[:2]):
        return "trajectory and responses"
    kind = "is async or a generator, and " if is_awaited else ""
    raise ConfigError(
        f"the function {place!r} {kind}takes {signature}; give it {SIGNATURES}, and let it return numbers"
    )


def read_element(value: object, number: int) -> float:
    """A number from the list that a function returned; `number` is its position."""
    amount = read_number(value)
    if amount is None:
        quoted = quote_line(repr(value), limit=60)
        raise UnfitCall(
            f"returned a list whose element {number} is {describe_value(value)}, found {quoted}; expected a number"
        )
    return amount


def read_number(value: object) -> float | None:
    """A returned value as a number, also one of numpy or torch; None if it is not a number."""
    if isinstance(value, str | bytes) or value is None:
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):  # torch's, of a tensor of several
        return None


def list_missing_columns(function: Callable[..., Any], payload: Mapping[str, Any]) -> list[str]:
    """Arguments that a function with TRL's signature needs, and neither a rollout nor its task's payload has."""
    return [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind not in NOT_NAMED and parameter.default is EMPTY and name not in (*OF_ROLLOUT, *payload)
    ]
