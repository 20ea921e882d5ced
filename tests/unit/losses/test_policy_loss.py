"""The policy loss as a whole: what it needs, what it keeps together, what it reports, and what it refuses."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from groupwise import ConfigError, RecordError
from groupwise.data.samples import Totals
from groupwise.losses import (
    ENTROPY,
    METRICS,
    OLD_LOGP,
    REFERENCE_LOGP,
    Clip,
    EntropyBonus,
    Kl,
    LossResult,
    Mask,
    OffPolicyMask,
    PolicyLoss,
    Reject,
    SequenceMean,
    SequenceRatio,
    StepMean,
    TokenColumns,
    TokenLoss,
    TrajectoryMean,
    Truncate,
)
from tests.unit.losses.token_rows import columns, gradient, number, totals

FULL = PolicyLoss(
    surrogate=Clip(dual=3.0),
    aggregate=SequenceMean(),
    corrections=(Truncate(),),
    penalties=(Kl(weight=0.5), EntropyBonus(weight=0.25)),
)


def test_a_loss_worked_by_hand() -> None:
    """Two samples. First: A = 1, ratios e^0.1 and 1.2 (clipped from 1.5). Second: A = -1, ratio 1, correction weight 2.

    l = [-1.105171, -1.2] and [1 x 2]; kl k2 with d = 0.2, 0, 0: [0.02, 0, 0]; entropies 1, 2, 4.
    """
    tokens = columns(
        [-1.0, -1.0, -1.0],
        old=[-1.1, -1.0 - math.log(1.5), -1.0],
        behaviour=[-1.1, -1.0 - math.log(1.5), -1.0 - math.log(2)],
        ref=[-0.8, -1.0, -1.0],
        entropy=[1.0, 2.0, 4.0],
        advantage=[1.0, 1.0, -1.0],
        sample=[0, 0, 1],
    )
    loss = FULL.model_copy(update={"penalties": (Kl(estimator="k2", weight=0.5), EntropyBonus(weight=0.25))})
    result = loss(tokens, totals(2, 1))
    first = (-math.exp(0.1) + 0.5 * 0.02 - 0.25 * 1) + (-1.2 - 0.25 * 2)
    assert number(result.loss) == pytest.approx((first / 2 + (2.0 - 0.25 * 4)) / 2)
    assert gradient(result.loss, tokens.logp) == pytest.approx([(-math.exp(0.1) - 0.5 * 0.2) / 4, 0.0, 2 / 2])
    assert tokens.entropy is not None
    assert gradient(result.loss, tokens.entropy) == pytest.approx([-0.25 / 4, -0.25 / 4, -0.25 / 2])
    means = {name.removeprefix("loss/"): tally.mean for name, tally in result.metrics.items()}
    assert means == pytest.approx(
        {
            "ratio": (math.exp(0.1) + 1.5 + 1) / 3,
            "clip_fraction_high": 1 / 3,
            "clip_fraction_low": 0.0,
            "clip_fraction_dual": 0.0,
            "kl_to_old": ((math.exp(0.1) - 1.1) + (0.5 - math.log(1.5))) / 3,
            "kl_to_reference": (math.exp(0.2) - 1.2) / 3,
            "mismatch": math.log(2) / 3,
            "mismatch_size": math.log(2) / 3,
            "correction": 4 / 3,
            "rejected": 0.0,
            "entropy": 7 / 3,
        }
    )
    assert {tally.count for tally in result.metrics.values()} == {3}
    assert {tally.total.dtype for tally in result.metrics.values()} == {torch.float64}, "so that shares add up too"
    # Nobody else's tokens, no pairs, and no penalty that measures.
    elsewhere = {
        "loss/off_policy_ratio",
        "loss/pair_gap",
        "loss/pair_accuracy",
        "loss/ratio_variance",
        "loss/entropy_outside",
    }
    assert set(result.metrics) == set(METRICS) - elsewhere


def test_a_loss_needs_what_its_parts_need() -> None:
    assert PolicyLoss().needs == {OLD_LOGP}
    assert FULL.needs == {OLD_LOGP, REFERENCE_LOGP, ENTROPY}


def test_a_penalty_of_weight_0_is_not_computed_and_needs_nothing() -> None:
    loss = PolicyLoss(penalties=(Kl(weight=0.0), EntropyBonus(weight=0.0)))
    assert loss.needs == {OLD_LOGP}
    assert number(loss(columns([-1.0]), totals(1)).loss) == -1.0


def test_against_the_engine_no_old_log_probs_are_needed() -> None:
    """Ratio exp(-1 + 1.5), clipped at 1.2."""
    loss = PolicyLoss(old="engine")
    assert loss.needs == frozenset()
    tokens = dataclasses.replace(columns([-1.0], behaviour=[-1.5]), logp_old=None)
    result = loss(tokens, totals(1))
    assert number(result.loss) == pytest.approx(-1.2)
    assert set(result.metrics) == {
        "loss/ratio",
        "loss/kl_to_old",
        "loss/clip_fraction_high",
        "loss/clip_fraction_low",
    }, "there is no gap to report where the engine's log-probs are the old ones"
    assert PolicyLoss(old="engine", penalties=(Kl(gradient="unbiased"),)).needs == {REFERENCE_LOGP}


@pytest.mark.parametrize("correction", [Truncate(), Mask(unit="step"), Reject()], ids=repr)
def test_against_the_engine_there_is_nothing_to_correct(correction: Truncate) -> None:
    with pytest.raises(ConfigError) as caught:
        PolicyLoss(old="engine", corrections=(correction,))
    assert "has nothing to correct with old='engine'" in str(caught.value)
    assert "leave out one of the two" in str(caught.value)
    assert PolicyLoss(old="engine", corrections=(OffPolicyMask(),)).corrections == (OffPolicyMask(),)


@pytest.mark.parametrize(
    ("old", "off_policy", "exponents"),
    [
        ("learner", None, (0.1, 0.1)),
        ("learner", [False, False], (0.1, 0.1)),
        ("learner", [True, False], (0.15, 0.1)),
        ("engine", [True, False], (0.15, 0.15)),
    ],
)
def test_tokens_of_another_policy_are_measured_against_that_policy(
    old: str, off_policy: list[bool] | None, exponents: tuple[float, float]
) -> None:
    """Log-prob 0 now, -0.1 at the start of the update, -0.15 when it was sampled; the loss is minus the mean ratio."""
    tokens = columns([0.0, 0.0], old=[-0.1] * 2, behaviour=[-0.15] * 2, off_policy=off_policy)
    loss = PolicyLoss(old=old)(tokens, totals(2)).loss
    ratios = [math.exp(exponent) for exponent in exponents]
    assert number(loss) == pytest.approx(-sum(ratios) / 2, abs=1e-12)
    assert gradient(loss, tokens.logp) == pytest.approx([-ratio / 2 for ratio in ratios], abs=1e-12)


def test_tokens_of_another_policy_are_counted_apart() -> None:
    """One token of each kind: what the update did to the policy is told by its own."""
    tokens = columns([0.0, 0.0], old=[-0.1] * 2, behaviour=[-0.15] * 2, off_policy=[True, False])
    means = {name: tally.mean for name, tally in PolicyLoss()(tokens, totals(2)).metrics.items()}
    assert means["loss/ratio"] == pytest.approx(math.exp(0.1))
    assert means["loss/off_policy_ratio"] == pytest.approx(math.exp(0.15))
    assert means["loss/mismatch_size"] == pytest.approx(0.05)


def test_a_missing_column_is_named_before_anything_is_computed() -> None:
    with pytest.raises(RecordError, match="the loss needs reference_logp, but column 'logp_ref' is missing"):
        PolicyLoss(penalties=(Kl(),))(columns([-1.0]), totals(1))


@pytest.mark.parametrize(
    ("loss", "unit"),
    [
        (PolicyLoss(), "sample"),
        (PolicyLoss(aggregate=SequenceMean()), "sample"),
        (PolicyLoss(aggregate=StepMean()), "step"),
        (PolicyLoss(aggregate=TrajectoryMean()), "sample"),
        (PolicyLoss(aggregate=TrajectoryMean(within="step")), "step"),
        (PolicyLoss(ratio=SequenceRatio()), "step"),
        (PolicyLoss(ratio=SequenceRatio(unit="span")), "sample"),
        (PolicyLoss(ratio=SequenceRatio(unit="trajectory"), aggregate=StepMean()), "trajectory"),
        (PolicyLoss(corrections=(Truncate(), Reject())), "step"),
        (PolicyLoss(corrections=(Mask(unit="trajectory"),)), "trajectory"),
    ],
    ids=repr,
)
def test_a_loss_says_what_a_micro_batch_must_not_cut(loss: PolicyLoss, unit: str) -> None:
    assert loss.unit == unit


def test_a_trajectory_that_was_cut_is_refused_where_the_loss_takes_it_whole() -> None:
    loss = PolicyLoss(ratio=SequenceRatio(unit="trajectory"))
    with pytest.raises(RecordError) as caught:
        loss(columns([-1.0, -1.0]), totals(2, 3))
    assert str(caught.value) == (
        "trajectory 0: 2 of its 5 tokens are in this micro-batch, but the loss takes whole trajectories together; "
        "keep each in one micro-batch (PolicyLoss.unit)"
    )
    with pytest.raises(RecordError, match="trajectory 0: 1 of its 5 tokens are in this micro-batch"):
        loss(columns([-1.0]), totals(2, 3))
    assert number(loss(columns([-1.0] * 5), totals(2, 3)).loss) == -1.0


def test_a_trajectory_that_lies_elsewhere_as_a_whole_is_not_cut() -> None:
    """Two trajectories of two tokens and one; the micro-batch holds the second, a third of the loss."""
    both = Totals.count(tokens=[2, 1], trajectory=[0, 1], step=[0, 0], group=[0, 0], max_tokens=8)
    loss = PolicyLoss(ratio=SequenceRatio(unit="trajectory"))
    assert number(loss(columns([-1.0], trajectory=[1]), both).loss) == pytest.approx(-1 / 3)


class LeaningClip(Clip):
    """Computes something else than `Clip`: a token without credit has a loss too."""

    def __call__(self, ratio_T: Tensor, columns: TokenColumns) -> TokenLoss:
        outcome = super().__call__(ratio_T, columns)
        return dataclasses.replace(outcome, loss=outcome.loss + columns.logp)


class NarrowClip(Clip):
    """Computes what `Clip` computes, with another bound."""

    low: float = 0.1


class LeaningLoss(PolicyLoss):
    """Computes something else than `PolicyLoss`."""

    def __call__(self, columns: TokenColumns, totals: Totals) -> LossResult:
        return super().__call__(columns, totals)


@pytest.mark.parametrize(
    ("loss", "ignores"),
    [
        (PolicyLoss(), True),
        (PolicyLoss(surrogate=NarrowClip()), True),
        (PolicyLoss(surrogate=LeaningClip()), False),
        (LeaningLoss(), False),
        (PolicyLoss(penalties=(Kl(),)), False),
        (PolicyLoss(penalties=(Kl(weight=0.0),)), True),
        (PolicyLoss(aggregate=StepMean()), False),
    ],
    ids=repr,
)
def test_samples_without_credit_are_ignored_only_on_the_word_of_the_class_that_computes(
    loss: PolicyLoss, ignores: bool
) -> None:
    assert loss.ignores_zero_credit is ignores


def test_masked_tokens_holding_rubbish_have_a_gradient_of_exactly_0() -> None:
    """Peers' traps 2: a masked position with a huge or undefined loss."""
    rubbish = [math.nan, math.inf, -math.inf, 1e9]
    clean = columns([-1.0], ref=[-1.0], entropy=[1.0])
    tokens = columns(
        [-1.0, *rubbish],
        old=[-1.0, *rubbish],
        behaviour=[-1.0, *rubbish],
        ref=[-1.0, *rubbish],
        entropy=[1.0, *rubbish],
        advantage=[1.0, *rubbish],
        mask=[True] + [False] * 4,
        sample=[0, 0, 0, 1, 1],
    )
    result, alone = FULL(tokens, totals(1)), FULL(clean, totals(1))
    assert number(result.loss) == number(alone.loss) == -1.25
    assert gradient(result.loss, tokens.logp) == [*gradient(alone.loss, clean.logp), 0.0, 0.0, 0.0, 0.0]
    assert tokens.entropy is not None
    assert gradient(result.loss, tokens.entropy) == [-0.25, 0.0, 0.0, 0.0, 0.0]
    assert {name: tally.mean for name, tally in result.metrics.items()} == {
        name: tally.mean for name, tally in alone.metrics.items()
    }


def test_an_empty_micro_batch_gives_a_zero_on_the_graph() -> None:
    weights = torch.ones(3, dtype=torch.float64, requires_grad=True)
    none = columns([], ref=[], entropy=[])
    masked = columns([math.nan] * 3, ref=[math.nan] * 3, entropy=[math.nan] * 3, mask=[False] * 3)
    for tokens, logp in ((none, weights[:0]), (masked, weights * 2)):
        result = FULL(dataclasses.replace(tokens, logp=logp), totals(4))
        assert number(result.loss) == 0.0
        result.loss.backward()
        assert {tally.count for tally in result.metrics.values()} == {0}
        assert all(math.isnan(tally.mean) for tally in result.metrics.values())
    assert weights.grad is not None
    assert weights.grad.tolist() == [0.0, 0.0, 0.0]


def test_an_update_in_which_nothing_trains_divides_by_nothing() -> None:
    assert number(FULL(columns([], ref=[], entropy=[]), totals()).loss) == 0.0


def test_half_precision_log_probs_give_a_float32_loss_and_a_half_precision_gradient() -> None:
    logp = torch.tensor([-1.0, -2.0], dtype=torch.bfloat16, requires_grad=True)
    tokens = dataclasses.replace(columns([-1.0, -2.0], advantage=[1.0, -3.0]), logp=logp)
    loss = PolicyLoss()(tokens, totals(2)).loss
    assert loss.dtype == torch.float32
    assert number(loss) == 1.0
    loss.backward()
    assert logp.grad is not None
    assert logp.grad.dtype == torch.bfloat16
    assert logp.grad.tolist() == [-0.5, 1.5]


def test_advantages_in_float64_meet_log_probs_in_float32() -> None:
    tokens = dataclasses.replace(columns([-1.0]), logp=torch.tensor([-1.0], requires_grad=True))
    assert tokens.advantage.dtype == torch.float64
    loss = PolicyLoss()(tokens, totals(1)).loss
    assert loss.dtype == torch.float32
    assert number(loss) == -1.0


def test_metrics_carry_no_gradient_and_add_up() -> None:
    first = FULL(columns([-1.0], ref=[-1.0], entropy=[2.0]), totals(1, 1)).metrics["loss/entropy"]
    second = FULL(columns([-1.0], ref=[-1.0], entropy=[5.0]), totals(1, 1)).metrics["loss/entropy"]
    assert not first.total.requires_grad
    assert (first + second).mean == 3.5


def test_a_loss_is_written_down_and_read_back() -> None:
    assert PolicyLoss(**{key: value for key, value in FULL.config().items() if key != "kind"}) == FULL
    assert FULL.config()["surrogate"] == {"kind": "clip", "low": 0.2, "high": 0.2, "dual": 3.0}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"surrogate": "clipp"},
            "PolicyLoss: surrogate: there is no surrogate 'clipp'; did you mean 'clip'? "
            "docs/reference/parts/surrogate.md lists them all",
        ),
        ({"ratio": Clip()}, "PolicyLoss: ratio: Clip is a surrogate, but a ratio is needed here"),
        ({"old": "nobody"}, "PolicyLoss: old: expected 'learner' or 'engine', found 'nobody'"),
        (
            {"penalties": ({"kind": "kl", "estimator": "k4"},)},
            "PolicyLoss: penalties.0.estimator: expected 'k1', 'k2' or 'k3', found 'k4'",
        ),
    ],
)
def test_a_loss_that_cannot_be_meant_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        PolicyLoss(**fields)
    assert str(caught.value) == message


def test_losses_and_methods_load_without_torch() -> None:
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "from groupwise import losses, methods\n"
        "needs = {name: methods.build(name).loss.needs for name in methods.names()}\n"
        "configs = [methods.build(name).config() for name in methods.names()]"
    )
    subprocess.run([sys.executable, "-c", script], check=True, env={"PYTHONPATH": ":".join(sys.path)})
