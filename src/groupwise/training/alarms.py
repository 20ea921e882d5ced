"""What a run is watched for: the section [alarms] of a run file, without torch."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from groupwise.parts.part import Part
from groupwise.store.checkpoint_files import find_latest_checkpoint
from groupwise.store.journal import Alarm, EvaluatedAttempt, Journal, SettingChange
from groupwise.store.run_folder import RunPaths
from groupwise.system.errors import FileError
from groupwise.training.evaluation.summary import PanelScore, RunVerdict, make_verdict

if TYPE_CHECKING:
    from groupwise.training.config.run_config import EvaluationConfig, RunConfig
    from groupwise.training.observer import ObserverList
    from groupwise.training.run import Run

_log = logging.getLogger(__name__)


# What alarms have in common: what is done about one, and what it sees of a run.
#
# A rule sees numbers that are in the journal and nothing else, so that a run that is killed and resumed raises the
# alarms of the one that never was, each once and at the same update.

SUCCESS = "rollout/success"
Share = Annotated[float, Field(ge=0, le=1)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True, kw_only=True)
class Level:
    """The mean of a metric over some updates in a row."""

    value: float
    """The mean over those that have the metric."""
    first: int
    last: int
    error: float
    """Standard error of the mean, from how much neighbouring updates differ: a steady way up is no chance."""

    @property
    def over(self) -> str:
        return f"update {self.last}" if self.first == self.last else f"updates {self.first} to {self.last}"


class RunHistory:
    """What a run came to so far, as alarms see it."""

    def __init__(
        self, read_metrics: Callable[[int], Mapping[str, float]], window: int, verdict: RunVerdict | None = None
    ) -> None:
        """Begin with what reads the metrics of an update, how many updates are averaged, and the evaluations."""
        self._read, self.window = read_metrics, window
        self._metrics: dict[int, Mapping[str, float]] = {}
        self.scores: Sequence[PanelScore] = verdict.scores if verdict else ()
        """The evaluations of the run's panel, by update."""
        self.is_success_known = verdict is None or verdict.measure == "success"
        """Whether they are shares of tasks that were solved; else they are mean outcomes."""

    def find_recent(self, name: str, number: int, updates: int | None = None) -> Level | None:
        """A metric over the updates up to one, as many as are averaged; None where there are fewer, or it has none."""
        size = updates or self.window
        return self._find_level(name, number - size + 1, number) if number >= size else None

    def find_start(self, name: str, number: int) -> Level | None:
        """A metric over the run's first updates; None as long as they are among the recent ones of an update."""
        return self._find_level(name, 1, self.window) if number >= 2 * self.window else None

    def find_around(self, name: str, number: int) -> Level | None:
        """A metric over the updates up to one, or over the run's first ones where there are no more before it."""
        last = max(number, self.window)
        return self._find_level(name, last - self.window + 1, last)

    def is_solved(self, number: int, share: float, updates: int | None = None) -> bool:
        """Whether so many of the recent attempts succeeded; never where the environment does not say."""
        success = self.find_recent(SUCCESS, number, updates)
        return success is not None and success.value >= share

    def has_gained(self, number: int, gain: float) -> bool:
        """Whether success is that much above what it was at the start; never where the environment does not say."""
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

    def _read_metrics(self, number: int) -> Mapping[str, float]:
        if number not in self._metrics:
            self._metrics[number] = self._read(number)
        return self._metrics[number]


class AlarmRule(Part):
    """Something to watch a run for."""

    action: Literal["off", "warn", "stop"] = "warn"
    """off = nothing is looked at; warn = a sentence; stop = a sentence, and the run ends with a checkpoint."""

    def describe(self, history: RunHistory, number: int) -> str | None:
        """What is to be said after an update, in a sentence; None where nothing is."""
        raise NotImplementedError

    def list_looks(self, history: RunHistory, number: int) -> Sequence[int]:
        """The updates before one after which it was looked, the last as many as are averaged.

        An alarm is raised where it was silent after all of them: what hovers at a limit is told once.
        """
        return range(max(number - history.window, 0), number)


def format_share(value: float) -> str:
    """A share in per cent.

    >>> format_share(0.375)
    '37.5 %'
    """
    return f"{100 * value:.3g} %"


# The alarms: entropy, distances between policies, lengths, shares of an update, and held-out success.
#
# Each looks at one thing and has something to say where that passes all of its limits.

ENTROPY = "rollout/entropy"
TO_REFERENCE = "loss/kl_to_reference"
MISMATCH = "loss/mismatch_size"
LENGTH = "rollout/response_tokens"
CUT_OFF = "rollout/cut_off"
TRUNCATED = "rollout/truncated"
SIGNAL = "credit/groups_with_signal"
RETURN = "rollout/return"
BEYOND_CHANCE = 2.0
"""Standard errors of a difference that chance makes once in some twenty times."""


class EntropyCollapse(AlarmRule):
    """Entropy fell to almost nothing while attempts still fail: what is left of it is below both limits."""

    below: Amount = 0.02
    """Nats, mean over sampled tokens."""
    share: Share = 0.1
    """Share of what it was at the start."""
    solved: Share = 0.8
    """Silent where so many attempts succeed: a policy that is right may be sure."""

    def describe(self, history: RunHistory, number: int) -> str | None:
        recent, start = history.find_recent(ENTROPY, number), history.find_start(ENTROPY, number)
        if recent is None or start is None or history.is_solved(number, self.solved):
            return None
        if recent.value >= self.below or recent.value >= self.share * start.value:
            return None
        success = history.find_recent(SUCCESS, number)
        failing = f" while {format_share(success.value)} of the attempts succeed" if success else ""
        return (
            f"entropy fell from {start.value:.3g} nats ({start.over}) to {recent.value:.3g} ({recent.over}){failing}, "
            "so that attempts at a task become alike and nothing is left to compare; lower "
            "training.learner.learning_rate, or begin a run with an entropy bonus, a KL penalty or a higher "
            "rollout.temperature"
        )


class EntropyExplosion(AlarmRule):
    """Entropy grew far beyond what it was at the start, over both limits, without more success."""

    factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 2.0
    """So many times what it was at the start."""
    rise: Amount = 1.0
    """Nats above what it was at the start."""
    gain: Share = 0.05
    """Silent where success has risen by so much."""

    def describe(self, history: RunHistory, number: int) -> str | None:
        recent, start = history.find_recent(ENTROPY, number), history.find_start(ENTROPY, number)
        if recent is None or start is None or history.has_gained(number, self.gain):
            return None
        if recent.value <= self.factor * start.value or recent.value <= start.value + self.rise:
            return None
        return (
            f"entropy grew from {start.value:.3g} nats ({start.over}) to {recent.value:.3g} ({recent.over}) without "
            "more success, so that the updates blur the policy; lower training.learner.learning_rate, or go back to an "
            "earlier checkpoint, and weigh an entropy bonus less"
        )


class FarFromReference(AlarmRule):
    """The policy is far from the one that the run started from; only where the loss compares with it."""

    above: Amount = 2.0
    """Nats, mean over trained tokens."""

    def describe(self, history: RunHistory, number: int) -> str | None:
        recent = history.find_recent(TO_REFERENCE, number)
        if recent is None or recent.value <= self.above:
            return None
        return (
            f"the KL divergence from the reference is {recent.value:.3g} nats a token ({recent.over}), more than "
            f"{self.above:g}, so that little is left of what the model could do before; lower "
            "training.learner.learning_rate, go back to an earlier checkpoint, or begin a run with a heavier KL penalty"
        )


class SamplerGap(AlarmRule):
    """Whoever samples and whoever learns give the same tokens other log-probs."""

    above: Amount = 0.2
    """Nats, mean distance of a token's log-probs."""

    def describe(self, history: RunHistory, number: int) -> str | None:
        recent = history.find_recent(MISMATCH, number)
        if recent is None or recent.value <= self.above:
            return None
        return (
            f"log-probs of engine and learner differ by {recent.value:.3g} nats a token ({recent.over}), more than "
            f"{self.above:g}, so that the policy which learns is not the one that acted; use one precision for both, "
            "lower rollout.max_age where attempts are played ahead, or begin a run whose loss corrects it "
            "(algorithm.loss.corrections)"
        )


class LengthGrowth(AlarmRule):
    """Responses grew far beyond what they were at the start, over both limits, without more success."""

    factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 2.0
    """So many times what they were at the start."""
    tokens: Amount = 16.0
    """Tokens more than at the start."""
    gain: Share = 0.05
    """Silent where success has risen by so much: longer thoughts may be what it took."""

    def describe(self, history: RunHistory, number: int) -> str | None:
        recent, start = history.find_recent(LENGTH, number), history.find_start(LENGTH, number)
        if recent is None or start is None or history.has_gained(number, self.gain):
            return None
        if recent.value <= self.factor * start.value or recent.value <= start.value + self.tokens:
            return None
        return (
            f"responses grew from {start.value:.3g} tokens ({start.over}) to {recent.value:.3g} ({recent.over}) "
            "without more success, so that the run pays for rambling; look at some with groupwise inspect, lower "
            "rollout.max_tokens, or begin a run with the reward overlong or a loss that counts every token alike"
        )


class LengthCollapse(AlarmRule):
    """Responses shrank to a fraction of what they were at the start, below both limits, without more success."""

    share: Share = 0.3
    """Share of what they were at the start."""
    tokens: Amount = 16.0
    """Tokens fewer than at the start."""
    gain: Share = 0.05
    """Silent where success has risen by so much: fewer words may be all that it takes."""

    def describe(self, history: RunHistory, number: int) -> str | None:
        recent, start = history.find_recent(LENGTH, number), history.find_start(LENGTH, number)
        if recent is None or start is None or history.has_gained(number, self.gain):
            return None
        if recent.value >= self.share * start.value or recent.value >= start.value - self.tokens:
            return None
        return (
            f"responses shrank from {start.value:.3g} tokens ({start.over}) to {recent.value:.3g} ({recent.over}) "
            "without more success, so that the policy may have given up thinking; look at some with groupwise "
            "inspect, lower training.learner.learning_rate, or begin a run whose rewards charge less for length"
        )


class RisenShare(AlarmRule):
    """A share that is large, and much larger than it was at the start."""

    above: Share = 0.5
    """The share."""
    rise: Share = 0.25
    """How much larger it is than at the start."""

    def find_rise(self, history: RunHistory, name: str, number: int) -> tuple[Level, Level] | None:
        """The share at the start and after an update; None where it is small or was no smaller."""
        recent, start = history.find_recent(name, number), history.find_start(name, number)
        if recent is None or start is None or recent.value <= self.above or recent.value <= start.value + self.rise:
            return None
        return start, recent


class CutOff(RisenShare):
    """Many responses come to be cut off by `rollout.max_tokens`."""

    def describe(self, history: RunHistory, number: int) -> str | None:
        risen = self.find_rise(history, CUT_OFF, number)
        if risen is None:
            return None
        start, recent = risen
        return (
            f"{format_share(recent.value)} of the responses were cut off at rollout.max_tokens ({recent.over}), after "
            f"{format_share(start.value)} at the start ({start.over}), so that answers are lost and what is blamed is "
            "length; raise rollout.max_tokens, lower training.learner.learning_rate, or begin a run with the reward "
            "overlong"
        )


class Truncated(RisenShare):
    """Many attempts come to be cut off by the environment's limit on steps."""

    def describe(self, history: RunHistory, number: int) -> str | None:
        risen = self.find_rise(history, TRUNCATED, number)
        if risen is None:
            return None
        start, recent = risen
        return (
            f"{format_share(recent.value)} of the attempts were cut off at the environment's limit on steps "
            f"({recent.over}), after {format_share(start.value)} at the start ({start.over}), so that the policy "
            "wanders instead of ending; look at some with groupwise inspect, and lower training.learner.learning_rate "
            "or go back to an earlier checkpoint"
        )


class NoSignal(AlarmRule):
    """For long, no group has any credit: its attempts all did equally well, and there is nothing to learn."""

    updates: Annotated[int, Field(ge=1)] = 20
    """Updates in a row."""
    solved: Share = 0.8
    """Silent where so many attempts succeed: then little is left to learn."""

    def describe(self, history: RunHistory, number: int) -> str | None:
        recent = history.find_recent(SIGNAL, number, self.updates)
        if recent is None or recent.value > 0 or history.is_solved(number, self.solved, self.updates):
            return None
        return (
            f"no group had any credit in {self.updates} updates ({recent.over}), since all attempts at a task did "
            "equally well, so that nothing is learnt; begin a run with easier tasks, a warm start, more attempts at "
            "each task (rollout.plan) or a method that recalls past ones"
        )


class RewardHacking(AlarmRule):
    """The training reward rises while held-out success falls, from the best evaluation so far to the latest.

    Only evaluations of the same tasks are compared. The fall counts where the 95 % intervals of both lie apart. The
    reward is the mean return of an attempt, averaged over the updates before an evaluation; its rise counts where it is
    more than the updates' own ups and downs.
    """

    drop: Share = 0.05
    """How far success has fallen on the evaluation's panel (the mean outcome, where nobody says what success is)."""
    rise: Amount = 0.0
    """By how much more than this the return has risen meanwhile."""

    def describe(self, history: RunHistory, number: int) -> str | None:
        now = next((score for score in history.scores if score.number == number), None)
        if now is None:
            return None
        # Another panel, such as one of more tasks, may be harder: that is no fall.
        before = [score for score in history.scores if score.number < number and score.panel == now.panel]
        if not before:
            return None
        best = max(before, key=lambda score: score.value)
        then, lately = (history.find_around(RETURN, score.number) for score in (best, now))
        if then is None or lately is None or not self._has_risen(then, lately) or not self._has_fallen(best, now):
            return None
        what, high, low = "the mean outcome", f"{best.value:.3g}", f"{now.value:.3g}"
        if history.is_success_known:
            what, high, low = "success", format_share(best.value), format_share(now.value)
        return (
            f"{what} on the {now.name} panel fell from {high} (after update {best.number}) to {low} (after update "
            f"{now.number}) while the training return rose from "
            f"{then.value:.3g} ({then.over}) to {lately.value:.3g} ({lately.over}), so that the policy learns what "
            f"pays and not what is wanted; look at what earns with groupwise inspect, take the checkpoint of update "
            f"{best.number}, and mend the rewards or train on more tasks"
        )

    def list_looks(self, history: RunHistory, number: int) -> Sequence[int]:
        return [score.number for score in history.scores if score.number < number][-history.window :]

    def _has_risen(self, then: Level, lately: Level) -> bool:
        return lately.value - then.value > self.rise + BEYOND_CHANCE * math.hypot(then.error, lately.error)

    def _has_fallen(self, best: PanelScore, now: PanelScore) -> bool:
        return now.value <= best.value - self.drop and now.interval[1] < best.interval[0]


class AlarmsConfig(Part):
    """What a run is watched for. Each alarm has an `action` (off, warn, stop) and limits of its own."""

    window: Annotated[int, Field(ge=1)] = 5
    """Updates that are averaged: the latest, and the run's first to compare them with."""
    entropy_collapse: EntropyCollapse = EntropyCollapse()
    """Entropy fell to almost nothing while attempts still fail."""
    entropy_explosion: EntropyExplosion = EntropyExplosion()
    """Entropy grew far beyond what it was, without more success."""
    reference_kl: FarFromReference = FarFromReference()
    """The policy is far from the one that the run started from."""
    sampler_gap: SamplerGap = SamplerGap()
    """Whoever samples and whoever learns give the same tokens other log-probs."""
    length_growth: LengthGrowth = LengthGrowth()
    """Responses grew far beyond what they were, without more success."""
    length_collapse: LengthCollapse = LengthCollapse()
    """Responses shrank to a fraction of what they were, without more success."""
    cut_off: CutOff = CutOff()
    """Many responses come to be cut off by `rollout.max_tokens`."""
    truncated: Truncated = Truncated()
    """Many attempts come to be cut off by the environment's limit on steps."""
    no_signal: NoSignal = NoSignal()
    """For long, no group has any credit."""
    reward_hacking: RewardHacking = RewardHacking()
    """The training reward rises while held-out success falls."""

    def list_rules(self) -> Iterator[tuple[str, AlarmRule]]:
        for name in type(self).model_fields:
            rule = getattr(self, name)
            if isinstance(rule, AlarmRule) and rule.action != "off":
                yield name, rule


# Which alarms are raised after an update, from the journal alone; what is due then, and whether it was the last.


def list_raised(
    settings: AlarmsConfig, history: RunHistory, number: int, changes: Iterable[SettingChange] = ()
) -> list[Alarm]:
    """The alarms that are raised after an update, by name: they have something to say then, and had nothing before.

    `changes` are the run's: one that is another since it was last looked at is raised where it has something to say.
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
    """Whether a rule was changed since it was last looked at, and would not have been raised then as it is now."""
    last = max(rule.list_looks(history, number), default=-1)
    is_changed = any(
        last <= change.number < number
        and (change.path == "alarms.window" or change.path.startswith(f"alarms.{name}."))
        # Whoever lets a stopped run go on has heard of it.
        and not (change.path.endswith(".action") and change.before == "stop")
        for change in changes
    )
    return is_changed and not (rule.describe(history, last) and _was_silent(rule, history, last))


def read_raised(journal: Journal, config: RunConfig, number: int) -> list[Alarm]:
    """The alarms that a run's settings raise after an update of its journal."""
    settings, split = config.alarms, config.evaluation.split
    is_evaluated = any(row.split == split for row in journal.evaluations(number))
    rows = [row for row in journal.evaluations() if row.number <= number] if is_evaluated else []
    verdict = make_verdict(rows, split) if rows else None
    return list_raised(settings, RunHistory(journal.metrics, settings.window, verdict), number, journal.changes())


def find_stop(journal: Journal, config: RunConfig, number: int) -> Alarm | None:
    """The alarm that ends a run after an update, by the settings that it is to go on with; None = it goes on."""
    return next((alarm for alarm in read_raised(journal, config, number) if alarm.action == "stop"), None)


def describe_going_on(alarm: Alarm) -> str:
    """How a run goes on that an alarm has stopped."""
    section = f"alarms.{alarm.name}"
    return f"to go on with --resume, give {section} other limits, or set {section}.action to warn or off"


class RunWatch:
    """Follows a run from update to update; everything that it knows is in the journal."""

    def __init__(self, run: Run, observer: ObserverList) -> None:
        self._run, self._observer = run, observer

    def is_due(self, number: int, every: int) -> bool:
        """Whether something is due after an update: every so many (0 = never in between), and always after the last."""
        is_last = number == self._run.config.training.updates
        is_regular = every > 0 and number % every == 0
        return is_last or is_regular or find_stop(self._run.journal, self._run.config, number) is not None

    def ends(self, number: int) -> bool:
        """Whether the run ends with an update that is not its last: an alarm stops it, or its patience is at its end.

        Patience: the evaluations that the run waited for were no better.
        """
        settings, journal = self._run.config.evaluation, self._run.journal
        if settings.patience and is_out_of_patience(journal.evaluations(), settings):
            return True
        return find_stop(journal, self._run.config, number) is not None

    def tell_alarms(self, number: int) -> None:
        """Write down and tell the alarms after an update, but for those that were told before an interruption."""
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


# How far a run's folder has come, without opening the run.


def is_finished(folder: Path, config: RunConfig) -> bool:
    """Whether nothing is left to do: the last update has its checkpoint, and its evaluation where one was asked for.

    The last update is the one that the settings name, or one at which the run's patience was at its end, or at which an
    alarm stops the run.
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
    except FileError:  # a damaged journal: going on says what can be done about it
        return False
    if last < updates and not is_stopped:
        return is_out_of_patience(rows, wanted)
    lacks_evaluation = (
        wanted.tasks and last <= updates and (last, wanted.split) not in {(row.number, row.split) for row in rows}
    )
    return not lacks_evaluation


# Which update's policy is the best, and when nothing better is to be waited for: from evaluations, without torch.
#
# The best has the highest success on the run's own panel; of equals it is the earliest.


def find_best_number(
    rows: Sequence[EvaluatedAttempt], settings: EvaluationConfig, among: Container[int] | None = None
) -> int | None:
    """After which update the policy did best on the run's panel, of equals the earliest; None = it was not played.

    `among` are the updates that count; None = all.
    """
    scores = [score for score in _list_scores(rows, settings) if among is None or score.number in among]
    return max(scores, key=lambda score: score.value).number if scores else None


def is_out_of_patience(rows: Sequence[EvaluatedAttempt], settings: EvaluationConfig) -> bool:
    """Whether the last evaluations, as many as the run has patience for, were all no better than one before."""
    best = find_best_number(rows, settings)
    if not settings.patience or best is None:
        return False
    return sum(score.number > best for score in _list_scores(rows, settings)) >= settings.patience


def _list_scores(rows: Sequence[EvaluatedAttempt], settings: EvaluationConfig) -> Sequence[PanelScore]:
    if not any(row.split == settings.split for row in rows):
        return ()
    return make_verdict(rows, settings.split).scores
