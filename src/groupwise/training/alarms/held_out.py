"""The alarm about a training reward that rises while success on held-out tasks falls."""

from __future__ import annotations

from groupwise.evaluation.verdict import PanelScore
from groupwise.training.alarms.rule import AlarmRule, Amount, RunHistory, Share, format_share

RETURN = "rollout/return"


class RewardHacking(AlarmRule):
    """The training reward rises while held-out success falls, from the best evaluation so far to the latest.

    The fall counts where the 95 % intervals of both evaluations lie apart. The reward is the mean return of an attempt,
    averaged over the updates before an evaluation.
    """

    drop: Share = 0.05
    """How far success has fallen on the evaluation's panel (the mean outcome, where nobody says what success is)."""
    rise: Amount = 0.0
    """By how much more than this the return has risen meanwhile."""

    def describe(self, history: RunHistory, number: int) -> str | None:
        """What is to be said after an evaluation."""
        now = next((score for score in history.scores if score.number == number), None)
        before = [score for score in history.scores if score.number < number]
        if now is None or not before:
            return None
        best = max(before, key=lambda score: score.value)
        then, lately = (history.find_around(RETURN, score.number) for score in (best, now))
        if then is None or lately is None or lately.value <= then.value + self.rise or not self._has_fallen(best, now):
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

    def find_previous(self, history: RunHistory, number: int) -> int:
        """The evaluation before."""
        return max((score.number for score in history.scores if score.number < number), default=-1)

    def _has_fallen(self, best: PanelScore, now: PanelScore) -> bool:
        return now.value <= best.value - self.drop and now.interval[1] < best.interval[0]
