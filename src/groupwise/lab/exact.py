"""True values by dynamic programming: what a state, and an action in it, is worth under a policy.

Axes: T steps, S states, A actions.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from groupwise.data.segments import FloatArray, IntArray
from groupwise.lab.enumerated import ENDED, EnumeratedWorld, RememberedState
from groupwise.lab.tabular import SampledAttempts, TabularPolicy
from groupwise.system.errors import RecordError


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactValues:
    """Values of a world under a policy; after t of `horizon` steps there are horizon - t left."""

    value: FloatArray
    """V: the expected discounted reward from here on (T + 1, S); 0 where no step is left."""
    action_value: FloatArray
    """Q: the same after an action (T, S, A)."""
    probability: FloatArray
    """The policy: probability of each action in each state (S, A)."""
    visits: FloatArray
    """Probability that an attempt stands in a state before its step t (T, S)."""

    @property
    def advantage(self) -> FloatArray:
        """A = Q - V (T, S, A)."""
        return self.action_value - self.value[:-1, :, None]

    def advantages_of(self, attempts: SampledAttempts) -> FloatArray:
        """The true advantage of each step of some attempts, in the order of their columns."""
        attempt, index = np.nonzero(attempts.is_step)
        return self.advantage[index, attempts.state[attempt, index], attempts.action[attempt, index]]

    def values_of(self, attempts: SampledAttempts) -> FloatArray:
        """The true value of the state before each step of some attempts, in the order of their columns."""
        attempt, index = np.nonzero(attempts.is_step)
        return self.value[index, attempts.state[attempt, index]]


def solve_exactly(world: EnumeratedWorld, policy: TabularPolicy, *, gamma: float = 1.0) -> ExactValues:
    """Values of every state and action, from the last step backwards.

        Q_t(s, a) = sum_s' p_t(s' | s, a) (r + gamma V_{t+1}(s')),   V_t(s) = sum_a pi(a | s) Q_t(s, a),   V_T = 0

    A policy that sees more than the states tell apart is refused: its actions would depend on what is not in them.
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
    visits = _count_visits(world, probability)
    return ExactValues(value=value, action_value=action_value, probability=probability, visits=visits)


def _count_visits(world: EnumeratedWorld, probability: FloatArray) -> FloatArray:
    """Probability of each state before each step (T, S), from the start onwards."""
    states = len(world.states)
    visits = np.zeros((world.horizon, states))
    visits[0, world.start] = 1.0
    for step in range(world.horizon - 1):
        at = world.at_step(step)
        arriving = visits[step][:, None, None] * probability[:, :, None] * world.chance[at]
        goes_on = world.following[at] != ENDED
        visits[step + 1] = np.bincount(world.following[at][goes_on], weights=arriving[goes_on], minlength=states)
    return visits


def trace_attempt(
    world: EnumeratedWorld, *, keys: Sequence[Hashable], texts: Sequence[str] = (), actions: Sequence[str] = ()
) -> IntArray:
    """The listed state of each step of a recorded attempt.

    Args:
        world: the attempt's task, listed.
        keys: the recorded state key of each step; of an environment that has a choice, of `key = "situation"`.
        texts: what was seen at each step; asked for where the world remembers.
        actions: what was done at each step; the same.
    """
    done = actions if world.has_actions else [""] * len(actions)
    codes = []
    for step, key in enumerate(keys):
        first = max(step - world.window, 0)
        past = tuple(zip(texts[first:step], done[first:step], strict=True))
        code = world.state_codes.get(RememberedState(key, past) if world.window else key)
        if code is None:
            raise RecordError(
                f"step {step}: the state {key!r} is not among the {len(world.states)} that were listed; "
                "list the task that was played, and leave out attempts with actions that are not listed"
            )
        codes.append(code)
    return np.array(codes, dtype=np.int64)
