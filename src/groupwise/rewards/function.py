"""Rewards that are a plain function: of a trajectory, or with the signature that TRL's trainers call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import field_validator

from groupwise.core.errors import ConfigError, RecordError
from groupwise.core.parts.outside_functions import FunctionPlace, is_function_place, load_function
from groupwise.core.parts.part import Part
from groupwise.core.parts.trust import may_run
from groupwise.core.records import Trajectory
from groupwise.core.text.exceptions import quote_error, quote_line_in
from groupwise.core.text.value_words import describe_value
from groupwise.rewards.function_arguments import (
    CallsFunction,
    UnfitCall,
    call_as_trl,
    choose_call,
    list_missing_columns,
    read_element,
    read_number,
)
from groupwise.rewards.reward import Amount


class FunctionReward(Part, slot="reward"):
    """What a function of yours says an attempt earns.

        def reward(trajectory) -> float | list[float]
        def reward(trajectory, responses) -> float | list[float]      # with what was said, as texts
        def reward(completions, **kwargs) -> list[float]              # TRL's signature, for batches of one attempt

    A number is paid on the last step; of a list, each step has its own. TRL's signature is that of GRPOTrainer's
    `reward_funcs` (prompts, completions, completion_ids and the columns of the data set): columns are what the task's
    payload has, and None pays nothing.
    """

    reads_responses: ClassVar[bool] = True
    """It is handed the texts of responses too."""
    function: FunctionPlace
    """Where it is: "file.py:name", or "package.module:name"."""
    weight: Amount = 1.0
    """What it is multiplied by."""
    messages: bool = False
    """Whether a function with TRL's signature gets prompts and completions as messages, as for conversational data;
    else as text: the first observation, and the last response."""
    judges: bool = True
    """Whether it says how well the task was done; False = it shapes the return beside a reward that does."""

    solved_at: Amount | None = None
    """What it must pay an attempt, with its weight, for the task to count as solved, in filters and evaluations. None =
    that is for the environment to say."""

    @field_validator("function")
    @classmethod
    def _can_be_called(cls, function: str) -> str:
        if not is_function_place(function):
            raise ValueError(f"{function!r} names no function; write file.py:name or package.module:name")
        if may_run():  # who only reads a run calls nothing
            choose_call(load_function("reward", function), function)
        return function

    @property
    def score_name(self) -> str:
        """What its total is called among the scores of an attempt: the function's name."""
        return self.function.rpartition(":")[2]

    def find_missing_column(self, payload: Mapping[str, Any]) -> str:
        """The column that a function with TRL's signature needs and a task's payload lacks; empty = none."""
        function = load_function("reward", self.function)
        takes_columns = choose_call(function, self.function) is call_as_trl
        return next(iter(list_missing_columns(function, payload)), "") if takes_columns else ""

    def __call__(self, trajectory: Trajectory) -> tuple[float, ...]:
        """What it pays where nobody can decode responses: actions stand for them."""
        return self.pay(trajectory, [step.action or "" for step in trajectory.steps])

    def pay(self, trajectory: Trajectory, responses: Sequence[str]) -> tuple[float, ...]:
        """What the function says, a number for each step."""
        where = f"task {trajectory.task.id!r}, attempt {trajectory.attempt}: reward {self.function!r}"
        function = load_function("reward", self.function)
        call: CallsFunction = choose_call(function, self.function)
        try:
            said = call(function, trajectory, list(responses), messages=self.messages)
            amounts = _spread(said, len(trajectory.steps))
        except UnfitCall as fault:
            raise RecordError(f"{where} {fault}") from None
        except (ConfigError, RecordError):
            raise
        except Exception as error:  # a function of somebody else's may raise anything
            line = quote_line_in(error, function)
            raise RecordError(f"{where} raised {quote_error(error)}{line}; mend the function") from None
        return tuple(self.weight * amount for amount in amounts)


def _spread(said: object, num_steps: int) -> list[float]:
    """What a function returned, as a number for each step: one number is the last step's."""
    if isinstance(said, list | tuple):
        return [read_element(entry, number) for number, entry in enumerate(said)]
    amount = read_number(said)
    if amount is None:
        raise UnfitCall(f"returned {describe_value(said)}; return a number, or a list of one for each step")
    return [*[0.0] * (num_steps - 1), amount][:num_steps]
