"""Which alarms are raised after an update, from the journal alone; what is due then, and whether it was the last."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from groupwise.store.checkpoint_files import find_latest_checkpoint
from groupwise.store.journal import Alarm, EvaluatedAttempt, Journal, SettingChange
from groupwise.store.run_folder import RunPaths
from groupwise.system.errors import FileError
from groupwise.training.alarms import AlarmRule, AlarmsConfig, RunHistory
from groupwise.training.config.run_config import EvaluationConfig, RunConfig
from groupwise.training.evaluation.summary import PanelScore, make_verdict
from groupwise.training.observer import RunObserver, has_handler

if TYPE_CHECKING:
    from groupwise.training.run import Run

_log = logging.getLogger(__name__)


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

    def __init__(self, run: Run, observer: RunObserver) -> None:
        self._run, self._observer = run, observer

    def is_due(self, number: int, every: int) -> bool:
        """Whether something is due after an update: every so many (0 = never in between), and always after the last."""
        is_last = number == self._run.config.training.updates
        return is_last or (every > 0 and number % every == 0) or self._is_stopped(number)

    def ends(self, number: int) -> bool:
        """Whether the run ends with an update that is not its last: an alarm stops it, or its patience is at its end.

        Patience: the evaluations that the run waited for were no better.
        """
        settings = self._run.config.evaluation
        has_patience = not settings.patience or not is_out_of_patience(self._run.journal.evaluations(), settings)
        return self._is_stopped(number) or not has_patience

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
            is_unheard = not has_handler(self._observer, "on_alarm") if is_unwritten else alarm.action == "stop"
            if is_unheard:
                going_on = f"; {describe_going_on(alarm)}" if alarm.action == "stop" else ""
                _log.warning("%s: %s%s", self._run.folder, alarm.line, going_on)

    def _is_stopped(self, number: int) -> bool:
        return any(alarm.action == "stop" for alarm in read_raised(self._run.journal, self._run.config, number))


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
    lacks_evaluation = wanted.tasks and last <= updates and (last, wanted.split) not in _list_played(rows)
    return not lacks_evaluation


def _list_played(rows: Sequence[EvaluatedAttempt]) -> set[tuple[int, str]]:
    return {(row.number, row.split) for row in rows}


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
