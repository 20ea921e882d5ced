"""No example deserves an alarm: the default ones are silent over every update of every example.

The record has the curves of examples that were run whole (`python -m benchmarks.example_metrics`). The goldens have two
updates of every example, made small: looked at one by one, and not five at a time, they raise none either.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from benchmarks.example_metrics import digest_file
from groupwise.store.journal import Alarm
from groupwise.training.alarms import AlarmsConfig, RunHistory, list_raised
from groupwise.training.config.run_file import load_run
from groupwise.training.evaluation.summary import RunVerdict, make_verdict
from tests.equivalence.example_runs import EXAMPLES, FILES, name_of
from tests.equivalence.golden_files import WITHOUT_GOLDEN, read_golden
from tests.unit.evaluations import make_evaluated

RECORD = EXAMPLES.parent / "benchmarks" / "results" / "example_metrics.json"
CONTENT: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
RECORDED: dict[str, Any] = CONTENT["examples"]
RECORDING = "python -m benchmarks.example_metrics NAME --write benchmarks/results/example_metrics.json"
PAGE = EXAMPLES.parent / "docs" / "howto" / "alarms.md"


def raise_all(settings: AlarmsConfig, curves: dict[str, dict[int, float]], verdict: RunVerdict | None) -> list[Alarm]:
    """Every alarm over all updates that curves of metrics have."""

    def read(number: int) -> dict[str, float]:
        return {name: curve[number] for name, curve in curves.items() if number in curve}

    history = RunHistory(read, settings.window, verdict)
    last = max(max(curve) for curve in curves.values())
    return [alarm for number in range(last + 1) for alarm in list_raised(settings, history, number)]


def judge(evaluations: list[list[float]]) -> RunVerdict | None:
    """Evaluations as they were recorded: after which update, the mean over rollouts, and how many there were."""
    rows = [
        make_evaluated(number=int(number), task=f"t{task}", success=float(task < round(mean * num)))
        for number, mean, num in evaluations
        for task in range(int(num))
    ]
    return make_verdict(rows, "test") if rows else None


@pytest.mark.parametrize("name", RECORDED)
def test_an_example_that_was_run_whole_raises_no_alarm(name: str) -> None:
    path, recorded = EXAMPLES / f"{name}.toml", RECORDED[name]
    assert digest_file(path) == recorded["file"], f"it has changed since it was recorded: {RECORDING}"
    curves = {metric: {int(number): value for number, value in curve} for metric, curve in recorded["metrics"].items()}
    assert raise_all(load_run(path).alarms, curves, judge(recorded["evaluations"])) == []


def test_every_example_is_recorded_or_named_as_not_run_and_the_page_counts_them() -> None:
    examples = {name_of(path) for path in FILES}
    assert {*RECORDED, *CONTENT["missing"]} == examples, RECORDING
    assert not RECORDED.keys() & CONTENT["missing"].keys()
    assert f"{len(RECORDED)} of the {len(FILES)} [examples]" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", [path for path in FILES if name_of(path) not in WITHOUT_GOLDEN], ids=name_of)
def test_a_small_example_raises_no_alarm_though_each_update_is_looked_at(path: Path) -> None:
    metrics = read_golden(path)["journal"]["metrics"]
    curves = {name: {int(number): value for number, value in curve.items()} for name, curve in metrics.items() if curve}
    assert raise_all(AlarmsConfig(window=1), curves, None) == []


def test_the_record_would_show_a_limit_that_is_too_near() -> None:
    """Limits that some examples pass: the record holds what each alarm looks at."""
    near: dict[str, dict[str, float]] = {
        "entropy_collapse": {"below": 4.0, "share": 1.0, "solved": 1.0},
        "reference_kl": {"above": 0.1},
        "sampler_gap": {"above": 1e-8},
        "length_collapse": {"share": 1.0, "tokens": 0.0, "gain": 1.0},
        "cut_off": {"above": 0.0, "rise": 0.0},
        "truncated": {"above": 0.0, "rise": 0.0},
    }
    raised = {
        alarm.name
        for recorded in RECORDED.values()
        for alarm in raise_all(
            AlarmsConfig(**near),  # type: ignore[arg-type]
            {metric: {int(number): value for number, value in curve} for metric, curve in recorded["metrics"].items()},
            None,
        )
    }
    assert raised >= near.keys()
    assert all(
        math.isfinite(value) for recorded in RECORDED.values() for _, value in recorded["metrics"]["rollout/return"]
    )
