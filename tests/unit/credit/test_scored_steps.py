"""The filter by step scores: WebSTAR's numbers, a loop that shares no code, and scores that are none."""

from __future__ import annotations

import random
from typing import Any

import pytest

from groupwise import Credit, RecordError, StepTable, methods
from groupwise.methods.after_webstar import ScoredSteps

GRPO = methods.grpo().advantage
NOTE: Any = {"4": 0.1, "5": 0.2, "6": 0.4, "7": 0.3}
"""numbers, WebSTAR: a judge's distribution whose mean is 5.9."""


def table_of(scores: list[Any], rewards: list[float], *, rollout: list[int] | None = None) -> StepTable:
    rollout = rollout or list(range(len(scores)))
    index = [rollout[:row].count(number) for row, number in enumerate(rollout)]
    return StepTable.from_columns(
        task=["t"] * len(scores), rollout=rollout, step=index, reward=rewards, step_score=scores
    )


def keep(part: ScoredSteps, table: StepTable) -> list[bool]:
    credit: Credit = GRPO(table).by_step()
    return part(table, credit).tolist()


def test_the_mean_of_a_judges_distribution_counts() -> None:
    table = table_of([NOTE, {"4": 0.5, "6": 0.5}, 6.0, 5.0], [1.0, 1.0, 0.0, 0.0])
    assert keep(ScoredSteps(by="imitation"), table) == [True, False, True, False]
    assert keep(ScoredSteps(by="imitation", above=5.9001), table) == [False, False, True, False]


def test_praise_trains_on_good_steps_and_blame_on_bad_ones() -> None:
    """Two rollouts of two steps, a good one and a bad one each; the first rollout is praised, the second blamed."""
    table = table_of([8.0, 2.0, 8.0, 2.0], [0.0, 1.0, 0.0, 0.0], rollout=[0, 0, 1, 1])
    assert keep(ScoredSteps(), table) == [True, False, False, True]
    assert keep(ScoredSteps(by="imitation"), table) == [True, False, True, False]
    even = table_of([8.0, 2.0], [1.0, 1.0])
    assert keep(ScoredSteps(), even) == [True, True]  # no credit: nothing is contradicted


def test_it_equals_a_slow_loop() -> None:
    rng = random.Random("scored steps")
    for _ in range(200):
        num = rng.randint(1, 8)
        scores = [rng.choice([rng.uniform(0, 10), 5.0, NOTE]) for _ in range(num)]
        table = table_of(scores, [rng.choice([0.0, 1.0]) for _ in range(num)])
        above, credit = rng.choice([5.0, 5.9, 2.0]), GRPO(table).values.tolist()
        expected = []
        for score, own in zip(scores, credit, strict=True):
            mean = score if isinstance(score, float) else sum(int(value) * share for value, share in score.items())
            if own == 0:
                expected.append(True)
            elif own > 0:
                expected.append(mean > above)
            else:
                expected.append(not mean > above)
        assert keep(ScoredSteps(above=above), table) == expected


@pytest.mark.parametrize(
    "score", [None, "good", "6", float("nan"), {"5": 0.5}, {"a": 1.0}, {"5": -1.0, "6": 2.0}, [5.0]]
)
def test_what_is_no_score_is_refused(score: Any) -> None:
    with pytest.raises(
        RecordError, match=r"task 't', rollout 1, step 0: step_score is .*, but a finite score, or scores"
    ):
        keep(ScoredSteps(), table_of([NOTE, score], [1.0, 0.0]))


def test_without_scores_the_column_is_asked_for() -> None:
    table = StepTable.from_columns(task=["t"], rollout=[0], step=[0], reward=[1.0])
    with pytest.raises(RecordError, match="the table has no column 'step_score', which this method reads"):
        keep(ScoredSteps(), table)
