"""Policies as tables over what is seen, and attempts played by them without an environment.

Axes: S states, A actions, N attempts, T steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from groupwise.data.samples import PromptAndResponse
from groupwise.data.segments import BoolArray, FloatArray, IntArray
from groupwise.engines.engine import Generation, Request, VersionSpan
from groupwise.envs.environment import Observation
from groupwise.lab.enumerated import ENDED, EnumeratedWorld, View
from groupwise.parts.slots import CAPABILITIES
from groupwise.rollout.actions import ActionRule
from groupwise.rollout.prompts import Prompter
from groupwise.system.errors import ConfigError, EngineFault

if TYPE_CHECKING:
    import torch

CLOSE_TO_ONE = 1e-9
"""How far the probabilities of a row may be from 1 in sum."""


class ShownPast(Protocol):
    """A prompt's memory: which past steps it shows."""

    def first_shown(self, num_past: int) -> int:
        """Index of the earliest past step that is shown, of `num_past` so far."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class TabularPolicy:
    """The probability of each action, for everything that can be seen."""

    actions: tuple[str, ...]
    """The actions, in the order of the probabilities (A)."""
    rows: Mapping[View, FloatArray]
    """Probabilities of the actions (A) for each view."""
    window: int = 0
    """How many past steps it looks at; where a view shows more, the rest is left out of the look-up."""

    @classmethod
    def uniform(cls, world: EnumeratedWorld) -> TabularPolicy:
        """Every action alike."""
        even = np.full(len(world.actions), 1 / len(world.actions))
        return cls.from_function(world, lambda view: even)

    @classmethod
    def draw(cls, world: EnumeratedWorld, generator: np.random.Generator, *, sharpness: float = 1.0) -> TabularPolicy:
        """A policy by chance: for each view the softmax of normal numbers times `sharpness`."""
        logits = generator.standard_normal((len(world.views), len(world.actions))) * sharpness
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        table = dict(zip(world.views, shares / shares.sum(axis=1, keepdims=True), strict=True))
        return cls(actions=world.actions, rows=table, window=world.window)

    @classmethod
    def from_function(cls, world: EnumeratedWorld, ask: Callable[[View], npt.ArrayLike]) -> TabularPolicy:
        """Ask for the probabilities of every view of a world."""
        rows = {view: np.asarray(ask(view), dtype=np.float64) for view in world.views}
        return cls(actions=world.actions, rows=rows, window=world.window)

    def spread(self, world: EnumeratedWorld) -> FloatArray:
        """Probability of each action in each state of a world (S, A); refused where it sees more than the states."""
        if self.window > world.window:
            raise ConfigError(
                f"the policy sees {self.window} past steps, and the states were told apart by {world.window}: "
                f"list them with remember(world, {self.window})"
            )
        if self.actions != world.actions:
            raise ConfigError(
                f"the policy chooses among {', '.join(self.actions)}, the world among {', '.join(world.actions)}; "
                "make the policy for this world"
            )
        rows = np.array([self._read_row(view) for view in world.views])
        return rows[world.view]

    def _read_row(self, view: View) -> FloatArray:
        row = self.rows.get(view.shorten(self.window))
        if row is None:
            raise ConfigError(
                f"the policy has no probabilities for {view.text!r} after {len(view.past)} steps that are shown; "
                "make it for this world"
            )
        if row.shape != (len(self.actions),) or (row < 0).any() or abs(row.sum() - 1) > CLOSE_TO_ONE:
            raise ConfigError(
                f"the policy's row for {view.text!r} is {row.tolist()}; give {len(self.actions)} probabilities "
                "that sum to 1"
            )
        return row


def read_window(memory: ShownPast, horizon: int) -> int:
    """How many past steps a memory shows; refused where that depends on the number of the step."""
    shown = [num_past - memory.first_shown(num_past) for num_past in range(horizon)]
    window = max(shown, default=0)
    if shown != [min(num_past, window) for num_past in range(horizon)]:
        raise ConfigError(
            f"the memory shows {', '.join(map(str, shown))} past steps at steps 0 to {horizon - 1}, which tells the "
            'policy more than a state does; take `memory = {kind = "window"}` or continuations'
        )
    return window


@dataclass(frozen=True, kw_only=True, eq=False)
class SampledAttempts:
    """Attempts at one task; what lies behind an attempt's last step is 0."""

    world: EnumeratedWorld
    state: IntArray
    """State before each step (N, T)."""
    action: IntArray
    """Action of each step (N, T), a code into the world's actions."""
    reward: FloatArray
    """Reward of each step (N, T)."""
    length: IntArray
    """Steps of each attempt (N)."""

    @property
    def is_step(self) -> BoolArray:
        """Where there is a step (N, T); rows of columns are these places in order."""
        return np.arange(self.state.shape[1]) < self.length[:, None]

    def to_columns(self, *, task: str, key: Literal["situation", "observation"]) -> dict[str, Any]:
        """Columns for `StepTable.from_columns`, attempt by attempt.

        Args:
            task: the task's id.
            key: what makes two steps comparable: the state, or the text that is seen there.
        """
        attempt, index = np.nonzero(self.is_step)
        states = self.state[attempt, index]
        names = list(self.world.states) if key == "situation" else [view.text for view in self.world.views]
        codes = states if key == "situation" else self.world.view[states]
        return {
            "task": [task] * len(attempt),
            "attempt": attempt,
            "index": index,
            "reward": self.reward[attempt, index],
            "state": [names[code] for code in codes],
            "action": [self.world.actions[code] for code in self.action[attempt, index]],
            "outcome": self.reward.sum(axis=1)[attempt],
        }


def sample_attempts(
    world: EnumeratedWorld, policy: TabularPolicy, *, attempts: int, generator: np.random.Generator
) -> SampledAttempts:
    """Play attempts by a policy, all at once."""
    climbing = np.cumsum(policy.spread(world), axis=1)
    state = np.full(attempts, world.start)
    shape = (attempts, world.horizon)
    states, actions, rewards = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape)
    length = np.zeros(attempts, np.int64)
    for step in range(world.horizon):
        (playing,) = np.nonzero(state != ENDED)
        if not len(playing):
            break
        here = state[playing]
        chosen = _choose(climbing[here], generator)
        at = world.at_step(step)
        way = _choose(np.cumsum(world.chance[at, here, chosen], axis=1), generator)
        states[playing, step], actions[playing, step] = here, chosen
        rewards[playing, step] = world.reward[at, here, chosen, way]
        length[playing] += 1
        state[playing] = world.following[at, here, chosen, way]
    return SampledAttempts(world=world, state=states, action=actions, reward=rewards, length=length)


def _choose(climbing: FloatArray, generator: np.random.Generator) -> IntArray:
    """One column of each row, by rows of summed-up probabilities."""
    drawn = generator.random(len(climbing))[:, None] * climbing[:, -1:]
    return np.asarray((climbing <= drawn).sum(axis=1), dtype=np.int64)


# An engine whose policy is a table: what a prompt shows decides the chances of its actions.
#
# It stands where a model would: prompts are token ids, made by a prompter, and responses are sampled by a request's
# seed. So what is played with it goes the way that training goes, and its true values are known.


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

    def __init__(self, prompter: Prompter, rule: ActionRule) -> None:
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
                "`rollout.memory` shows"
            )
        return choice

    def _write_prompt(self, opening: tuple[int, ...], view: View, actions: tuple[str, ...]) -> tuple[int, ...]:
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
