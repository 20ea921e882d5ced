"""What is due after an update, which alarms are told, and whether the update was the last one."""

from __future__ import annotations

import logging

from groupwise.training.alarms.watch import describe_going_on, read_raised
from groupwise.training.checkpoints.best_update import is_out_of_patience
from groupwise.training.observer import RunObserver
from groupwise.training.run import Run

_log = logging.getLogger(__name__)


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
            if alarm.name not in written:
                self._run.lock.check()
                journal.write_alarms([alarm])
                self._observer.on_alarm(alarm)
            elif alarm.action == "stop":
                _log.warning("%s: %s; %s", self._run.folder, alarm.line, describe_going_on(alarm))

    def _is_stopped(self, number: int) -> bool:
        return any(alarm.action == "stop" for alarm in read_raised(self._run.journal, self._run.config, number))
