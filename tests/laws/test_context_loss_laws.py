"""Laws of losses that are no sum over samples: micro-batches, order and masked tokens change nothing of them."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from groupwise.data.samples import Totals
from groupwise.learner.local import merge_summaries
from groupwise.losses import Kl, Plain, PolicyLoss, TokenColumns
from groupwise.methods.disco import Disco
from groupwise.methods.llds import Llds
from groupwise.methods.reg_grpo import Regression
from tests.oracles import context_losses as oracle
from tests.oracles.losses import Token
from tests.oracles.token_batches import GARBAGE, columns_of, random_update, run, totals_of


@dataclasses.dataclass(frozen=True)
class Grouped:
    """Tokens of an update near their old policy, the group of each trajectory, and who solved the task."""

    tokens: list[Token]
    groups: dict[int, int]
    solved: dict[int, bool]
    seed: int


def draw_grouped(seed: int) -> Grouped:
    rng = random.Random(seed)
    tokens = [
        dataclasses.replace(token, old=token.logp - rng.choice([0.0, rng.gauss(0, 0.2), rng.gauss(0, 0.2)]))
        if token.trains
        else token
        for token in random_update(rng)
    ]
    numbers = sorted({token.trajectory for token in tokens})
    groups = {number: rng.randrange(2) for number in numbers}
    idle = {group for group in (0, 1) if rng.random() < 0.2}
    tokens = [
        dataclasses.replace(token, advantage=0.0) if token.trains and groups[token.trajectory] in idle else token
        for token in tokens
    ]
    return Grouped(tokens, groups, {number: rng.random() < 0.5 for number in numbers}, seed)


grouped_updates = st.integers(0, 10**9).map(draw_grouped)
Judge = Callable[[Grouped, list[Tensor]], Tensor]
PLAIN = PolicyLoss(surrogate=Plain())


def judge_plain(drawn: Grouped, logp: list[Tensor]) -> Tensor:
    own = [i for i, token in enumerate(drawn.tokens) if token.trains]
    terms = [-drawn.tokens[i].advantage * (logp[i] - drawn.tokens[i].old).exp() for i in own]
    return torch.stack(terms).sum() / len(own) if own else torch.zeros((), dtype=torch.float64)


def judge_regression(drawn: Grouped, logp: list[Tensor], **settings: Any) -> Tensor:
    return oracle.regression(drawn.tokens, drawn.groups, logp, **settings)


def judge_llds(drawn: Grouped, logp: list[Tensor], **settings: Any) -> Tensor:
    return judge_plain(drawn, logp) + oracle.llds(drawn.tokens, logp, **settings)


def judge_disco(drawn: Grouped, logp: list[Tensor], **settings: Any) -> Tensor:
    return oracle.disco(drawn.tokens, drawn.groups, logp, solved=drawn.solved, **settings)


def disco_case(**settings: Any) -> tuple[Any, Judge]:
    settings = {
        "score": "log_likelihood",
        "negatives": "hardest",
        "tau": 0.7,
        "kl": "difference",
        "max_kl": 0.01,
        "stiffness": 20.0,
    } | settings
    return Disco(**settings), partial(judge_disco, **settings)


CASES: dict[str, tuple[Any, Judge]] = {
    "regression": (Regression(), partial(judge_regression, floor=0.5, length="sum")),
    "regression by deviation": (
        Regression(floor=0.0, length="mean"),
        partial(judge_regression, floor=0.0, length="mean"),
    ),
    "llds": (Llds(of=PLAIN, weight=0.7), partial(judge_llds, weight=0.7, gate="step", per="active")),
    "llds by rollout": (
        Llds(of=PLAIN, weight=0.7, gate="trajectory"),
        partial(judge_llds, weight=0.7, gate="trajectory", per="active"),
    ),
    "llds over all": (
        Llds(of=PLAIN, weight=0.7, per="all"),
        partial(judge_llds, weight=0.7, gate="step", per="all"),
    ),
    "disco": disco_case(),
    "disco by ratio": disco_case(score="ratio", kl="low_variance"),
    "disco b": disco_case(negatives="mean"),
}
every_case = pytest.mark.parametrize("name", CASES)


def totals_with(drawn: Grouped) -> Totals:
    trained = {drawn.groups[token.trajectory] for token in drawn.tokens if token.trains}
    return dataclasses.replace(totals_of(drawn.tokens), groups=len(trained))


def columns_with(drawn: Grouped, part: Sequence[int], dtype: torch.dtype) -> TokenColumns:
    tokens = [drawn.tokens[place] for place in part]
    columns = columns_of(tokens, dtype)
    group = [drawn.groups[token.trajectory] for token in tokens]
    earned = [float(drawn.solved[token.trajectory]) if token.trains else math.nan for token in tokens]
    return dataclasses.replace(
        columns,
        group=torch.tensor(group, dtype=torch.int64),
        named={"episode_return": torch.tensor(earned, dtype=dtype)},
    )


def learn_in_parts(
    loss: Any, drawn: Grouped, parts: Sequence[Sequence[int]], dtype: torch.dtype = torch.float64
) -> tuple[float, list[float]]:
    """The loss and its slope by each token's log-prob, micro-batch by micro-batch."""
    totals = totals_with(drawn)
    batches = [columns_with(drawn, part, dtype) for part in parts]
    with torch.no_grad():
        summary = merge_summaries(loss, (loss.first_pass(columns, totals) for columns in batches))
    value, slopes = 0.0, [0.0] * len(drawn.tokens)
    for part, columns in zip(parts, batches, strict=True):
        share = loss(columns, totals, summary).loss
        (by_logp,) = torch.autograd.grad(share, columns.logp)
        value += float(share.detach())
        for position, slope in zip(part, by_logp.tolist(), strict=True):
            slopes[position] = slope
    return value, slopes


def by_oracle(judge: Judge, drawn: Grouped) -> tuple[float, list[float]]:
    logp = [torch.tensor(token.logp, dtype=torch.float64, requires_grad=True) for token in drawn.tokens]
    value = judge(drawn, logp)
    if value.requires_grad:
        value.backward()
    return float(value.detach()), [0.0 if x.grad is None else float(x.grad) for x in logp]


def everything(drawn: Grouped) -> list[list[int]]:
    return [list(range(len(drawn.tokens)))]


def deal_out(drawn: Grouped, unit: str) -> list[list[int]]:
    """A random split that keeps samples and, where the loss asks for it, steps whole; nothing larger."""
    rng = random.Random(drawn.seed)
    place: dict[object, int] = {}
    number = rng.randint(1, 4)
    home = []
    for token in drawn.tokens:
        key = (token.trajectory, token.step) if unit == "step" else token.sample
        home.append(place.setdefault(key, rng.randrange(number)))
    if unit == "step":  # samples of several steps stay together too
        for sample in {token.sample for token in drawn.tokens}:
            own = [i for i, token in enumerate(drawn.tokens) if token.sample == sample]
            steps = {(drawn.tokens[i].trajectory, drawn.tokens[i].step) for i in own}
            for i, token in enumerate(drawn.tokens):
                if (token.trajectory, token.step) in steps:
                    home[i] = 0 if len(steps) > 1 else home[i]
    return [[i for i, part in enumerate(home) if part == wanted] for wanted in range(number)]


@every_case
@given(drawn=grouped_updates)
def test_any_split_gives_the_loss_and_gradient_of_the_oracle(name: str, drawn: Grouped) -> None:
    loss, judge = CASES[name]
    value, slopes = by_oracle(judge, drawn)
    size = max([abs(slope) for slope in slopes] + [abs(value), 1.0])
    for parts in (everything(drawn), deal_out(drawn, loss.unit)):
        for dtype, bound in ((torch.float64, 1e-9), (torch.float32, 1e-3)):
            if dtype == torch.float32 and name == "regression by deviation":
                continue  # the deviation of log-ratios that are nearly equal is lost in float32
            total, by_logp = learn_in_parts(loss, drawn, parts, dtype)
            assert total == pytest.approx(value, abs=bound * size)
            assert by_logp == pytest.approx(slopes, abs=bound * size)


@every_case
@given(drawn=grouped_updates)
def test_what_a_masked_token_holds_changes_not_one_bit(name: str, drawn: Grouped) -> None:
    rng, loss = random.Random(drawn.seed), CASES[name][0]
    fields = ("logp", "old", "behaviour", "ref", "entropy", "advantage")
    other = [
        token if token.trains else dataclasses.replace(token, **{field: rng.choice(GARBAGE) for field in fields})
        for token in drawn.tokens
    ]
    before = learn_in_parts(loss, drawn, everything(drawn))
    assert before == learn_in_parts(loss, dataclasses.replace(drawn, tokens=other), everything(drawn))
    assert math.isfinite(before[0])


@given(drawn=grouped_updates)
def test_llds_without_weight_is_the_loss_beside_it_to_the_bit(drawn: Grouped) -> None:
    value, slopes = learn_in_parts(Llds(of=PLAIN, weight=0.0), drawn, everything(drawn))
    plain = run(PLAIN, columns_of(drawn.tokens), totals_with(drawn))
    assert (value, slopes) == (plain.loss, plain.by_logp)


@given(drawn=grouped_updates)
def test_on_policy_llds_pulls_nothing_and_regression_pulls_by_credit(drawn: Grouped) -> None:
    still = [dataclasses.replace(token, old=token.logp) if token.trains else token for token in drawn.tokens]
    fresh = dataclasses.replace(drawn, tokens=still)
    plain = run(PLAIN, columns_of(still), totals_with(fresh))
    assert learn_in_parts(Llds(of=PLAIN), fresh, everything(fresh)) == (plain.loss, plain.by_logp)
    _, slopes = learn_in_parts(Regression(floor=0.5), fresh, everything(fresh))
    own = oracle.rollouts_of(still)
    credit = {n: math.fsum(still[i].advantage for i in places) / len(places) for n, places in own.items()}
    for number, places in own.items():
        mates = [credit[other] for other in own if fresh.groups[other] == fresh.groups[number]]
        centred = credit[number] - math.fsum(mates) / len(mates)
        expected = -2 * centred / 0.5 / len(own) if any(mates) else 0.0
        assert [slopes[i] for i in places] == pytest.approx([expected] * len(places), abs=1e-9)


@given(drawn=grouped_updates)
def test_penalties_of_a_regression_are_a_mean_over_tokens(drawn: Grouped) -> None:
    tokens = [dataclasses.replace(token, ref=token.logp - 0.2) if token.trains else token for token in drawn.tokens]
    near = dataclasses.replace(drawn, tokens=tokens)
    alone, _ = learn_in_parts(Regression(), near, everything(near))
    both, _ = learn_in_parts(Regression(penalties=(Kl(weight=0.5),)), near, everything(near))
    k3 = math.exp(-0.2) + 0.2 - 1 if any(token.trains for token in tokens) else 0.0
    assert both == pytest.approx(alone + 0.5 * k3, abs=1e-9)
