"""More relations that pages state: methods that look at whole groups or at turns, beside those they come from."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise import recipes
from groupwise.losses import Clip, LastTurnFirst, PolicyLoss, SequenceMean
from tests.laws.calls import table_of, values
from tests.laws.stated_relations import StatedRelations, check_page
from tests.oracles.losses import Token
from tests.oracles.token_batches import columns_of, random_update, run, totals_of
from tests.strategies import Row, step_rows

STATED = StatedRelations()
states = STATED.states
drawn_updates = st.integers(0, 10**9).map(lambda seed: random_update(random.Random(seed)))


@states("hdpo", "`hdpo(tool_weight=0)` = `grpo` without its KL; so is any weight where at most one attempt is right")
@given(tokens=drawn_updates, rows=step_rows())
def test_hdpo_without_weight_or_without_two_right_attempts_is_grpo_on_accuracy(
    tokens: list[Token], rows: list[Row]
) -> None:
    columns, totals = columns_of(tokens), totals_of(tokens)
    plain, base = PolicyLoss(surrogate=Clip(), aggregate=SequenceMean()), recipes.grpo()
    held, whole = recipes.hdpo(tool_weight=0.0), recipes.hdpo(calls=None, solved_above=1e300)
    assert (held.loss, held.channels, held.advantage, whole.advantage) == (plain, None, base.advantage, base.advantage)
    silent = whole.channel_credit(table_of(rows))["economy"]
    assert not silent.values.any()
    assert not silent.compared.any()
    nothing = dataclasses.replace(columns, channels={"economy": torch.zeros(len(tokens), dtype=torch.float64)})
    assert run(whole.loss, nothing, totals) == run(plain, columns, totals)  # type: ignore[arg-type]


@states(
    "seeupo", "On attempts of one turn, `seeupo` = the loss of `gspo(low=0.2, high=0.2)` on the credit of `dr_grpo`"
)
@given(tokens=drawn_updates)
def test_turns_in_reverse_are_the_ratio_of_a_sequence_where_there_is_one_turn(tokens: list[Token]) -> None:
    """How the learner goes on from turn to turn is in tests/unit/training/test_stages.py."""
    held, plain = recipes.seeupo(), recipes.gspo(low=0.2, high=0.2)
    assert held.advantage == recipes.dr_grpo().advantage
    assert isinstance(held.loss, LastTurnFirst)
    assert held.loss.order_turns(1) == [range(1)]
    columns, totals = columns_of(tokens), totals_of(tokens)
    assert run(held.loss, columns, totals) == run(plain.loss, columns, totals)  # type: ignore[arg-type]


@states("after_polychromic", "Where each of N attempts is of another kind, `after_polychromic(size=n)` = (N - n) / (n")
@given(
    returns=st.lists(st.integers(0, 4).map(lambda share: share / 4), min_size=2, max_size=14), size=st.integers(2, 5)
)
def test_sets_whose_attempts_all_differ_share_the_credit_of_dr_grpo(returns: list[float], size: int) -> None:
    rows = [
        {"task": "q", "attempt": number, "index": 0, "state": "s", "action": f"way {number}", "reward": reward}
        for number, reward in enumerate(returns)
    ]
    num = len(returns)
    factor = max(num - size, 0) / (size * (num - 1))
    for variety in ("beyond_first", "share"):
        shared = values(rows, "after_polychromic", size=size, variety=variety)
        np.testing.assert_allclose(shared, factor * values(rows, "dr_grpo"), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("recipe", "words"), STATED.pages, ids=STATED.ids())
def test_the_page_states_what_is_tested(recipe: str, words: str) -> None:
    check_page(recipe, words)
