"""What the parts that plan, show, score and choose attempts must return: plans, templates, rewards, measures, ..."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from groupwise.core.errors import ConfigError
from groupwise.core.parts.result_checks import (
    NAMES,
    TEXT,
    WORDS,
    Arguments,
    RequiredResult,
    has_members,
    is_list_of,
    is_nonnegative_integer,
    is_number,
)
from groupwise.core.past_attempts import PastAttempt, RecalledAttempt
from groupwise.core.text.value_words import describe_value


def check_drawn_tasks(curriculum: object, tasks: object, num: int) -> None:
    """Refuse what a curriculum at work gave for tasks, if it is something else."""
    if not is_list_of(tasks, "Task") or len(tasks) != num:  # type: ignore[arg-type]
        raise ConfigError(
            f"the curriculum {type(curriculum).__name__}: next gave {describe_value(tasks)}, but a list of {num} tasks "
            "is needed"
        )


def _are_amounts(result: Any) -> bool:
    return isinstance(result, list | tuple | np.ndarray) and all(is_number(amount) for amount in result)


def _is_one_each(result: Any, arguments: Arguments) -> bool:
    # What is inside the lists is checked where it is written down, attempt by attempt.
    return isinstance(result, list | tuple) and len(result) == len(arguments[0])


def _are_answers(result: Any, arguments: Arguments) -> bool:
    return _is_one_each(result, arguments) and all(is_number(answer) and math.isfinite(answer) for answer in result)


def _are_shares(result: Any, arguments: Arguments) -> bool:
    return _is_one_each(result, arguments) and all(map(_are_amounts, result))


def _is_action(result: Any, arguments: Arguments) -> bool:
    # An `Action` of the rollout, which core does not know: what to do, and whether the form was kept.
    return isinstance(result, tuple) and [type(entry) for entry in result] == [str, bool]


def _are_groups(result: Any, arguments: Arguments) -> bool:
    return isinstance(result, list | tuple) and all(is_list_of(group, "Trajectory") for group in result)


ATTEMPT_RESULTS: Mapping[str, Mapping[str, RequiredResult]] = {
    "reward": {
        "__call__": RequiredResult(
            "a tuple of one number for each step", lambda result, arguments: _are_amounts(result)
        ),
    },
    "measure": {
        "__call__": RequiredResult("a list of one list of attempts for each group", _is_one_each),
        "needs": NAMES,
    },
    "judge": {
        "__call__": RequiredResult("a list of one finite number for each question", _are_answers),
    },
    "shaper": {
        "__call__": RequiredResult(
            "a list of one tuple of numbers, a number for each step, for each attempt", _are_shares
        ),
    },
    "replay": {
        "__call__": RequiredResult(
            "a list of RecalledAttempt", lambda result, arguments: is_list_of(result, RecalledAttempt)
        ),
    },
    "guidance": {
        "choose": RequiredResult("a list of PastAttempt", lambda result, arguments: is_list_of(result, PastAttempt)),
        "text": TEXT,
        "words": WORDS,
        "joins_unguided_group": RequiredResult(
            "True or False", lambda result, arguments: isinstance(result, bool | np.bool_)
        ),
    },
    "memory": {
        "first_shown": RequiredResult(
            "a whole number between 0 and the number of past steps",
            lambda result, arguments: is_nonnegative_integer(result) and result <= arguments[0],
        ),
    },
    "action_rule": {
        "read": RequiredResult("an Action of a text and a boolean", _is_action),
        "say": TEXT,
    },
    "template": {"write_opening": TEXT, "write_observation": TEXT, "write_step": TEXT, "words": WORDS},
    "plan": {
        "next": RequiredResult(
            "a list of AttemptRequest", lambda result, arguments: is_list_of(result, "AttemptRequest")
        ),
        "choose": RequiredResult("a list of groups, each a list of trajectories,", _are_groups),
        "words": WORDS,
    },
    "admission": {
        "__call__": RequiredResult(
            "a list of those trajectories of the group that are admitted",
            lambda result, arguments: is_list_of(result, "Trajectory"),
        ),
    },
    "curriculum": {
        "start": RequiredResult(
            "something with next, observe, state_dict and load_state_dict",
            has_members("next", "observe", "state_dict", "load_state_dict"),
        ),
    },
}
