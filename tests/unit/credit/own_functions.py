"""Reward functions as a user would write them, right and wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from groupwise import Trajectory

NOT_A_FUNCTION = 3
PRICE = "price"


def count_tokens(trajectory: Trajectory) -> list[float]:
    return [float(len(step.response_ids)) for step in trajectory.steps]


def pay_politeness(trajectory: Trajectory, responses: list[str], please: str = "please") -> float:
    return float(sum(please in response for response in responses))


def match_answer(completions: list[str], answer: list[str], **kwargs: Any) -> list[float | None]:
    return [None if completion == "?" else float(completion == right) for completion, right in zip(completions, answer)]  # noqa: B905 - as people write it


def note_all(prompts: Any, completions: Any, completion_ids: Any, **kwargs: Any) -> list[float]:
    SEEN.append({"prompts": prompts, "completions": completions, "completion_ids": completion_ids, **kwargs})
    return [1.0]


SEEN: list[dict[str, Any]] = []


def take_nothing() -> float:
    return 0.0


def take_two(first: Trajectory, second: Trajectory) -> float:
    return 0.0


def take_by_name(*, trajectory: Trajectory) -> float:
    return 0.0


async def wait(trajectory: Trajectory) -> float:
    return 0.0


def yield_numbers(trajectory: Trajectory) -> Iterator[float]:
    yield 0.0


def fail(trajectory: Trajectory) -> float:
    raise KeyError(PRICE)


def say_words(trajectory: Trajectory) -> Any:
    return "good"


def say_word_in_list(completions: list[str], **kwargs: Any) -> Any:
    return ["a"]


def say_word_for_second_step(trajectory: Trajectory) -> Any:
    return [1.0, "b"]


def say_nothing(trajectory: Trajectory) -> Any:
    return None


def pay_twice(trajectory: Trajectory) -> list[float]:
    return [1.0, 1.0]


def forget_batch(completions: list[str]) -> Any:
    return 0.5
