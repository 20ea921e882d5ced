"""Laws of credit below the step: with token advantages and token masks, any layout and any split gives one gradient."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from groupwise import methods
from groupwise.data.samples import Sample, count_totals, find_training, list_computed_responses
from groupwise.learner.micro_batches import make_micro_batches
from groupwise.losses import Plain, PolicyLoss, TokenMean
from groupwise.models import TinyModel
from groupwise.models.forward import compute_token_logps
from groupwise.models.pack import Pack, PaddedRows, pack, pad_rows, pad_within_budget
from groupwise.parts.slots import Loss
from tests.unit.learner.learners import gradient, learner, rollouts
from tests.unit.models.samples import samples, unpack

MAX_TOKENS = 4
LAYOUTS = {
    "shared, one pack": lambda listed: pack(listed, token_budget=10_000, gate=0.0),
    "shared, tiny packs": lambda listed: pack(listed, token_budget=3, gate=0.0),
    "side by side": lambda listed: pack(listed, token_budget=12, share=False),
    "rows within a budget": lambda listed: pad_within_budget(listed, token_budget=16),
    "a row at a time": lambda listed: pad_rows(listed, num_rows=1),
}


@functools.cache
def model() -> torch.nn.Module:
    made, _ = TinyModel(hidden=16, layers=1).open(words=("alpha", "bravo"), seed=0)
    return made.double().eval()  # type: ignore[no-any-return]


@st.composite
def samples_with_masks(draw: st.DrawFn) -> list[Sample]:
    """Samples whose tokens each have an advantage and a log-prob, some of which do not train and hold nothing."""
    masked = []
    for one in draw(samples()):
        num = len(one.response_ids)
        trained = tuple(draw(st.lists(st.booleans(), min_size=num, max_size=num)))
        numbers = st.lists(st.sampled_from((-1.5, -0.5, 0.25, 2.0)), min_size=num, max_size=num)
        advantage = tuple(draw(numbers))
        logps = tuple(-2.0 - 0.1 * n for n in range(num))
        if draw(st.booleans()):
            masked.append(dataclasses.replace(one, advantage=advantage, logp_behaviour=logps))
            continue
        blank = [math.nan if not trains else None for trains in trained]
        masked.append(
            dataclasses.replace(
                one,
                trained=trained,
                advantage=tuple(value if gap is None else gap for value, gap in zip(advantage, blank, strict=True)),
                logp_behaviour=tuple(value if gap is None else gap for value, gap in zip(logps, blank, strict=True)),
            )
        )
    return masked


def loss_and_gradient(loss: Loss, listed: Sequence[Sample], layouts: Sequence[Pack | PaddedRows]) -> torch.Tensor:
    """The loss over all layouts, and its gradient, in one vector."""
    counted, made = count_totals(listed, max_tokens=MAX_TOKENS), model()
    made.zero_grad()
    total = 0.0
    for micro in make_micro_batches(listed, layouts):
        logp, _ = compute_token_logps(made, micro.layout)
        columns = micro.columns(logp, None)
        result = loss(dataclasses.replace(columns, logp_old=logp.detach()), counted)
        result.loss.backward()
        total += float(result.loss.detach())
    gradients = [value.grad.flatten() for value in made.parameters() if value.grad is not None]
    return torch.cat([torch.tensor([total]), *gradients]).double()


def by_hand(listed: Sequence[Sample]) -> torch.Tensor:
    """Mean of -A * exp(logp - behaviour) over the tokens that train, one sample and one token at a time."""
    made = model()
    made.zero_grad()
    num = sum(sum(one.trained or (True,) * len(one.response_ids)) for one in listed if one.trains)
    total = torch.zeros((), dtype=torch.float64)
    for one in listed:
        logits = made(input_ids=torch.tensor([one.token_ids])).logits[0].log_softmax(-1)
        for n, token in enumerate(one.response_ids):
            if not one.trains or (one.trained is not None and not one.trained[n]):
                continue
            advantage = one.advantage if isinstance(one.advantage, float) else one.advantage[n]
            ratio = (logits[len(one.prompt_ids) - 1 + n, token] - one.logp_behaviour[n]).exp()
            total = total - advantage * ratio / num
    total.backward()
    gradients = [value.grad.flatten() for value in made.parameters() if value.grad is not None]
    return torch.cat([total.detach()[None], *gradients])


@pytest.mark.parametrize("name", ["plain", "dr_grpo", "gspo", "cispo"])
@given(listed=samples_with_masks())
@settings(max_examples=10, deadline=None)
def test_every_layout_and_split_gives_one_gradient(name: str, listed: list[Sample]) -> None:
    loss = PolicyLoss(aggregate=TokenMean()) if name == "plain" else methods.build(name).loss
    assert loss is not None
    if not count_totals(listed, max_tokens=MAX_TOKENS).tokens:
        assert all(make(listed) == [] for make in LAYOUTS.values())
        return
    if loss.unit != "sample":
        listed = [dataclasses.replace(one, trajectory=number) for number, one in enumerate(listed)]
    by_layout = {layout: loss_and_gradient(loss, listed, make(listed)) for layout, make in LAYOUTS.items()}
    expected = by_layout.pop("a row at a time")
    for layout, value in by_layout.items():
        torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-7, msg=lambda text, at=layout: f"{at}: {text}")


@given(listed=samples_with_masks())
@settings(max_examples=15, deadline=None)
def test_the_gradient_is_that_of_the_trained_tokens_by_hand(listed: list[Sample]) -> None:
    if count_totals(listed, max_tokens=MAX_TOKENS).tokens:
        loss = PolicyLoss(surrogate=Plain(), aggregate=TokenMean(), old="engine")
        of_pack = loss_and_gradient(loss, listed, pack(listed, token_budget=10_000, gate=0.0))
        torch.testing.assert_close(of_pack, by_hand(listed), rtol=1e-5, atol=1e-7)


@given(listed=samples_with_masks(), budget=st.integers(1, 30), share=st.booleans())
def test_unpacking_gives_back_what_trains(listed: list[Sample], budget: int, share: bool) -> None:
    packs = pack(listed, token_budget=budget, share=share, gate=0.0)
    unpacked = {number: tokens for packed in packs for number, tokens in unpack(packed).items()}
    assert unpacked == {
        number: (listed[number].prompt_ids, list_computed_responses(listed)[number]) for number in find_training(listed)
    }
    places = [
        (number, position)
        for packed in packs
        for number, position in zip(packed.sample.tolist(), packed.position.tolist(), strict=True)
    ]
    assert sorted(places) == [
        (number, n)
        for number, one in enumerate(listed)
        for n in range(len(one.response_ids))
        if one.trains and (one.trained is None or one.trained[n])
    ]


def test_a_mask_that_lets_everything_train_changes_no_bit() -> None:
    plain = rollouts()
    masked = [
        dataclasses.replace(
            one, trained=(True,) * len(one.response_ids), advantage=(one.advantage,) * len(one.response_ids)
        )
        for one in plain
    ]
    for budget in (8, 4096):
        loss, of_plain = gradient(learner(token_budget=budget), plain)
        other_loss, other = gradient(learner(token_budget=budget), masked)
        assert loss == other_loss
        assert torch.equal(of_plain, other)


def test_credit_of_masked_tokens_alone_moves_nothing() -> None:
    """A learner whose loss ignores samples without credit hears none whose only credit is on a masked token."""
    listed = [
        dataclasses.replace(
            one,
            trained=(False,) + (True,) * (len(one.response_ids) - 1),
            advantage=(3.0,) + (0.0,) * (len(one.response_ids) - 1),
        )
        for one in rollouts()
        if len(one.response_ids) > 1
    ]
    _, moves = gradient(learner(), listed)
    assert not moves.any()
