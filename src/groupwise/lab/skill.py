"""Policies whose skill is a dial: how much likelier than by chance they do what is best."""

from __future__ import annotations

import numpy as np

from groupwise.core.seeds import seed_of
from groupwise.core.segments import BoolArray, FloatArray
from groupwise.lab.enumerated import EnumeratedWorld, View
from groupwise.lab.tabular import TabularPolicy

PATIENCE_FACTOR = 0.95
"""What a reward one step later is worth where it is decided which actions are best: earlier is better."""
AS_GOOD = 1e-9
"""Actions whose values differ by less are equally good."""


def make_skilled_policy(
    world: EnumeratedWorld, *, skill: float, roughness: float = 0.5, seed: int = 0
) -> TabularPolicy:
    """A softmax over the actions, for everything that can be seen.

        logit(action | view) = skill * (share of the view's states in which the action is best) + roughness * noise

    With skill 0 it wanders; with a high one it does what is best as far as it can see that. The noise is a normal
    number for each view and action, drawn once: no two situations are alike, and the policy stays a fixed one.
    """
    best = _find_best_actions(world)
    num = np.bincount(world.view, minlength=len(world.views))[:, None]
    share = np.zeros((len(world.views), len(world.actions)))
    np.add.at(share, world.view, best / best.sum(axis=1, keepdims=True))
    rows = {}
    for view, logits in zip(world.views, skill * share / num, strict=True):
        rough = logits + roughness * _draw_noise(view, len(world.actions), seed)
        weights = np.exp(rough - rough.max())
        rows[view] = weights / weights.sum()
    return TabularPolicy(actions=world.actions, rows=rows, window=world.window)


def _find_best_actions(world: EnumeratedWorld) -> BoolArray:
    """Which actions are best in each state (S, A), with all steps to go, by backward induction."""
    value = np.zeros(len(world.states))
    worth = np.zeros((len(world.states), len(world.actions)))
    for step in reversed(range(world.horizon)):
        at = world.at_step(step)
        to_come = np.append(value, 0.0)[world.following[at]]
        worth = (world.chance[at] * (world.reward[at] + PATIENCE_FACTOR * to_come)).sum(axis=-1)
        value = worth.max(axis=1)
    return np.asarray(worth >= value[:, None] - AS_GOOD)


def _draw_noise(view: View, num: int, seed: int) -> FloatArray:
    """The same numbers for the same view, whatever else there is."""
    past = [word for step in view.past for word in step]
    return np.random.default_rng(seed_of(seed, "view", view.text, *past)).standard_normal(num)
