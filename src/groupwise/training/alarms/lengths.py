"""Alarms about the length of responses: growing or shrinking without more success."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.training.alarms.rule import AlarmRule, Amount, RunHistory, Share

LENGTH = "rollout/response_tokens"


class LengthGrowth(AlarmRule):
    """Responses grew far beyond what they were at the start, over both limits, without more success."""

    factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 2.0
    """So many times what they were at the start."""
    tokens: Amount = 16.0
    """Tokens more than at the start."""
    gain: Share = 0.05
    """Silent where success has risen by so much: longer thoughts may be what it took."""

    def describe(self, history: RunHistory, number: int) -> str | None:
        """What is to be said after an update."""
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
        """What is to be said after an update."""
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
