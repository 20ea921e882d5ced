"""An engine whose policy is a table: what a prompt shows decides the chances of its actions.

It stands where a model would: prompts are token ids, made by a prompter, and responses are sampled by a request's
seed. So what is played with it goes the way that training goes, and its true values are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from groupwise.data.samples import PromptAndResponse
from groupwise.data.segments import FloatArray
from groupwise.engines.engine import Generation, Request, VersionSpan
from groupwise.envs.environment import Observation
from groupwise.lab.enumerated import EnumeratedWorld, View
from groupwise.lab.tabular import TabularPolicy
from groupwise.parts.slots import CAPABILITIES
from groupwise.rollout.actions import ActionParser
from groupwise.rollout.prompts import Opening, Prompter
from groupwise.system.errors import EngineFault

if TYPE_CHECKING:
    import torch


class _Choice(NamedTuple):
    """What may be said to a prompt."""

    chances: FloatArray
    responses: tuple[tuple[int, ...], ...]


class TabularEngine:
    """Answers prompts by tables, one for each task that was added."""

    gives: ClassVar[frozenset[str]] = frozenset(CAPABILITIES)
    """Everything; its first token is the choice, and the others of a response are certain."""
    version = 0
    context: int | None = None

    def __init__(self, prompter: Prompter, rule: ActionParser) -> None:
        self._prompter, self._rule = prompter, rule
        self._choices: dict[tuple[int, ...], _Choice] = {}

    def add_task(self, first: Observation, world: EnumeratedWorld, policy: TabularPolicy) -> None:
        """Learn the table of a task by heart; `first` is what its environment shows first, whose goal prompts say."""
        opening = self._prompter.encode_opening(first.goal)
        responses = tuple(self._say(action, world.actions) for action in world.actions)
        for view in world.views:
            row = np.asarray(policy.rows[view.shorten(policy.window)])
            choice = _Choice(row, responses)
            known = self._choices.setdefault(self._write_prompt(opening, view, world.actions), choice)
            if not np.array_equal(known.chances, row):
                raise EngineFault(
                    f"{view.text!r} is seen in two tasks whose tables differ, and the prompt does not tell them apart; "
                    "show the goal, or take one task"
                )

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """Draw an action for each request, by its seed alone."""
        return [self._generate(request) for request in requests]

    def score(self, sequences: Sequence[PromptAndResponse], *, temperature: float = 1.0) -> list[tuple[float, ...]]:
        """Log-probs: that of the action on the first token, 0 on the others."""
        scored = []
        for prompt, response in sequences:
            choice = self._find(tuple(prompt))
            chances = _temper(choice.chances, temperature)
            logp = float(np.log(chances[choice.responses.index(tuple(response))]))
            scored.append((logp, *(0.0,) * (len(response) - 1)))
        return scored

    def load(self, weights: Mapping[str, torch.Tensor], *, version: int) -> None:
        """A table has no weights."""

    def _generate(self, request: Request) -> Generation:
        choice = self._find(request.prompt_ids)
        chances = _temper(choice.chances, request.temperature)
        drawn = np.random.default_rng(request.seed).random() * chances.sum()
        action = min(int(np.searchsorted(np.cumsum(chances), drawn, side="right")), len(chances) - 1)
        response = choice.responses[action]
        certain = (0.0,) * (len(response) - 1)
        is_possible = chances[chances > 0]
        return Generation(
            response_ids=response,
            logp=(float(np.log(chances[action])), *certain),
            entropy=(float(-(is_possible * np.log(is_possible)).sum()), *certain),
            stopped=True,
            versions=(VersionSpan(0, len(response)),),
        )

    def _find(self, prompt: tuple[int, ...]) -> _Choice:
        choice = self._choices.get(prompt)
        if choice is None:
            raise EngineFault(
                f"a prompt of {len(prompt)} tokens is in no table; add its task, with a window as long as "
                "`rollout.history` shows"
            )
        return choice

    def _write_prompt(self, opening: Opening, view: View, actions: tuple[str, ...]) -> tuple[int, ...]:
        past = [
            self._prompter.make_exchange(Observation(text=text, admissible=actions), self._say(action, actions), action)
            for text, action in view.past
        ]
        return self._prompter.prompt(opening, past, Observation(text=view.text, admissible=actions))

    def _say(self, action: str, actions: tuple[str, ...]) -> tuple[int, ...]:
        said = self._rule.say(action, admissible=actions)
        return (*self._prompter.encode(said), self._prompter.frame.end_id)


def _temper(chances: FloatArray, temperature: float) -> FloatArray:
    raised = chances ** (1.0 / temperature)
    return np.asarray(raised / raised.sum())
