"""Alarms about entropy: a policy that stops exploring before it succeeds, and one that comes apart."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from groupwise.training.alarms.rule import SUCCESS, AlarmRule, Amount, RunHistory, Share, format_share

ENTROPY = "rollout/entropy"


class EntropyCollapse(AlarmRule):
    """Entropy fell to almost nothing while attempts still fail: what is left of it is below both limits."""

    below: Amount = 0.02
    """Nats, mean over sampled tokens."""
    share: Share = 0.1
    """Share of what it was at the start."""
    solved: Share = 0.8
    """Silent where so many attempts succeed: a policy that is right may be sure."""

    def describe(self, history: RunHistory, number: int) -> str | None:
        """What is to be said after an update."""
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
        """What is to be said after an update."""
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
