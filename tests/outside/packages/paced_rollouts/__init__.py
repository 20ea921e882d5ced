"""A rollout plan of one's own: rollouts go where they tell most, and a task that all failed gets a second round."""

from __future__ import annotations

from groupwise.extend import Draw, Group, Part, PastRollouts, PlanTools, Played, RolloutRequest


class Paced(Part, slot="plan"):
    """More rollouts at tasks of middling success; a warmer, hinted second round where every rollout failed.

    rollouts(task) = group_size + round(4 p (1 - p) extra),   p = mean past score of the task, none = 0
    """

    extra: int = 4
    """Further rollouts at a task that is solved every other time."""
    hint: str = "try another word"
    """What the prompts of the second round begin with."""

    def words(self) -> tuple[str, ...]:
        """The words of the hint, for a tokenizer made from scratch."""
        return tuple(self.hint.split())

    def next(
        self,
        played: Played,
        wanted: int,
        *,
        group_size: int,
        tools: PlanTools,
        past_rollouts: PastRollouts,
        draw: Draw,
    ) -> list[RolloutRequest]:
        """First the curriculum's tasks, then those that nobody solved."""
        if not played.rounds:
            requests = []
            for task in tools.fresh(wanted):
                p = past_rollouts.mean_score(task.id, max_rollouts=16) or 0.0
                more = round(4 * p * (1 - p) * self.extra)
                requests.append(RolloutRequest(task=task, rollouts=group_size + more))
            return requests
        if len(played.rounds) > 1:
            return []
        failed = [group for group in played.groups if not any(rollout.scores["success"] for rollout in group)]
        return [
            RolloutRequest(
                task=group[0].task,
                rollouts=2,
                hint_text=self.hint,
                temperature=1.0 + float(draw("warmth", group[0].task.id).random()),
                joins="unhinted",
                loss_context="unhinted",
                why=f"all {len(group)} rollouts failed",
            )
            for group in failed
        ]

    def choose(self, played: Played, wanted: int) -> list[Group]:
        """All groups."""
        return [*played.groups, *played.hinted]
