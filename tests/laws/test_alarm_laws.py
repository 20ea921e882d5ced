"""Laws of alarms: they see the past alone, speak once, and wider limits never make them speak more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from groupwise.store.journal import Alarm
from groupwise.training.alarms import (
    AlarmRule,
    AlarmsConfig,
    CutOff,
    EntropyCollapse,
    EntropyExplosion,
    FarFromReference,
    LengthCollapse,
    LengthGrowth,
    NoSignal,
    RunHistory,
    SamplerGap,
    list_raised,
)

AMOUNTS = {
    "rollout/entropy": 4.0,
    "rollout/success": 1.0,
    "rollout/response_tokens": 100.0,
    "rollout/cut_off": 1.0,
    "rollout/truncated": 1.0,
    "advantage/groups_with_signal": 1.0,
    "loss/kl_to_reference": 4.0,
    "loss/mismatch_size": 0.5,
}
"""Metrics that alarms look at, and how large they are."""

Curves = Sequence[Mapping[str, float]]


@st.composite
def draw_curves(draw: st.DrawFn) -> Curves:
    """The metrics of some updates; a metric may be missing, and is often at an end of its range."""

    def draw_update() -> dict[str, float]:
        shares = {name: draw(st.none() | st.sampled_from([0.0, 0.001, 0.3, 1.0]) | st.floats(0, 1)) for name in AMOUNTS}
        return {name: AMOUNTS[name] * share for name, share in shares.items() if share is not None}

    return [draw_update() for _ in range(draw(st.integers(1, 12)))]


def remember(curves: Curves, window: int) -> RunHistory:
    return RunHistory(lambda number: curves[number - 1] if 0 < number <= len(curves) else {}, window)


def raise_all(curves: Curves, settings: AlarmsConfig) -> list[Alarm]:
    history = remember(curves, settings.window)
    return [alarm for number in range(1, len(curves) + 1) for alarm in list_raised(settings, history, number)]


windows = st.integers(1, 4)


@given(draw_curves(), windows, st.integers(1, 11))
def test_what_comes_later_changes_no_alarm(curves: Curves, window: int, cut: int) -> None:
    settings = AlarmsConfig(window=window, no_signal=NoSignal(updates=2))
    early = raise_all(curves[:cut], settings)
    assert [alarm for alarm in raise_all(curves, settings) if alarm.number <= cut] == early


@given(draw_curves(), windows)
def test_an_alarm_is_silent_before_it_is_raised_and_looking_twice_is_looking_once(curves: Curves, window: int) -> None:
    settings, history = AlarmsConfig(window=window), remember(curves, window)
    for alarm in raise_all(curves, settings):
        rule = getattr(settings, alarm.name)
        assert rule.describe(history, alarm.number) == alarm.sentence
        assert rule.describe(history, alarm.number - 1) is None
        assert alarm in list_raised(settings, remember(curves, window), alarm.number)


@given(draw_curves(), windows)
def test_a_curve_that_does_not_move_has_neither_fallen_nor_risen(curves: Curves, window: int) -> None:
    settings = AlarmsConfig(window=window)
    still = {"entropy_collapse", "entropy_explosion", "length_growth", "length_collapse", "cut_off", "truncated"}
    names = {alarm.name for alarm in raise_all([curves[0]] * 12, settings)}
    assert not names & still


@given(draw_curves(), windows)
def test_an_alarm_that_is_off_says_nothing(curves: Curves, window: int) -> None:
    off = {name: {"action": "off"} for name, _ in AlarmsConfig().list_rules()}
    assert raise_all(curves, AlarmsConfig(window=window, **off)) == []  # type: ignore[arg-type]


PAIRS: list[tuple[AlarmRule, AlarmRule]] = [
    (EntropyCollapse(), EntropyCollapse(below=0.01)),
    (EntropyCollapse(), EntropyCollapse(share=0.05)),
    (EntropyCollapse(), EntropyCollapse(solved=0.5)),
    (EntropyExplosion(), EntropyExplosion(factor=3.0)),
    (EntropyExplosion(), EntropyExplosion(rise=2.0)),
    (EntropyExplosion(gain=0.2), EntropyExplosion(gain=0.1)),
    (FarFromReference(), FarFromReference(above=3.0)),
    (SamplerGap(), SamplerGap(above=0.3)),
    (LengthGrowth(), LengthGrowth(factor=3.0)),
    (LengthGrowth(), LengthGrowth(tokens=32)),
    (LengthCollapse(), LengthCollapse(share=0.1)),
    (LengthCollapse(), LengthCollapse(tokens=32)),
    (CutOff(), CutOff(above=0.7)),
    (CutOff(), CutOff(rise=0.5)),
    (NoSignal(updates=2), NoSignal(updates=4)),
    (NoSignal(updates=2), NoSignal(updates=2, solved=0.5)),
]
"""Rules, and the same with a limit that is farther away."""


@given(draw_curves(), windows, st.sampled_from(PAIRS))
def test_a_wider_limit_never_speaks_where_a_narrower_is_silent(
    curves: Curves, window: int, pair: tuple[AlarmRule, AlarmRule]
) -> None:
    narrow, wide = pair
    history = remember(curves, window)
    for number in range(1, len(curves) + 1):
        assert narrow.describe(history, number) or not wide.describe(history, number)
