"""The credit of a token, derived again; and what a report says where it cannot derive a number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from groupwise import Algorithm, Credit, Part, RecordError, StepTable
from groupwise.credit import (
    ByTask,
    ColumnSignal,
    DiscountedTokens,
    EpisodeReturn,
    FirstTokens,
    NoScale,
    Relative,
    SmallCredit,
    WhitenedTokens,
)
from groupwise.data.credit import Derivation, TokenCredit, TokenTrace
from groupwise.data.segments import BoolArray, FloatArray
from groupwise.data.token_table import TokenTable
from groupwise.methods.d3s import DualDownSampling
from groupwise.report.explain import explain_step
from groupwise.report.explained_step import TokenExplanation, add_neighbours, explain_token
from tests.unit.tables import single_steps, table

DR_GRPO = Relative(by=ByTask(), of=EpisodeReturn(), scale=NoScale())
TABLE = single_steps([3, 1])  # credit 1 and -1
TOKENS = TokenTable.from_rows(
    TABLE, [{"response_ids": [5, 6, 7], "logp_behaviour": [-0.5, -1.0, -2.0]}, {"response_ids": [8]}]
)


def explain_at(part: Any, position: int, *, step: int = 0) -> TokenExplanation:
    algorithm = Algorithm(advantage=DR_GRPO, token_credit=part)
    return explain_token(algorithm, TABLE, algorithm.credit(TABLE), TOKENS, step=step, position=position)


def test_a_discounted_token_is_derived_from_its_place() -> None:
    assert explain_at(DiscountedTokens(gamma=0.5), 1) == TokenExplanation(
        position=1,
        token=6,
        logp=-1.0,
        entropy=None,
        trains=True,
        what="DiscountedTokens(gamma=0.5)",
        value=0.5,
        by_hand=0.5,
        formula="0.5 x 1 = 0.5",
        lines=("advantage of its step: 1", "its weight: 0.5"),
    )
    assert explain_at(DiscountedTokens(gamma=0.5), 0, step=1).formula == "1 x -1 = -1"


def test_a_masked_token_says_why() -> None:
    explanation = explain_at(FirstTokens(count=2), 2)
    assert (explanation.trains, explanation.value, explanation.by_hand, explanation.gap) == (False, None, None, 0.0)
    assert explanation.formula == "it does not train: only tokens 0 to 1 of a response do"
    assert explain_at(FirstTokens(count=2), 1).trains


def test_without_a_part_a_token_has_the_credit_of_its_step() -> None:
    explanation = explain_at(None, 2)
    assert (explanation.what, explanation.value) == ("no token_credit: each token has the advantage of its step", 1.0)
    assert (explanation.by_hand, explanation.gap) == (None, 0.0)


class Weighted(Part, slot="token_credit"):
    """A part from elsewhere that leaves its weights and no derivation."""

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        weight = np.linspace(0.0, 3.0, len(tokens))
        return TokenCredit(
            values=weight * credit.values[tokens.row],
            trains=np.ones(len(tokens), dtype=np.bool_),
            trace=TokenTrace(weight=weight, part=self),
        )


class Silent(Part, slot="token_credit"):
    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        trains = np.ones(len(tokens), dtype=np.bool_)
        return TokenCredit(values=np.full(len(tokens), 0.5), trains=trains, trace="nothing")  # type: ignore[arg-type]


def test_what_cannot_be_derived_is_said() -> None:
    assert explain_at(Weighted(), 2).not_derived == "the weights of Weighted"
    assert explain_at(Weighted(), 2).formula == "2 x 1 = 2"
    silent = explain_at(Silent(), 0)
    assert (silent.value, silent.by_hand) == (0.5, None)
    assert silent.not_derived == "the advantage of Silent, whose trace str has no derive"


def test_a_gap_between_the_two_numbers_is_found() -> None:
    class Wrong(Part, slot="token_credit"):
        def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
            right = DiscountedTokens(gamma=0.5)(table, credit, tokens)
            return TokenCredit(values=right.values + 0.25, trains=right.trains, trace=right.trace)

    assert explain_at(Wrong(), 2).gap == pytest.approx(0.25 / 1.25)


# Steps


@dataclass(frozen=True, eq=False, kw_only=True)
class HalfTrace:
    values: FloatArray
    compared: BoolArray
    part: object
    of: Any

    def derive(self, table: StepTable, step: int) -> Any:
        if self.part == "wrong":
            return 0.5
        inner = self.of.values[step]
        return Derivation(value=inner / 2, formula=f"{inner:g} / 2", members=((step, inner),), terms=((0.5, self.of),))


def half(part: object) -> Credit:
    inner = DR_GRPO(TABLE).trace
    trace = HalfTrace(values=inner.values / 2, compared=inner.compared, part=part, of=inner)
    return Credit(trace=trace, step_of_row=TABLE.step_of_row)


def test_a_trace_from_elsewhere_explains_itself_and_what_it_was_made_of() -> None:
    explanation = explain_step(TABLE, half("Half"), task="t0", rollout=1, step=0)
    assert (explanation.what, explanation.value, explanation.by_hand, explanation.formula) == (
        "Half",
        -0.5,
        -0.5,
        "-1 / 2",
    )
    assert [(member.rollout, member.value, member.is_self) for member in explanation.members] == [(1, -1.0, True)]
    ((weight, inner),) = explanation.inner
    assert (weight, inner.formula) == (0.5, "(1 - 2) / 1 = -1")
    assert explanation.list_not_derived() == ()


def test_a_trace_that_derives_something_else_is_refused() -> None:
    with pytest.raises(RecordError) as raised:
        explain_step(TABLE, half("wrong"), task="t0", rollout=1, step=0)
    assert str(raised.value) == ("the trace HalfTrace of wrong: derive returned the float 0.5; expected a Derivation")


@dataclass(frozen=True, eq=False, kw_only=True)
class SilentTrace:
    values: FloatArray
    compared: BoolArray


def test_a_trace_that_derives_nothing_is_said_to() -> None:
    trace = SilentTrace(values=np.array([0.25, 0.5]), compared=np.ones(2, dtype=np.bool_))
    credit = Credit(trace=trace, step_of_row=TABLE.step_of_row)  # type: ignore[arg-type]
    explanation = explain_step(TABLE, credit, task="t0", rollout=1, step=0)
    assert (explanation.value, explanation.by_hand, explanation.largest_gap()) == (0.5, None, None)
    assert explanation.list_not_derived() == ("the advantage, whose trace SilentTrace has no part and no derive",)


def test_a_signal_that_is_a_column_is_read_again() -> None:
    rows = table("task rollout step reward probe", ("q", 0, 0, 0.0, 0.5), ("q", 1, 0, 0.0, 1.0))
    estimator = Relative(by=ByTask(), of=ColumnSignal(name="probe"), scale=NoScale())
    explanation = explain_step(rows, estimator(rows), task="q", rollout=0, step=0)
    assert (explanation.formula, explanation.inner[0][1].formula) == ("(0.5 - 0.75) / 1 = -0.25", "0.5")
    assert explanation.list_not_derived() == ()


def test_a_signal_that_is_not_known_here_is_taken_and_said_to_be() -> None:
    class Doubled(Part, slot="signal"):
        def __call__(self, table: StepTable) -> FloatArray:
            return 2 * table.reward

    estimator = Relative(by=ByTask(), of=Doubled(), scale=NoScale())
    explanation = explain_step(TABLE, estimator(TABLE), task="t0", rollout=0, step=0)
    assert explanation.value == 2
    assert explanation.list_not_derived() == ("the value of Doubled",)
    assert (explanation.by_hand, explanation.inner[0][1].by_hand) == (2.0, None)


def test_a_forced_token_is_told_to_be_forced_and_the_others_keep_their_places() -> None:
    tokens = TokenTable.from_rows(TABLE, [{"response_ids": [5, 6, 7], "forced": 1}, {"response_ids": [8]}])
    for part in (None, FirstTokens(count=1)):
        algorithm = Algorithm(advantage=DR_GRPO, token_credit=part)
        credit = algorithm.credit(TABLE)
        forced, first, second = (
            explain_token(algorithm, TABLE, credit, tokens, step=0, position=position) for position in range(3)
        )
        assert (forced.token, forced.trains, forced.value, forced.gap) == (5, False, None, 0.0)
        assert forced.formula == "it was forced on the policy and is read like the prompt: it does not train"
        assert (first.position, first.token, first.trains, first.value) == (1, 6, True, 1.0)
        assert (second.token, second.trains) == (7, part is None)
    assert second.formula == "it does not train: only tokens 1 to 1 of a response do"


def test_down_sampling_says_whether_a_response_was_left_out_or_a_token_alone() -> None:
    rows = single_steps([3, 1, 2])
    tokens = TokenTable.from_rows(
        rows, [{"response_ids": [5, 6], "entropy": [0.5, 0.25]}, {"response_ids": [7], "entropy": [2.0]}, {}]
    )
    part = DualDownSampling(first_samples=0.5, first_tokens=0.5)
    algorithm = Algorithm(advantage=DR_GRPO, token_credit=part)
    first, second, last = (
        explain_token(algorithm, rows, algorithm.credit(rows), tokens, step=step, position=position)
        for step, position in ((0, 0), (0, 1), (1, 0))
    )
    assert first.formula == "it does not train: its response is none of the 1 of 2 whose credit varies most"
    assert second.formula == first.formula
    assert last.trains
    whole = Algorithm(advantage=DR_GRPO, token_credit=DualDownSampling(first_samples=1.0, first_tokens=0.5))
    masked = explain_token(whole, rows, whole.credit(rows), tokens, step=0, position=1)
    assert masked.formula == "it does not train: its |credit| x entropy is 0.25, not among the 2 largest of 3 tokens"


def test_a_token_of_a_step_that_a_filter_drops_does_not_train() -> None:
    algorithm = Algorithm(advantage=DR_GRPO, filters=(SmallCredit(min_size=5.0),))
    explanation = explain_token(algorithm, TABLE, algorithm.credit(TABLE), TOKENS, step=0, position=0)
    assert (explanation.trains, explanation.value) == (False, None)
    assert explanation.formula == "it does not train: SmallCredit(min_size=5.0) drops its step"


def test_what_is_whitened_is_told_from_the_credit_within_on() -> None:
    explanation = explain_at(WhitenedTokens(of=DiscountedTokens(gamma=0.5)), 1)
    assert explanation.lines == (
        "advantage of its step: 1",
        "DiscountedTokens(gamma=0.5): 0.5 x 1 = 0.5",
        "over the 4 tokens that train: mean 0.1875, deviation 0.850857",
    )
    masked = explain_at(WhitenedTokens(of=FirstTokens(count=1)), 1)
    assert masked.formula == "it does not train: only tokens 0 to 0 of a response do"


def test_neighbours_are_those_of_the_response() -> None:
    explanation = explain_at(None, 1)
    near = add_neighbours(explanation, list(range(20, 40)), [f"w{place}" for place in range(20)]).neighbours
    assert [(token.position, token.token, token.text) for token in near] == [
        (place, 20 + place, f"w{place}") for place in range(7)
    ]
    assert [token.text for token in add_neighbours(explanation, [5, 6]).neighbours] == [None, None]
