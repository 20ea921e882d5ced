"""The built-in environments as they are checked, and a digest of rollouts at them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from groupwise.envs import Aliased, Boxes, Countdown, Gridworld, Household, Identity, Lookup, RankedLists, WorkedSums
from groupwise.envs.checker import CheckedEnvironment

BUILT_IN = {
    "household": Household(),
    "household, large": Household(
        num_receptacles=12, num_objects=12, max_steps=30, goal_in_text=True, show_carried=False
    ),
    "household, one family": Household(categories=("examine",), num_receptacles=3, num_objects=2),
    "gridworld": Gridworld(),
    "gridworld, slippery": Gridworld(slip=0.2),
    "gridworld, goal in text": Gridworld(goal_in_text=True),
    "boxes": Boxes(),
    "boxes, two and walls": Boxes(num_boxes=2, num_walls=2, goal_in_text=True),
    "countdown": Countdown(),
    "countdown, four numbers": Countdown(num_numbers=4),
    "worked_sums": WorkedSums(),
    "worked_sums, ten large numbers": WorkedSums(num_terms=10, largest_term=50),
    "ranked_lists": RankedLists(),
    "ranked_lists, all in order": RankedLists(num_offered=6, list_length=6, gain="exponential"),
    "lookup": Lookup(),
    "lookup, goal in text": Lookup(goal_in_text=True),
    "lookup, single-turn": Lookup(hops=0, max_steps=1),
    "identity": Identity(),
    "identity, one word": Identity(length=1),
    "aliased": Aliased(),
    "aliased, three bits and noise": Aliased(hidden_bits=3, passages=2, noise=0.2, max_steps=14, goal_in_text=True),
    "aliased, one reply": Aliased(hidden_bits=2, one_reply=True, key="observation"),
    "aliased, nothing hidden": Aliased(hidden_bits=0),
}


def hash_transcripts(names: Sequence[str]) -> str:
    """A digest of random rollouts at some of the environments; also run in another process."""
    digest = hashlib.sha256()
    for name in names:
        subject = CheckedEnvironment(part=BUILT_IN[name], tasks=BUILT_IN[name].task_set("test")[:5], seed=0)
        for rollout in subject.rollouts:
            digest.update(repr((name, rollout.actions, rollout.transcript, rollout.keys)).encode())
    return digest.hexdigest()
