"""Which steps are compared only within their own rollout: worked by hand, trace by trace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from groupwise import Credit, Part, StepTable, methods
from groupwise.credit import ByRollout, ByState, ByTask, Sum, Term, Whitened
from groupwise.data.credit import find_own_rollout_only, spans_rollouts
from groupwise.data.segments import BoolArray, FloatArray
from groupwise.parts.algorithm import Algorithm
from tests.unit.tables import table, walks

# Two rollouts: a b b, final score 1, and a c d, final score 0.
ROWS = walks("abb", "acd", rewards=[[0, 0, 1], [0, 0, 0]])
NONE = [False] * 6
BOTH_B = [False, True, True, False, False, False]


def find(algorithm: Algorithm, rows: StepTable = ROWS) -> list[bool] | None:
    own = find_own_rollout_only(rows, algorithm.credit(rows).trace)
    return None if own is None else own.tolist()


def test_groups_of_two_rollouts_are_told_from_those_of_one() -> None:
    assert spans_rollouts(ROWS, ByState()(ROWS)).tolist() == [True, False, False, True, False, False]
    assert spans_rollouts(ROWS, ByTask()(ROWS)).tolist() == [True] * 6
    assert spans_rollouts(ROWS, ByRollout()(ROWS)).tolist() == NONE
    assert spans_rollouts(ROWS, np.array([0, 0, 0, -1, 1, 1])).tolist() == NONE
    assert spans_rollouts(ROWS, np.full(6, -1)).tolist() == NONE


def test_equal_numbers_of_rollouts_at_two_tasks_are_two_rollouts() -> None:
    rows = table("task rollout step state reward", ("p", 0, 0, "s", 0.0), ("q", 0, 0, "s", 1.0))
    assert spans_rollouts(rows, np.zeros(2, dtype=np.int64)).tolist() == [True, True]


@pytest.mark.parametrize(
    ("algorithm", "own"),
    [
        (methods.grpo(), NONE),
        (methods.hgpo(), BOTH_B),
        (methods.hgpo(episode=True), NONE),
        (methods.hgpo(peers="other_rollouts"), NONE),
        (methods.gigpo(), NONE),
        (methods.step_grpo(), BOTH_B),
        # Its value of state b comes from one rollout; the first step's credit is a difference to it, and its own state
        # a has two rollouts.
        (methods.gagpo(), BOTH_B),
        (methods.gagpo(scale_by="none"), BOTH_B),
        (methods.hgae(lam=0.0), BOTH_B),
        # Its coarsest level is the task.
        (methods.shrunk_hgae(), NONE),
        (methods.srpo(), NONE),
        (methods.after_polychromic(size=2), NONE),
        # Whitening compares with the whole batch.
        (Algorithm(advantage=Whitened(of=methods.step_grpo().advantage)), NONE),
    ],
    ids=str,
)
def test_the_example_of_two_rollouts(algorithm: Algorithm, own: list[bool]) -> None:
    rows = table(
        "task rollout step state action reward",
        *(
            ("q", rollout, index, state, "go", float(rollout == 0 and index == 2))
            for rollout, path in enumerate(("abb", "acd"))
            for index, state in enumerate(path)
        ),
    )
    assert find(algorithm, rows) == own


def test_a_rollout_that_is_alone_at_its_task_is_compared_with_itself() -> None:
    rows = walks("aba", rewards=[[0, 0, 1]])
    assert find(methods.hgpo(), rows) == [True, False, True]
    assert find(methods.grpo(average="step"), rows) == [True, True, True]
    assert find(methods.grpo(), rows) == [False] * 3  # one rollout, counted once: not compared


def test_a_difference_of_values_meets_others_by_a_later_value_too() -> None:
    """Rollout 0 walks b b s, and only s is met by the other one: by lam < 1 the later value is in earlier credit."""
    rows = walks("bbs", "s", rewards=[[0, 0, 1], [0]])
    assert find(methods.gagpo(lam=1.0, scale_by="none"), rows) == [True, True, False, False]
    assert find(methods.gagpo(lam=0.5, scale_by="none"), rows) == [False] * 4
    # At lam 0 the credit of a step has its own value and the next one: the first b has none of another rollout.
    assert find(methods.gagpo(lam=0.0, scale_by="none"), rows) == [True, False, False, False]


@dataclass(frozen=True, eq=False, kw_only=True)
class BareTrace:
    values: FloatArray
    compared: BoolArray


class Bare(Part, slot="estimator"):
    """An estimator from elsewhere, whose trace does not say whom it compared."""

    def __call__(self, table: StepTable) -> Credit:
        return Credit.of(table, BareTrace(values=table.reward, compared=table.reward > 0))  # type: ignore[arg-type]


def test_a_trace_that_does_not_say_is_not_known_unless_the_rest_settles_it() -> None:
    assert find(Algorithm(advantage=Bare())) is None  # type: ignore[arg-type]
    for known, own in ((methods.grpo(), NONE), (methods.step_grpo(), None)):
        terms = (Term(weight=1.0, of=Bare()), Term(weight=1.0, of=known.advantage))  # type: ignore[arg-type]
        assert find(Algorithm(advantage=Sum(terms=terms))) == own
