"""Alarms about shares of an update: responses and attempts that a limit cut off, and groups that teach nothing."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.training.alarms.rule import AlarmRule, Level, RunHistory, Share, format_share

CUT_OFF = "rollout/cut_off"
TRUNCATED = "rollout/truncated"
SIGNAL = "credit/groups_with_signal"


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
        """What is to be said after an update."""
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
        """What is to be said after an update."""
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
        """What is to be said after an update."""
        recent = history.find_recent(SIGNAL, number, self.updates)
        if recent is None or recent.value > 0 or history.is_solved(number, self.solved, self.updates):
            return None
        return (
            f"no group had any credit in {self.updates} updates ({recent.over}), since all attempts at a task did "
            "equally well, so that nothing is learnt; begin a run with easier tasks, a warm start, more attempts at "
            "each task (rollout.plan) or a method that recalls past ones"
        )
