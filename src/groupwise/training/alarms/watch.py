"""Which alarms are raised after an update, from the journal alone, and whether one of them ends the run."""

from __future__ import annotations

from groupwise.core.journal.alarms import Alarm
from groupwise.core.journal.journal import Journal
from groupwise.evaluation.verdict import make_verdict
from groupwise.training.alarms.rule import RunHistory
from groupwise.training.alarms.settings import AlarmsConfig
from groupwise.training.run_config import RunConfig


def list_raised(settings: AlarmsConfig, history: RunHistory, number: int) -> list[Alarm]:
    """The alarms that are raised after an update, by name: they have something to say then, and had nothing before."""
    alarms = []
    for name, rule in sorted(settings.list_rules(), key=lambda named: named[0]):
        sentence = rule.describe(history, number)
        if sentence and not rule.describe(history, rule.find_previous(history, number)):
            alarms.append(Alarm(number=number, name=name, action=rule.action, sentence=sentence))
    return alarms


def read_raised(journal: Journal, config: RunConfig, number: int) -> list[Alarm]:
    """The alarms that a run's settings raise after an update of its journal."""
    settings, split = config.alarms, config.evaluation.split
    is_evaluated = any(row.split == split for row in journal.evaluations(number))
    rows = [row for row in journal.evaluations() if row.number <= number] if is_evaluated else []
    verdict = make_verdict(rows, split) if rows else None
    return list_raised(settings, RunHistory(journal.metrics, settings.window, verdict), number)


def find_stop(journal: Journal, config: RunConfig, number: int) -> Alarm | None:
    """The alarm that ends a run after an update, by the settings that it is to go on with; None = it goes on."""
    return next((alarm for alarm in read_raised(journal, config, number) if alarm.action == "stop"), None)


def describe_going_on(alarm: Alarm) -> str:
    """How a run goes on that an alarm has stopped."""
    section = f"alarms.{alarm.name}"
    return f"to go on with --resume, give {section} other limits, or set {section}.action to warn or off"
