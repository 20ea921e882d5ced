"""The alarms of a run: the section [alarms] of a run file. It needs no torch."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from groupwise.parts.part import Count, NotNegative, Part
from groupwise.store.checkpoint_files import find_latest_checkpoint
from groupwise.store.journal import Alarm, EvaluatedRollout, Journal, SettingChange
from groupwise.store.run_folder import RunPaths
from groupwise.system.errors import FileError
from groupwise.training.evaluation.summary import RunVerdict, TaskSetScore, make_verdict

if TYPE_CHECKING:
    from groupwise.training.config.run_config import EvaluationConfig, RunConfig
    from groupwise.training.observer import ObserverList
    from groupwise.training.run import Run

_log = logging.getLogger(__name__)


# A rule reads only the journal. A run that is killed and resumed therefore raises the same alarms, each once and at the
# same update, as a run that was never interrupted.

SUCCESS = "rollout/success"
Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True, kw_only=True)
class Level:
    """The mean of a metric over consecutive updates."""

    value: float
    """The mean over the updates that have the metric."""
    first: int
    last: int
    error: float
    """Standard error of the mean, from differences of neighbouring updates, so a trend does not count as noise."""

    @property
    def over(self) -> str:
        return f"update {self.last}" if self.first == self.last else f"updates {self.first} to {self.last}"


class RunHistory:
    """The metrics and evaluations of a run so far."""

    def __init__(
        self, read_metrics: Callable[[int], Mapping[str, float]], window: int, verdict: RunVerdict | None = None
    ) -> None:
        """`read_metrics` reads the metrics of an update; `window` is the number of updates to average."""
        self._read_metrics, self.window = cache(read_metrics), window
        self.scores: Sequence[TaskSetScore] = verdict.scores if verdict else ()
        """The evaluations on the run's task set, by update."""
        self.is_success_known = verdict is None or verdict.measure == "success"
        """Whether the scores are success rates; else they are mean final scores."""

    def find_recent(self, name: str, number: int, updates: int | None = None) -> Level | None:
        """A metric over the last updates up to `number`; None if there are too few, or none has the metric."""
        size = updates or self.window
        return self._find_level(name, number - size + 1, number) if number >= size else None

    def find_start(self, name: str, number: int) -> Level | None:
        """A metric over the run's first updates; None while these overlap with the recent ones."""
        return self._find_level(name, 1, self.window) if number >= 2 * self.window else None

    def is_solved(self, number: int, share: float, updates: int | None = None) -> bool:
        """Whether at least this fraction of the recent rollouts succeeded; False if success is not known."""
        success = self.find_recent(SUCCESS, number, updates)
        return success is not None and success.value >= share

    def has_gained(self, number: int, gain: float) -> bool:
        """Whether success rose by at least `gain` since the start; False if success is not known."""
        recent, start = self.find_recent(SUCCESS, number), self.find_start(SUCCESS, number)
        return recent is not None and start is not None and recent.value >= start.value + gain

    def _find_level(self, name: str, first: int, last: int) -> Level | None:
        metrics = [self._read_metrics(number) for number in range(first, last + 1)]
        values = [of_update[name] for of_update in metrics if name in of_update]
        if not values:
            return None
        jumps = [after - before for before, after in pairwise(values)]
        variance = sum(jump**2 for jump in jumps) / (2 * len(jumps)) if jumps else 0.0
        error = math.sqrt(variance / len(values))
        return Level(value=sum(values) / len(values), first=first, last=last, error=error)


class AlarmRule(Part):
    """A condition that raises an alarm."""

    action: Literal["off", "warn", "stop"] = "warn"
    """off = not checked; warn = a warning; stop = a warning, and the run ends with a checkpoint."""

    def describe(self, history: RunHistory, number: int) -> str | None:
        """The warning after an update; None if the condition does not hold."""
        raise NotImplementedError

    def list_looks(self, history: RunHistory, number: int) -> Sequence[int]:
        """Earlier updates to check: an alarm is raised only if the condition held after none of them.

        A metric that stays near a limit is therefore reported once.
        """
        return range(max(number - history.window, 0), number)


def format_share(value: float) -> str:
    """A fraction in per cent.

    >>> format_share(0.375)
    '37.5 %'
    """
    return f"{100 * value:.3g} %"


# The alarms. Each checks one condition, which holds if all of its limits are passed.

ENTROPY = "rollout/entropy"
LENGTH = "rollout/response_tokens"
RETURN = "rollout/return"
BEYOND_CHANCE = 2.0
"""A difference of so many standard errors occurs by chance in about one of twenty cases."""


class EntropyCollapse(AlarmRule):
    """Entropy fell below both limits while rollouts still fail."""

    below: NotNegative = 0.02
    """Nats, mean over sampled tokens."""
    share: Share = 0.1
    """Fraction of the entropy at the start."""
    solved: Share = 0.8
    """No alarm if at least this fraction of the rollouts succeeds: such a policy may be certain."""

    def describe(self, history: RunHistory, number: int) -> str | None:
        recent, start = history.find_recent(ENTROPY, number), history.find_start(ENTROPY, number)
        if recent is None or start is None or history.is_solved(number, self.solved):
            return None
        if recent.value >= self.below or recent.value >= self.share * start.value:
            return None
        success = history.find_recent(SUCCESS, number)
        failing = f" while {format_share(success.value)} of the rollouts succeed" if success else ""
        return (
            f"entropy fell from {start.value:.3g} nats ({start.over}) to {recent.value:.3g} ({recent.over}){failing}: "
            "the rollouts of a task become equal, and there is nothing to compare. Lower "
            "training.learner.learning_rate, or begin a run with an entropy bonus, a KL penalty or a higher "
            "rollout.temperature"
        )


class EntropyExplosion(AlarmRule):
    """Entropy grew above both limits without more success."""

    factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 2.0
    """Multiple of the entropy at the start."""
    rise: NotNegative = 1.0
    """Nats above the entropy at the start."""
    gain: Share = 0.05
    """No alarm if success rose by at least this much."""

    def describe(self, history: RunHistory, number: int) -> str | None:
        recent, start = history.find_recent(ENTROPY, number), history.find_start(ENTROPY, number)
        if recent is None or start is None or history.has_gained(number, self.gain):
            return None
        if recent.value <= self.factor * start.value or recent.value <= start.value + self.rise:
            return None
        return (
            f"entropy grew from {start.value:.3g} nats ({start.over}) to {recent.value:.3g} ({recent.over}) without "
            "more success: the policy becomes random. Lower training.learner.learning_rate, or go back to an earlier "
            "checkpoint, and lower the weight of an entropy bonus"
        )


class FarFromReference(AlarmRule):
    """The policy is far from the one that the run started from. Only if the loss compares with it."""

    above: NotNegative = 2.0
    """Nats, mean over trained tokens."""

    def describe(self, history: RunHistory, number: int) -> str | None:
        recent = history.find_recent("loss/kl_to_reference", number)
        if recent is None or recent.value <= self.above:
            return None
        return (
            f"the KL divergence from the reference is {recent.value:.3g} nats per token ({recent.over}), more than "
            f"{self.above:g}: the model may have lost earlier abilities. Lower training.learner.learning_rate, go back "
            "to an earlier checkpoint, or begin a run with a larger KL penalty"
        )


class SamplerGap(AlarmRule):
    """Engine and learner compute different log-probs for the same tokens."""

    above: NotNegative = 0.2
    """Nats, mean difference of the log-probs per token."""

    def describe(self, history: RunHistory, number: int) -> str | None:
        recent = history.find_recent("loss/mismatch_size", number)
        if recent is None or recent.value <= self.above:
            return None
        return (
            f"log-probs of engine and learner differ by {recent.value:.3g} nats per token ({recent.over}), more than "
            f"{self.above:g}: the learned policy is not the one that sampled. Use one precision for both, lower "
            "rollout.max_staleness if rollouts are sampled ahead, or begin a run with algorithm.loss.corrections"
        )


class LengthGrowth(AlarmRule):
    """Responses grew above both limits without more success."""

    factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 2.0
    """Multiple of the length at the start."""
    tokens: NotNegative = 16.0
    """Tokens more than at the start."""
    gain: Share = 0.05
    """No alarm if success rose by at least this much: longer responses may have been necessary."""

    def describe(self, history: RunHistory, number: int) -> str | None:
        recent, start = history.find_recent(LENGTH, number), history.find_start(LENGTH, number)
        if recent is None or start is None or history.has_gained(number, self.gain):
            return None
        if recent.value <= self.factor * start.value or recent.value <= start.value + self.tokens:
            return None
        return (
            f"responses grew from {start.value:.3g} tokens ({start.over}) to {recent.value:.3g} ({recent.over}) "
            "without more success. Look at some with groupwise inspect, lower rollout.max_tokens, or begin a run with "
            "the reward overlong or a loss that weights every token equally"
        )


class LengthCollapse(AlarmRule):
    """Responses became shorter than both limits without more success."""

    share: Share = 0.3
    """Fraction of the length at the start."""
    tokens: NotNegative = 16.0
    """Tokens fewer than at the start."""
    gain: Share = 0.05
    """No alarm if success rose by at least this much: shorter responses may be enough."""

    def describe(self, history: RunHistory, number: int) -> str | None:
        recent, start = history.find_recent(LENGTH, number), history.find_start(LENGTH, number)
        if recent is None or start is None or history.has_gained(number, self.gain):
            return None
        if recent.value >= self.share * start.value or recent.value >= start.value - self.tokens:
            return None
        return (
            f"responses shrank from {start.value:.3g} tokens ({start.over}) to {recent.value:.3g} ({recent.over}) "
            "without more success: the policy may no longer reason. Look at some with groupwise inspect, lower "
            "training.learner.learning_rate, or begin a run whose rewards punish length less"
        )


class RisenShare(AlarmRule):
    """A fraction that is large, and much larger than at the start."""

    above: Share = 0.5
    """The fraction."""
    rise: Share = 0.25
    """Its difference to the start."""

    def find_rise(self, history: RunHistory, name: str, number: int) -> tuple[Level, Level] | None:
        """The fraction at the start and now; None if a limit is not passed."""
        recent, start = history.find_recent(name, number), history.find_start(name, number)
        if recent is None or start is None or recent.value <= self.above or recent.value <= start.value + self.rise:
            return None
        return start, recent


class CutOff(RisenShare):
    """Many more responses than at the start are cut off by `rollout.max_tokens`."""

    def describe(self, history: RunHistory, number: int) -> str | None:
        risen = self.find_rise(history, "rollout/cut_off", number)
        if risen is None:
            return None
        start, recent = risen
        return (
            f"{format_share(recent.value)} of the responses were cut off at rollout.max_tokens ({recent.over}), after "
            f"{format_share(start.value)} at the start ({start.over}): answers are lost, and the policy learns from "
            "length alone. Raise rollout.max_tokens, lower training.learner.learning_rate, or begin a run with the "
            "reward overlong"
        )


class Truncated(RisenShare):
    """Many more rollouts than at the start are cut off by the environment's step limit."""

    def describe(self, history: RunHistory, number: int) -> str | None:
        risen = self.find_rise(history, "rollout/truncated", number)
        if risen is None:
            return None
        start, recent = risen
        return (
            f"{format_share(recent.value)} of the rollouts were cut off at the environment's step limit "
            f"({recent.over}), after {format_share(start.value)} at the start ({start.over}): the policy does not "
            "finish. Look at some with groupwise inspect, and lower training.learner.learning_rate or go back to an "
            "earlier checkpoint"
        )


class NoSignal(AlarmRule):
    """In many updates, no group has any advantage: all its rollouts have equal scores, so nothing is learned."""

    updates: Count = 20
    """Consecutive updates."""
    solved: Share = 0.8
    """No alarm if at least this fraction of the rollouts succeeds: then little is left to learn."""

    def describe(self, history: RunHistory, number: int) -> str | None:
        recent = history.find_recent("advantage/groups_with_signal", number, self.updates)
        if recent is None or recent.value > 0 or history.is_solved(number, self.solved, self.updates):
            return None
        return (
            f"no group had any advantage in {self.updates} updates ({recent.over}), because all rollouts of a task "
            "have equal scores: nothing is learned. Begin a run with easier tasks, a warm start, more rollouts per "
            "task (rollout.group_size) or a method that replays past ones"
        )


class RewardHacking(AlarmRule):
    """The training reward rises while held-out success falls, from the best evaluation so far to the latest.

    Only evaluations of the same tasks are compared. The fall counts if the 95 % intervals do not overlap. The reward is
    the mean return of a rollout, averaged over the updates before an evaluation; its rise counts if it is more than
    the noise between updates.
    """

    drop: Share = 0.05
    """Fall of success on the evaluation's tasks, or of the mean final score if success is not known."""
    rise: NotNegative = 0.0
    """The return rose by more than this."""

    def describe(self, history: RunHistory, number: int) -> str | None:
        now = next((score for score in history.scores if score.number == number), None)
        if now is None:
            return None
        # Another task set may be harder: that is no fall.
        before = [score for score in history.scores if score.number < number and score.task_set == now.task_set]
        if not before:
            return None
        best = max(before, key=lambda score: score.value)
        # Over the last updates up to an evaluation, or over the run's first ones if there are too few.
        then, lately = (history.find_recent(RETURN, max(score.number, history.window)) for score in (best, now))
        if then is None or lately is None:
            return None
        has_risen = lately.value - then.value > self.rise + BEYOND_CHANCE * math.hypot(then.error, lately.error)
        has_fallen = now.value <= best.value - self.drop and now.interval[1] < best.interval[0]
        if not (has_risen and has_fallen):
            return None
        what, high, low = "the mean final score", f"{best.value:.3g}", f"{now.value:.3g}"
        if history.is_success_known:
            what, high, low = "success", format_share(best.value), format_share(now.value)
        return (
            f"{what} on the {now.name} tasks fell from {high} (after update {best.number}) to {low} (after update "
            f"{now.number}) while the training return rose from "
            f"{then.value:.3g} ({then.over}) to {lately.value:.3g} ({lately.over}): the policy exploits the rewards. "
            f"Look at rewarded rollouts with groupwise inspect, take the checkpoint of update {best.number}, and fix "
            "the rewards or train on more tasks"
        )

    def list_looks(self, history: RunHistory, number: int) -> Sequence[int]:
        return [score.number for score in history.scores if score.number < number][-history.window :]


class AlarmsConfig(Part):
    """The alarms of a run. Each has an `action` (off, warn, stop) and its own limits."""

    window: Count = 5
    """Number of updates to average: the latest, and the run's first for comparison."""
    entropy_collapse: EntropyCollapse = EntropyCollapse()
    """Entropy fell to almost 0 while rollouts still fail."""
    entropy_explosion: EntropyExplosion = EntropyExplosion()
    """Entropy grew a lot without more success."""
    reference_kl: FarFromReference = FarFromReference()
    """The policy is far from the one that the run started from."""
    sampler_gap: SamplerGap = SamplerGap()
    """Engine and learner compute different log-probs for the same tokens."""
    length_growth: LengthGrowth = LengthGrowth()
    """Responses became much longer without more success."""
    length_collapse: LengthCollapse = LengthCollapse()
    """Responses became much shorter without more success."""
    cut_off: CutOff = CutOff()
    """Many more responses than at the start are cut off by `rollout.max_tokens`."""
    truncated: Truncated = Truncated()
    """Many more rollouts than at the start are cut off by the environment's step limit."""
    no_signal: NoSignal = NoSignal()
    """In many updates, no group has any advantage."""
    reward_hacking: RewardHacking = RewardHacking()
    """The training reward rises while held-out success falls."""

    def list_rules(self) -> Iterator[tuple[str, AlarmRule]]:
        for name in type(self).model_fields:
            rule = getattr(self, name)
            if isinstance(rule, AlarmRule) and rule.action != "off":
                yield name, rule


def list_raised(
    settings: AlarmsConfig, history: RunHistory, number: int, changes: Iterable[SettingChange] = ()
) -> list[Alarm]:
    """The alarms that are raised after an update: their condition holds now, and did not hold before.

    If the settings of an alarm changed since the last check (`changes`), it is raised again.
    """
    alarms, changes = [], list(changes)
    for name, rule in sorted(settings.list_rules(), key=lambda named: named[0]):
        sentence = rule.describe(history, number)
        if sentence and (_was_silent(rule, history, number) or _is_new(name, rule, history, number, changes)):
            alarms.append(Alarm(number=number, name=name, action=rule.action, sentence=sentence))
    return alarms


def _was_silent(rule: AlarmRule, history: RunHistory, number: int) -> bool:
    return not any(rule.describe(history, look) for look in rule.list_looks(history, number))


def _is_new(name: str, rule: AlarmRule, history: RunHistory, number: int, changes: Sequence[SettingChange]) -> bool:
    """Whether a rule was changed since the last check, and would not have been raised then as it is now."""
    last = max(rule.list_looks(history, number), default=-1)
    is_changed = any(
        last <= change.number < number
        and (change.path == "alarms.window" or change.path.startswith(f"alarms.{name}."))
        # A user who resumes a stopped run knows the alarm.
        and not (change.path.endswith(".action") and change.before == "stop")
        for change in changes
    )
    return is_changed and not (rule.describe(history, last) and _was_silent(rule, history, last))


def read_raised(journal: Journal, config: RunConfig, number: int) -> list[Alarm]:
    settings, name = config.alarms, config.evaluation.main
    is_evaluated = any(row.name == name for row in journal.evaluations(number))
    rows = [row for row in journal.evaluations() if row.number <= number] if is_evaluated else []
    verdict = make_verdict(rows, name) if rows else None
    return list_raised(settings, RunHistory(journal.metrics, settings.window, verdict), number, journal.changes())


def find_stop(journal: Journal, config: RunConfig, number: int) -> Alarm | None:
    """The alarm that stops the run after an update, by the present settings; None = it continues."""
    return next((alarm for alarm in read_raised(journal, config, number) if alarm.action == "stop"), None)


def describe_going_on(alarm: Alarm) -> str:
    """How to continue a run that an alarm stopped."""
    section = f"alarms.{alarm.name}"
    return f"to continue with --resume, give {section} other limits, or set {section}.action to warn or off"


class RunWatch:
    """Decides from the journal what is due after an update, and when the run ends."""

    def __init__(self, run: Run, observer: ObserverList) -> None:
        self._run, self._observer = run, observer

    def is_due(self, number: int, every: int) -> bool:
        """Whether something is due that comes every `every` updates (0 = never) and always after the last."""
        is_last = number == self._run.config.training.updates
        is_regular = every > 0 and number % every == 0
        return is_last or is_regular or find_stop(self._run.journal, self._run.config, number) is not None

    def ends(self, number: int) -> bool:
        """Whether the run ends early: an alarm stops it, or no evaluation got better within `evaluation.patience`."""
        settings, journal = self._run.config.evaluation, self._run.journal
        if settings.patience and is_out_of_patience(journal.evaluations(), settings):
            return True
        return find_stop(journal, self._run.config, number) is not None

    def tell_alarms(self, number: int) -> None:
        """Write and report the alarms after an update, except those that were reported before an interruption."""
        journal = self._run.journal
        written = {alarm.name for alarm in journal.alarms() if alarm.number == number}
        for alarm in read_raised(journal, self._run.config, number):
            is_unwritten = alarm.name not in written
            if is_unwritten:
                self._run.lock.check()
                journal.write_alarms([alarm])
                self._observer.on_alarm(alarm)
            is_unheard = not self._observer.hears("on_alarm") if is_unwritten else alarm.action == "stop"
            if is_unheard:
                going_on = f"; {describe_going_on(alarm)}" if alarm.action == "stop" else ""
                _log.warning("%s: %s%s", self._run.folder, alarm.line, going_on)


def is_finished(folder: Path, config: RunConfig) -> bool:
    """Whether a run's folder has the checkpoint of its last update, and the evaluation after it if one is set.

    Alarms and `evaluation.patience` can end a run before the last update of the settings.
    """
    paths, updates, wanted = RunPaths(folder), config.training.updates, config.evaluation
    latest = find_latest_checkpoint(paths.checkpoints)
    if latest is None:
        return False
    last = int(latest.name)
    try:
        with Journal(paths.journal, read_only=True) as journal:
            rows = [row for row in journal.evaluations() if row.number <= last]
            is_stopped = last < updates and find_stop(journal, config, last) is not None
    except FileError:  # a damaged journal: the resumed run reports it
        return False
    if last < updates and not is_stopped:
        return is_out_of_patience(rows, wanted)
    evaluated = {row.name for row in rows if row.number == last}
    return last > updates or wanted.by_name().keys() <= evaluated


def find_best_number(
    rows: Sequence[EvaluatedRollout], settings: EvaluationConfig, among: Container[int] | None = None
) -> int | None:
    """The update with the best evaluation on the run's task set, of equals the earliest; None = no evaluation.

    `among` are the updates that count; None = all.
    """
    scores = [score for score in _list_scores(rows, settings) if among is None or score.number in among]
    return max(scores, key=lambda score: score.value).number if scores else None


def is_out_of_patience(rows: Sequence[EvaluatedRollout], settings: EvaluationConfig) -> bool:
    """Whether the last `evaluation.patience` evaluations were no better than an earlier one."""
    best = find_best_number(rows, settings)
    if not settings.patience or best is None:
        return False
    return sum(score.number > best for score in _list_scores(rows, settings)) >= settings.patience


def _list_scores(rows: Sequence[EvaluatedRollout], settings: EvaluationConfig) -> Sequence[TaskSetScore]:
    if not any(row.name == settings.main for row in rows):
        return ()
    return make_verdict(rows, settings.main).scores
