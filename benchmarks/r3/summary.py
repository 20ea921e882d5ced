"""Many runs in a few numbers, where every variant has sampled the same number of tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.r3.variants import BASELINE
from groupwise.training.evaluation.over_seeds import Estimate, estimate_improvement, estimate_interquartile_mean

POINTS = 5
"""Points of a curve after its beginning."""
MIN_SHARE = 0.75
"""Of its tokens that a run must have sampled to count; variants are compared where the one with fewest ended."""
MEASURED = ("success", "cut_off", "solve_none", "solve_all", "tokens_of_answer", "entropy")
"""What is told of held-out questions and of training ones."""

Record = Mapping[str, Any]


def summarise(records: Sequence[Record], variants: Sequence[str], tokens: float) -> dict[str, Any]:
    """Every variant at equal tokens, over the seeds that all variants have; runs that a clock stopped early are left
    out."""
    whole = [record for record in records if record["rows"][-1]["tokens"] >= MIN_SHARE * tokens]
    present = [variant for variant in variants if any(record["variant"] == variant for record in whole)]
    seeds_of = [{record["seed"] for record in whole if record["variant"] == variant} for variant in present]
    seeds = sorted(set.intersection(*seeds_of)) if seeds_of else []
    chosen = {(record["variant"], record["seed"]): record["rows"] for record in whole if record["seed"] in seeds}
    if not seeds:
        return {"seeds": [], "variants": {}}
    common = min(rows[-1]["tokens"] for rows in chosen.values())
    marks = [common * part / POINTS for part in range(POINTS + 1)]
    return {
        "seeds": seeds,
        "tokens": common,
        "marks": [round(mark) for mark in marks],
        "variants": {variant: _describe_variant(variant, chosen, seeds, marks) for variant in present},
    }


def _describe_variant(
    variant: str, chosen: Mapping[tuple[str, int], Sequence[Record]], seeds: Sequence[int], marks: Sequence[float]
) -> dict[str, Any]:
    runs, others = ([chosen[name, seed] for seed in seeds] for name in (variant, BASELINE))
    end = marks[-1]
    task_sets = {
        task_set: {
            name: _estimate([interpolate(_choose(rows, task_set), name, end) for rows in runs]) for name in MEASURED
        }
        for task_set in ("held_out", "training")
    }
    described: dict[str, Any] = {
        **task_sets,
        "curve": [_estimate([interpolate(rows, "success", mark) for rows in runs]) for mark in marks],
        "cut_curve": [_estimate([interpolate(rows, "cut_off", mark) for rows in runs]) for mark in marks],
        "by_seed": [round(interpolate(rows, "success", end), 4) for rows in runs],
        "updates": round(float(np.mean([interpolate(rows, "updates", end) for rows in runs])), 1),
        "seconds": round(float(np.mean([rows[-1]["seconds"] for rows in runs])), 1),
    }
    for task_set in () if variant == BASELINE else ("held_out", "training"):
        own, base = (
            [interpolate(_choose(rows, task_set), "success", end) for rows in several] for several in (runs, others)
        )
        more = [value - other for value, other in zip(own, base, strict=True)]
        better = estimate_improvement(np.array(own)[:, None], np.array(base)[:, None])
        described[f"{task_set}_against_{BASELINE}"] = {"more": _estimate(more), "improvement": _round(better)}
    return described


def _choose(rows: Sequence[Record], task_set: str) -> Sequence[Record]:
    """The rows of a run about a task set, with what was spent."""
    return rows if task_set == "held_out" else [{**row["training"], "tokens": row["tokens"]} for row in rows]


def interpolate(rows: Sequence[Record], name: str, mark: float) -> float:
    """A number of a run where it has sampled so much: between measurements, on the line that joins them.

    >>> interpolate([{"tokens": 0, "success": 0.2}, {"tokens": 100, "success": 0.6}], "success", 25)
    0.3
    """
    for before, after in pairwise(rows):
        if mark <= after["tokens"]:
            share = (mark - before["tokens"]) / (after["tokens"] - before["tokens"])
            return float(before[name] + share * (after[name] - before[name]))
    return float(rows[-1][name])


def _estimate(values: Sequence[float]) -> dict[str, Any]:
    """Interquartile mean over seeds (the mean of up to three), and its 95 % interval."""
    return _round(estimate_interquartile_mean(np.array(values)[:, None]))


def _round(estimate: Estimate) -> dict[str, Any]:
    return {"value": round(estimate.value, 4), "interval": [round(estimate.low, 4), round(estimate.high, 4)]}


def report(summary: Mapping[str, Any]) -> str:
    """A table a person can read."""
    if not summary["seeds"]:
        return "no seed has been finished by every variant yet"
    lines = [f"held out and training questions, at {summary['tokens']:,.0f} tokens, seeds: {len(summary['seeds'])}"]
    for variant, row in summary["variants"].items():
        out, own = row["held_out"], row["training"]
        low, high = out["success"]["interval"]
        lines.append(
            f"  {variant:<18} {out['success']['value']:.3f} [{low:.3f}, {high:.3f}]  {own['success']['value']:.3f}  "
            f"cut {out['cut_off']['value']:.3f}  none {own['solve_none']['value']:.3f}  all "
            f"{own['solve_all']['value']:.3f}  tokens {out['tokens_of_answer']['value']:.1f}  entropy "
            f"{out['entropy']['value']:.3f}  {row['updates']:.0f} updates  {row['seconds']:.0f} s"
        )
    return "\n".join(lines)
