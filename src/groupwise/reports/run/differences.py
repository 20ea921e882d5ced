"""Two runs side by side: the settings that differ, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from groupwise.reports.run.run_folder import RunFolder
from groupwise.reports.run.verdict import Measure, Score, verdict_on


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
    first: Score
    """Of the first run."""
    second: Score
    """Of the second run."""
    measure: Measure
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


def compare(first: RunFolder, second: RunFolder) -> Differences:
    """Compare two runs."""
    common = set(first.updates) & set(second.updates)
    number = max(common) if common else None
    names = sorted(first.metrics.keys() & second.metrics.keys()) if number is not None else []
    return Differences(
        settings=setting_differences(first.settings, second.settings),
        number=number,
        metrics=[
            MetricDifference(name=name, first=first.metrics[name][number], second=second.metrics[name][number])
            for name in names
            if number is not None and number in first.metrics[name] and number in second.metrics[name]
        ],
        scores=_scores(first, second),
    )


def setting_differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[SettingDifference]:
    """The settings that differ, by path; a part of another kind counts by its kind alone, as the rest must differ."""
    found, other = flat_settings(first), flat_settings(second)
    paths = [*found, *(path for path in other if path not in found)]
    differing = [path for path in paths if found.get(path) != other.get(path)]
    replaced = [path.removesuffix("kind") for path in differing if path.endswith(".kind")]
    return [
        SettingDifference(path=path, first=found.get(path), second=other.get(path))
        for path in differing
        if not any(path.startswith(prefix) and path != f"{prefix}kind" for prefix in replaced)
    ]


def flat_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting by its path; tables in lists are numbered, lists of plain values are values.

    >>> flat_settings({"env": {"kind": "lake"}, "terms": [{"weight": 1.0}], "betas": [0.9, 0.99]})
    {'env.kind': 'lake', 'terms[0].weight': 1.0, 'betas': [0.9, 0.99]}
    """
    return dict(_flat(settings, ""))


def _flat(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(inner, Mapping) for inner in value):
        for number, inner in enumerate(value):
            yield from _flat(inner, f"{path}[{number}]")
    else:
        yield path, value


def _scores(first: RunFolder, second: RunFolder) -> list[ScoreDifference]:
    rows, others = first.journal.evaluations(), second.journal.evaluations()
    found = []
    for split in sorted({row.split for row in rows} & {row.split for row in others}):
        scores = [verdict_on(played, split) for played in (rows, others)]
        if scores[0].measure != scores[1].measure:
            continue
        panels = [
            {row.panel for row in played if row.split == split and row.number == score.after.number}
            for played, score in zip((rows, others), scores, strict=True)
        ]
        found.append(
            ScoreDifference(
                split=split,
                first=scores[0].after,
                second=scores[1].after,
                measure=scores[0].measure,
                is_one_panel=panels[0] == panels[1],
            )
        )
    return found
