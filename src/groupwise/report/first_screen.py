"""The top of a run's page: the result, why a run did not learn, its main checks, and its own settings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from groupwise import methods
from groupwise.data.records import Origin
from groupwise.parts.part import Part, kind_of
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
from groupwise.report.overview import find_penalised_updates, find_sampling_success
from groupwise.report.paired_change import PairedChange, compare_evaluations
from groupwise.system.errors import ConfigError
from groupwise.training.alarms import BEYOND_CHANCE, RETURN, SUCCESS, Level, RunHistory
from groupwise.training.config.checks import list_notices
from groupwise.training.config.run_config import RunConfig
from groupwise.training.config.schema import read_field_sentences
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
        "checks": [_check_signal(folder), _check_weights(folder), _check_alarms(folder)] if folder.updates else [],
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


# Why a run did not learn, from its metrics and evaluations, each with the setting to try.

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
    remedy: str


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
            if row.name == score.name
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


# In which settings a run's algorithm differs from the defaults of its method.


@dataclass(frozen=True, kw_only=True)
class OwnSetting:
    """A setting that differs from the method's default."""

    path: str
    """Its path in a run file, such as `algorithm.loss.old`."""
    value: str
    default: str
    meaning: str
    """What the setting is, in one sentence; empty for an option of the method."""


def list_own_settings(folder: RunFolder) -> list[OwnSetting] | None:
    """The settings that differ; None if the run has no method to compare with, or its parts cannot be decoded here."""
    written, algorithm = folder.settings.get("made_by"), folder.find_algorithm()
    if not isinstance(written, Mapping) or algorithm is None:
        return None
    try:
        name = str(written.get("method"))
        defaults = methods.summary(name).options
        options = {key: value for key, value in written.items() if key in defaults}
        as_published = methods.build(name, **options)
    except ConfigError:  # a method of another version
        return None
    own = [
        OwnSetting(
            path=f"algorithm.{key}", value=describe_value(value), default=describe_value(defaults[key]), meaning=""
        )
        for key, value in options.items()
        if value != defaults[key]
    ]
    return own + list(find_different_fields(as_published, algorithm, "algorithm"))


def find_different_fields(default: Part, actual: Part, path: str) -> Iterator[OwnSetting]:
    """The fields in which two parts of one class differ; a part of another class is one difference."""
    for name in type(actual).model_fields:
        before, after = getattr(default, name), getattr(actual, name)
        if before == after:
            continue
        pairs = _pair_parts(before, after)
        if pairs is not None:
            for place, (one, other) in pairs.items():
                yield from find_different_fields(one, other, f"{path}.{name}{place}")
        else:
            yield OwnSetting(
                path=f"{path}.{name}",
                value=describe_value(after),
                default=describe_value(before),
                meaning=read_field_sentences(type(actual)).get(name, ""),
            )


def _pair_parts(before: object, after: object) -> dict[str, tuple[Part, Part]] | None:
    """Parts of equal classes to compare field by field, with their place in a list; None if there are none."""
    if isinstance(before, Part) and type(before) is type(after):
        return {"": (before, after)}
    if isinstance(before, tuple) and isinstance(after, tuple) and len(before) == len(after):
        pairs = list(zip(before, after, strict=True))
        if all(isinstance(one, Part) and type(one) is type(other) for one, other in pairs):
            return {f"[{place}]": pair for place, pair in enumerate(pairs)}
    return None


def describe_value(value: Any) -> str:
    """A setting in a few words.

    >>> from groupwise.losses import Kl
    >>> describe_value((Kl(weight=0.02),)), describe_value(()), describe_value(True)
    ('kl (weight 0.02)', 'none', 'true')
    """
    if value is None or value in ((), "", {}, []):
        return "none"
    if isinstance(value, Part):
        own = [
            f"{name.replace('_', ' ')} {describe_value(getattr(value, name))}"
            for name, field in type(value).model_fields.items()
            if getattr(value, name) != field.default
        ]
        kind = kind_of(type(value)).rpartition(":")[2]
        return f"{kind} ({', '.join(own)})" if own else kind
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {describe_value(inner)}" for key, inner in value.items())
    if isinstance(value, tuple | list):
        return ", ".join(map(describe_value, value))
    if isinstance(value, bool):
        return "true" if value else "false"
    return format_compact(value) if isinstance(value, int | float) else str(value)


def list_run_notices(folder: RunFolder) -> list[str]:
    """The notices that `groupwise train` printed about the settings, such as a difference to the publication."""
    try:
        notices = list_notices(RunConfig(**folder.settings))
    except ConfigError:  # a part that is not installed here, or not trusted
        return []
    return [notice if "." in notice.split()[0] else notice[0].upper() + notice[1:] for notice in notices]
