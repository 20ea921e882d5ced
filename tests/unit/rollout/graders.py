"""Functions that judge, for the tests of `FunctionJudge`."""

from __future__ import annotations

from typing import Any

from groupwise.rollout.judges import JudgeQuestion

calls: list[str] = []
NO_FUNCTION = 3


def count_words(question: JudgeQuestion) -> int:
    """How many words the answer has, and one for each entry of the task."""
    calls.append(question.answer)
    return len(question.answer.split()) + len(question.task.payload)


def fail_or_return_oddly(question: JudgeQuestion) -> Any:
    """Raise, or return something odd, as the answer says."""
    if question.answer == "raise":
        raise KeyError("no such thing")
    return {"nan": float("nan"), "text": "7", "yes": True}.get(question.answer, 1.0)
