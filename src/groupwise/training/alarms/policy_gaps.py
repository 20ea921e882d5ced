"""Alarms about distances between policies: from the reference, and between who samples and who learns."""

from __future__ import annotations

from groupwise.training.alarms.rule import AlarmRule, Amount, RunHistory

TO_REFERENCE = "loss/kl_to_reference"
MISMATCH = "loss/mismatch_size"


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
