"""The table of a sweep as data and as text: no interval where a variant has one seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupwise.cli.sweep import make_results_json, print_results
from groupwise.report.runs import group_runs, read_run, sum_up
from groupwise.training.sweep import SweepPlan, Variant
from tests.unit.report.several_runs import write_small_run


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_one_seed_has_no_interval(tmp_path: Path, seeds: tuple[int, ...], capsys: pytest.CaptureFixture[str]) -> None:
    folders = [
        write_small_run(tmp_path / f"{method}{seed}", seed=seed, method=method, wins={0: 1, 3: 2 + seed})
        for method in ("grpo", "rloo")
        for seed in seeds
    ]
    results = sum_up(group_runs([read_run(folder) for folder in folders]))
    assert results is not None
    variants = tuple(Variant(name=variant.name, choices={}, settings={}) for variant in results.variants)
    plan = SweepPlan(threads=1, seeds=seeds, variants=variants)
    content = make_results_json(plan, results)
    estimates = [variant[which] for variant in content["variants"] for which in ("final", "best")]
    estimates += [pair["probability"] for pair in content["improvements"]]
    assert len(estimates) == 5
    for estimate in estimates:
        assert (estimate["low"] is None, estimate["high"] is None) == (len(seeds) == 1,) * 2
        assert isinstance(estimate["value"], float)
    print_results(plan, results)
    table = capsys.readouterr().out.partition("\n\n")[2]
    assert ("[" in table) == (len(seeds) > 1)
