"""An attempt plan of one's own: attempts go where they tell most, and a task that all failed gets a second round."""

from __future__ import annotations

from groupwise.extend import AttemptRequest, Draw, Group, Part, PastAttempts, PlanTools, Played


class Paced(Part, slot="plan"):
    """More attempts at tasks of middling success; a warmer, guided second round where every attempt failed.

    attempts(task) = attempts + round(4 p (1 - p) extra),   p = mean past score of the task, none = 0
    """

    attempts: int = 2
    """Attempts that every task gets."""
    extra: int = 4
    """Further attempts at a task that is solved every other time."""
    hint: str = "try another word"
    """What the prompts of the second round begin with."""

    def words(self) -> tuple[str, ...]:
        """The words of the hint, for a tokenizer made from scratch."""
        return tuple(self.hint.split())

    def next(
        self, played: Played, wanted: int, *, tools: PlanTools, past_attempts: PastAttempts, draw: Draw
    ) -> list[AttemptRequest]:
        """First the curriculum's tasks, then those that nobody solved."""
        if not played.rounds:
            return [
                AttemptRequest(task=task, attempts=self._budget(past_attempts.mean_score(task.id, max_attempts=16)))
                for task in tools.fresh(wanted)
            ]
        if len(played.rounds) > 1:
            return []
        failed = [group for group in played.groups if not any(attempt.scores["success"] for attempt in group)]
        return [
            AttemptRequest(
                task=group[0].task,
                attempts=2,
                guidance_text=self.hint,
                temperature=1.0 + float(draw("warmth", group[0].task.id).random()),
                joins="unguided",
                loss_context="unguided",
                why=f"all {len(group)} attempts failed",
            )
            for group in failed
        ]

    def choose(self, played: Played, wanted: int) -> list[Group]:
        """All groups."""
        return [*played.groups, *played.guided]

    def _budget(self, success: float | None) -> int:
        share = success or 0.0
        return self.attempts + round(4 * share * (1 - share) * self.extra)
