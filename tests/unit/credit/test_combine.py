"""Sums and blends of terms, on signals that can be read off."""

from __future__ import annotations

from typing import Any

import pytest

from groupwise import ConfigError, StepTable
from groupwise.credit import Blend, ByState, ByTask, EpisodeReturn, NoScale, Relative, StepRewardSignal, Sum, Term
from groupwise.data.credit import WeightedSum
from tests.unit.tables import walks

EPISODE = Relative(by=ByTask(), of=EpisodeReturn(), scale=NoScale())
STATE = Relative(by=ByState(), of=StepRewardSignal(), scale=NoScale())

# Returns 2, 6, 4: episode credit -2, 2, 0. State s: rewards 0, 2, 4: credit -2, 0, 2. The others are alone.
ROWS = walks(["s", "x"], ["s", None], ["s"], rewards=[[0, 2], [2, 4], [4]])
EPISODE_VALUES = [-2.0, -2.0, 2.0, 2.0, 0.0]
STATE_VALUES = [-2.0, 0.0, 0.0, 0.0, 2.0]
STATE_COMPARED = [True, False, True, False, True]


def terms(*pairs: tuple[float, Relative]) -> tuple[Term, ...]:
    return tuple(Term(weight=weight, of=of) for weight, of in pairs)


def trace_of(estimator: Sum | Blend, rows: StepTable = ROWS) -> WeightedSum:
    trace = estimator(rows).trace
    assert isinstance(trace, WeightedSum)
    return trace


def test_the_terms_are_what_the_comments_say() -> None:
    assert EPISODE(ROWS).values.tolist() == EPISODE_VALUES
    assert STATE(ROWS).values.tolist() == STATE_VALUES
    assert STATE(ROWS).compared.tolist() == STATE_COMPARED


def test_a_sum_adds_its_weighted_terms() -> None:
    # 1 x episode + 3 x state.
    credit = Sum(terms=terms((1, EPISODE), (3, STATE)))(ROWS)
    assert credit.values.tolist() == [-8, -2, 2, 2, 6]
    assert credit.compared.tolist() == [True] * 5


def test_a_sum_of_one_term_is_that_term_times_its_weight() -> None:
    credit = Sum(terms=terms((0.5, STATE)))(ROWS)
    assert credit.values.tolist() == [-1, 0, 0, 0, 1]
    assert credit.compared.tolist() == STATE_COMPARED


def test_a_step_of_a_sum_is_compared_if_any_term_compared_it() -> None:
    # A task with one rollout: the state term compares nothing, nor does the episode.
    rows = walks(["s", "s"], rewards=[[0, 2]])
    by_step = STATE.model_copy(update={"average": "step"})
    credit = Sum(terms=terms((1, EPISODE), (1, by_step)))(rows)
    assert credit.values.tolist() == [-1, 1]
    assert credit.compared.tolist() == [True, True]
    assert Sum(terms=terms((1, EPISODE), (1, STATE)))(rows).compared.tolist() == [False, False]


def test_the_trace_of_a_sum_shows_each_terms_weight_and_trace() -> None:
    estimator = Sum(terms=terms((1, EPISODE), (3, STATE)))
    trace = trace_of(estimator)
    assert [weight.tolist() for weight in trace.weights] == [[1] * 5, [3] * 5]
    assert [term.values.tolist() for term in trace.terms] == [EPISODE_VALUES, STATE_VALUES]
    assert trace.part is estimator


def test_a_blend_averages_the_terms_that_compared_the_step() -> None:
    # Both terms: (1 x episode + 3 x state) / 4. Where the state compared nobody: the episode alone.
    credit = Blend(terms=terms((1, EPISODE), (3, STATE)))(ROWS)
    assert credit.values.tolist() == [-2, -2, 0.5, 2, 1.5]
    assert credit.compared.tolist() == [True] * 5


def test_a_term_that_was_exactly_average_stays_in_a_blend() -> None:
    # The third step: episode 2, state exactly 0: 2 x 1 / 4, not 2.
    trace = trace_of(Blend(terms=terms((1, EPISODE), (3, STATE))))
    assert [weight.tolist() for weight in trace.weights] == [[0.25, 1, 0.25, 1, 0.25], [0.75, 0, 0.75, 0, 0.75]]


def test_the_trace_of_a_blend_shows_its_terms_and_the_part() -> None:
    estimator = Blend(terms=terms((1, EPISODE), (3, STATE)))
    trace = trace_of(estimator)
    assert [term.values.tolist() for term in trace.terms] == [EPISODE_VALUES, STATE_VALUES]
    assert trace.part is estimator


def test_the_released_blend_leaves_out_terms_of_exactly_0() -> None:
    # The third step keeps the episode alone; the last, whose episode is 0, keeps the state alone.
    trace = trace_of(Blend(terms=terms((1, EPISODE), (3, STATE)), absent="zero_valued"))
    assert trace.values.tolist() == [-2, -2, 2, 2, 2]
    assert [weight.tolist() for weight in trace.weights] == [[0.25, 1, 1, 1, 0], [0.75, 0, 0, 0, 1]]
    assert trace.compared.tolist() == [True] * 5


def test_eps_joins_the_sum_of_the_weights_that_are_there() -> None:
    # Weights 1 + 3 + 4 = 8, or 1 + 4 = 5 without the state: -8/8, -2/5, 2/8, 2/5, 6/8.
    credit = Blend(terms=terms((1, EPISODE), (3, STATE)), eps=4)(ROWS)
    assert credit.values.tolist() == pytest.approx([-1, -0.4, 0.25, 0.4, 0.75], rel=1e-15)


def test_a_blend_without_any_term_for_a_step_gives_0_and_compares_nobody() -> None:
    for eps in (0.0, 1.0):
        credit = Blend(terms=terms((2, STATE)), eps=eps)(ROWS)
        assert credit.values.tolist() == [-4 / (2 + eps), 0, 0, 0, 4 / (2 + eps)]
        assert credit.compared.tolist() == STATE_COMPARED


def test_a_step_of_exactly_0_is_compared_though_the_released_blend_leaves_its_terms_out() -> None:
    trace = trace_of(Blend(terms=terms((2, STATE)), absent="zero_valued"))
    assert trace.values.tolist() == [-2, 0, 0, 0, 2]
    assert trace.compared.tolist() == STATE_COMPARED
    assert trace.weights[0].tolist() == [1, 0, 0, 0, 1]


def test_blend_asks_for_company_and_adds_no_eps_by_default() -> None:
    assert Blend(terms=terms((1, STATE))).config() == {
        "kind": "blend",
        "terms": [{"weight": 1.0, "of": STATE.config()}],
        "absent": "not_compared",
        "eps": 0.0,
    }


@pytest.mark.parametrize("estimator", [Sum, Blend])
def test_at_least_one_term_is_needed(estimator: type[Sum]) -> None:
    with pytest.raises(ConfigError) as caught:
        estimator(terms=())
    assert str(caught.value) == (
        f"{estimator.__name__}: terms: tuple should have at least 1 item after validation, not 0, found ()"
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"absent": "never"}, "absent: expected 'not_compared' or 'zero_valued', found 'never'"),
        ({"eps": -1}, "eps: expected a number greater than or equal to 0, found -1"),
    ],
)
def test_a_blend_refuses_what_it_cannot_mean(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Blend(terms=terms((1, STATE)), **fields)
    assert str(caught.value) == f"Blend: {message}"


def test_the_error_of_a_term_names_the_term() -> None:
    with pytest.raises(ConfigError) as caught:
        Sum(terms=[{"weight": 1, "of": STATE}, {"weight": 1, "of": "relativ"}])
    assert str(caught.value) == (
        "Sum: terms.1.of: there is no estimator 'relativ'; did you mean 'relative'? "
        "docs/reference/parts/estimator.md lists them all"
    )
