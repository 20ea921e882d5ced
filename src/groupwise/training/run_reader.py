"""Read a run folder: its settings and its journal, without the trainer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from groupwise.envs.environment import EnvironmentPart
from groupwise.parts.algorithm import Algorithm
from groupwise.parts.outside import WITHOUT_TRUST
from groupwise.parts.part import Slot, check_may_open, flatten_settings
from groupwise.store.journal import Journal
from groupwise.store.run_folder import CONFIG, JOURNAL
from groupwise.system.errors import ConfigError, FileError
from groupwise.system.files import parse_toml, read_text_file
from groupwise.system.text import quote_line
from groupwise.training.evaluation.summary import ScoreKind, TaskSetScore, make_verdict

MAX_OPTIONS = 3
"""Largest number of options to list; more are counted."""
MAX_NAME = 80
"""Largest length of a method's name, and of its options."""
OWN_PARTS = "own parts"
"""The name of an algorithm that was written part by part."""
WHAT_TO_GIVE = "give the folder that `groupwise train --out FOLDER` wrote"


class RunFolder:
    """A run folder, open for reading; the run may continue meanwhile.

    If settings cannot be decoded (a part's package is not installed here), only what needs them fails.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        journal = path / JOURNAL
        if not journal.is_file():
            raise FileError(f"{path}: {_describe_mistake(path)}; {WHAT_TO_GIVE}")
        config = path / CONFIG
        try:
            self.config_text = read_text_file(config) if config.exists() else ""
            """The text of the settings; empty if there are none."""
        except (OSError, ValueError) as error:
            raise FileError(f"{config}: cannot be read ({error}); {WHAT_TO_GIVE}") from None
        try:
            self.settings = parse_toml(self.config_text)
            """The settings as plain data."""
        except ValueError as error:
            raise FileError(f"{config}: not valid TOML: {error}; {WHAT_TO_GIVE}") from None
        self.journal = Journal(journal, read_only=True)

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *raised: object) -> None:
        self.journal.close()

    @property
    def name(self) -> str:
        return self.path.resolve().name

    def find_method(self) -> tuple[str, str]:
        section = self.settings.get("algorithm")
        written = self.settings.get("made_by", section)
        if not isinstance(written, dict) or "method" not in written:
            return OWN_PARTS if isinstance(section, dict) else "a run", ""
        options = [f"{path} {value}" for path, value in flatten_settings(written).items() if path != "method"]
        note = ", ".join(options) if len(options) <= MAX_OPTIONS else f"{len(options)} settings of its own"
        return quote_line(str(written["method"]), limit=MAX_NAME), quote_line(note, limit=MAX_NAME)

    def describe_method(self) -> str:
        name, note = self.find_method()
        return f"{name} ({note})" if note else name

    def read_algorithm(self) -> Algorithm:
        """The run's algorithm; an error if it cannot be decoded here."""
        section = self.settings.get("algorithm")
        if not isinstance(section, dict):
            raise ConfigError(f"{self.path / CONFIG}: there is no section [algorithm]; {WHAT_TO_GIVE}")
        try:
            return Algorithm(**section)
        except ConfigError as error:
            raise ConfigError(f"{self.path / CONFIG}: {error.describe()}") from None

    def find_algorithm(self) -> Algorithm | None:
        """The algorithm, or None if it cannot be decoded here."""
        try:
            return self.read_algorithm()
        except ConfigError:
            return None

    def find_env(self) -> EnvironmentPart | None:
        """The environment, or None if it cannot be decoded here, or is not trusted."""
        try:
            return self._open_env()
        except ConfigError:
            return None

    def list_untrusted(self, *, with_env: bool = True) -> list[str]:
        """The parts that were not loaded without --trust, one sentence each."""
        reasons = []
        for load in (self.read_algorithm, self._open_env) if with_env else (self.read_algorithm,):
            try:
                load()
            except ConfigError as error:
                reasons += [error.describe()] if WITHOUT_TRUST in str(error) else []
        return reasons

    def _open_env(self) -> EnvironmentPart:
        part = Slot("env").fill(self.settings.get("env"))
        check_may_open(part)
        return part  # type: ignore[return-value] # the slot is filled by parts that follow this protocol

    @cached_property
    def metrics(self) -> dict[str, dict[int, float]]:
        """Every metric by name, and its finite values by update."""
        return {
            name: {number: value for number, value in self.journal.curve(name) if math.isfinite(value)}
            for name in self.journal.metric_names()
        }

    @cached_property
    def updates(self) -> list[int]:
        return self.journal.update_numbers()

    @cached_property
    def rollouts(self) -> list[dict[str, Any]]:
        """Every rollout of every update, without its steps."""
        return self.journal.rollouts()

    @cached_property
    def task_sets(self) -> dict[str, str]:
        """Hash of each task set when the run began, by split."""
        return self.journal.task_sets()

    @property
    def task_set_names(self) -> list[str]:
        """Names of the task sets that the settings evaluate, the main one first; empty if they do not say."""
        task_sets, split = self.setting("evaluation.task_sets"), self.setting("evaluation.split")
        if not isinstance(task_sets, list) or not task_sets:
            return [] if split is None else [str(split)]
        return [str(task_set["name"]) for task_set in task_sets if isinstance(task_set, dict) and "name" in task_set]

    def setting(self, path: str) -> Any:
        """A setting by its path, such as `training.tasks`; None if there is none."""
        value: Any = self.settings
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        return value


def _describe_mistake(path: Path) -> str:
    if not path.exists():
        return "there is no such folder"
    if not path.is_dir():
        return "not a folder"
    runs = sorted(journal.parent.name for journal in path.glob(f"*/{JOURNAL}"))
    if runs:
        return f"holds runs, but is not a run folder ({', '.join(runs[:8])}{', ...' if len(runs) > 8 else ''})"
    return f"not the folder of a run: it has no {JOURNAL}"


@dataclass(frozen=True, kw_only=True)
class SettingDifference:
    """A setting that differs between two runs."""

    path: str
    first: Any
    second: Any


@dataclass(frozen=True, kw_only=True)
class MetricDifference:
    """A metric of two runs at one update."""

    name: str
    first: float
    second: float

    @property
    def change(self) -> float:
        """Second less first."""
        return self.second - self.first


@dataclass(frozen=True, kw_only=True)
class ScoreDifference:
    """The last evaluations of two runs on one task set."""

    name: str
    first: TaskSetScore
    second: TaskSetScore
    measure: ScoreKind
    is_one_task_set: bool
    """Whether both have the same tasks; only then can they be compared."""


@dataclass(frozen=True, kw_only=True)
class Differences:
    """What differs between two runs."""

    settings: list[SettingDifference]
    number: int | None
    """The last update that both have; None = there is none."""
    metrics: list[MetricDifference]
    scores: list[ScoreDifference]


def compare_runs(first: RunFolder, second: RunFolder) -> Differences:
    common = set(first.updates) & set(second.updates)
    number = max(common) if common else None
    names = sorted(first.metrics.keys() & second.metrics.keys()) if number is not None else []
    return Differences(
        settings=find_setting_differences(first.settings, second.settings),
        number=number,
        metrics=[
            MetricDifference(name=name, first=first.metrics[name][number], second=second.metrics[name][number])
            for name in names
            if number is not None and number in first.metrics[name] and number in second.metrics[name]
        ],
        scores=_compare_scores(first, second),
    )


def find_setting_differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[SettingDifference]:
    """The settings that differ, by path, without `made_by`; of a part of another kind only the kind."""
    of_first, of_second = (
        flatten_settings({name: value for name, value in settings.items() if name != "made_by"})
        for settings in (first, second)
    )
    paths = [*of_first, *(path for path in of_second if path not in of_first)]
    differing = [path for path in paths if of_first.get(path) != of_second.get(path)]
    replaced = [path.removesuffix("kind") for path in differing if path.endswith(".kind")]
    return [
        SettingDifference(path=path, first=of_first.get(path), second=of_second.get(path))
        for path in differing
        if not any(path.startswith(prefix) and path != f"{prefix}kind" for prefix in replaced)
    ]


def _compare_scores(first: RunFolder, second: RunFolder) -> list[ScoreDifference]:
    rows, others = first.journal.evaluations(), second.journal.evaluations()
    differences = []
    for name in sorted({row.name for row in rows} & {row.name for row in others}):
        verdicts = [make_verdict(played, name) for played in (rows, others)]
        if verdicts[0].measure != verdicts[1].measure:
            continue
        task_sets = [
            {row.task_set for row in played if row.name == name and row.number == verdict.after.number}
            for played, verdict in zip((rows, others), verdicts, strict=True)
        ]
        differences.append(
            ScoreDifference(
                name=name,
                first=verdicts[0].after,
                second=verdicts[1].after,
                measure=verdicts[0].measure,
                is_one_task_set=task_sets[0] == task_sets[1],
            )
        )
    return differences
