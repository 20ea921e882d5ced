"""Laws of a second channel of credit, the tool economy of right rollouts, and of the loss that reads it."""

from __future__ import annotations

import dataclasses
import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import groupwise
from groupwise import methods
from groupwise.losses import Clip, ClippedChannels, PolicyLoss, TokenColumns
from tests.laws.calls import table_of
from tests.oracles.losses import Token
from tests.oracles.token_batches import GARBAGE, columns_of, random_update, run, totals_of
from tests.oracles.tool_use import economy, sum_clipped_channels
from tests.strategies import UNIT, Row, random_rows

WEIGHTS = st.floats(-2, 2)


def draw_rows(seed: int) -> list[Row]:
    """Right and wrong rollouts, and tool calls as numbers, as lists or not at all."""
    rng = random.Random(seed)
    rows = random_rows(rng, regimes=UNIT)
    return [row | {"calls": rng.choice([None, 0, 1, 2, [], ["search"], ["search", "look"]])} for row in rows]


drawn_rows = st.integers(0, 10**9).map(draw_rows)
drawn_updates = st.integers(0, 10**9).map(lambda seed: random_update(random.Random(seed)))


def economy_of(rows: list[Row], **hyper: object) -> groupwise.Credit:
    return methods.hdpo(**hyper).channel_credit(table_of(rows))["economy"]


@given(rows=drawn_rows, calls=st.sampled_from([None, "calls"]), above=st.sampled_from([-1.0, 0.2, 0.5, 2.0]))
def test_the_economy_of_hdpo_equals_its_oracle(rows: list[Row], calls: str | None, above: float) -> None:
    credit = economy_of(rows, calls=calls, solved_above=above)
    expected, compared = economy(rows, calls=calls, above=above)
    assert credit.values.tolist() == pytest.approx(expected, abs=1e-9)
    assert credit.compared.tolist() == compared


@given(rows=drawn_rows, seed=st.integers(0, 100))
def test_order_and_other_tasks_change_not_one_bit_of_the_economy(rows: list[Row], seed: int) -> None:
    order = list(range(len(rows)))
    random.Random(seed).shuffle(order)
    whole = economy_of(rows, calls="calls").values
    shuffled = economy_of([rows[place] for place in order], calls="calls").values
    assert shuffled.tobytes() == whole[order].tobytes()
    for task in {row["task"] for row in rows}:
        own = [place for place, row in enumerate(rows) if row["task"] == task]
        alone = economy_of([rows[place] for place in own], calls="calls").values
        assert alone.tobytes() == whole[own].tobytes()


@given(rows=drawn_rows, call=st.sampled_from([0, 3, ["search"]]))
def test_equally_many_calls_give_exactly_nothing(rows: list[Row], call: object) -> None:
    last = {(row["task"], row["rollout"]): row["step"] for row in sorted(rows, key=lambda row: int(str(row["step"])))}
    equal = [row | {"calls": call if row["step"] == last[row["task"], row["rollout"]] else None} for row in rows]
    assert not np.any(economy_of(equal, calls="calls").values)


def columns_with(tokens: list[Token], channel: dict[int, float]) -> TokenColumns:
    rng = random.Random(0)
    numbers = [channel[token.trajectory] if token.trains else rng.choice(GARBAGE) for token in tokens]
    return dataclasses.replace(columns_of(tokens), channels={"economy": torch.tensor(numbers, dtype=torch.float64)})


@given(tokens=drawn_updates, weight=WEIGHTS, seed=st.integers(0, 100))
def test_two_clipped_channels_equal_their_oracle(tokens: list[Token], weight: float, seed: int) -> None:
    rng = random.Random(seed)
    channel = {token.trajectory: rng.choice([0.0, rng.gauss(0, 1)]) for token in tokens}
    loss = PolicyLoss(surrogate=ClippedChannels(low=0.1, high=0.3, weights={"economy": weight}))
    result = run(loss, columns_with(tokens, channel), totals_of(tokens))
    terms = sum_clipped_channels(tokens, channel, weight=weight, low=0.1, high=0.3)
    num, slopes = max(len(terms), 1), iter(terms)
    size = max((abs(number) for term in terms for number in term), default=0.0) + 1e-3
    assert abs(result.loss - math.fsum(term.value for term in terms) / num) <= 1e-10 * size
    for token, slope in zip(tokens, result.by_logp, strict=True):
        assert abs(slope - next(slopes).slope / num) <= 1e-10 * size if token.trains else slope == 0.0


@given(tokens=drawn_updates, weight=WEIGHTS)
def test_where_no_ratio_is_clipped_two_channels_are_one_of_their_sum(tokens: list[Token], weight: float) -> None:
    still = [dataclasses.replace(token, old=token.logp) if token.trains else token for token in tokens]
    channel = {token.trajectory: 0.5 - token.trajectory for token in still}
    both = run(
        PolicyLoss(surrogate=ClippedChannels(weights={"economy": weight})),
        columns_with(still, channel),
        totals_of(still),
    )
    summed = [
        dataclasses.replace(token, advantage=token.advantage + weight * channel[token.trajectory])
        if token.trains
        else token
        for token in still
    ]
    single = run(PolicyLoss(surrogate=Clip()), columns_of(summed), totals_of(summed))
    assert both.loss == pytest.approx(single.loss, abs=1e-12)
    assert both.by_logp == pytest.approx(single.by_logp, abs=1e-12)


@given(tokens=drawn_updates)
def test_a_token_without_credit_in_any_channel_adds_nothing(tokens: list[Token]) -> None:
    idle = [dataclasses.replace(token, advantage=0.0) if token.trains else token for token in tokens]
    channel = dict.fromkeys((token.trajectory for token in tokens), 0.0)
    loss = methods.hdpo().loss
    assert loss is not None
    assert loss.ignores_zero_credit  # type: ignore[attr-defined]
    result = run(loss, columns_with(idle, channel), totals_of(idle))
    assert result.loss == 0.0
    assert not any(result.by_logp)
