"""Functions that judge, for the tests of `FunctionJudge`."""

from __future__ import annotations

from typing import Any

calls: list[str] = []
NO_FUNCTION = 3


def count_words(*, answer: str, context: str, task: dict[str, Any]) -> int:
    """How many words the answer has, and one for each entry of the task."""
    calls.append(answer)
    return len(answer.split()) + len(task)


def fail_at_no(*, answer: str, context: str, task: dict[str, Any]) -> Any:
    """Raise, or return something odd, as the answer says."""
    if answer == "raise":
        raise KeyError("no such thing")
    return {"nan": float("nan"), "text": "7", "yes": True}.get(answer, 1.0)
