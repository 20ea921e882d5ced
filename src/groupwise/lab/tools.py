"""What measures may ask of the lab's policies, in place of a run's engine and learner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from groupwise.core.records import Trajectory
from groupwise.core.score_requests import PromptAndResponse, Whose
from groupwise.envs.environment import EnvironmentPart, Expert
from groupwise.lab.listed_recording import END_ID, ListedTask


class LabTools(Protocol):
    """A part of what `groupwise.rollout.measures.tools.Tools` has: as much as `gives` names."""

    @property
    def gives(self) -> frozenset[str]:
        """What measures may need of it."""


class ListedTools:
    """What measures may ask of a policy that is a table: log-probs, and the environment's expert."""

    gives = frozenset({"score", "reference", "expert"})
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
        self, pairs: Sequence[PromptAndResponse], *, temperature: float | None = None, weights: Whose = "current"
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

    def text(self, ids: Sequence[int]) -> str:
        """What ids say: the numbers of actions."""
        return " ".join(self.pieces(ids)).strip()

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """What each id says by itself."""
        return ["" if token == END_ID else str(token) for token in ids]
