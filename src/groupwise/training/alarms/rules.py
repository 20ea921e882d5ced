"""The alarms: entropy, distances between policies, lengths, shares of an update, and held-out success.

Each looks at one thing and has something to say where that passes all of its limits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from groupwise.evaluation.verdict import PanelScore
from groupwise.training.alarms.rule import SUCCESS, AlarmRule, Amount, Level, RunHistory, Share, format_share

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


class FarFromReference(AlarmRule):
    """The policy is far from the one that the run started from; only where the loss compares with it."""

    above: Amount = 2.0
    """Nats, mean over trained tokens."""

    def describe(self, history: RunHistory, number: int) -> str | None:
        """What is to be said after an update."""
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
        """What is to be said after an update."""
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
        """What is to be said after an evaluation."""
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
        """The last evaluations before."""
        return [score.number for score in history.scores if score.number < number][-history.window :]

    def _has_risen(self, then: Level, lately: Level) -> bool:
        return lately.value - then.value > self.rise + BEYOND_CHANCE * math.hypot(then.error, lately.error)

    def _has_fallen(self, best: PanelScore, now: PanelScore) -> bool:
        return now.value <= best.value - self.drop and now.interval[1] < best.interval[0]
