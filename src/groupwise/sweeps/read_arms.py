"""The arms behind folders of runs and of sweeps, as a page of several runs shows them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from groupwise.core.errors import ConfigError, FileError
from groupwise.core.run_paths import SWEEP_PLAN, RunPaths
from groupwise.reports.runs.read_runs import ArmRuns, group_runs, make_arm, read_run
from groupwise.sweeps.plan import read_plan


def read_arms(folders: Sequence[Path]) -> list[ArmRuns]:
    """The arms of several folders: those of sweeps by their plans, other runs by what they have in common."""
    seen = [folder.resolve() for folder in folders]
    for folder in folders:
        if seen.count(folder.resolve()) > 1:
            raise ConfigError(f"{folder} is given twice; give each run once")
    sweeps = [folder for folder in folders if (folder / SWEEP_PLAN).is_file()]
    arms = [arm for folder in sweeps for arm in _read_sweep(folder, is_alone=len(sweeps) == 1)]
    arms += group_runs([read_run(folder) for folder in folders if folder not in sweeps])
    names = [arm.name for arm in arms]
    for arm in arms:
        if names.count(arm.name) > 1:
            raise ConfigError(f"two arms are called {arm.name!r}; report them one by one")
    return arms


def _read_sweep(folder: Path, *, is_alone: bool) -> list[ArmRuns]:
    """The arms of a sweep that have runs; among several sweeps with the sweep's name before their own."""
    plan = read_plan(folder)
    assert plan is not None, "a folder with a plan has a plan"
    arms = []
    for arm in plan.arms:
        begun = [
            run.folder
            for run in plan.list_runs(folder)
            if run.arm == arm.name and RunPaths(run.folder).journal.is_file()
        ]
        name = arm.name if is_alone else f"{folder.resolve().name}: {arm.name}"
        arms += [make_arm(name, [read_run(path) for path in begun])] if begun else []
    if not arms:
        raise FileError(f"{folder}: none of the sweep's runs has begun; go on with `groupwise sweep`, then report it")
    return arms
