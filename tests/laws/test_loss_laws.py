"""Laws every loss holds: it depends on what trains and on nothing else, and relatives agree where they must."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import random
from collections.abc import Callable, Hashable, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from groupwise.data.samples import Totals
from groupwise.losses import (
    Clip,
    EntropyBonus,
    Kl,
    Plain,
    PolicyLoss,
    SequenceMean,
    SequenceRatio,
    StepMean,
    Tally,
    TokenColumns,
    TokenMean,
    TokenRatio,
    TrajectoryMean,
)
from groupwise.methods.cispo import Cispo
from groupwise.methods.rec import Rec, Reinforce
from groupwise.methods.sapo import Sapo
from tests.oracles.loss_parts import AGGREGATES, CORRECTIONS, RATIOS, SURROGATES
from tests.oracles.losses import Token
from tests.oracles.token_batches import GARBAGE, columns_of, random_update, run, totals_of

PENALTIES = (Kl(weight=0.3, gradient="unbiased"), EntropyBonus(weight=0.1))
TRIPLES = list(itertools.product(RATIOS, SURROGATES, AGGREGATES))
every_triple = pytest.mark.parametrize("names", TRIPLES, ids=" / ".join)
drawn_updates = st.integers(0, 10**9).map(lambda seed: random_update(random.Random(seed)))


@functools.cache
def updates(num: int) -> list[list[Token]]:
    rng = random.Random("laws of losses")
    return [random_update(rng) for _ in range(num)]


def updates_for(names: tuple[str, str, str]) -> list[list[Token]]:
    """Three updates; the next triple gets others, so that a pair of parts sees most of the 39."""
    return updates(39)[TRIPLES.index(names) % 13 :: 13]


def loss_of(names: tuple[str, str, str], *corrections: str) -> PolicyLoss:
    ratio, surrogate, aggregate = names
    return PolicyLoss(
        ratio=RATIOS[ratio][0],
        surrogate=SURROGATES[surrogate][0],
        aggregate=AGGREGATES[aggregate][0],
        corrections=tuple(CORRECTIONS[name][0] for name in corrections),
        penalties=PENALTIES,
    )


def make_micro_batches(rng: random.Random, tokens: Sequence[Token], unit: str) -> list[list[int]]:
    """A random split of the tokens' positions that cuts no sample and no unit; some parts may be empty."""
    keys: list[set[Hashable]] = []
    for token in tokens:
        joined: set[Hashable] = {("sample", token.sample)}
        if unit == "step":
            joined.add(("step", token.trajectory, token.step))
        if unit == "trajectory":
            joined.add(("trajectory", token.trajectory))
        touching = [key for key in keys if key & joined]
        keys = [key for key in keys if not key & joined] + [joined.union(*touching)]
    home = [next(number for number, key in enumerate(keys) if ("sample", token.sample) in key) for token in tokens]
    num = rng.randint(1, 4)
    place = [rng.randrange(num) for _ in keys]
    return [[position for position, unit in enumerate(home) if place[unit] == part] for part in range(num)]


def assert_split_changes_nothing(loss: PolicyLoss, tokens: Sequence[Token], dtype: torch.dtype, bound: float) -> None:
    totals = totals_of(tokens)
    together = run(loss, columns_of(tokens, dtype), totals)
    rng = random.Random(len(tokens))
    split_loss, by_logp, by_entropy = 0.0, [0.0] * len(tokens), [0.0] * len(tokens)
    for positions in make_micro_batches(rng, tokens, loss.unit):
        part = run(loss, columns_of([tokens[position] for position in positions], dtype), totals)
        split_loss += part.loss
        for position, own, entropy in zip(positions, part.by_logp, part.by_entropy, strict=True):
            by_logp[position], by_entropy[position] = own, entropy
    size = max([abs(slope) for slope in together.by_logp] + [abs(together.loss), 1.0])
    assert abs(split_loss - together.loss) <= bound * size
    assert max((abs(a - b) for a, b in zip(by_logp, together.by_logp, strict=True)), default=0) <= bound * size
    assert by_entropy == pytest.approx(together.by_entropy, abs=bound)


@every_triple
def test_any_split_into_micro_batches_gives_the_same_loss_and_gradient(names: tuple[str, str, str]) -> None:
    for tokens in updates_for(names):
        assert_split_changes_nothing(loss_of(names), tokens, torch.float64, 1e-12)
        assert_split_changes_nothing(loss_of(names), tokens, torch.float32, 1e-6)


@pytest.mark.parametrize("correction", CORRECTIONS)
@given(tokens=drawn_updates)
def test_corrections_do_not_see_the_split_either(correction: str, tokens: list[Token]) -> None:
    loss = loss_of(("token", "dual clip", "sequence mean"), correction)
    assert_split_changes_nothing(loss, tokens, torch.float64, 1e-12)


@given(tokens=drawn_updates, seed=st.integers(0, 99))
def test_metrics_of_micro_batches_add_up(tokens: list[Token], seed: int) -> None:
    loss = loss_of(("step", "dual clip", "token mean"), "token truncate")
    totals = totals_of(tokens)
    together = loss(columns_of(tokens), totals).metrics
    added: dict[str, Tally] = {}
    for positions in make_micro_batches(random.Random(seed), tokens, loss.unit):
        metrics = loss(columns_of([tokens[position] for position in positions]), totals).metrics
        added = {name: added[name] + tally if name in added else tally for name, tally in metrics.items()}
    assert added.keys() == together.keys()
    for name, tally in together.items():
        assert tally.count == added[name].count == totals.tokens
        assert tally.mean == pytest.approx(added[name].mean, rel=1e-9, abs=1e-9, nan_ok=True)


def rubbish(rng: random.Random, token: Token) -> Token:
    names = ("logp", "old", "behaviour", "ref", "entropy", "advantage")
    return dataclasses.replace(token, **{name: rng.choice(GARBAGE) for name in names})


@every_triple
def test_what_a_masked_token_holds_changes_not_one_bit(names: tuple[str, str, str]) -> None:
    rng = random.Random(0)
    loss = loss_of(names, "step mask", "off-policy")
    for tokens in updates_for(names):
        before = run(loss, columns_of(tokens), totals_of(tokens))
        after = run(loss, columns_of([t if t.trains else rubbish(rng, t) for t in tokens]), totals_of(tokens))
        alone = run(loss, columns_of([t for t in tokens if t.trains]), totals_of(tokens))
        assert before == after
        assert math.isfinite(before.loss)
        assert before.loss == alone.loss
        for by, own in ((before.by_logp, alone.by_logp), (before.by_entropy, alone.by_entropy)):
            assert [slope for slope, token in zip(by, tokens, strict=True) if token.trains] == own
            assert [slope for slope, token in zip(by, tokens, strict=True) if not token.trains] == [0.0] * (
                len(tokens) - len(own)
            )


@every_triple
def test_the_order_of_samples_and_tokens_does_not_matter(names: tuple[str, str, str]) -> None:
    rng = random.Random(1)
    loss = loss_of(names)
    for tokens in updates_for(names):
        order = rng.sample(range(len(tokens)), len(tokens))
        before = run(loss, columns_of(tokens), totals_of(tokens))
        after = run(loss, columns_of([tokens[position] for position in order]), totals_of(tokens))
        size = max([abs(slope) for slope in before.by_logp] + [1.0])
        assert after.loss == pytest.approx(before.loss, rel=1e-10, abs=1e-12)
        assert after.by_logp == pytest.approx([before.by_logp[position] for position in order], abs=1e-12 * size)


RECUT = {
    "token": "token mean",
    "step": "step mean",
    "step product": "trajectory mean",
    "trajectory": "trajectory mean of steps",
}
"""An aggregate for each ratio whose unit does not hang on samples: a span lies within one."""


@pytest.mark.parametrize(("ratio", "aggregate"), RECUT.items())
@given(tokens=drawn_updates, seed=st.integers(0, 99))
def test_cutting_a_step_into_samples_changes_nothing(
    ratio: str, aggregate: str, tokens: list[Token], seed: int
) -> None:
    """A loss whose parts name their unit sees steps and trajectories, not the rows they were cut into."""
    assert RECUT.keys() == RATIOS.keys() - {"span"}
    loss = loss_of((ratio, "clip", aggregate), "step truncate", "reject trajectory")
    rng = random.Random(seed)
    recut = [dataclasses.replace(token, sample=rng.randrange(5)) for token in tokens]
    totals = totals_of(tokens)
    assert run(loss, columns_of(recut), totals) == run(loss, columns_of(tokens), totals)


@given(tokens=drawn_updates)
def test_one_token_answers_make_gspo_grpo(tokens: list[Token]) -> None:
    single = [dataclasses.replace(token, sample=number, step=number) for number, token in enumerate(tokens)]
    columns, totals = columns_of(single), totals_of(single)
    losses = [PolicyLoss(ratio=r, surrogate=Clip(), aggregate=SequenceMean()) for r in (TokenRatio(), SequenceRatio())]
    token, sequence = (run(loss, columns, totals) for loss in losses)
    far = any(abs(t.logp - t.old) > SequenceRatio().clamp for t in single if t.trains)
    assert far or sequence == token


@given(tokens=drawn_updates, low=st.floats(1, 1e9), ratio=st.sampled_from(list(RATIOS)))
def test_clip_with_infinite_bounds_is_plain(tokens: list[Token], low: float, ratio: str) -> None:
    """A lower bound of 1 or more is no bound either: a ratio is never negative."""
    open_clip = PolicyLoss(ratio=RATIOS[ratio][0], surrogate=Clip(low=low, high=math.inf))
    plain = PolicyLoss(ratio=RATIOS[ratio][0], surrogate=Plain())
    columns, totals = columns_of(tokens), totals_of(tokens)
    assert run(open_clip, columns, totals) == run(plain, columns, totals)
    no_bounds = PolicyLoss(ratio=RATIOS[ratio][0], surrogate=Clip(low=math.inf, high=math.inf))
    assert run(no_bounds, columns, totals) == run(plain, columns, totals)


def on_policy(tokens: Sequence[Token]) -> list[Token]:
    return [dataclasses.replace(token, old=token.logp) for token in tokens]


@pytest.mark.parametrize("ratio", RATIOS)
@given(tokens=drawn_updates)
def test_on_policy_the_clipped_loss_is_minus_the_mean_advantage(ratio: str, tokens: list[Token]) -> None:
    tokens = on_policy(tokens)
    result = run(PolicyLoss(ratio=RATIOS[ratio][0], surrogate=Clip(dual=3.0)), columns_of(tokens), totals_of(tokens))
    advantages = [token.advantage for token in tokens if token.trains]
    assert result.loss == pytest.approx(-math.fsum(advantages) / max(len(advantages), 1), abs=1e-12)


@pytest.mark.parametrize("surrogate", [Plain(), Clip(), Clip(dual=3.0), Cispo(), Sapo(), Reinforce(), Rec()], ids=repr)
@pytest.mark.parametrize("ratio", [TokenRatio(), SequenceRatio(), SequenceRatio(unit="trajectory")], ids=repr)
@given(tokens=drawn_updates)
def test_on_policy_every_gradient_is_the_policy_gradient(
    ratio: TokenRatio, surrogate: Plain, tokens: list[Token]
) -> None:
    tokens = on_policy(tokens)
    result = run(PolicyLoss(ratio=ratio, surrogate=surrogate), columns_of(tokens), totals_of(tokens))
    num = max(sum(token.trains for token in tokens), 1)
    expected = [-token.advantage / num if token.trains else 0.0 for token in tokens]
    assert result.by_logp == pytest.approx(expected, abs=1e-12)


@given(tokens=drawn_updates, dual=st.floats(1.3, 5.0))
def test_the_dual_clip_matters_only_where_credit_is_negative(tokens: list[Token], dual: float) -> None:
    columns, totals = columns_of(tokens), totals_of(tokens)
    without = run(PolicyLoss(surrogate=Clip()), columns, totals)
    bounded = run(PolicyLoss(surrogate=Clip(dual=dual)), columns, totals)
    for token, before, after in zip(tokens, without.by_logp, bounded.by_logp, strict=True):
        if not token.trains or token.advantage >= 0 or token.logp - token.old < math.log(dual):
            assert after == before
        else:
            assert after == 0.0
    praised = [dataclasses.replace(token, advantage=abs(token.advantage)) for token in tokens]
    loss = PolicyLoss(surrogate=Clip(dual=dual))
    assert (
        run(loss, columns_of(praised), totals).loss
        == run(PolicyLoss(surrogate=Clip()), columns_of(praised), totals).loss
    )


@given(
    advantage=st.floats(-3, 3).filter(bool),
    log_ratio=st.floats(-3, 3),
    taus=st.tuples(st.floats(0.2, 5), st.floats(0.2, 5)),
)
def test_the_sapo_gate_has_slope_1_at_ratio_1_and_less_elsewhere(
    advantage: float, log_ratio: float, taus: tuple[float, float]
) -> None:
    surrogate = Sapo(tau_positive=taus[0], tau_negative=taus[1])
    ratio_T = torch.tensor([1.0, math.exp(log_ratio)], dtype=torch.float64, requires_grad=True)
    token = Token(0.0, 0.0, 0.0, 0.0, 0.0, advantage, True, 0, 0, 0)
    loss_T = surrogate(ratio_T, columns_of([token, token])).loss
    at_1, elsewhere = (torch.autograd.grad(loss_T.sum(), ratio_T)[0] / -advantage).tolist()
    assert at_1 == pytest.approx(1.0, abs=1e-12)
    assert 0 <= elsewhere <= 1 + 1e-12  # 0 where the gate is shut to the last bit: tau times the ratio beyond 37
    tau = taus[0] if advantage > 0 else taus[1]
    assert elsewhere == pytest.approx(1 / math.cosh(tau * (math.exp(log_ratio) - 1) / 2) ** 2, rel=1e-9)


@given(tokens=drawn_updates, cap=st.floats(0.5, 5))
def test_cispo_never_lets_a_token_go(tokens: list[Token], cap: float) -> None:
    result = run(PolicyLoss(surrogate=Cispo(cap=cap)), columns_of(tokens), totals_of(tokens))
    num = max(sum(token.trains for token in tokens), 1)
    for token, slope in zip(tokens, result.by_logp, strict=True):
        if token.trains:
            rho = math.exp(max(-20.0, min(20.0, token.logp - token.old)))
            assert slope == pytest.approx(-min(rho, cap) * token.advantage / num, rel=1e-9)
            assert (slope != 0) == (token.advantage != 0)


@given(tokens=drawn_updates)
def test_the_engine_as_old_policy_is_the_ratio_against_its_log_probs(tokens: list[Token]) -> None:
    renamed = [dataclasses.replace(token, old=token.behaviour) for token in tokens]
    totals = totals_of(tokens)
    missing = dataclasses.replace(columns_of(tokens), logp_old=None)
    bypass = PolicyLoss(old="engine", penalties=PENALTIES)
    assert run(bypass, missing, totals) == run(PolicyLoss(penalties=PENALTIES), columns_of(renamed), totals)


@given(tokens=drawn_updates, copies=st.integers(1, 3))
def test_padding_rows_that_do_not_train_change_nothing(tokens: list[Token], copies: int) -> None:
    padding = [dataclasses.replace(token, trains=False, sample=token.sample + 50) for token in tokens] * copies
    for aggregate in (TokenMean(), SequenceMean(), StepMean(), TrajectoryMean(within="step")):
        loss = PolicyLoss(aggregate=aggregate)
        before = run(loss, columns_of(tokens), totals_of(tokens))
        after = run(loss, columns_of([*tokens, *padding]), totals_of([*tokens, *padding]))
        assert after.loss == before.loss
        assert after.by_logp == before.by_logp + [0.0] * len(padding)


# KL: the expectation over a categorical policy of each estimator's gradient, against the gradient of the KL itself.

LOGITS = st.lists(st.floats(-2, 2), min_size=4, max_size=4).map(lambda x: torch.tensor(x, dtype=torch.float64))


def vocabulary(logp_V: Tensor, old_V: Tensor, ref_V: Tensor) -> TokenColumns:
    """Every word of the vocabulary as a token of its own."""
    zeros, ids = torch.zeros(len(logp_V), dtype=torch.float64), torch.arange(len(logp_V))
    return TokenColumns(
        logp=logp_V,
        logp_old=old_V,
        logp_behaviour=old_V,
        logp_ref=ref_V,
        advantage=zeros,
        mask=ids >= 0,
        sample=ids,
        step=ids,
        trajectory=ids,
    )


def mean_gradient(penalty: Kl, logits: Tensor, old: Tensor, ref: Tensor) -> Tensor:
    """Sum over words drawn from `old` of probability x gradient of the estimate."""
    logits = logits.clone().requires_grad_()
    estimates_V = penalty(vocabulary(logits.log_softmax(0), old.log_softmax(0), ref.log_softmax(0)))
    (gradient,) = torch.autograd.grad((old.softmax(0) * estimates_V).sum(), logits)
    return gradient


def exact_gradient(logits: Tensor, divergence: Callable[[Tensor], Tensor]) -> Tensor:
    logits = logits.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(divergence(logits.log_softmax(0)), logits)
    return gradient


def forward_kl(logp_V: Tensor, ref_V: Tensor) -> Tensor:
    return (logp_V.exp() * (logp_V - ref_V)).sum()


@pytest.mark.parametrize(
    ("estimator", "gradient", "direction"),
    [
        ("k1", "own", "nothing"),
        ("k2", "own", "KL(pi || ref)"),
        ("k3", "own", "KL(ref || pi)"),
        ("k1", "straight_through", "KL(pi || ref)"),
        ("k3", "straight_through", "KL(pi || ref)"),
        ("k1", "unbiased", "KL(pi || ref)"),
        ("k3", "unbiased", "KL(pi || ref)"),
    ],
)
@given(logits=LOGITS, ref=LOGITS)
def test_on_policy_the_gradient_of_a_kl_estimate_is_on_average_that_of_the_kl_it_names(
    estimator: str, gradient: str, direction: str, logits: Tensor, ref: Tensor
) -> None:
    ref_V = ref.log_softmax(0)
    exact = {
        "nothing": torch.zeros(4, dtype=torch.float64),
        "KL(pi || ref)": exact_gradient(logits, lambda logp_V: forward_kl(logp_V, ref_V)),
        "KL(ref || pi)": exact_gradient(logits, lambda logp_V: forward_kl(ref_V, logp_V)),
    }[direction]
    mean = mean_gradient(Kl(estimator=estimator, gradient=gradient, cap=math.inf), logits, logits, ref)
    torch.testing.assert_close(mean, exact, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("estimator", ["k1", "k3"])
@given(logits=LOGITS, old=LOGITS, ref=LOGITS)
def test_off_policy_the_unbiased_form_is_still_right(estimator: str, logits: Tensor, old: Tensor, ref: Tensor) -> None:
    ref_V = ref.log_softmax(0)
    mean = mean_gradient(Kl(estimator=estimator, gradient="unbiased", cap=math.inf), logits, old, ref)
    exact = exact_gradient(logits, lambda logp_V: forward_kl(logp_V, ref_V))
    torch.testing.assert_close(mean, exact, rtol=1e-9, atol=1e-12)


@given(logits=LOGITS, ref=LOGITS)
def test_the_estimates_themselves_average_to_the_kl(logits: Tensor, ref: Tensor) -> None:
    logp_V, ref_V = logits.log_softmax(0), ref.log_softmax(0)
    columns = vocabulary(logp_V, logp_V, ref_V)
    for estimator in ("k1", "k3"):
        mean = (logp_V.exp() * Kl(estimator=estimator, cap=math.inf)(columns)).sum()
        assert float(mean) == pytest.approx(float(forward_kl(logp_V, ref_V)), abs=1e-12)


def test_nothing_to_train_on_gives_a_zero_that_backward_accepts() -> None:
    masked = [dataclasses.replace(token, trains=False) for token in updates(1)[0]]
    empty = Totals.count(tokens=[], trajectory=[], step=[], group=[], max_tokens=8)
    for names in TRIPLES:
        for tokens in ([], masked):
            loss = loss_of(names, "step truncate", "reject trajectory")
            result = run(loss, columns_of(tokens), empty)
            assert result.loss == 0.0
            assert result.by_logp == [0.0] * len(tokens)
