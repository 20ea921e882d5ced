from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from groupwise.data.column_checks import quote_value
from groupwise.data.credit import Credit
from groupwise.data.records import Trajectory
from groupwise.data.segments import BoolArray
from groupwise.data.step_table import StepTable
from groupwise.methods.grpo import grpo
from groupwise.methods.method import method
from groupwise.parts import Algorithm, Draw, Finite, Part
from groupwise.rollout.scorers import Tools
from groupwise.system.errors import RecordError


@method
def after_webstar(*, above: Finite = 5.0) -> Algorithm:
    """After WebSTAR (ours; its filter of steps is published for fine-tuning): GRPO on steps with which the judge
    agrees.

    A rollout with a positive advantage trains on its steps of score > above, one with a negative advantage on those of
    score <= above;   scores 0 to 10

    Choices: those of the filter `scored_steps`. The source asks a language model for scores. Here the environment's
    expert judges by rule (the scorer `expert_score`), so results say nothing about the published method. To use your
    own judge, use `judge_score` with `info_key = "step_score"`. Advantages and loss are GRPO's. Dropped steps stay in
    the prompts of later steps and in their groups.
    """
    base = grpo()
    return Algorithm(
        advantage=base.advantage, filters=(ScoredSteps(above=above),), scorers=(ExpertScore(),), loss=base.loss
    )


class ScoredSteps(Part, slot="filter"):
    """Keep the steps whose judge agrees with the sign of their advantage.

        credit      keep where score > above and A >= 0, or score <= above and A <= 0
        imitation   keep where score > above

    A score may be a distribution, `{"4": 0.1, "5": 0.2, "6": 0.4, "7": 0.3}`: its mean counts, 5.9. Dropped steps stay
    in the prompts, and their advantages stay in their groups.

    Source: WebSTAR, which fine-tunes on the steps that a judge scores above 5 of 10 (`by="imitation"`). Using the
    advantage too is **ours**. **Choices.** A step with advantage 0 is kept.
    """

    reads_credit: ClassVar[bool] = True
    column: str = "step_score"
    """The column with the scores; the scorers `expert_score` and `judge_score` (`info_key = "step_score"`) write it."""
    above: Finite = 5.0
    """A step is good if its score is above this."""
    by: Literal["credit", "imitation"] = "credit"
    """`credit`: bad steps with a negative advantage train too, and good ones do not; `imitation`: only good steps
    train.
    """

    def __call__(self, table: StepTable, credit: Credit) -> BoolArray:
        scores = table.column(self.column).tolist()
        means = np.array([self._find_mean(table, step, score) for step, score in enumerate(scores)], dtype=np.float64)
        is_good = means > self.above
        if self.by == "imitation":
            return is_good
        values = credit.values
        kept: BoolArray = (is_good & (values >= 0)) | (~is_good & (values <= 0))
        return kept

    def _find_mean(self, table: StepTable, step: int, score: Any) -> float:
        chances: Iterable[tuple[Any, Any]] = score.items() if isinstance(score, Mapping) else [(score, 1.0)]
        try:
            pairs = [] if isinstance(score, str) else [(float(value), float(chance)) for value, chance in chances]
        except (TypeError, ValueError):
            pairs = []
        total = math.fsum(chance for _, chance in pairs)
        if not all(math.isfinite(v) and chance >= 0 for v, chance in pairs) or not math.isclose(total, 1, abs_tol=1e-6):
            raise RecordError(
                f"{table.describe_step(step)}: {self.column} is {quote_value(score)}, but a finite score, or scores "
                "with chances that add up to 1, is needed; add a scorer that scores every step"
            )
        return math.fsum(value * chance for value, chance in pairs)


Score = Annotated[float, Field(ge=0, le=10)]


class ExpertScore(Part, slot="scorer"):
    """Score every step from 0 to 10 by whether the environment's expert would have acted the same.

    It writes the step info `step_score`, which the filter `scored_steps` reads. The rollout is repeated in a fresh
    environment, in this process, and the expert is asked before each step; no model is used.

    Source: ours, in place of WebSTAR's language model (10 = surely succeeds and nothing is better, 5 = borderline, at
    most 6 if another action is better). **Choices.** An action that is as good as the expert's but different is
    borderline. So is a step for which the expert has no advice.

    Worked example: if the expert would "open drawer 1", that step gets 10, "look" gets 5, and "sing", which the
    environment rejects, gets 0.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"expert"})
    writes: ClassVar[frozenset[str]] = frozenset({"step_score"})
    agreed: Score = 10.0
    """Score of the expert's action."""
    other: Score = 5.0
    """Score of another valid action."""
    refused: Score = 0.0
    """Score of an invalid action."""

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        advice = iter(tools.ask_expert([trajectory for group in groups for trajectory in group]))
        return [[self._score(trajectory, next(advice)) for trajectory in group] for group in groups]

    def _score(self, trajectory: Trajectory, advice: Sequence[str | None]) -> list[dict[str, float]]:
        scores = []
        for step, advised in zip(trajectory.steps, advice, strict=True):
            score = self.refused if step.accepted is False else self.other
            scores.append({"step_score": self.agreed if advised is not None and step.action == advised else score})
        return scores
