"""Trajectories to pay: by hand, and drawn."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st

from groupwise import Step, StopReason, Task, Trajectory

TASK = Task(id="t")


def rollout(*steps: dict[str, Any], solved: bool | None = None, **changes: Any) -> Trajectory:
    """A rollout from its steps' fields; `tokens` is how many were sampled."""
    scores = {"success": float(solved)} if solved is not None else {}
    recorded_steps = tuple(
        Step(index=index, response_ids=(7,) * fields.pop("tokens", 0), **fields)
        for index, fields in enumerate(dict(step) for step in steps)
    )
    return Trajectory(**{"id": "t/3", "task": TASK, "rollout": 3, "steps": recorded_steps, "scores": scores, **changes})


AMOUNTS = st.floats(-100, 100)

STEPS = st.fixed_dictionaries(
    {
        "reward": AMOUNTS,
        "well_formed": st.booleans(),
        "accepted": st.booleans(),
        "tokens": st.integers(0, 12),
        "info": st.one_of(st.just({}), st.fixed_dictionaries({"matched": st.integers(0, 6), "exact": st.booleans()})),
    }
)


@st.composite
def rollouts(draw: st.DrawFn) -> Trajectory:
    """Any rollout that ended without a fault."""
    stop = draw(st.sampled_from((StopReason.TERMINATED, StopReason.TRUNCATED, StopReason.INVALID)))
    return rollout(*draw(st.lists(STEPS, max_size=6)), solved=draw(st.booleans()), stop=stop)
