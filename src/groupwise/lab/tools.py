"""What measures may ask of the lab's policies, in place of a run's engine and learner."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from groupwise.data.records import Trajectory
from groupwise.data.samples import PolicyRole, PromptAndResponse
from groupwise.data.segments import FloatArray
from groupwise.envs.environment import EnvironmentPart, Expert
from groupwise.lab.enumerated import ENDED, EnumeratedWorld
from groupwise.lab.recording import END_ID, ListedTask
from groupwise.rollout.forks import Fork


class LabTools(Protocol):
    """A part of what `groupwise.rollout.measures.Tools` has: as much as `gives` names."""

    @property
    def gives(self) -> frozenset[str]:
        """What measures may need of it."""


class ListedTools:
    """What measures may ask of a policy that is a table: log-probs, continuations, and the environment's expert."""

    gives = frozenset({"score", "reference", "expert", "fork"})
    """The policy does not learn, so that it is its own reference."""
    temperature = 1.0
    stop_ids = (END_ID,)

    def __init__(self, env: EnvironmentPart, tasks: Sequence[ListedTask]) -> None:
        self._env, self._tasks = env, {listed.task.id: listed for listed in tasks}
        self._rows = {
            listed.first_prompt + number: np.asarray(listed.policy.rows[view.shorten(listed.policy.window)])
            for listed in tasks
            for number, view in enumerate(listed.world.views)
        }

    def score(
        self, pairs: Sequence[PromptAndResponse], *, temperature: float | None = None, weights: PolicyRole = "current"
    ) -> list[tuple[float, ...]]:
        """Log-probs of responses, by the table; the end is certain."""
        scored = []
        for prompt, response in pairs:
            raised = self._rows[prompt[-1]] ** (1.0 / (temperature or self.temperature))
            chances = raised / raised.sum()
            scored.append(tuple(0.0 if token == END_ID else float(np.log(chances[token - 1])) for token in response))
        return scored

    def ask_expert(self, attempts: Sequence[Trajectory]) -> list[list[str | None]]:
        """What the environment's expert would have done at each step, the recorded actions carried out again."""
        advice = []
        for attempt in attempts:
            environment = self._env.open(attempt.task)
            own: list[str | None] = []
            for step in attempt.steps:
                own.append(environment.expert() if isinstance(environment, Expert) else None)
                environment.act(step.action or "")
            advice.append(own)
        return advice

    def play_forks(self, forks: Sequence[Fork]) -> list[Trajectory]:
        """Continuations, as records of the steps that were kept and of what came of it; not of the steps between."""
        by_task: dict[str, list[int]] = {}
        for number, fork in enumerate(forks):
            by_task.setdefault(fork.trunk.task.id, []).append(number)
        earned = np.zeros(len(forks))
        for task, numbers in by_task.items():
            earned[numbers] = _continue_listed(self._tasks[task], [forks[number] for number in numbers])
        return [
            replace(
                fork.trunk,
                id=f"{fork.trunk.id}/{fork.kept}/{fork.number}",
                steps=fork.trunk.steps[: fork.kept],
                scores={"return": total, "success": float(total > 0)},
            )
            for fork, total in zip(forks, earned.tolist(), strict=True)
        ]

    def text(self, ids: Sequence[int]) -> str:
        """What ids say: the numbers of actions."""
        return " ".join(self.pieces(ids)).strip()

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """What each id says by itself."""
        return ["" if token == END_ID else str(token) for token in ids]


def _continue_listed(listed: ListedTask, forks: Sequence[Fork]) -> FloatArray:
    """What continuations of attempts at a task earn in all, the kept steps included; played all at once."""
    world, climbing = listed.world, np.cumsum(listed.policy.spread(listed.world), axis=1)
    generator = np.random.default_rng([fork.seed for fork in forks])
    state = np.array([_walk_to(world, fork) for fork in forks])
    step = np.array([fork.kept for fork in forks])
    earned = np.array([math.fsum(taken.reward for taken in fork.trunk.steps[: fork.kept]) for fork in forks])
    while len(playing := np.flatnonzero((state != ENDED) & (step < world.horizon))):
        here, now = state[playing], step[playing]
        drawn = generator.random(len(playing))[:, None] * climbing[here, -1:]
        action = (climbing[here] <= drawn).sum(axis=1)
        place = (now if len(world.following) > 1 else np.zeros_like(now), here, action, 0)
        earned[playing] += world.reward[place]
        state[playing] = world.following[place]
        step[playing] += 1
    return earned


def _walk_to(world: EnumeratedWorld, fork: Fork) -> int:
    """The state that an attempt's kept steps lead to; each action goes one way, for chance is the task's own."""
    state = world.start
    for index, step in enumerate(fork.trunk.steps[: fork.kept]):
        state = int(world.following[world.at_step(index), state, world.actions.index(step.action or ""), 0])
    return state
