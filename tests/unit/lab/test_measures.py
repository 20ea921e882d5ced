"""What is measured of credit: known errors come out as they were put in, and a planted bias is found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.data.segments import FloatArray
from groupwise.lab.measures import CreditError, measure_credit
from groupwise.lab.recording import Recording
from groupwise.system.errors import RecordError


def make_recording(
    *, updates: int = 60, visits: int = 12, situations: int = 10, actions: int = 3, seed: int = 0
) -> Recording:
    """Steps at situations in which each action is as likely as any other, with truths that sum to 0 there."""
    draw = np.random.default_rng(seed)
    truths = draw.standard_normal((situations, actions))
    truths -= truths.mean(axis=1, keepdims=True)
    situation = draw.integers(situations, size=updates * visits * situations)
    action = draw.integers(actions, size=len(situation))
    truth = truths[situation, action]
    return Recording(
        updates=(),
        truth=truth,
        truth_error=np.zeros_like(truth),
        point=situation * actions + action,
        situation=situation,
        update=np.repeat(np.arange(updates), visits * situations),
    )


RECORDING = make_recording()


def noise(seed: int = 1, recording: Recording = RECORDING) -> FloatArray:
    return np.random.default_rng(seed).standard_normal(len(recording.truth))


def by_situation(seed: int = 2, recording: Recording = RECORDING) -> FloatArray:
    offsets = np.random.default_rng(seed).standard_normal(int(recording.situation.max()) + 1)
    return offsets[recording.situation]


def is_within(measured: CreditError, name: str, expected: float) -> bool:
    number = getattr(measured, name)
    return bool(number.low <= expected <= number.high)


def test_the_truth_itself_has_no_error_in_any_unit() -> None:
    measured = measure_credit(7 * RECORDING.truth, RECORDING)
    assert measured.error.value == pytest.approx(0, abs=1e-12)
    assert measured.bias.value == pytest.approx(0, abs=1e-12)
    assert measured.scale.value == pytest.approx(1 / 7)
    assert measured.raw_error.value == pytest.approx(36)
    assert (measured.sign.value, measured.rank.value) == (1.0, pytest.approx(1.0))


def test_no_credit_explains_nothing_and_its_opposite_no_more() -> None:
    assert measure_credit(np.zeros_like(RECORDING.truth), RECORDING).error.value == 1.0
    opposite = measure_credit(-RECORDING.truth, RECORDING)
    assert (opposite.error.value, opposite.scale.value) == (1.0, 0.0)
    assert (opposite.sign.value, opposite.rank.value) == (0.0, pytest.approx(-1.0))


def test_noise_is_told_from_bias() -> None:
    size = float(np.sqrt(np.mean(RECORDING.truth**2)))
    measured = measure_credit(RECORDING.truth + 2 * size * noise(), RECORDING)
    assert is_within(measured, "bias", 0.0)
    assert is_within(measured, "noise", 4.0)
    assert is_within(measured, "error", 0.8)  # 1 - 1 / (1 + 4)


def test_a_planted_bias_is_found() -> None:
    """The credit of one action is turned around in half of the situations: no number of groups repairs that."""
    turned = np.where(RECORDING.situation % 2 == 0, -1.0, 1.0) * RECORDING.truth
    biased = measure_credit(0.5 * RECORDING.truth + turned + noise(), RECORDING)
    honest = measure_credit(1.5 * RECORDING.truth + noise(), RECORDING)
    for name in ("bias", "misdirection"):
        assert getattr(biased, name).low > 0.3
        assert is_within(honest, name, 0.0)
    assert biased.error.low > honest.error.high


def test_a_baseline_is_bias_but_leads_nowhere_else() -> None:
    measured = measure_credit(RECORDING.truth + by_situation() + noise(), RECORDING)
    assert measured.bias.low > 0.2
    assert is_within(measured, "misdirection", 0.0)


@given(scale=st.floats(0.01, 100), share=st.floats(0, 2), seed=st.integers(0, 100))
def test_error_is_what_the_best_scale_makes_of_bias_and_noise(scale: float, share: float, seed: int) -> None:
    credit = scale * (RECORDING.truth + share * by_situation(seed) + noise(seed))
    measured = measure_credit(credit, RECORDING)
    bias, chance = measured.bias.value, measured.noise.value
    assert measured.covered == 1.0
    assert measured.error.value == pytest.approx(1 - (1 - bias) ** 2 / (1 - bias + chance), abs=1e-9)
    same = measure_credit(credit / scale, RECORDING)
    assert measured.error.value == pytest.approx(same.error.value, abs=1e-9)
    assert measured.rank.value == pytest.approx(same.rank.value, abs=1e-9)


def test_the_error_of_an_estimated_truth_is_taken_off() -> None:
    """A truth that is off by 0.5 at each decision point, and says so, leads to the numbers of the exact one."""
    recording = make_recording(situations=400, visits=1, updates=40)
    off = 0.5 * np.random.default_rng(5).standard_normal(int(recording.point.max()) + 1)[recording.point]
    estimated = replace(recording, truth=recording.truth + off, truth_error=np.full_like(recording.truth, 0.5))
    credit = recording.truth + noise(recording=recording)
    exact, measured = measure_credit(credit, recording), measure_credit(credit, estimated)
    careless = measure_credit(credit, replace(estimated, truth_error=np.zeros_like(recording.truth)))
    assert measured.error.value == pytest.approx(exact.error.value, abs=0.06)
    assert measured.bias.value == pytest.approx(0, abs=0.06)
    assert careless.bias.value > 0.15


def test_credit_of_zero_counts_as_half_a_sign() -> None:
    half = np.where(RECORDING.update % 2 == 0, RECORDING.truth, 0.0)
    assert measure_credit(half, RECORDING).sign.value == pytest.approx(0.75)


def test_equal_truths_share_their_rank() -> None:
    two = replace(RECORDING, truth=np.sign(RECORDING.truth))
    assert measure_credit(np.sign(RECORDING.truth), two).rank.value == pytest.approx(1.0)


def test_only_steps_whose_truth_is_known_count() -> None:
    known = RECORDING.situation < 5
    some = replace(RECORDING, truth=np.where(known, RECORDING.truth, np.nan))
    credit = np.where(known, RECORDING.truth, 1e6)
    assert measure_credit(credit, some).error.value == pytest.approx(0, abs=1e-12)


def test_points_that_never_came_up_again_are_not_covered() -> None:
    fresh = replace(RECORDING, point=np.arange(len(RECORDING.point)))
    measured = measure_credit(RECORDING.truth + noise(), fresh)
    assert measured.covered == 0.0
    assert np.isnan(measured.bias.value)
    assert measured.error.value < 0.8


def test_a_recording_in_which_nothing_matters_is_refused() -> None:
    nothing = replace(RECORDING, truth=np.zeros_like(RECORDING.truth))
    with pytest.raises(RecordError, match="no true advantage in this recording differs significantly from 0"):
        measure_credit(noise(), nothing)


def test_centring_takes_part_of_the_truths_error_away() -> None:
    """With three actions in a situation a third of the error is gone, and with one all of it."""
    recording = make_recording(situations=400, visits=1, updates=40)
    is_alone = recording.situation % 2 == 0
    recording = replace(recording, point=np.where(is_alone, 3 * recording.situation, recording.point))
    truth = np.where(is_alone, 1.0, recording.truth)
    off = np.random.default_rng(5).standard_normal(int(recording.point.max()) + 1)[recording.point]
    estimated = replace(recording, truth=truth + off, truth_error=np.ones_like(truth))
    measured = measure_credit(truth + noise(recording=recording), estimated)
    assert measured.misdirection.value == pytest.approx(0, abs=0.15)


@pytest.mark.parametrize(("updates", "quantile"), [(2, 12.706), (5, 2.776), (20, 2.093)])
def test_the_quantile_is_that_of_the_number_of_blocks(updates: int, quantile: float) -> None:
    recording = make_recording(updates=updates)
    credit = recording.truth + noise(recording=recording)
    sign = measure_credit(credit, recording).sign
    agrees = np.sign(credit) == np.sign(recording.truth)
    without = np.array([agrees[recording.update != left_out].mean() for left_out in range(updates)])
    spread = np.sqrt((updates - 1) * without.var())
    assert (sign.high - sign.low) / 2 == pytest.approx(quantile * spread)


def test_an_interval_is_not_known_where_a_block_holds_all_the_truth() -> None:
    rare = replace(RECORDING, truth=np.where(RECORDING.update == 0, RECORDING.truth, 0.0))
    measured = measure_credit(RECORDING.truth + noise(), rare)
    assert np.isfinite(measured.error.value)
    assert np.isnan([measured.error.low, measured.error.high]).all()


def test_a_truth_of_the_size_of_rounding_is_none() -> None:
    with pytest.raises(RecordError, match="no true advantage in this recording differs significantly from 0"):
        measure_credit(noise(), replace(RECORDING, truth=8e-15 * RECORDING.truth))


def test_intervals_hold_the_error_of_an_estimated_truth() -> None:
    draw = np.random.default_rng(3)
    credit = RECORDING.truth + by_situation() + noise()
    exact = measure_credit(credit, RECORDING)
    for _ in range(5):
        off = 0.2 * draw.standard_normal(int(RECORDING.point.max()) + 1)[RECORDING.point]
        estimated = replace(RECORDING, truth=RECORDING.truth + off, truth_error=np.full_like(off, 0.2))
        measured = measure_credit(credit, estimated)
        assert is_within(measured, "bias", exact.bias.value)
        assert measured.bias.high - measured.bias.low > 2 * (exact.bias.high - exact.bias.low)
