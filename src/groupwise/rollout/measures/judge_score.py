"""What a judge says of each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import Draw
from groupwise.core.records import Step, Trajectory
from groupwise.rollout.judges.protocol import JudgeQuestion
from groupwise.rollout.measures.tools import Tools


class JudgeScore(Part, slot="measure"):
    """Ask the algorithm's judge about every step, and write its number down as a fact.

    A signal or an estimator reads it as a column of that name: `{ kind = "column", name = "judge_score" }`. All steps
    of an update are asked about at once.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"judge"})
    fact: str = "judge_score"
    """What the fact is called."""
    about: Literal["response", "action"] = "response"
    """What is judged: everything that was said, or the action that was read out of it."""

    @property
    def writes(self) -> frozenset[str]:
        """The facts that it writes."""
        return frozenset({self.fact})

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        """The judge's number for each step."""
        questions = [
            JudgeQuestion(
                task=trajectory.task,
                context=step.observation or "",
                answer=self._answer(step, tools),
                facts=step.facts,
            )
            for group in groups
            for trajectory in group
            for step in trajectory.steps
        ]
        scores = iter(tools.judge(questions))
        return [
            [[{self.fact: float(next(scores))} for _ in trajectory.steps] for trajectory in group] for group in groups
        ]

    def _answer(self, step: Step, tools: Tools) -> str:
        return (step.action or "") if self.about == "action" else tools.text(step.response_ids)
