"""Preference losses against a reference, worked by hand: the specification's vectors."""

from __future__ import annotations

import math
from typing import Any

import pytest

from groupwise import ConfigError
from groupwise.data.samples import Pair, Totals
from groupwise.losses import PAIRS, REFERENCE_LOGP
from groupwise.methods.dpo import Dpo
from groupwise.methods.p3o import P3o
from groupwise.methods.rpo import Rpo
from groupwise.methods.step_apo import StepApo
from tests.unit.losses.token_rows import columns, gradient, number


def lose(
    loss: Any, pair: Pair, *, winner: tuple[float, float], loser: tuple[float, float], tokens: int = 1
) -> tuple[float, list[float]]:
    """The loss and its slopes of one pair: log-prob and what it is compared with, each spread over so many tokens."""
    logp, other = [], []
    for own, reference in (winner, loser):
        logp += [own / tokens] * tokens
        other += [reference / tokens] * tokens
    trajectory = [0] * tokens + [1] * tokens
    rows = columns(logp, old=other, ref=other, trajectory=trajectory, sample=range(2 * tokens), group=[0] * 2 * tokens)
    totals = Totals.count(
        tokens=[1] * 2 * tokens,
        trajectory=trajectory,
        step=range(2 * tokens),
        group=[0] * 2 * tokens,
        max_tokens=4,
        pairs=[pair],
    )
    result = loss(rows, totals, loss.first_pass(rows, totals))
    return number(result.loss), gradient(result.loss, rows.logp)


def test_dpo_tells_a_pair_apart() -> None:
    """beta 0.1, log-ratios 5 and -10: z = 1.5, -log sigmoid(1.5) = 0.201413, slope -0.1 sigmoid(-1.5)."""
    value, slopes = lose(Dpo(beta=0.1), Pair(0, 1), winner=(-120, -125), loser=(-150, -140), tokens=2)
    assert value == pytest.approx(math.log1p(math.exp(-1.5)), abs=1e-9)
    pull = 0.1 / (1 + math.exp(1.5))
    assert slopes == pytest.approx([-pull, -pull, pull, pull])


@pytest.mark.parametrize("per", ["weight", "pair"])
def test_where_a_run_starts_the_slope_is_half_of_beta(per: str) -> None:
    """Policy and reference are equal: z = 0, -log sigmoid(0) = log 2, slope -0.1 sigmoid(0)."""
    value, slopes = lose(Dpo(beta=0.1, per=per), Pair(0, 1), winner=(-1.0, -1.0), loser=(-2.0, -2.0))  # type: ignore[arg-type]
    assert value == pytest.approx(math.log(2))
    assert slopes == pytest.approx([-0.05, 0.05])
    _, slopes = lose(Rpo(beta=0.1, eta=0.03), Pair(0, 1), winner=(-1.0, -1.0), loser=(-2.0, -2.0))
    assert slopes == pytest.approx([-0.08, 0.05])


def test_rpo_gives_the_number_of_its_specification() -> None:
    """log pi / ref -120 / -125 and -150 / -140, 100 tokens: DPO 0.620957, and 0.005 x 1.2 of imitation."""
    sides = {"winner": (-120.0, -125.0), "loser": (-150.0, -140.0), "tokens": 100}
    assert lose(Rpo(eta=0.0), Pair(0, 1), **sides)[0] == pytest.approx(0.620957, abs=1e-6)
    assert lose(Rpo(), Pair(0, 1), **sides)[0] == pytest.approx(0.626957, abs=1e-6)


@pytest.mark.parametrize(
    ("alpha", "gap", "expected"), [(1.0, 1.0, 0.913015), (0.0, 1.0, 0.437488), (1.0, 0.3, 0.554355)]
)
def test_step_apo_gives_the_numbers_of_its_specification(alpha: float, gap: float, expected: float) -> None:
    """A gap of 2 between the log-ratios, Q = 0.6 and -0.4; without the margin; with Q scaled by 0.3."""
    value, _ = lose(StepApo(alpha=alpha), Pair(0, 1, gap=gap), winner=(-1.0, -2.0), loser=(-3.0, -2.0))
    assert value == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("weight", "expected"), [(1.0, 0.554355), (0.25, 0.138589)])
def test_a_pair_counts_by_its_weight_where_pairs_are_counted(weight: float, expected: float) -> None:
    """W-DPO, beta 0.1, a gap of 3 without a reference."""
    loss = Dpo(beta=0.1, reference=False, per="pair")
    assert lose(loss, Pair(0, 1, weight), winner=(-1.0, 9.0), loser=(-4.0, 9.0))[0] == pytest.approx(expected, abs=1e-6)
    alone = lose(Dpo(beta=0.1, reference=False), Pair(0, 1, weight), winner=(-1.0, 9.0), loser=(-4.0, 9.0))[0]
    assert alone == pytest.approx(0.554355, abs=1e-6)


def test_p3o_gives_the_numbers_of_its_specification() -> None:
    """Returns 1 and 0.4, log-ratios 0.3 and -0.1, width 0.2: -0.3 x 1.2 and 0.3 x 0.904837, together -0.088549."""
    pair, sides = Pair(0, 1, gap=0.6), {"winner": (-1.0, -1.3), "loser": (-2.0, -1.9)}
    value, slopes = lose(P3o(clip="separate"), pair, **sides)
    assert value == pytest.approx(-0.36 + 0.271451, abs=1e-6)
    assert slopes == pytest.approx([0.0, 0.271451], abs=1e-6)  # the winner is bounded, the loser is not
    # Joint: e^0.2 = 1.221403 is bounded to 1.2; D = 1 and was 0.6, bounded to 0.8: -0.3 x 1.2 x 0.8.
    value, slopes = lose(P3o(clip="joint"), pair, **sides)
    assert value == pytest.approx(-0.288, abs=1e-9)
    assert slopes == [0.0, 0.0]
    value, slopes = lose(P3o(clip="none"), pair, **sides)
    assert value == pytest.approx(-0.3 * 1.221403, abs=1e-6)
    assert slopes == pytest.approx([-0.366421, 0.366421], abs=1e-6)


def test_p3o_has_no_clip_unless_it_is_asked_for_one() -> None:
    assert P3o().clip == "none"


def test_equal_returns_move_nothing_under_p3o() -> None:
    for clip in ("separate", "joint", "none"):
        _, slopes = lose(P3o(clip=clip), Pair(0, 1, gap=0.0), winner=(-1.0, -1.3), loser=(-2.0, -1.9))
        assert slopes == [0.0, 0.0]


def test_a_pair_of_steps_leaves_the_other_steps_alone() -> None:
    rows = columns([-1.0, -2.0, -3.0], ref=[0.0] * 3, trajectory=[0, 0, 1], sample=range(3), step=[0, 1, 0])
    totals = Totals.count(
        tokens=[1] * 3,
        trajectory=[0, 0, 1],
        step=[0, 1, 0],
        group=[0] * 3,
        max_tokens=4,
        pairs=[Pair(0, 1, 1.0, 0.5, 1, 0), Pair(0, 1, 1.0, 0.5, 7, 0)],
    )
    assert totals.pairs == 1  # nothing trains at step 7
    loss = Dpo(beta=1.0)
    result = loss(rows, totals, loss.first_pass(rows, totals))
    assert number(result.loss) == pytest.approx(math.log1p(math.exp(-1.0)))
    pull = 1 / (1 + math.e)
    assert gradient(result.loss, rows.logp) == pytest.approx([0.0, -pull, pull])
    assert result.metrics["loss/pair_gap"].mean == pytest.approx(1.0)


def test_a_reference_is_asked_for_only_where_it_is_read() -> None:
    assert Dpo().needs == {PAIRS, REFERENCE_LOGP}
    assert Dpo(reference=False).needs == {PAIRS}


@pytest.mark.parametrize(
    ("part", "fields", "message"),
    [
        (Dpo, {"beta": 0.0}, "Dpo: beta: expected a number greater than 0, found 0.0"),
        (Rpo, {"eta": -1.0}, "Rpo: eta: expected a number greater than or equal to 0, found -1.0"),
        (P3o, {"clip": "both"}, "P3o: clip: expected 'separate', 'joint' or 'none', found 'both'"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused(part: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        part(**fields)
    assert str(caught.value) == message
