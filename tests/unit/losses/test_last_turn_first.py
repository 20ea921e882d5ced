"""The last turn first: in which order turns come, what they carry on, and what is refused."""

from __future__ import annotations

import math

import pytest

from groupwise import ConfigError
from groupwise.losses import ClippedChannels, Kl, PolicyLoss, SequenceRatio
from groupwise.methods.dpo import Dpo
from groupwise.methods.seeupo import LastTurnFirst
from tests.unit.losses.token_rows import columns, totals


def test_the_numbers_of_the_specification() -> None:
    """M = 1.5; the last turn's summed log-ratio 0.03: 1.5457; the one before, -0.1: 1.3986."""
    rows = columns([-1.0, -1.0, -1.0], old=[-1.1, -0.93, -0.9], sample=[0, 0, 1], step=[1, 1, 0])
    last = columns([-1.0, -1.0], old=[-1.1, -0.93], sample=[0, 0], step=[1, 1])
    loss = LastTurnFirst()
    assert 1.5 * math.exp(float(loss.carry(last, totals(2)))) == pytest.approx(1.5457, abs=1e-4)
    assert 1.5 * math.exp(float(loss.carry(rows, totals(3)))) == pytest.approx(1.3986, abs=1e-4)


@pytest.mark.parametrize(("change", "factor"), [(3.0, 2.0), (-3.0, 0.5), (0.0, 1.0)])
def test_a_factor_is_bounded(change: float, factor: float) -> None:
    rows = columns([-1.0], old=[-1.0 - change])
    assert math.exp(float(LastTurnFirst().carry(rows, totals(1)))) == pytest.approx(factor)


@pytest.mark.parametrize(
    ("stages", "num_turns", "order"),
    [
        (8, 1, [[0]]),
        (8, 3, [[2], [1], [0]]),
        (2, 5, [[2, 3, 4], [0, 1]]),
        (3, 3, [[2], [1], [0]]),
        (1, 4, [[0, 1, 2, 3]]),
    ],
)
def test_turns_come_from_the_last_to_the_first(stages: int, num_turns: int, order: list[list[int]]) -> None:
    assert [list(turns) for turns in LastTurnFirst(stages=stages).order_turns(num_turns)] == order


def test_it_needs_what_the_loss_within_needs_and_whole_steps() -> None:
    loss = LastTurnFirst(of=PolicyLoss(penalties=(Kl(weight=0.1),)))
    assert loss.needs == {"old_logp", "reference_logp"}
    assert loss.unit == "step"


@pytest.mark.parametrize(
    ("of", "message"),
    [
        (Dpo(), "LastTurnFirst: of: Dpo has no ratios of turns to carry on; give a policy_loss"),
        (
            PolicyLoss(ratio=SequenceRatio(unit="trajectory")),
            "LastTurnFirst: of: it takes all turns of a rollout together, but here they are learned one after "
            'another; give a ratio of unit "step"',
        ),
        (
            PolicyLoss(surrogate=ClippedChannels(weights={"economy": 0.1})),
            "LastTurnFirst: of: it reads the channel 'economy', but only the advantage is corrected for turns that "
            "were learned before; give a loss without channels",
        ),
    ],
)
def test_what_cannot_be_carried_on_is_refused(of: object, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LastTurnFirst(of=of)  # type: ignore[arg-type]
    assert str(caught.value) == message
