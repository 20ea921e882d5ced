"""Credit weighed by how hard its task was, with the weights worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from groupwise import ConfigError, RecordError, StepTable
from groupwise.credit import ByTask, EpisodeReturn, NoScale, Relative
from groupwise.data.credit import WeightedSum
from groupwise.methods.a_grae import Asymmetric
from groupwise.methods.dgpo import QuestionWeighted
from tests.unit.tables import single_steps, table

CENTRED = Relative(by=ByTask(), of=EpisodeReturn(), scale=NoScale())


def trace_of(estimator: QuestionWeighted | Asymmetric, rows: StepTable) -> WeightedSum:
    trace = estimator(rows).trace
    assert isinstance(trace, WeightedSum)
    return trace


def question_weights(rows: StepTable, temperature: float = 2.0) -> list[float]:
    listed: list[float] = trace_of(QuestionWeighted(of=CENTRED, temperature=temperature), rows).weights[0].tolist()
    return listed


def near(expected: Sequence[float]) -> Any:
    return pytest.approx(list(expected), rel=1e-12)


def softmax_weights(*accuracies: float, temperature: float = 2.0) -> list[float]:
    """B_v x softmax(-accuracy / T), as the formula says."""
    exponents = [math.exp(-accuracy / temperature) for accuracy in accuracies]
    return [len(exponents) * exponent / sum(exponents) for exponent in exponents]


def test_informative_tasks_share_a_softmax_of_their_error() -> None:
    # Accuracies 1/2 and 3/4; all tasks are informative, so the token factor is 1.
    hard, easy = softmax_weights(0.5, 0.75)
    rows = single_steps([1, 0], [1, 1, 1, 0])
    assert question_weights(rows) == near([hard] * 2 + [easy] * 4)
    # Distances 1/2 and -1/2; 1/4 and -3/4.
    credit = QuestionWeighted(of=CENTRED)(rows)
    assert credit.values.tolist() == near([hard / 2, -hard / 2, *[easy / 4] * 3, -3 * easy / 4])
    assert credit.compared.tolist() == [True] * 6


def test_a_lower_temperature_leans_further_to_the_hard_tasks() -> None:
    hard, easy = softmax_weights(0.5, 0.75, temperature=0.25)
    assert question_weights(single_steps([1, 0], [1, 1, 1, 0]), temperature=0.25) == near([hard] * 2 + [easy] * 4)


def test_a_task_of_equal_returns_has_weight_1_and_its_steps_scale_the_others_up() -> None:
    # Eight steps in all, six of them in informative tasks.
    hard, easy = softmax_weights(0.5, 0.75)
    rows = single_steps([1, 0], [1, 1, 1, 0], [1, 1])
    assert question_weights(rows) == near([*[hard * 8 / 6] * 2, *[easy * 8 / 6] * 4, 1, 1])


def test_the_scaling_goes_by_tokens_where_they_are_known() -> None:
    rows = table(
        "task rollout step reward tokens",
        ("p", 0, 0, 1.0, 5),
        ("p", 1, 0, 0.0, 1),
        ("q", 0, 0, 1.0, 14),
        ("q", 1, 0, 1.0, 10),
    )
    # One informative task: B_v x softmax = 1, times 30 tokens over 6.
    assert question_weights(rows) == near([5, 5, 1, 1])


def test_informative_tasks_without_any_token_are_not_scaled() -> None:
    rows = table("task rollout step reward tokens", ("p", 0, 0, 1.0, 0), ("p", 1, 0, 0.0, 0), ("q", 0, 0, 1.0, 4))
    assert question_weights(rows) == near([1, 1, 1])


def test_no_informative_task_leaves_credit_as_it_was() -> None:
    rows = single_steps([1, 1], [0, 0])
    assert question_weights(rows) == [1, 1, 1, 1]
    assert QuestionWeighted(of=CENTRED)(rows).values.tolist() == [0, 0, 0, 0]


def test_an_informative_task_that_is_all_wrong_counts_as_all_right() -> None:
    # Returns -1 and 1 have the mean 0, which the released code reads as 1, the weight of an easy task.
    odd, half = softmax_weights(1.0, 0.5)
    assert question_weights(single_steps([-1, 1], [0, 1])) == near([odd, odd, half, half])


def test_accuracy_comes_from_its_column_where_given() -> None:
    rows = table(
        "task rollout step reward accuracy",
        ("p", 0, 0, 1.0, 0.0),
        ("p", 1, 0, 0.0, 0.0),
        ("q", 0, 0, 1.0, 0.25),
        ("q", 1, 0, 0.0, 0.5),
    )
    # p is all wrong by its column: counts as 1. q: (0.25 + 0.5) / 2.
    wrong, hard = softmax_weights(1.0, 0.375)
    assert question_weights(rows) == near([wrong, wrong, hard, hard])


def test_accuracy_is_the_mean_over_rollouts_not_over_steps() -> None:
    rows = table(
        "task rollout step reward outcome",
        *(("p", 0, i, 0.0, 1.0) for i in range(3)),
        ("p", 1, 0, 0.0, 0.0),
        ("q", 0, 0, 0.0, 1.0),
        ("q", 1, 0, 0.0, 0.5),
    )
    # p: (1 + 0) / 2, not 3/4. q: 3/4.
    hard, easy = softmax_weights(0.5, 0.75)
    assert question_weights(rows) == near([hard] * 4 + [easy] * 2)


def test_a_huge_exponent_does_not_overflow() -> None:
    # Accuracies -3999.5 and 0.5 at T = 1: all the weight is on the first.
    assert question_weights(single_steps([-8000, 1], [1, 0]), temperature=1) == near([2, 2, 0, 0])


def test_the_trace_of_weighted_credit_shows_weight_and_credit() -> None:
    estimator = QuestionWeighted(of=CENTRED)
    trace = trace_of(estimator, single_steps([1, 0]))
    assert [term.values.tolist() for term in trace.terms] == [[0.5, -0.5]]
    assert trace.part is estimator
    assert estimator.temperature == 2.0


def test_lone_rollouts_stay_uncompared() -> None:
    credit = QuestionWeighted(of=CENTRED)(single_steps([3], [1, 0]))
    assert credit.compared.tolist() == [False, True, True]


def test_a_temperature_of_0_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        QuestionWeighted(of=CENTRED, temperature=0)
    assert str(caught.value) == "QuestionWeighted: temperature: expected a number greater than 0, found 0"


# p = 1/4, and p = 9/16 by graded returns; the mean over all six rollouts is w = (1 + 9/8) / 6.
ROOTS = single_steps([1, 0, 0, 0], [0.125, 1])
W = 2.125 / 6


def test_both_terms_are_weighed_by_the_mean_return_of_the_table() -> None:
    hard = W / 2 / 0.5 + (1 - W) / 2 / math.sqrt(0.75)
    easy = W / 2 / 0.75 + (1 - W) / 2 / math.sqrt(7 / 16)
    # Distances 3/4 and -1/4; -7/16 and 7/16. Positive credit times w / alpha = w.
    values = Asymmetric(of=CENTRED)(ROOTS).values
    assert values.tolist() == near([0.75 * hard * W, *[-0.25 * hard] * 3, -7 / 16 * easy, 7 / 16 * easy * W])


def test_the_released_code_divides_the_easy_term_by_1_less_the_root() -> None:
    # sqrt(1/4) = 1/2 and 1 - 1/2; sqrt(9/16) = 3/4 and 1 - 3/4; eps 1/4 joins both.
    hard = W / 2 / 0.75 + (1 - W) / 2 / 0.75
    easy = W / 2 / 1.0 + (1 - W) / 2 / 0.5
    estimator = Asymmetric(of=CENTRED, easy_denominator="code", eps=0.25, alpha=0.25)
    # alpha is below w: praise is not held back.
    assert estimator(ROOTS).values.tolist() == near([0.75 * hard, *[-0.25 * hard] * 3, -7 / 16 * easy, 7 / 16 * easy])


def test_eps_joins_both_denominators_of_the_paper_too() -> None:
    # One task, p = w = 1/4: w/2 / (1/2 + 1) + (1-w)/2 / (sqrt(3/4) + 1).
    factor = 0.125 / 1.5 + 0.375 / (math.sqrt(0.75) + 1)
    trace = trace_of(Asymmetric(of=CENTRED, eps=1), single_steps([1, 0, 0, 0]))
    assert trace.weights[0].tolist() == near([factor / 4, factor, factor, factor])


def test_praise_is_held_back_up_to_alpha_and_blame_is_not() -> None:
    # w = 1/4. At alpha 1/2 praise is halved; at alpha 1/4 and below it is whole.
    factor = 0.125 / 0.5 + 0.375 / math.sqrt(0.75)
    rows = single_steps([1, 0, 0, 0])
    for alpha, share in ((1.0, 0.25), (0.5, 0.5), (0.25, 1.0), (0.125, 1.0)):
        weights = trace_of(Asymmetric(of=CENTRED, alpha=alpha), rows).weights[0]
        assert weights.tolist() == near([factor * share, factor, factor, factor])


def test_tasks_of_p_0_and_1_get_exactly_0() -> None:
    # A credit that is not 0 on equal returns, so that the factor shows: made-up members of value 2.
    lifted = Relative(by=ByTask(), of=EpisodeReturn(), scale=NoScale(), virtual=(2.0,))
    rows = single_steps([0, 0], [1, 1], [1, 0])
    trace = trace_of(Asymmetric(of=lifted), rows)
    # w = 1/2, p = 1/2: 1/4 / sqrt(1/2) twice.
    factor = 0.5 / math.sqrt(0.5)
    assert trace.weights[0].tolist() == near([0, 0, 0, 0, factor, factor])
    assert trace.values.tolist() == near([0, 0, 0, 0, 0, -factor])
    assert trace.compared.tolist() == [True] * 6


def test_zero_credit_is_no_praise() -> None:
    # Returns 0, 1/2, 1: the middle one is exactly average, and its weight is not held back.
    trace = trace_of(Asymmetric(of=CENTRED), single_steps([0, 0.5, 1]))
    factor = 0.25 / math.sqrt(0.5) * 2
    assert trace.weights[0].tolist() == near([factor, factor, factor / 2])


def test_the_mean_return_of_the_table_counts_rollouts_once() -> None:
    rows = table("task rollout step reward outcome", *(("p", 0, i, 0.0, 1.0) for i in range(3)), ("p", 1, 0, 0.0, 0.0))
    # p = w = 1/2 although three of four rows carry a 1: praise is halved.
    factor = 0.25 / math.sqrt(0.5) * 2
    assert trace_of(Asymmetric(of=CENTRED), rows).weights[0].tolist() == near([*[factor / 2] * 3, factor])


def test_the_trace_of_asymmetric_credit_shows_weight_and_credit() -> None:
    estimator = Asymmetric(of=CENTRED)
    trace = trace_of(estimator, single_steps([1, 0]))
    # p = w = 1/2: (1/4 + 1/4) / sqrt(1/2), and half of it for praise.
    factor = 0.5 / math.sqrt(0.5)
    assert [weight.tolist() for weight in trace.weights] == [near([factor / 2, factor])]
    assert [term.values.tolist() for term in trace.terms] == [[0.5, -0.5]]
    assert trace.part is estimator


def test_a_table_without_rows_has_no_credit() -> None:
    empty = StepTable.from_columns(task=[], rollout=[], step=[], reward=[])
    for estimator in (QuestionWeighted(of=CENTRED), Asymmetric(of=CENTRED)):
        assert estimator(empty).values.tolist() == []


@pytest.mark.parametrize("outside", [-0.5, 1.5, 10.0])
def test_returns_outside_0_and_1_are_refused_by_the_step(outside: float) -> None:
    with pytest.raises(RecordError) as caught:
        Asymmetric(of=CENTRED)(single_steps([0, 1], [0.5, outside]))
    assert str(caught.value) == (
        f"task 't1', rollout 1, step 0: the return is {outside:g}, but A-GRAE needs returns in [0, 1]; "
        "rescale them, or hand in `outcome`"
    )


def test_the_paper_is_the_default() -> None:
    config = Asymmetric(of=CENTRED).config()
    assert (config["alpha"], config["easy_denominator"], config["eps"]) == (1.0, "paper", 0.0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"alpha": 0}, "alpha: expected a number greater than 0, found 0"),
        ({"eps": -1}, "eps: expected a number greater than or equal to 0, found -1"),
        ({"easy_denominator": "mine"}, "easy_denominator: expected 'paper' or 'code', found 'mine'"),
    ],
)
def test_what_cannot_be_meant_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Asymmetric(of=CENTRED, **fields)
    assert str(caught.value) == f"Asymmetric: {message}"


def test_both_say_that_they_mix_tasks() -> None:
    assert QuestionWeighted.mixes_tasks
    assert Asymmetric.mixes_tasks
