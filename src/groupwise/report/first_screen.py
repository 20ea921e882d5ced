"""What stands at the top of a run's page: the result, why a run did not learn, and its main checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from groupwise.report.charts import draw_intervals
from groupwise.report.number_format import (
    INTERVAL_LEVEL,
    format_bounds,
    format_compact,
    format_count,
    format_percent,
    format_score,
    format_signed,
)
from groupwise.report.overview import find_sampling_success
from groupwise.report.own_settings import list_own_settings, list_run_notices
from groupwise.report.paired_change import PairedChange, compare_evaluations
from groupwise.report.run_problems import FEW, WINDOW, find_problems, has_learned
from groupwise.training.evaluation.summary import RunVerdict, describe_when
from groupwise.training.run_reader import RunFolder

MAX_ALARMS = 5
"""Alarms that are named at the top; the section on alarms has all."""
WORTH_SAYING = 0.1
"""Fraction of the advantages from groups with equal scores from which it is said."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One of the main checks of a run."""

    name: str
    words: str
    is_fine: bool | None
    """None = neither good nor bad."""


def show_first_screen(folder: RunFolder, verdict: RunVerdict | None) -> dict[str, Any]:
    """The content of the first screen."""
    change = compare_evaluations(folder.journal.evaluations(), verdict) if verdict else None
    scores = [] if verdict is None else [("after", verdict.after)]
    if verdict is not None and verdict.before is not None:
        scores.insert(0, ("before", verdict.before))
    is_share = verdict is not None and verdict.measure == "success"
    return {
        "sentence": write_result(folder, verdict, change),
        "test": write_test(change) if change else "",
        "scores": scores,
        "is_share": is_share,
        "plot": draw_intervals(scores, is_share=is_share) if scores else None,
        "problems": find_problems(folder, change),
        "problems_title": "What may keep the run from learning"
        if has_learned(folder, change) is None
        else "Why the run did not learn",
        "checks": list_checks(folder) if folder.updates else [],
        "own": list_own_settings(folder),
        "notices": list_run_notices(folder),
    }


def write_result(folder: RunFolder, verdict: RunVerdict | None, change: PairedChange | None) -> str:
    """The result in one sentence, with interval and seeds."""
    if verdict is None:
        return _describe_training(folder)
    is_share, last = verdict.measure == "success", change.after if change else verdict.after
    kind = "training" if verdict.split == "train" else "held-out"
    tasks = format_count(last.tasks, f"{kind} task")
    tries = "" if last.rollouts == last.tasks else f" ({format_count(last.rollouts, 'rollout')})"
    what = f"{'Success' if is_share else 'The mean final score'} on {tasks}{tries}"
    level, now = f"{INTERVAL_LEVEL}\N{NO-BREAK SPACE}CI", format_score(last.value, is_share)
    if change is None:
        bounds = format_bounds(last.interval, is_share)
        result = f"{what} is {now} {describe_when(last)} ({level} {bounds}, 1 seed)."
        if verdict.before is None:
            return f"{result} There is no second evaluation to compare with."
        return (
            f"{result} The evaluation {describe_when(verdict.before)} had other tasks, so the two are not comparable."
        )
    then = format_score(change.before.value, is_share)
    moved = f"{format_signed(100 * change.value, 1)} points" if is_share else format_signed(change.value)
    details = f"({moved}, {level} {format_bounds(change.interval, is_share)}, 1 seed)"
    if change.is_significant:
        return f"{what} {'rose' if change.value > 0 else 'fell'} from {then} to {now} {details}."
    if then == now:
        return f"{what} stayed at {now} {details}."
    return f"{what} went from {then} to {now} {details}. This is not significant."


def _describe_training(folder: RunFolder) -> str:
    """The result of a run that was never evaluated."""
    if not folder.updates:
        return "The run has no update yet: it has begun, or was stopped before its first update was saved."
    sampled = find_sampling_success(folder)
    advice = "To compare before and after, set evaluation.tasks."
    if sampled is None:
        return f"The run was not evaluated on held-out tasks, and its environment does not define success. {advice}"
    first, last = map(format_percent, sampled)
    updates = folder.updates
    went = f"is {last} at update {updates[-1]}" if len(updates) == 1 else f"went from {first} to {last}"
    return (
        f"Success of the training rollouts {went} (1 seed). The run was not evaluated on held-out tasks, and each "
        f"update has other tasks, so this is no result. {advice}"
    )


def write_test(change: PairedChange) -> str:
    p = "p < 0.001" if change.p_value < 0.001 else f"p = {format_compact(change.p_value)}"
    return (
        f"Paired permutation test over {format_count(change.after.tasks, 'task')}: {p}, so the change is "
        f"{'significant' if change.is_significant else 'not significant'}. The interval is for other tasks of this "
        "kind. It does not cover other seeds: groupwise sweep repeats a run with several."
    )


def list_checks(folder: RunFolder) -> list[Check]:
    """Learning signal, weight check and alarms."""
    return [_check_signal(folder), _check_weights(folder), _check_alarms(folder)]


def _check_signal(folder: RunFolder) -> Check:
    signal, name = sorted(folder.metrics.get("advantage/groups_with_signal", {}).items()), "Learning signal"
    if not signal:
        return Check(name=name, words="Not recorded.", is_fine=None)
    shares = [share for _, share in signal]
    mean = sum(shares) / len(shares)
    words = f"{format_percent(mean, 0)} of the groups had a learning signal"
    if len(shares) >= 2 * WINDOW:
        first, last = (format_percent(sum(part) / WINDOW, 0) for part in (shares[:WINDOW], shares[-WINDOW:]))
        words += f" (first {WINDOW} updates: {first}, last {WINDOW}: {last})"
    details = {
        "advantage/groups_rescued": "of the groups got it from replay, reward shaping or a hint",
        "advantage/zero_variance_groups": "of the absolute advantages come from groups with equal scores: only lengths "
        "or penalties differ there",
    }
    words += "."
    for metric, meaning in details.items():
        values = folder.metrics.get(metric, {}).values()
        if values and (share := sum(values) / len(values)) > WORTH_SAYING:
            words += f" {format_percent(share, 0)} {meaning}."
    return Check(name=name, words=words, is_fine=mean >= FEW)


def _check_weights(folder: RunFolder) -> Check:
    gaps, name = folder.metrics.get("weights/check_gap", {}).values(), "Weight check"
    if not gaps:
        return Check(name=name, words="Not recorded.", is_fine=None)
    syncs = "the weight sync" if len(gaps) == 1 else f"all {len(gaps):,} weight syncs"
    gap = max(gaps)
    differ = f"differ by at most {format_compact(gap)} nats" if gap else "are equal"
    return Check(name=name, words=f"Passed after {syncs}: the log-probs of engine and learner {differ}.", is_fine=True)


def _check_alarms(folder: RunFolder) -> Check:
    alarms = folder.journal.alarms()
    listed = [f"{alarm.name} after update {alarm.number}" for alarm in alarms[:MAX_ALARMS]]
    if len(alarms) > MAX_ALARMS:
        listed.append(f"{len(alarms) - MAX_ALARMS} more")
    return Check(name="Alarms", words=f"{', '.join(listed) or 'None'}.", is_fine=not alarms)
