"""Two runs side by side: the settings that differ, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from groupwise.parts.part import flatten_settings
from groupwise.training.evaluation.summary import PanelScore, ScoreKind, make_verdict
from groupwise.training.run_reader import RunFolder


@dataclass(frozen=True, kw_only=True)
class SettingDifference:
    """A setting that two runs do not share."""

    path: str
    """Where it stands, such as `training.learner.learning_rate`."""
    first: Any
    """Its value in the first run; None = not set."""
    second: Any
    """Its value in the second run; None = not set."""


@dataclass(frozen=True, kw_only=True)
class MetricDifference:
    """A metric of two runs at one update."""

    name: str
    """The metric."""
    first: float
    """Its value in the first run."""
    second: float
    """Its value in the second run."""

    @property
    def change(self) -> float:
        """Second less first."""
        return self.second - self.first


@dataclass(frozen=True, kw_only=True)
class ScoreDifference:
    """The last evaluations of two runs on one split."""

    split: str
    """The panel's name."""
    first: PanelScore
    """Of the first run."""
    second: PanelScore
    """Of the second run."""
    measure: ScoreKind
    """What was measured."""
    is_one_panel: bool
    """Whether both played the same tasks; only then can they be compared."""


@dataclass(frozen=True, kw_only=True)
class Differences:
    """What differs between two runs."""

    settings: list[SettingDifference]
    """Settings, by path."""
    number: int | None
    """The last update that both have; None = there is none."""
    metrics: list[MetricDifference]
    """Metrics that both have at that update."""
    scores: list[ScoreDifference]
    """Evaluations on splits that both have."""


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
    """The settings that differ, by path; a part of another kind counts by its kind alone, as the rest must differ.

    How an algorithm was written makes no difference: its parts tell all.
    """
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
    for split in sorted({row.split for row in rows} & {row.split for row in others}):
        verdicts = [make_verdict(played, split) for played in (rows, others)]
        if verdicts[0].measure != verdicts[1].measure:
            continue
        panels = [
            {row.panel for row in played if row.split == split and row.number == verdict.after.number}
            for played, verdict in zip((rows, others), verdicts, strict=True)
        ]
        differences.append(
            ScoreDifference(
                split=split,
                first=verdicts[0].after,
                second=verdicts[1].after,
                measure=verdicts[0].measure,
                is_one_panel=panels[0] == panels[1],
            )
        )
    return differences
