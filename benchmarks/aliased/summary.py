"""From sums over worlds to shares with intervals: a setting by itself, and settings pooled.

Intervals are 95 %, by drawing the worlds of a setting anew; where settings are pooled, the same draw for all of them,
since the n-th world of every setting has the n-th seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.aliased.measure import DEPTHS, SUMS, Measured, name_blend
from groupwise.data.segments import FloatArray

RESAMPLES = 2000
DIGITS = 4
COLUMN = {name: number for number, name in enumerate(SUMS)}


def draw_weights(worlds: int, seed: int) -> FloatArray:
    """How often each world is drawn, once in the first row, then in every resample (1 + resamples, worlds)."""
    drawn = np.random.default_rng(seed).multinomial(worlds, np.full(worlds, 1 / worlds), size=RESAMPLES)
    return np.vstack([np.ones(worlds), drawn]).astype(np.float64)


def find_cosine(sums: FloatArray) -> FloatArray:
    """The cosine between credit and truth over steps: what is left of it when scale does not count."""
    square, truth, product = (sums[..., COLUMN[name]] for name in ("square", "truth", "product"))
    return np.asarray(product / np.sqrt(np.maximum(square * truth, 1e-300)))


def find_shares(sums: FloatArray) -> dict[str, float]:
    """Errors as shares of the squared true advantage, signs that agree, steps that were compared."""
    totals = dict(zip(SUMS, sums.tolist(), strict=True))
    bias = totals["bias"] * totals["steps"] / max(totals["met"], 1.0)
    shares = {
        "error": totals["error"] / totals["truth"],
        "bias": bias / totals["truth"],
        "variance": (totals["error"] - bias) / totals["truth"],
        "signs": totals["same_sign"] / max(totals["signed"], 1.0),
        "compared": totals["compared"] / totals["steps"],
    }
    return {name: round(share, DIGITS) for name, share in shares.items()}


def summarise_setting(measured: Measured, weights: FloatArray) -> dict[str, Any]:
    """Everything about one setting."""
    cosines = {name: find_cosine(weights @ rows) for name, rows in measured.credit.items()}
    return {
        "setting": measured.setting.to_json(),
        "success": round(float(np.mean(measured.success)), DIGITS),
        "credit": {
            name: {
                "cosine": to_interval(cosines[name]),
                "gain": to_interval(cosines[name] - cosines[_find_rival(name)]),
                **find_shares(rows.sum(axis=0)),
            }
            for name, rows in measured.credit.items()
        },
        "nested": {name: find_shares(rows.sum(axis=0)) for name, rows in measured.nested.items()},
        "foreseen": {name: _share_theory(rows) for name, rows in measured.foreseen.items()},
    }


def list_slices() -> dict[str, dict[str, Any]]:
    """Which settings are pooled, by what they have in common."""
    slices: dict[str, dict[str, Any]] = {}
    for window in (0, 2):
        policy = {"window": window}
        for size in (4, 8, 16, 64):
            common = {**policy, "rollouts": size, "passages": 1, "one_reply": False}
            slices[f"window {window}, {size} rollouts"] = common
        usual = {**policy, "rollouts": 8}
        for bits in (0, 1, 2, 3):
            slices[f"window {window}, {bits} hidden bits"] = {**usual, "hidden_bits": bits}
        for passages in (0, 1, 3):
            slices[f"window {window}, {passages} passages"] = {**usual, "passages": passages}
        for one_reply in (False, True):
            slices[f"window {window}, {'one reply' if one_reply else 'room told'}"] = {**usual, "one_reply": one_reply}
    return slices


def pool_gains(all_measured: Sequence[Measured], common: dict[str, Any], weights: FloatArray) -> dict[str, Any]:
    """By how much the cosine of one estimator is above another's, on average over the settings of a slice."""
    chosen = [
        measured
        for measured in all_measured
        if all(getattr(measured.setting, name) == wanted for name, wanted in common.items())
    ]
    cosines = {
        name: np.mean([find_cosine(weights @ measured.credit[name]) for measured in chosen], axis=0)
        for name in chosen[0].credit
    }
    gains = {f"{name} over {rival}": to_interval(cosines[name] - cosines[rival]) for name, rival in list_pairs()}
    return {
        "settings": len(chosen),
        "cosine": {name: round(float(cosine[0]), DIGITS) for name, cosine in cosines.items()},
        "gain": gains,
    }


def to_interval(resampled: FloatArray) -> list[float]:
    """The number itself, and the ends of its interval."""
    low, high = np.quantile(resampled[1:], [0.025, 0.975])
    return [round(float(number), DIGITS) for number in (resampled[0], low, high)]


def list_pairs() -> list[tuple[str, str]]:
    """The questions that are asked of pooled settings: whose credit is better than whose."""
    depths = [(name_blend(depth), name_blend(0)) for depth in DEPTHS[1:]]
    alphas = [(name_blend(depth, alpha), name_blend(depth)) for depth in (2, 4) for alpha in (0.0, 4.0)]
    scales = [(name_blend(depth, 1.0, "population"), name_blend(depth)) for depth in (0, 2)]
    kinds = [(name_blend(depth, 1.0, "population"), name_blend(depth, 1.0, "sample")) for depth in (0, 2)]
    scaled = [(name_blend(depth, 1.0, "population"), name_blend(0, 1.0, "population")) for depth in DEPTHS[1:]]
    return [*depths, *alphas, *scales, *kinds, *scaled, (name_blend(0), "grpo"), (name_blend(2), "grpo")]


def _find_rival(name: str) -> str:
    """What an estimator's gain is measured against: depth 0 with the same scale."""
    scale = name.rpartition(" ")[2] if name.startswith("depth") else "none"
    return name_blend(0, 1.0, scale)


def _share_theory(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """What theory foresees, as shares of the squared true advantage; company as a mean over worlds."""
    power = sum(row["power"] for row in rows)
    shares = {name: sum(row[name] for row in rows) / power for name in ("bias", "variance", "hidden", "own_noise")}
    shares["error"] = shares["bias"] + shares["variance"]
    shares["company"] = sum(row["company"] for row in rows) / len(rows)
    return {name: round(share, DIGITS) for name, share in shares.items()}
