"""Losses over groups, penalties with memory and elastic clips, worked by hand: the specification's vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from groupwise import ConfigError, StepTable, methods
from groupwise.data.samples import Pair, Totals
from groupwise.losses import PairSums, Plain, PolicyLoss, TrajectorySums
from groupwise.methods.after_etr import ElasticClip, OutcomeSpread
from groupwise.methods.disco import Disco
from groupwise.methods.dpo import Dpo
from groupwise.methods.llds import Llds
from groupwise.methods.p3o import P3o
from groupwise.methods.r2vpo import RatioVariance
from groupwise.methods.reg_grpo import Regression
from groupwise.methods.simpo import Simpo
from groupwise.parts.stateful import ObservedUpdate
from tests.unit.losses.token_rows import columns, from_ratios, gradient, number, totals


def learn(loss: Any, rows: Any, trajectory: Sequence[int], step: Sequence[int]) -> tuple[float, list[float]]:
    num = len(trajectory)
    counted = Totals.count(tokens=[1] * num, trajectory=trajectory, step=step, group=[0] * num, max_tokens=4)
    result = loss(rows, counted, loss.first_pass(rows, counted))
    return number(result.loss), gradient(result.loss, rows.logp)


@pytest.mark.parametrize(("floor", "expected"), [(0.0, 0.130693), (0.5, 0.391986)])
def test_regression_gives_the_numbers_of_its_specification(floor: float, expected: float) -> None:
    """R = 0.2, -0.1, 0.05, -0.15, returns 1, 0, 1, 0: A = +-0.866024."""
    change, credit = [0.2, -0.1, 0.05, -0.15], [0.866024, -0.866024, 0.866024, -0.866024]
    old = [-1.0 - value for value in change]
    rows = columns([-1.0] * 4, old=old, advantage=credit, sample=range(4), trajectory=range(4), group=[0] * 4)
    value, slopes = learn(Regression(floor=floor), rows, range(4), [0] * 4)
    assert value == pytest.approx(expected, abs=1e-6)
    divisor = floor or math.sqrt(0.025)
    miss = [x / divisor - a for x, a in zip(change, credit, strict=True)]
    assert slopes == pytest.approx([2 * m / divisor / 4 for m in miss], abs=1e-6)  # they sum to 0 already


def test_a_group_without_credit_is_not_fitted() -> None:
    rows = columns([-1.0, -2.0], old=[-1.5, -1.0], advantage=0.0, sample=[0, 1], trajectory=[0, 1], group=[0, 0])
    assert learn(Regression(), rows, [0, 1], [0, 0]) == (0.0, [0.0, 0.0])


def test_a_penalty_with_memory_is_given_its_column_and_measured_beside_a_regression() -> None:
    loss = Regression(penalties=(RatioVariance(),))
    assert loss.columns == {"ratio_multiplier"}
    for off_policy, num_measured in ((None, 1), ([False], 1), ([True], 0)):
        rows = columns([0.0], old=[-math.log(2)], group=[0], off_policy=off_policy, named={"ratio_multiplier": [0.5]})
        counted = totals(1)
        result = loss(rows, counted, loss.first_pass(rows, counted))
        assert number(result.loss) == pytest.approx(1.0 + 0.5)  # one rollout: it misses its credit of 1
        variance = result.metrics["loss/ratio_variance"]
        assert (float(variance.total), variance.count) == (pytest.approx(num_measured), num_measured)


LLDS = Llds(of=PolicyLoss(surrogate=Plain()), weight=1.0)


def pull(drops: Sequence[float], step: Sequence[int], loss: Llds = LLDS) -> tuple[float, list[float]]:
    """What LLDS adds to a loss without credit, by how much each token fell."""
    rows = columns(
        [-1.0 - d for d in drops],
        old=[-1.0] * len(drops),
        advantage=0.0,
        sample=range(len(drops)),
        step=step,
        group=[0] * len(drops),
    )
    return learn(loss, rows, [0] * len(drops), step)


def test_llds_gives_the_numbers_of_its_specification() -> None:
    """Sum of drops 0.4: (0.2 + 0.3) / 3; sum -0.1: the gate is shut; of two actions only the first is active."""
    value, slopes = pull([0.2, -0.1, 0.3], [0, 0, 0])
    assert value == pytest.approx(0.166667, abs=1e-6)
    assert slopes == pytest.approx([-1 / 3, 0.0, -1 / 3])
    assert pull([0.2, -0.6, 0.3], [0, 0, 0]) == (0.0, [0.0, 0.0, 0.0])
    value, slopes = pull([0.2, -0.1, 0.1, -0.3, 0.05, 0.0], [0, 0, 0, 1, 1, 1])
    assert value == pytest.approx(0.1)
    assert slopes == pytest.approx([-1 / 3, 0.0, -1 / 3, 0.0, 0.0, 0.0])
    # By rollout the sum is -0.05: shut.
    whole = Llds(of=LLDS.of, weight=1.0, gate="trajectory")
    assert pull([0.2, -0.1, 0.1, -0.3, 0.05, 0.0], [0, 0, 0, 1, 1, 1], whole)[0] == 0.0


def test_what_was_blamed_may_become_unlikely() -> None:
    rows = columns([-2.0], old=[-1.0], advantage=-1.0, group=[0])
    value, _ = learn(LLDS, rows, [0], [0])
    assert value == pytest.approx(math.exp(-1.0))  # -A rho of the loss beside it, and nothing more


def test_a_loss_with_a_first_pass_cannot_stand_beside_llds() -> None:
    with pytest.raises(ConfigError) as caught:
        Llds(of=Dpo())
    assert str(caught.value) == "Llds: of: Dpo has a first pass of its own; give a policy_loss"


@pytest.mark.parametrize(
    ("fields", "objective", "weights"),
    [
        ({"tau": 10.0}, 0.295501, (0.514996, 0.485004)),
        ({"tau": 1.0}, 0.255659, (0.645656, 0.354344)),
        ({"tau": 0.1}, 0.069067, (0.997527, 0.002473)),
        ({"negatives": "mean"}, 0.3, (0.5, 0.5)),
    ],
)
def test_disco_gives_the_numbers_of_its_specification(
    fields: dict[str, Any], objective: float, weights: tuple[float, float]
) -> None:
    """s = -0.5, -0.7 solved and -0.6, -1.2 failed."""
    named = {"episode_return": [1.0, 1.0, 0.0, 0.0]}
    rows = columns([-0.5, -0.7, -0.6, -1.2], sample=range(4), trajectory=range(4), group=[0] * 4, named=named)
    value, slopes = learn(Disco(**fields), rows, range(4), [0] * 4)
    assert value == pytest.approx(-objective, abs=1e-6)
    assert slopes == pytest.approx([-0.5, -0.5, *weights], abs=1e-6)


def test_discos_bound_is_a_squared_hinge() -> None:
    """KL 3e-4, 2e-4 beyond: 1000 / 2 x 4e-8 = 2e-5, and its slope 0.2 by the KL, which falls with logp."""
    rows = columns([-1.0], old=[-1.0 + 3e-4], group=[0], named={"episode_return": [1.0]})
    value, slopes = learn(Disco(), rows, [0], [0])
    assert value == pytest.approx(2e-5, rel=1e-6)
    assert slopes == pytest.approx([-0.2], rel=1e-6)


@pytest.mark.parametrize(
    ("credit", "ratio", "multiplier", "value", "slope"),
    [(1.0, 1.5, 0.5, -1.375, -0.75), (1.0, 2.5, 0.5, -1.375, 1.25), (-1.0, 0.5, 0.5, 0.625, 0.25)],
)
def test_r2vpo_gives_the_numbers_of_its_specification(
    credit: float, ratio: float, multiplier: float, value: float, slope: float
) -> None:
    rows = columns([0.0], old=[-math.log(ratio)], advantage=credit, named={"ratio_multiplier": [multiplier]}, group=[0])
    loss = methods.r2vpo().loss
    assert loss is not None
    result = loss(rows, totals(1))
    assert number(result.loss) == pytest.approx(value)
    assert gradient(result.loss, rows.logp) == pytest.approx([slope])
    assert result.metrics["loss/ratio_variance"].mean == pytest.approx((ratio - 1) ** 2)


def observe(part: RatioVariance, *variances: float) -> float:
    state = part.start(seed=0)
    for place, variance in enumerate(variances):
        metrics = {"loss/ratio_variance": variance} if variance >= 0 else {}
        state.observe(ObservedUpdate(number=place + 1, trajectories=[], credit=[], metrics=metrics))
    return float(state.state_dict()["multiplier"])


def test_the_multiplier_follows_the_variance() -> None:
    """0.04 x exp(0.1 x (0.02 / 0.01 - 1)) = 0.044207."""
    assert observe(RatioVariance(), 0.02) == pytest.approx(0.044207, abs=1e-6)
    assert observe(RatioVariance(), 0.01) == 0.04
    assert observe(RatioVariance(), -1.0) == 0.04  # nothing was measured
    assert observe(RatioVariance(), 1e9) == 10.0
    assert observe(RatioVariance(rate=50.0), 0.0) == 1e-4
    assert observe(RatioVariance(rate=0.0), 5.0) == 0.04
    assert observe(RatioVariance(first=0.0), 5.0) == 0.0


def test_bounds_that_leave_no_multiplier_are_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        RatioVariance(lowest=2.0, highest=1.0)
    assert str(caught.value) == (
        "RatioVariance: lowest (2) is above highest (1), so that no multiplier lies between; give a lower lowest"
    )


def test_a_state_goes_on_from_what_it_was() -> None:
    state, other = RatioVariance().start(seed=0), RatioVariance().start(seed=1)
    state.observe(ObservedUpdate(number=1, trajectories=[], credit=[], metrics={"loss/ratio_variance": 0.5}))
    other.load_state_dict(state.state_dict())
    assert other.state_dict() == state.state_dict()
    assert other.columns([])["ratio_multiplier"].tolist() == []


@pytest.mark.parametrize(
    ("credit", "pass_rate", "width"),
    [(1.620185, 0.25, 0.272793), (-0.540062, 0.25, 0.198264), (1.0, 0.5, 0.26)],
)
def test_the_elastic_clip_gives_the_numbers_of_its_specification(credit: float, pass_rate: float, width: float) -> None:
    """How far a ratio may go before it is bounded: just inside it has a slope, just outside none."""
    sign = 1 if credit > 0 else -1
    for beyond in (-1e-4, 1e-4):
        rows = from_ratios([1 + sign * (width + beyond)], advantage=credit)
        rows = columns(
            rows.logp.tolist(),
            old=rows.logp_old.tolist(),  # type: ignore[union-attr]
            advantage=credit,
            channels={"spread": [4 * pass_rate * (1 - pass_rate)]},
        )
        loss = PolicyLoss(surrogate=ElasticClip())(rows, totals(1)).loss
        assert (gradient(loss, rows.logp) == [0.0]) == (beyond > 0)


def test_a_clip_that_does_not_give_way_is_the_clip() -> None:
    ratios = [0.5, 0.79, 0.81, 1.19, 1.21, 2.0]
    for credit in (1.0, -1.0):
        rows = from_ratios(ratios, advantage=credit)
        own = columns(
            rows.logp.tolist(),
            old=rows.logp_old.tolist(),  # type: ignore[union-attr]
            advantage=credit,
            sample=range(6),
            channels={"spread": [0.3] * 6},
        )
        elastic = PolicyLoss(surrogate=ElasticClip(by_credit=0.0, by_spread=0.0))(own, totals(*[1] * 6))
        plain = PolicyLoss()(rows, totals(*[1] * 6))
        assert number(elastic.loss) == number(plain.loss)
        assert gradient(elastic.loss, own.logp) == gradient(plain.loss, rows.logp)


@pytest.mark.parametrize("loss", [Regression(), LLDS, Disco(score="ratio", tau=1.0), P3o()])
def test_tokens_of_another_policy_are_measured_against_it(loss: Any) -> None:
    """What the learner's old weights thought of a replayed token is not read."""
    results = []
    for old in (-0.5, -7.0):
        rows = columns(
            [-1.0, -1.2],
            old=[-0.9, old],
            behaviour=[-0.9, -1.1],
            advantage=[0.5, 1.0],
            sample=[0, 1],
            step=[0, 0],
            trajectory=[0, 1],
            off_policy=[False, True],
            group=[0, 0],
            named={"episode_return": [1.0, 0.0]},
        )
        counted = Totals.count(
            tokens=[1, 1], trajectory=[0, 1], step=[0, 0], group=[0, 0], max_tokens=4, pairs=[Pair(0, 1, gap=1.0)]
        )
        result = loss(rows, counted, loss.first_pass(rows, counted))
        results.append((number(result.loss), gradient(result.loss, rows.logp)))
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("returns", "spread"),
    [
        ([1, 0, 0, 1, 0, 0, 0, 0], 0.75),
        ([1, 0], 1.0),
        ([5, 5, 5], 0.0),
        ([0.3], 0.0),
        ([0, 1, 2], 2 / 3),
        ([0.1 + 0.2, 0.3], 0.0),
    ],
)
def test_the_spread_of_outcomes(returns: list[float], spread: float) -> None:
    num = len(returns)
    table = StepTable.from_columns(task=["t"] * num, rollout=range(num), step=[0] * num, reward=returns)
    credit = OutcomeSpread()(table)
    assert credit.values.tolist() == pytest.approx([spread] * num)
    assert credit.compared.tolist() == [num > 1] * num
    derived = credit.trace.derive(table, 0)  # type: ignore[union-attr]
    assert derived.value == pytest.approx(spread)
    assert len(derived.members) == num


@pytest.mark.parametrize("surrogate", ["clip", "sapo", "cispo", "rec", "elastic_clip"])
def test_two_trust_regions_are_refused(surrogate: str) -> None:
    with pytest.raises(ConfigError) as caught:
        PolicyLoss(surrogate=surrogate, penalties=(RatioVariance(),))
    assert str(caught.value).startswith("PolicyLoss: RatioVariance replaces a clip, but ")
    PolicyLoss(surrogate=surrogate, penalties=(RatioVariance(weight=0.0),))
    PolicyLoss(surrogate="reinforce", penalties=(RatioVariance(),))


def test_sums_of_long_rollouts_are_float64_where_log_probs_are_float32() -> None:
    """0.1 in float32, ten thousand times: added up in float32 it would drift in the fifth digit."""
    single = columns([-0.1] * 20_000, trajectory=[0] * 10_000 + [1] * 10_000, group=[0] * 20_000)
    single = replace(single, logp=single.logp.detach().float().requires_grad_())
    totals_of_two = Totals.count(
        tokens=[10_000] * 2,
        trajectory=[0, 1],
        step=[0, 0],
        group=[0, 0],
        max_tokens=10_000,
        pairs=[Pair(0, 1, gap=1.0)],
    )
    wanted = [10_000 * float(single.logp[0].detach())] * 2
    by_rollout = TrajectorySums.of(single, totals_of_two, logp=single.logp)
    by_member = PairSums.of(single, totals_of_two, logp=single.logp)
    for summed in (by_rollout.sums["logp"], by_member.sums["logp"]):
        assert summed.dtype == torch.float64
        assert summed.tolist() == pytest.approx(wanted, rel=1e-12)
    loss = Simpo()(single, totals_of_two, Simpo().first_pass(single, totals_of_two)).loss
    assert loss.dtype == torch.float32
