"""Tabular policies: rollouts without an environment, and exact values by dynamic programming.

Axes: S states, A actions, N rollouts, T steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from groupwise.data.segments import BoolArray, FloatArray, IntArray
from groupwise.lab.enumerated import ENDED, EnumeratedWorld, View
from groupwise.rollout.prompts import History
from groupwise.system.errors import ConfigError

CLOSE_TO_ONE = 1e-9
"""How far the probabilities of a row may be from 1 in sum."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TabularPolicy:
    """The probability of each action, for each view."""

    actions: tuple[str, ...]
    """The actions, in the order of the probabilities (A)."""
    rows: Mapping[View, FloatArray]
    """Probabilities of the actions (A) for each view."""
    window: int = 0
    """How many past steps it looks at; older steps of a view are ignored."""

    @classmethod
    def uniform(cls, world: EnumeratedWorld) -> TabularPolicy:
        even = np.full(len(world.actions), 1 / len(world.actions))
        return cls.from_function(world, lambda view: even)

    @classmethod
    def draw(cls, world: EnumeratedWorld, generator: np.random.Generator, *, sharpness: float = 1.0) -> TabularPolicy:
        """A random policy: for each view the softmax of normal numbers times `sharpness`."""
        logits = generator.standard_normal((len(world.views), len(world.actions))) * sharpness
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        table = dict(zip(world.views, shares / shares.sum(axis=1, keepdims=True), strict=True))
        return cls(actions=world.actions, rows=table, window=world.window)

    @classmethod
    def from_function(cls, world: EnumeratedWorld, ask: Callable[[View], npt.ArrayLike]) -> TabularPolicy:
        rows = {view: np.asarray(ask(view), dtype=np.float64) for view in world.views}
        return cls(actions=world.actions, rows=rows, window=world.window)

    def spread(self, world: EnumeratedWorld) -> FloatArray:
        """Probability of each action in each state (S, A). It is an error if the policy sees more than the states."""
        if self.window > world.window:
            raise ConfigError(
                f"the policy sees {self.window} past steps, but the states contain only {world.window}: "
                f"list them with `remember(world, {self.window})`"
            )
        if self.actions != world.actions:
            raise ConfigError(
                f"the policy has the actions {', '.join(self.actions)}, but the environment has "
                f"{', '.join(world.actions)}; make the policy for this environment"
            )
        return np.array([self._read_row(view) for view in world.views])[world.view]

    def _read_row(self, view: View) -> FloatArray:
        row = self.rows.get(view.shorten(self.window))
        if row is None:
            raise ConfigError(
                f"the policy has no probabilities for {view.text!r} after {len(view.past)} visible steps; "
                "make the policy for this environment"
            )
        if row.shape != (len(self.actions),) or (row < 0).any() or abs(row.sum() - 1) > CLOSE_TO_ONE:
            raise ConfigError(
                f"the policy's row for {view.text!r} is {row.tolist()}; give {len(self.actions)} probabilities "
                "that sum to 1"
            )
        return row


def read_window(history: History, horizon: int) -> int:
    """How many past steps the history in the prompt shows. It is an error if that depends on the step number."""
    shown = [num_past - history.first_shown(num_past) for num_past in range(horizon)]
    window = max(shown, default=0)
    if shown != [min(num_past, window) for num_past in range(horizon)]:
        raise ConfigError(
            f"the history shows {', '.join(map(str, shown))} past steps at steps 0 to {horizon - 1}, so the prompt "
            'contains more than the state; use `history = {kind = "window"}` or continuations'
        )
    return window


@dataclass(frozen=True, kw_only=True, eq=False)
class SampledRollouts:
    """Rollouts of one task; entries after the last step of a rollout are 0."""

    world: EnumeratedWorld
    state: IntArray
    """State before each step (N, T)."""
    action: IntArray
    """Action of each step (N, T), as an index into the environment's actions."""
    reward: FloatArray
    length: IntArray
    """Steps of each rollout (N)."""

    @property
    def is_step(self) -> BoolArray:
        """Where there is a step (N, T). Columns have one row per such place, in order."""
        return np.arange(self.state.shape[1]) < self.length[:, None]

    def to_columns(self, *, task: str, key: Literal["situation", "observation"]) -> dict[str, Any]:
        """Columns for `StepTable.from_columns`, rollout by rollout. `key` says what makes two steps comparable."""
        rollout, index = np.nonzero(self.is_step)
        states = self.state[rollout, index]
        names = list(self.world.states) if key == "situation" else [view.text for view in self.world.views]
        codes = states if key == "situation" else self.world.view[states]
        return {
            "task": [task] * len(rollout),
            "rollout": rollout,
            "step": index,
            "reward": self.reward[rollout, index],
            "state": [names[code] for code in codes],
            "action": [self.world.actions[code] for code in self.action[rollout, index]],
            "outcome": self.reward.sum(axis=1)[rollout],
        }


def sample_rollouts(
    world: EnumeratedWorld, policy: TabularPolicy, *, rollouts: int, generator: np.random.Generator
) -> SampledRollouts:
    climbing = np.cumsum(policy.spread(world), axis=1)
    state = np.full(rollouts, world.start)
    shape = (rollouts, world.horizon)
    states, actions, rewards = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape)
    length = np.zeros(rollouts, np.int64)
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
    return SampledRollouts(world=world, state=states, action=actions, reward=rewards, length=length)


def _choose(climbing: FloatArray, generator: np.random.Generator) -> IntArray:
    """Sample one column per row, given cumulative probabilities."""
    drawn = generator.random(len(climbing))[:, None] * climbing[:, -1:]
    return np.asarray((climbing <= drawn).sum(axis=1), dtype=np.int64)


# True values of states and actions under a policy, by dynamic programming.


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactValues:
    """Values of an environment under a policy. After t of `horizon` steps, horizon - t steps are left."""

    value: FloatArray
    """V: the expected discounted reward from a state on (T + 1, S); 0 if no step is left."""
    action_value: FloatArray
    """Q: the same after an action (T, S, A)."""
    probability: FloatArray
    """The policy: probability of each action in each state (S, A)."""
    visits: FloatArray
    """Probability that a rollout is in a state before its step t (T, S)."""

    @property
    def advantage(self) -> FloatArray:
        return self.action_value - self.value[:-1, :, None]

    def advantages_of(self, rollouts: SampledRollouts) -> FloatArray:
        rollout, index = np.nonzero(rollouts.is_step)
        return self.advantage[index, rollouts.state[rollout, index], rollouts.action[rollout, index]]


def solve_exactly(world: EnumeratedWorld, policy: TabularPolicy, *, gamma: float = 1.0) -> ExactValues:
    """Values of every state and action, from the last step backwards.

    Q_t(s, a) = sum_s' p_t(s' | s, a) (r + gamma V_{t+1}(s')),   V_t(s) = sum_a pi(a | s) Q_t(s, a),   V_T = 0
    """
    probability = policy.spread(world)
    states, actions = probability.shape
    value = np.zeros((world.horizon + 1, states))
    action_value = np.zeros((world.horizon, states, actions))
    for step in reversed(range(world.horizon)):
        at = world.at_step(step)
        to_come = np.append(value[step + 1], 0.0)[world.following[at]]  # `ENDED` reads the 0 at the end
        action_value[step] = (world.chance[at] * (world.reward[at] + gamma * to_come)).sum(axis=-1)
        value[step] = (probability * action_value[step]).sum(axis=-1)
    visits = np.zeros((world.horizon, states))
    visits[0, world.start] = 1.0
    for step in range(world.horizon - 1):
        at = world.at_step(step)
        arriving = visits[step][:, None, None] * probability[:, :, None] * world.chance[at]
        goes_on = world.following[at] != ENDED
        visits[step + 1] = np.bincount(world.following[at][goes_on], weights=arriving[goes_on], minlength=states)
    return ExactValues(value=value, action_value=action_value, probability=probability, visits=visits)
