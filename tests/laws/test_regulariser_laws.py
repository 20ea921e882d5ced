"""Laws of what holds a policy to something beside its credit: splits, masked tokens, memories cut anywhere."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core.records import Task
from groupwise.losses import EntropyCorridor, PolicyLoss, TokenColumns
from tests.laws.test_loss_laws import make_micro_batches
from tests.oracles.losses import Token
from tests.oracles.token_batches import GARBAGE, columns_of, random_update, run, totals_of
from tests.unit.losses.entropies import Attempt, make_update

drawn_updates = st.integers(0, 10**9).map(lambda seed: random_update(random.Random(seed)))
entropies = st.lists(st.floats(0, 3), max_size=3)
attempts = st.lists(entropies, max_size=4).map(lambda steps: [*enumerate(steps)])
pasts = st.lists(st.lists(attempts, max_size=3), max_size=5)
CORRIDORS = {
    "tokens": EntropyCorridor(weight=0.4, low=0.6, high=1.3),
    "steps": EntropyCorridor(weight=0.4, low=0.6, high=1.3, over="step"),
    "constant": EntropyCorridor(weight=0.4, low=0.6, high=1.3, over="step", form="constant"),
}
every_corridor = pytest.mark.parametrize("name", CORRIDORS)


def with_past(tokens: Sequence[Token], *, masked: float = 0.0) -> TokenColumns:
    """The tokens with a past of their step; tokens that do not train hold something else."""
    usual = [0.3 * (token.step % 4) if token.trains else masked for token in tokens]
    phase = [0.8 if token.trains else masked for token in tokens]
    named = {"usual_entropy": usual, "usual_entropy_phase": phase}
    return dataclasses.replace(
        columns_of(tokens), named={name: torch.tensor(own, dtype=torch.float64) for name, own in named.items()}
    )


@every_corridor
@given(tokens=drawn_updates, seed=st.integers(0, 99))
def test_no_split_changes_a_corridor(name: str, tokens: list[Token], seed: int) -> None:
    loss, totals = PolicyLoss(penalties=(CORRIDORS[name],)), totals_of(tokens)
    assert loss.unit == ("sample" if name == "tokens" else "step")
    whole, total, by_entropy = run(loss, with_past(tokens), totals), 0.0, [0.0] * len(tokens)
    for places in make_micro_batches(random.Random(seed), tokens, loss.unit):
        part = run(loss, with_past([tokens[place] for place in places]), totals)
        total += part.loss
        for place, slope in zip(places, part.by_entropy, strict=True):
            by_entropy[place] = slope
    assert total == pytest.approx(whole.loss, rel=1e-10, abs=1e-12)
    assert by_entropy == pytest.approx(whole.by_entropy, rel=1e-10, abs=1e-12)


@every_corridor
@given(tokens=drawn_updates, rubbish=st.sampled_from(GARBAGE))
def test_what_masked_tokens_remember_changes_no_bit(name: str, tokens: list[Token], rubbish: float) -> None:
    loss, totals = PolicyLoss(penalties=(CORRIDORS[name],)), totals_of(tokens)
    assert run(loss, with_past(tokens, masked=rubbish), totals) == run(loss, with_past(tokens), totals)


@given(past=pasts, cut=st.integers(0, 5))
def test_a_memory_that_was_written_and_read_goes_on_to_the_bit(past: list[list[Attempt]], cut: int) -> None:
    part, tasks = EntropyCorridor(updates=5), [Task(id="t")]
    whole, rest = part.start(seed=0), part.start(seed=1)
    updates = [make_update(number, played) for number, played in enumerate(past, start=1)]
    for update in updates[:cut]:
        whole.observe(update)
    rest.load_state_dict(json.loads(json.dumps(whole.state_dict())))
    for update in updates[cut:]:
        whole.observe(update)
        rest.observe(update)
    assert rest.state_dict() == whole.state_dict()
    for name, column in whole.columns(tasks).items():
        assert rest.columns(tasks)[name].tolist() == column.tolist()


@given(past=pasts, seed=st.integers(0, 99))
def test_the_order_of_attempts_changes_no_bit_of_a_memory(past: list[list[Attempt]], seed: int) -> None:
    shuffle, part = random.Random(seed).sample, EntropyCorridor()
    one_way, other_way = part.start(seed=0), part.start(seed=0)
    for number, played in enumerate(past, start=1):
        one_way.observe(make_update(number, played))
        other_way.observe(make_update(number, shuffle(played, len(played))))
    assert one_way.state_dict() == other_way.state_dict()
