"""Credit below the step: the parts that share a step's credit among its tokens, and say which of them train."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from groupwise import Algorithm, ConfigError, Credit, Part, StepTable
from groupwise.credit import ByTask, DiscountedTokens, EpisodeReturn, FirstTokens, NoScale, Relative, WhitenedTokens
from groupwise.data.credit import TokenCredit, TokenTrace
from groupwise.data.token_table import TokenTable
from groupwise.methods.dcpo import TemperedCredit
from groupwise.methods.gtpo import ConflictTokens
from tests.unit.tables import single_steps

DR_GRPO = Relative(by=ByTask(), of=EpisodeReturn(), scale=NoScale())
TABLE = single_steps([5, 1])  # credit 2 and -2
TOKENS = TokenTable.from_rows(TABLE, [{"response_ids": [5, 6, 7]}, {"response_ids": [8]}])


def credit_of_tokens(part: Any) -> TokenCredit:
    return part(TABLE, DR_GRPO(TABLE).by_step(), TOKENS)  # type: ignore[no-any-return]


def test_credit_is_discounted_towards_the_beginning_of_a_response() -> None:
    shares = credit_of_tokens(DiscountedTokens(gamma=0.5))
    assert shares.values.tolist() == [0.5, 1.0, 2.0, -2.0]
    assert shares.trains.all()
    assert shares.trains.dtype == np.bool_
    assert shares.trace.weight.tolist() == [0.25, 0.5, 1.0, 1.0]
    assert shares.trace.part == DiscountedTokens(gamma=0.5)


def test_without_a_discount_each_token_has_the_credit_of_its_step() -> None:
    assert credit_of_tokens(DiscountedTokens()).values.tolist() == [2, 2, 2, -2]


def test_a_discount_of_nothing_leaves_the_last_token() -> None:
    assert credit_of_tokens(DiscountedTokens(gamma=0.0)).values.tolist() == [0, 0, 2, -2]


def test_only_the_first_tokens_train() -> None:
    shares = credit_of_tokens(FirstTokens(count=2))
    assert shares.trains.tolist() == [True, True, False, True]
    assert shares.values.tolist() == [2, 2, 2, -2]
    assert shares.trace.weight.tolist() == [1, 1, 1, 1]
    assert shares.trace.part == FirstTokens(count=2)


def test_an_algorithm_names_its_token_credit_in_a_run_file_and_only_where_it_has_one() -> None:
    assert "token_credit" not in Algorithm(advantage=DR_GRPO).config()
    algorithm = Algorithm(advantage=DR_GRPO, token_credit={"kind": "discounted_tokens", "gamma": 0.5})
    assert algorithm.config()["token_credit"] == {"kind": "discounted_tokens", "gamma": 0.5}
    assert Algorithm(**algorithm.config()) == algorithm


class Lists(Part, slot="token_credit"):
    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> Any:
        return [1.0] * len(tokens)


class NotFinite(Part, slot="token_credit"):
    masked: bool

    def __call__(self, table: StepTable, credit: Credit, tokens: TokenTable) -> TokenCredit:
        values = np.full(len(tokens), np.nan)
        trace = TokenTrace(weight=values, part=self)
        return TokenCredit(values=values, trains=np.full(len(tokens), not self.masked), trace=trace)


def test_a_part_of_a_users_own_that_returns_something_else_is_told() -> None:
    with pytest.raises(ConfigError) as raised:
        credit_of_tokens(Lists())
    assert str(raised.value) == (
        "the token_credit tests.unit.credit.test_tokens:Lists returned a list of 4; expected a TokenCredit with one "
        "float, finite where the token trains, and one boolean for each token"
    )


def test_what_is_not_finite_may_only_stand_where_nothing_trains() -> None:
    assert not credit_of_tokens(NotFinite(masked=True)).trains.any()
    with pytest.raises(ConfigError, match="returned a TokenCredit whose 'values' is nan at token 0, which trains"):
        credit_of_tokens(NotFinite(masked=False))


def test_conflict_tokens_are_looked_for_among_steps_of_one_index() -> None:
    """The bad rollout says in its second step what the good one says in its first: no conflict."""
    table = StepTable.from_columns(
        task=["q"] * 4, rollout=[0, 0, 1, 1], step=[0, 1, 0, 1], reward=[0.0, 1.0, 0.0, 0.0], tokens=[1] * 4
    )
    ids = {"apart": ([5], [7], [8], [5]), "alike": ([5], [7], [5], [8])}
    weights = {}
    for name, said in ids.items():
        rows = [{"response_ids": row, "entropy": [0.1]} for row in said]
        tokens, steps = TokenTable.from_rows(table, rows), DR_GRPO(table).by_step()
        weights[name] = ConflictTokens(entropy_weight=0.0)(table, steps, tokens).values / steps.values
    assert weights["apart"].tolist() == [1, 1, 1, 1]
    assert weights["alike"].tolist() == [4, 1, 0, 1]  # boosted from the front and from the back; spared


def test_whitening_does_not_count_tokens_that_a_filter_drops() -> None:
    """Of 3, 1 and 2, the last is dropped: mean 2 and deviation sqrt 2 of the others."""
    table = single_steps([3, 1, 2])
    tokens = TokenTable.from_rows(table, [{"response_ids": [5]}] * 3)
    steps = Relative(by=ByTask(), of=EpisodeReturn(), scale=NoScale())(table).by_step()
    kept = table.with_filters([lambda seen: seen.reward != 2])
    whitened = WhitenedTokens(of=DiscountedTokens(), eps=0.0)(kept, steps, tokens)
    assert whitened.values == pytest.approx([0.5**0.5, -(0.5**0.5), 0.0])
    dropped_best = table.with_filters([lambda seen: seen.reward != 3])
    whitened = WhitenedTokens(of=DiscountedTokens(), eps=0.0)(dropped_best, steps, tokens)
    assert whitened.values == pytest.approx([1.5 * 2**0.5, -(0.5**0.5), 0.5**0.5])


def test_the_share_of_right_answers_counts_rollouts() -> None:
    """One right rollout of three steps and one wrong of one: a half is right, w = (0.1 / 0.5) / (1 + 0.2) = 1/6."""
    table = StepTable.from_columns(
        task=["q"] * 4,
        rollout=[0, 0, 0, 1],
        step=[0, 1, 2, 0],
        reward=[0.0, 0.0, 1.0, 0.0],
        logp_hot=[[-1.0]] * 4,
        logp_cold=[[-9.0]] * 4,
    )
    tokens = TokenTable.from_rows(table, [{"response_ids": [5], "logp_behaviour": [-1.0]}] * 4)
    values = TemperedCredit(target=0.5, max_gap=0.1)(table, DR_GRPO(table).by_step(), tokens).values
    assert values == pytest.approx([5 / 6 * 0.5 + 1 / 6] * 3 + [-5 / 6 * 0.5])
