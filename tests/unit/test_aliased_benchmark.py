"""The study of depth: theory against enumeration and sampling, bias that is planted and found, and the same twice."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.aliased.__main__ import study
from benchmarks.aliased.dial import GAMMA, Setting, draw_worlds, list_settings
from benchmarks.aliased.measure import BY_STATE, DEPTHS, lay_out_groups, measure_setting, sum_squared_bias
from benchmarks.aliased.plot import draw_picture
from benchmarks.aliased.theory import foresee_level
from groupwise.lab import sample_rollouts, solve_exactly

RESULT = Path(__file__).parents[2] / "benchmarks" / "results" / "aliased.json"
SECOND = RESULT.with_name("aliased_seed_1.json")


def test_a_planted_bias_is_found_and_noise_is_not_taken_for_one() -> None:
    generator = np.random.default_rng(0)
    kind, group = generator.integers(0, 5, size=4000), np.repeat(np.arange(400), 10)
    planted = np.array([0.5, -0.3, 0.0, 0.2, 0.0])
    noise = generator.normal(size=4000) + 0.5 * generator.normal(size=400)[group]  # a group's errors go together
    squares, met = sum_squared_bias(planted[kind] + noise, kind, group)
    expected = float((planted[kind] ** 2).sum())
    assert met == 4000
    assert squares / 4000 == pytest.approx(expected / 4000, abs=0.02)
    assert sum_squared_bias(noise, kind, group)[0] / 4000 == pytest.approx(0.0, abs=0.01)
    assert sum_squared_bias(np.ones(3), np.arange(3), np.zeros(3, dtype=np.int64)) == (0.0, 0.0), "met once"


@pytest.mark.parametrize("window", [0, 2])
def test_what_is_hidden_never_grows_with_depth_and_is_the_variance_of_value(window: int) -> None:
    setting = Setting(hidden_bits=2, window=window)
    for world, policy in draw_worlds(setting, tasks=3, seed=1):
        levels = [foresee_level(world, policy, depth=depth, rollouts=8, gamma=GAMMA) for depth in (0, 1, 2)]
        assert levels[0].hidden >= levels[1].hidden >= levels[2].hidden > 0
        assert levels[0].company > levels[1].company > levels[2].company
        assert levels[0].power == pytest.approx(levels[2].power, abs=1e-12)
        assert levels[0].own_noise == pytest.approx(levels[2].own_noise, abs=1e-12)


def test_own_noise_and_power_are_those_of_many_rollouts() -> None:
    (world, policy), *_ = draw_worlds(Setting(hidden_bits=2), tasks=1, seed=0)
    level = foresee_level(world, policy, depth=0, rollouts=8, gamma=GAMMA)
    values = solve_exactly(world, policy, gamma=GAMMA)
    played = sample_rollouts(world, policy, rollouts=20_000, generator=np.random.default_rng(0))
    power = (values.advantages_of(played) ** 2).sum() / 20_000
    assert power == pytest.approx(level.power, rel=0.03)
    to_go = np.zeros_like(played.reward)
    later = np.zeros(len(played.length))
    for step in reversed(range(played.reward.shape[1])):
        later = to_go[:, step] = played.reward[:, step] + GAMMA * later
    groups = lay_out_groups(played, values.advantages_of(played), 20_000)
    rollout, step = np.nonzero(played.is_step)
    noise = to_go[rollout, step] - values.value[step, played.state[rollout, step]] - groups.truth  # R - Q
    assert (noise**2).sum() / 20_000 == pytest.approx(level.own_noise, rel=0.03)


def test_theory_foresees_what_is_measured() -> None:
    measured = measure_setting(Setting(hidden_bits=2, passages=0), tasks=3, rollouts=4000, seed=0)
    for name, rows in measured.credit.items():
        if name not in measured.foreseen:
            continue
        sums = rows.sum(axis=0)
        error, bias = sums[0] / sums[4], sums[1] / sums[2] * sums[8] / sums[4]
        power = sum(row["power"] for row in measured.foreseen[name])
        foreseen = [sum(row[part] for row in measured.foreseen[name]) / power for part in ("bias", "variance")]
        assert error == pytest.approx(sum(foreseen), rel=0.08)
        assert bias == pytest.approx(foreseen[0], rel=0.2, abs=0.03)
    assert set(measured.foreseen) == {BY_STATE, *(f"level {depth}" for depth in DEPTHS)}


def test_the_same_settings_give_the_same_numbers() -> None:
    settings = list_settings()[4::24]
    first, again = (study(settings, tasks=2, rollouts=64, seed=3, workers=1) for _ in range(2))
    assert len(settings) == 3
    assert first == again
    assert first["pooled"]["window 2, 0 hidden bits"]["settings"] == 1


def test_a_second_seed_agrees_as_often_as_the_page_says() -> None:
    first, second = (json.loads(path.read_text(encoding="utf-8")) for path in (RESULT, SECOND))
    pairs = [
        (gain, second["pooled"][name]["gain"][pair])
        for name, pooled in first["pooled"].items()
        if name.endswith("rollouts")
        for pair, gain in pooled["gain"].items()
    ]
    clear = [(gain, again) for gain, again in pairs if gain[1] > 0 or gain[2] < 0]
    agreeing = [(gain, again) for gain, again in clear if gain[0] * again[0] > 0]
    clear_again = [again for _, again in agreeing if again[1] > 0 or again[2] < 0]
    page = (RESULT.parents[2] / "benchmarks" / "pages" / "aliased.md").read_text(encoding="utf-8")
    assert f"of {len(pairs)} pooled differences by group size {len(clear)} had an interval without 0" in page
    assert f"all {len(agreeing)} had the same sign at seed 1, and {len(clear_again)} again" in page


def test_the_picture_is_that_of_the_result() -> None:
    drawn = (RESULT.parents[2] / "docs" / "images" / "aliased.svg").read_text(encoding="utf-8")
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    assert drawn == draw_picture(result)
    assert drawn.count("<polyline") == 12
    assert len(result["settings"]) == len(list_settings())
