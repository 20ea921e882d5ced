"""Small runs whose plan says in each round what a test wants."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from groupwise.parts.part import Part
from groupwise.parts.slots import Draw
from groupwise.rollout.plans import Group, PlanTools, Played, RolloutRequest
from groupwise.store.rollout_index import PastRollouts
from groupwise.training.open_run import open_run
from groupwise.training.run import Run
from tests.unit.training.runs import small_config

Asked = Callable[[Played, PlanTools], list[RolloutRequest]]


class Asking(Part, slot="plan"):
    """A plan that asks for what the function `ask` says, and chooses all groups."""

    ask: ClassVar[Asked]

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
        return type(self).ask(played, tools)

    def choose(self, played: Played, wanted: int) -> list[Group]:
        return [*played.groups, *played.hinted]

    def words(self) -> tuple[str, ...]:
        return ("try", "harder")


def open_planned_run(folder: Path, ask: Asked, *, max_tokens: int = 3, **algorithm: Any) -> Run:
    """A run over two words to repeat, whose plan asks what the function says."""
    config = small_config(updates=2)

    class Mine(Asking, slot="plan"):
        pass

    Mine.ask = staticmethod(ask)
    rollout = config.rollout.model_copy(update={"plan": Mine(), "max_tokens": max_tokens})
    changes = {"rollout": rollout, "algorithm": config.algorithm.model_copy(update=algorithm)}
    return open_run(config.model_copy(update=changes), folder)


def once(*requests: Callable[[Played, PlanTools], RolloutRequest]) -> Asked:
    """Two unhinted rollouts at the first task in the first round, and what else is asked for beside them."""

    def ask(played: Played, tools: PlanTools) -> list[RolloutRequest]:
        if played.rounds:
            return []
        return [RolloutRequest(task=tools.tasks[0], rollouts=2), *(make(played, tools) for make in requests)]

    return ask


def ask_hinted(**fields: Any) -> Callable[[Played, PlanTools], RolloutRequest]:
    """Two rollouts at the first task, asked for with these fields."""

    def make(played: Played, tools: PlanTools) -> RolloutRequest:
        named = {name: value(tools) if callable(value) else value for name, value in fields.items()}
        return RolloutRequest(**{"task": tools.tasks[0], "rollouts": 2, **named})

    return make
