"""Where losses bound a step, worked by hand on each side of the bound, and what they report of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from groupwise import StepTable
from groupwise.credit import ByState, ReturnToGo
from groupwise.data.samples import Pair, Totals
from groupwise.losses import LossResult, Plain, PolicyLoss
from groupwise.methods.after_etr import ElasticClip
from groupwise.methods.disco import Disco
from groupwise.methods.llds import Llds
from groupwise.methods.p3o import P3o
from groupwise.methods.r2vpo import RatioVariance
from groupwise.methods.rec import Rec
from groupwise.methods.reg_grpo import Regression
from groupwise.methods.step_apo import Siblings
from tests.unit.losses.token_rows import columns, from_ratios, gradient, number

RATIOS = [0.3, 0.5, 1.0, 1.5, 4.0]


@pytest.mark.parametrize(
    ("fields", "praised", "blamed"),
    [
        ({}, [-0.3, -0.5, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.5, 4.0]),
        ({"weighted": False}, [-1.0, -1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0, 1.0]),
        ({"region": "two_side"}, [0.0, 0.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0]),
        ({"region": "two_side", "low": 0.6, "high": 1.0}, [0.0, -0.5, -1.0, -1.5, 0.0], [0.0, 0.5, 1.0, 1.5, 0.0]),
        ({"region": "ring", "weighted": False}, [-1.0, 0.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0, 1.0]),
    ],
)
def test_rec_leaves_out_what_lies_beyond_its_region(
    fields: dict[str, Any], praised: list[float], blamed: list[float]
) -> None:
    for advantage, slopes in ((1.0, praised), (-1.0, blamed)):
        tokens = from_ratios(RATIOS, advantage)
        outcome = Rec(**fields)(tokens.logp.exp() / tokens.logp_old.exp(), tokens)
        assert gradient(outcome.loss, tokens.logp) == pytest.approx(slopes)
        left_out = outcome.clipped["high"] | outcome.clipped["low"]
        assert left_out.tolist() == [slope == 0.0 for slope in slopes]


def learn(loss: Any, rows: Any, *, num: int, pairs: Sequence[Pair] = (), trajectory: Sequence[int]) -> LossResult:
    counted = Totals.count(
        tokens=[1] * num, trajectory=trajectory, step=range(num), group=[0] * num, max_tokens=4, pairs=pairs
    )
    return loss(rows, counted, loss.first_pass(rows, counted))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("fields", "pulled"), [({}, 0.5 / 2), ({"per": "all"}, 0.5 / 3), ({"gate": "trajectory"}, 0.5 / 2)]
)
def test_llds_divides_by_what_is_active_or_by_all_and_reports_the_share(fields: dict[str, Any], pulled: float) -> None:
    """Two rollouts: the first fell by 0.2 and 0.3, the second rose; credit of 0 is not blame."""
    rows = columns(
        [-1.2, -1.3, -0.5],
        old=[-1.0] * 3,
        advantage=0.0,
        sample=range(3),
        step=range(3),
        trajectory=[0, 0, 1],
        group=[0] * 3,
    )
    loss = Llds(of=PolicyLoss(surrogate=Plain()), weight=1.0, **fields)
    result = learn(loss, rows, num=3, trajectory=[0, 0, 1])
    assert number(result.loss) == pytest.approx(pulled)
    assert (float(result.metrics["extra/active"].total), result.metrics["extra/active"].count) == (2.0, 3)


def test_disco_reports_the_kl_that_it_bounds_and_scores_a_token() -> None:
    """KL (0.001 + 0.003) / 2 = 0.002; of two tokens the rollout's score is their mean, so each has half its slope."""
    rows = columns(
        [-1.0, -1.0, -2.0],
        old=[-0.999, -0.997, -1.998],
        sample=range(3),
        step=range(3),
        trajectory=[0, 0, 1],
        group=[0] * 3,
        named={"episode_return": [1.0, 1.0, 0.0]},
    )
    result = learn(Disco(stiffness=0.0), rows, num=3, trajectory=[0, 0, 1])
    assert gradient(result.loss, rows.logp) == pytest.approx([-0.5, -0.5, 1.0])
    bound = result.metrics["extra/kl_bound"]
    assert (bound.mean, bound.count) == (pytest.approx(0.002), 3)
    # Beyond by 0.001 with stiffness 30: a slope of -0.03 a nat of the mean, a third of it for each token.
    held = learn(Disco(max_kl=0.001, stiffness=30.0), rows, num=3, trajectory=[0, 0, 1])
    assert gradient(held.loss, rows.logp) == pytest.approx([-0.51, -0.51, 0.99])
    assert number(held.loss) - number(result.loss) == pytest.approx(15 * 0.001**2)


@pytest.mark.parametrize(
    ("change", "slopes"),
    [
        ((0.1, -0.1), (-1.10517, 0.904837)),
        ((0.5, -0.1), (0.0, 0.904837)),
        ((-0.5, 0.5), (-0.606531, 1.648721)),
        ((0.1, -0.5), (-1.10517, 0.0)),
    ],
)
def test_p3o_pulls_no_further_than_its_clip(change: tuple[float, float], slopes: tuple[float, float]) -> None:
    """A gap of 2, so h = 1: -rho of the winner below 1.2, rho of the loser above 0.8."""
    rows = columns(
        [-1.0, -1.0], old=[-1.0 - log_ratio for log_ratio in change], sample=[0, 1], trajectory=[0, 1], group=[0, 0]
    )
    result = learn(P3o(clip="separate"), rows, num=2, pairs=[Pair(0, 1, gap=2.0)], trajectory=[0, 1])
    assert gradient(result.loss, rows.logp) == pytest.approx(slopes, abs=1e-6)


def test_joint_p3o_pulls_no_further_than_its_width() -> None:
    """D moved by 0.125 or 0.25 of 0.25 nats either way: pulled; by 0.375 apart: not; by 0.375 together: pulled."""
    for moved, slope in ((0.125, -1.0), (-0.125, -1.0), (0.375, 0.0), (-0.375, -1.0), (0.25, -1.0), (-0.25, -1.0)):
        rows = columns([-1.0, -2.0], old=[-1.0 - moved / 2, -2.0 + moved / 2], trajectory=[0, 1], sample=[0, 1])
        loss = P3o(clip="joint", joint_width=0.25)
        result = learn(loss, rows, num=2, pairs=[Pair(0, 1, gap=2.0)], trajectory=[0, 1])
        assert gradient(result.loss, rows.logp) == pytest.approx([slope, -slope])


@pytest.mark.parametrize(("change", "slope"), [(19.0, True), (21.0, False), (-19.0, True), (-21.0, False)])
def test_a_ratio_beyond_e_to_the_20_has_no_variance_to_pull_by(change: float, slope: bool) -> None:
    rows = columns([-30.0 + change], old=[-30.0], named={"ratio_multiplier": [1.0]})
    assert (gradient(RatioVariance()(rows), rows.logp) != [0.0]) == slope


def test_the_widest_gap_of_a_state_is_its_pair_wherever_it_stands() -> None:
    table = StepTable.from_columns(
        task=["t"] * 4, rollout=range(4), step=[0] * 4, state=["s"] * 4, reward=[0.0, 5.0, 1.0, 3.0]
    )
    assert Siblings(by=ByState(), of=ReturnToGo(gamma=1.0))(table) == [Pair(1, 0, 1.0, 5.0, 0, 0)]


def test_an_elastic_clip_says_where_it_acted() -> None:
    for advantage, sides in ((1.0, ("high", [False, False, True])), (-1.0, ("low", [True, False, False]))):
        tokens = from_ratios([0.5, 1.0, 1.5], advantage)
        tokens = replace(tokens, channels={"spread": tokens.logp.detach() * 0 + 0.5})
        clipped = ElasticClip()(tokens.logp.exp() / tokens.logp_old.exp(), tokens).clipped
        assert {side: where.tolist() for side, where in clipped.items() if where.any()} == dict([sides])


def test_a_regression_on_mean_log_ratios_and_what_it_reports() -> None:
    """Means 0.2 and -0.2, over the floor 0.5: 0.4 against a credit of 1, so it misses by 0.6 on both sides."""
    rows = columns(
        [-0.9, -0.7, -1.1, -1.3],
        old=[-1.0] * 4,
        advantage=[1.0, 1.0, -1.0, -1.0],
        sample=range(4),
        step=range(4),
        trajectory=[0, 0, 1, 1],
        group=[0] * 4,
    )
    result = learn(Regression(length="mean"), rows, num=4, trajectory=[0, 0, 1, 1])
    assert number(result.loss) == pytest.approx(0.36)
    assert gradient(result.loss, rows.logp) == pytest.approx([-0.6, -0.6, 0.6, 0.6])
    error = result.metrics["extra/regression_error"]
    assert (error.mean, error.count) == (pytest.approx(0.36), 4)
