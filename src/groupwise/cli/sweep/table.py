"""The table of a sweep: each arm over its seeds with intervals, and which arm does better; as text and as data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from groupwise.cli.terminal.screen import format_plain_percent, output, print_line

if TYPE_CHECKING:
    from groupwise.evaluation.over_seeds import Estimate
    from groupwise.reports.runs.results import ArmResult, Results
    from groupwise.sweeps.plan import SweepPlan

SCHEMA = 1
ENOUGH_SEEDS = 3
"""Seeds below which an interval says nothing: drawn anew, one seed is always itself."""
MIN_SEEDS = 2
"""Seeds below which there is no interval at all."""
NO_INTERVAL = {"low": None, "high": None}
MAX_MISSING = 5
"""How many missing runs a line names."""


def make_results_json(plan: SweepPlan, results: Results) -> dict[str, Any]:
    """The table as data, with what the command line chose for each arm, and the runs that are not in it."""
    content = asdict(results)
    choices = {arm.name: dict(arm.choices) for arm in plan.arms}
    for arm in content["arms"]:
        arm["choices"] = choices[arm["name"]]
        if len(arm["seeds"]) < MIN_SEEDS:
            arm["final"] |= NO_INTERVAL
            arm["best"] |= NO_INTERVAL
    for pair in content["improvements"]:
        if not pair.pop("has_interval"):
            pair["probability"] |= NO_INTERVAL
    return {"schema": SCHEMA, **content, "missing": list_missing(plan, results)}


def list_missing(plan: SweepPlan, results: Results | None) -> list[str]:
    """The runs of a plan that are not in its table."""
    counted = {(arm.name, seed.seed) for arm in results.arms for seed in arm.seeds} if results else set()
    return [f"{arm.name} seed {seed}" for arm in plan.arms for seed in plan.seeds if (arm.name, seed) not in counted]


def print_results(plan: SweepPlan, results: Results) -> None:
    """Print the table."""
    format_value = format_plain_percent if results.measure == "success" else _format_number
    print_line(
        f"{results.measure} on {results.tasks} tasks of split {results.split} (panel {results.panel[:12]}): "
        "interquartile mean over seeds [95 % interval]\n"
    )
    output().print(_make_table(results.arms, format_value))
    if results.improvements:
        print_line("\nprobability that a run of the first does better than one of the second, at the last evaluation:")
    for pair in results.improvements:
        words = _format_estimate(pair.probability, _format_number, has_interval=pair.has_interval)
        print_line(f"  {pair.arm} > {pair.over}:  {words}")
    few = [arm.name for arm in results.arms if len(arm.seeds) < ENOUGH_SEEDS]
    if few:
        print_line(f"\nan interval over fewer than {ENOUGH_SEEDS} seeds says nothing: {', '.join(few)}")
    missing = list_missing(plan, results)
    if missing:
        rest = f" and {len(missing) - MAX_MISSING} more" if len(missing) > MAX_MISSING else ""
        print_line(f"\nnot in the table, since they are not finished: {', '.join(missing[:MAX_MISSING])}{rest}")


def _make_table(arms: Sequence[ArmResult], format_value: Callable[[float], str]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("arm", style="bold")
    for name in ("seeds", "last", "best", "last, lowest to highest"):
        table.add_column(name, justify="right")
    for arm in arms:
        finals = [seed.final for seed in arm.seeds]
        spread = f"{format_value(min(finals))} to {format_value(max(finals))}"
        estimates = [
            _format_estimate(estimate, format_value, has_interval=arm.has_interval)
            for estimate in (arm.final, arm.best)
        ]
        table.add_row(escape(arm.name), str(len(arm.seeds)), *estimates, spread)
    return table


def _format_estimate(estimate: Estimate, format_value: Callable[[float], str], *, has_interval: bool) -> str:
    if not has_interval:
        return format_value(estimate.value)
    return f"{format_value(estimate.value)} [{format_value(estimate.low)}, {format_value(estimate.high)}]"


def _format_number(value: float) -> str:
    return f"{value:.3f}"
