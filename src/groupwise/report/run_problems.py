"""Why a run did not learn, from its metrics and evaluations, each with the setting to try."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from groupwise.data.records import Origin
from groupwise.report.number_format import format_compact, format_count, format_percent
from groupwise.report.overview import find_penalised_updates
from groupwise.report.paired_change import PairedChange
from groupwise.training.alarms import BEYOND_CHANCE, RETURN, SUCCESS, Level, RunHistory
from groupwise.training.run_reader import RunFolder

WINDOW = 5
"""Updates at the start and at the end of a run that are compared."""
MANY = 0.2
"""Fraction of broken rollouts or responses from which they are a problem."""
HALF = 0.5
"""Fraction of invalid actions from which they are a problem."""
MOST = 0.8
"""Fraction of rollouts that reach the step limit from which it is a problem."""
FEW = 0.1
"""Fraction of groups with a learning signal below which it is a problem."""
SOLVED = 0.95
"""Success from which there is little left to learn."""
EQUAL = 0.95
"""Fraction of equal evaluation rollouts from which the policy counts as unchanged."""
MAX_EQUAL_BY_CHANCE = 0.5
"""If more would be equal by chance, equal rollouts say nothing about the policy."""
OTHER_TASKS = "Raise rollout.group_size or rollout.temperature, or take tasks that are neither too easy nor too hard."


class RunProblem(NamedTuple):
    """A likely cause why a run did not learn."""

    name: str
    observed: str
    """What the run's numbers show."""
    remedy: str
    """The setting to try."""


def find_problems(folder: RunFolder, change: PairedChange | None) -> list[RunProblem]:
    """The likely causes, the most basic first; empty if the run learned.

    If it is too early to say whether it learns, only causes that are found are listed.
    """
    learned = has_learned(folder, change)
    if learned or not folder.updates:
        return []
    found = [
        *_find_broken_rollouts(folder),
        *_find_broken_responses(folder),
        *_find_missing_signal(folder),
        *(_find_unchanged_policy(folder, change) if change else ()),
        *(_find_results(folder, change) if change else ()),
    ]
    return found or ([] if learned is None else [_describe_unknown(folder, change)])


def has_learned(folder: RunFolder, change: PairedChange | None) -> bool | None:
    """Whether success rose significantly: in the evaluations, else in training; None = unknown, or too early."""
    if change is not None:
        return change.is_significant and change.value > 0
    trend = _find_trend(folder)
    return None if trend is None else _has_risen(*trend)


def _find_trend(folder: RunFolder) -> tuple[Level, Level] | None:
    """Success of the training rollouts, else their return, over the first and the last updates of a run."""
    last = max(folder.updates, default=0)
    history = RunHistory(folder.journal.metrics, WINDOW)
    for name in (SUCCESS, RETURN):
        start, recent = history.find_start(name, last), history.find_recent(name, last)
        if start is not None and recent is not None:
            return start, recent
    return None


def _has_risen(start: Level, recent: Level) -> bool:
    return recent.value - start.value > BEYOND_CHANCE * math.hypot(start.error, recent.error)


def _read_mean(folder: RunFolder, name: str) -> float | None:
    """The mean of a metric over all updates; None if there is none."""
    values = folder.metrics.get(name, {}).values()
    return sum(values) / len(values) if values else None


def _find_broken_rollouts(folder: RunFolder) -> Iterator[RunProblem]:
    faults = sum(folder.metrics.get("rollout/faults", {}).values())
    broken = faults / (faults + len(folder.rollouts)) if faults else 0.0
    if broken > MANY:
        yield RunProblem(
            "errors",
            f"{format_percent(broken)} of the rollouts ended with an error of the environment or the engine.",
            "Fix the environment: groupwise inspect shows the errors. If it is only slow, raise rollout.env_timeout.",
        )
    truncated, limit = _read_mean(folder, "rollout/truncated"), folder.setting("env.max_steps")
    if truncated is not None and truncated > MOST and (_read_mean(folder, SUCCESS) or 0.0) < MANY:
        named = f" (env.max_steps = {limit})" if limit else ""
        yield RunProblem(
            "step_limit",
            f"{format_percent(truncated)} of the rollouts were cut off at the step limit{named}.",
            "Raise env.max_steps, take tasks that need fewer steps, or begin with [warm_start].",
        )


def _find_broken_responses(folder: RunFolder) -> Iterator[RunProblem]:
    cut, well_formed, accepted = (
        _read_mean(folder, f"rollout/{name}") for name in ("cut_off", "well_formed", "accepted")
    )
    if cut is not None and cut > MANY:
        yield RunProblem(
            "cut_off",
            f"{format_percent(cut)} of the responses were cut off at rollout.max_tokens = "
            f"{folder.setting('rollout.max_tokens')}.",
            "Raise rollout.max_tokens, or ask for shorter responses in rollout.system.",
        )
    if well_formed is not None and 1 - well_formed > MANY:
        yield RunProblem(
            "malformed",
            f"{format_percent(1 - well_formed)} of the responses did not have the required format.",
            "Show the format in rollout.system, begin with [warm_start], or choose another rollout.action_parser.",
        )
    if accepted is not None and 1 - accepted > HALF:
        yield RunProblem(
            "invalid_actions",
            f"The environment rejected {format_percent(1 - accepted)} of the actions.",
            'List the possible actions (rollout.template.show_admissible = "yes"), or begin with [warm_start].',
        )


def _find_missing_signal(folder: RunFolder) -> Iterator[RunProblem]:
    signal, kept = _read_mean(folder, "advantage/groups_with_signal"), _read_mean(folder, "advantage/kept")
    if _read_mean(folder, "learner/pairs") == 0:
        yield RunProblem(
            "no_pairs", "No task had two rollouts with different scores, so the loss had no pairs.", OTHER_TASKS
        )
    elif signal is not None and signal < FEW:
        why, remedy = _explain_missing_signal(folder)
        groups = f"Only {format_percent(signal)} of the groups" if signal else "No group"
        yield RunProblem("no_signal", f"{groups} had a learning signal: {why}.", remedy)
    elif len(find_penalised_updates(folder)) > len(folder.updates) / 2:
        yield RunProblem(
            "penalties_alone",
            "In most updates no rollout got a reward, and penalties alone made the advantages.",
            "Take easier tasks, begin with [warm_start], or set algorithm.invalid_penalty to 0.",
        )
    if kept is not None and kept < FEW:
        yield RunProblem(
            "filtered",
            f"The filters kept only {format_percent(kept)} of the steps for training.",
            "Loosen algorithm.filters, or remove them.",
        )


def _explain_missing_signal(folder: RunFolder) -> tuple[str, str]:
    """Why the rollouts of a group do not differ, and what to try."""
    success = _read_mean(folder, SUCCESS)
    scores = {rollout["outcome"] for rollout in folder.rollouts if rollout["origin"] == Origin.FRESH}
    if folder.setting("rollout.group_size") == 1:
        return "each group has one rollout, so nothing is compared", "Set rollout.group_size to 4 or more."
    if success is not None and success >= SOLVED:
        return f"{format_percent(success)} of the training rollouts succeed", "Take harder tasks."
    if len(scores) == 1:
        return (
            f"all rollouts of the run have the same final score ({format_compact(*scores)})",
            "Take easier tasks, begin with [warm_start], or give rewards for parts of a task.",
        )
    succeed = "" if success is None else f", and {format_percent(success)} of them succeed"
    return f"the rollouts of a task have equal scores{succeed}", OTHER_TASKS


def _find_unchanged_policy(folder: RunFolder, change: PairedChange) -> Iterator[RunProblem]:
    """The weights changed, and the policy did not."""
    equal, has_gradient = (
        count_equal_rollouts(folder, change),
        any(folder.metrics.get("learner/grad_norm", {}).values()),
    )
    if equal and has_gradient:
        rate = folder.setting("training.learner.learning_rate")
        yield RunProblem(
            "unchanged_policy",
            f"The weights changed in {format_count(len(folder.updates), 'update')}, but the policy did not: {equal} "
            "evaluation rollouts have the same length and score as before training.",
            f"Raise training.learner.learning_rate{f' (now {rate})' if rate else ''} by a factor of 10, or lower the "
            "weight of a KL penalty.",
        )


def count_equal_rollouts(folder: RunFolder, change: PairedChange) -> str:
    """How many evaluation rollouts are equal before and after, as "238 of 240"; empty if the policy may have changed.

    Evaluations sample with the same seeds, so an unchanged policy gives equal rollouts. If most rollouts would be
    equal by chance, as when all of them reach the step limit, they show nothing.
    """
    first, last = (
        {
            (row.task, row.seed, row.rollout): (row.stop, row.steps, row.tokens, row.outcome)
            for row in folder.journal.evaluations(score.number)
            if row.split == score.name
        }
        for score in (change.before, change.after)
    )
    keys = sorted(first.keys() & last.keys())
    before, after = Counter(first[key] for key in keys), Counter(last[key] for key in keys)
    equal = sum(first[key] == last[key] for key in keys)
    by_chance = sum(num * after[kind] for kind, num in before.items()) / max(len(keys), 1)
    if equal < EQUAL * len(keys) or by_chance >= MAX_EQUAL_BY_CHANCE * len(keys):
        return ""
    return f"{equal:,} of {len(keys):,}"


def _find_results(folder: RunFolder, change: PairedChange) -> Iterator[RunProblem]:
    """What the evaluations show by themselves."""
    trend = _find_trend(folder)
    if change.is_significant:
        entropy = [value for _, value in sorted(folder.metrics.get("rollout/entropy", {}).items())]
        moved = f" from {format_compact(entropy[0])} to {format_compact(entropy[-1])} nats" if entropy else ""
        yield RunProblem(
            "worse",
            f"Training made the policy worse{f'; its entropy went{moved}' if moved else ''}.",
            "Lower training.learner.learning_rate, add a KL penalty, or take an earlier checkpoint.",
        )
    elif change.measure == "success" and change.before.value >= SOLVED:
        yield RunProblem("solved_before", "The policy solved the tasks before training.", "Take harder tasks.")
    elif trend is not None and _has_risen(*trend):
        start, recent = trend
        temperatures = " and ".join(
            f"{path} = {folder.setting(path)}" for path in ("evaluation.temperature", "rollout.temperature")
        )
        yield RunProblem(
            "training_only",
            f"The training rollouts improved from {format_compact(start.value)} ({start.over}) to "
            f"{format_compact(recent.value)} ({recent.over}), the held-out tasks did not.",
            f"Take more training tasks, and evaluate at the temperature of training (now {temperatures}).",
        )


def _describe_unknown(folder: RunFolder, change: PairedChange | None) -> RunProblem:
    remedy = "Raise training.updates or training.learner.learning_rate, and look at rollouts with groupwise inspect."
    if change is not None:
        remedy += f" More than {format_count(change.after.tasks, 'task')} (evaluation.tasks) show smaller changes."
    return RunProblem(
        "unknown", f"The metrics of {format_count(len(folder.updates), 'update')} show no known cause.", remedy
    )
