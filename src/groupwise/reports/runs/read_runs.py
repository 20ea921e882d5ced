"""Runs as they are compared: what a page of several needs of each, read once, and the arms that they belong to.

Runs of an arm differ in their seed, and in nothing that could change what is learnt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.core.parts.setting_paths import flatten_settings
from groupwise.evaluation.verdict import RunVerdict
from groupwise.reports.run.run_folder import RunFolder
from groupwise.reports.run.verdict import find_verdict

OWN_SETTINGS = ("seed", "threads", "device", "trackers", "made_by")
"""What runs of one arm may have each for itself."""
MAX_SETTINGS = 3
"""How many settings name an arm."""


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One run, as far as it is compared with others."""

    path: Path
    """Its folder."""
    seed: int | None
    """Its seed; None where its settings do not say."""
    method: str
    """What its algorithm is called."""
    settings: Mapping[str, Any]
    """All its settings."""
    verdict: RunVerdict | None
    """Its evaluations; None = there is none yet."""
    metrics: Mapping[str, Mapping[int, float]]
    """Every metric by name and update."""
    updates: Sequence[int]
    """Numbers of its updates."""

    @property
    def planned(self) -> int | None:
        """How many updates it is to make; None where its settings do not say."""
        training = self.settings.get("training")
        planned = training.get("updates") if isinstance(training, Mapping) else None
        return planned if isinstance(planned, int) else None


@dataclass(frozen=True, kw_only=True)
class ArmRuns:
    """Runs that differ in their seed only."""

    name: str
    """What they are called."""
    runs: tuple[RunRecord, ...]
    """The runs, by seed."""


def read_run(path: Path) -> RunRecord:
    """Read what is compared of a run; an error where the folder is none."""
    with RunFolder(path) as folder:
        seed = folder.setting("seed")
        return RunRecord(
            path=path,
            seed=seed if isinstance(seed, int) else None,
            method=folder.describe_method(),
            settings=folder.settings,
            verdict=find_verdict(folder),
            metrics=folder.metrics,
            updates=folder.updates,
        )


def make_arm(name: str, runs: Sequence[RunRecord]) -> ArmRuns:
    """An arm with its runs in the order of their seeds."""
    return ArmRuns(
        name=name, runs=tuple(sorted(runs, key=lambda run: (run.seed is None, run.seed or 0, str(run.path))))
    )


def group_runs(runs: Sequence[RunRecord]) -> list[ArmRuns]:
    """Put runs together that differ in their seed only, in the order in which they were given, and name them.

    An arm has its method's name, then the settings in which the arms differ; where these are many, its folders' names.
    """
    by_settings: dict[str, list[RunRecord]] = {}
    for run in runs:
        own = {name: value for name, value in run.settings.items() if name not in OWN_SETTINGS}
        by_settings.setdefault(repr(sorted(flatten_settings(own).items())), []).append(run)
    groups = list(by_settings.values())
    names = _name_groups(groups)
    return [make_arm(name, group) for name, group in zip(names, groups, strict=True)]


def _name_groups(groups: Sequence[Sequence[RunRecord]]) -> list[str]:
    methods = [group[0].method for group in groups]
    settings = [_flatten_beside_algorithm(group[0].settings) for group in groups]
    paths = dict.fromkeys(path for flat in settings for path in flat)
    differing = [path for path in paths if len({repr(flat.get(path)) for flat in settings}) > 1]
    if len(differing) <= MAX_SETTINGS:
        words = [" ".join(f"{path.rpartition('.')[2]}={flat.get(path)}" for path in differing) for flat in settings]
        names = [f"{method}, {own}" if own else method for method, own in zip(methods, words, strict=True)]
        if len(set(names)) == len(names):
            return names
    return [" + ".join(run.path.resolve().name for run in group) for group in groups]


def _flatten_beside_algorithm(settings: Mapping[str, Any]) -> dict[str, Any]:
    beside = {name: value for name, value in settings.items() if name not in (*OWN_SETTINGS, "algorithm")}
    return flatten_settings(beside)
