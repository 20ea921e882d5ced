"""Random rollouts of a whole update: who played, who survived, who takes part, what was replayed and set aside."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import numpy as np

from groupwise import Task, Trajectory
from groupwise.data.past_rollouts import PastRollout, ReplayedRollout
from groupwise.data.records import SetAside
from groupwise.parts.stateful import StateBefore
from groupwise.rollout.environment_runner import EnvTiming
from groupwise.training.collect.collect import UpdateRollouts
from tests.laws.recorded_steps import rollouts

_TEXT = st.text(max_size=5)
_NUMBER = st.floats(allow_nan=False)
_VALUE = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), _NUMBER, _TEXT),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.lists(inner, max_size=2).map(tuple), st.dictionaries(_TEXT, inner, max_size=2)
    ),
    max_leaves=4,
)
_INFO = st.dictionaries(st.sampled_from(("info_key", "tuple", "map")), _VALUE, max_size=2)
_TASKS = st.builds(
    Task,
    id=_TEXT,
    env=_TEXT,
    split=_TEXT,
    seed=st.integers(0, 2**70),
    payload=st.dictionaries(_TEXT, _VALUE, max_size=2),
    tags=st.lists(_TEXT, max_size=2).map(tuple),
)


@st.composite
def _vary(draw: st.DrawFn, trajectory: Trajectory) -> Trajectory:
    """A rollout with other info, scores, prompts and marks than it had when it was played; often the same."""
    if draw(st.booleans()):
        return trajectory
    steps = [
        replace(
            step,
            info=draw(_INFO),
            reward=draw(_NUMBER),
            unhinted_prompt_ids=draw(st.lists(st.integers(0, 9), max_size=2).map(tuple)),
        )
        for step in trajectory.steps
    ]
    return replace(
        trajectory,
        steps=tuple(steps),
        task=draw(_TASKS),
        scores=draw(st.dictionaries(_TEXT, _NUMBER, max_size=2)),
        parent=draw(st.none() | _TEXT),
        error=draw(st.none() | _TEXT),
        off_policy=draw(st.booleans()),
    )


@st.composite
def _replay(draw: st.DrawFn, trajectory: Trajectory) -> ReplayedRollout:
    num = len(trajectory.steps)
    past = PastRollout(
        task=draw(_TEXT),
        number=draw(st.integers(1, 9)),
        rollout=draw(st.integers(0, 9)),
        version=draw(st.integers(0, 9)),
        origin=trajectory.origin.value,
        score=draw(_NUMBER),
        credit=draw(_NUMBER),
        states=np.array(draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=num, max_size=num)), dtype=np.int64),
        rewards=np.array(draw(st.lists(_NUMBER, min_size=num, max_size=num)), dtype=np.float64),
    )
    return ReplayedRollout(
        past=past,
        task=trajectory.task.id,
        why=draw(_TEXT),
        keeps_credit=draw(st.booleans()),
        trajectory=draw(st.sampled_from((trajectory, None))),
        ratio=draw(st.sampled_from(("stored", "recomputed"))),
        log_ratio=draw(st.none() | _NUMBER),
        logps_now=tuple(tuple(draw(st.lists(_NUMBER, max_size=2))) for _ in range(num)),
        credit=tuple(draw(st.lists(_NUMBER, max_size=num))),
    )


@st.composite
def update_rollouts(draw: st.DrawFn) -> UpdateRollouts:
    """The rollouts of an update, ready to learn from."""
    played = draw(rollouts())
    survivors = [draw(_vary(trajectory)) for trajectory in played if draw(st.booleans())]
    chosen = [draw(_vary(trajectory)) for trajectory in survivors]
    words = st.dictionaries(st.tuples(_TEXT, st.integers(0, 9)), _TEXT, max_size=2)
    columns = st.dictionaries(_TEXT, st.dictionaries(_TEXT, _NUMBER | st.lists(_NUMBER, min_size=1), max_size=2))
    states = st.builds(
        StateBefore, path=_TEXT, kind=_TEXT, state=st.dictionaries(_TEXT, _VALUE, max_size=2), columns=columns
    )
    return UpdateRollouts(
        played=played,
        survivors=survivors,
        chosen=chosen,
        replayed=[draw(_replay(trajectory)) for trajectory in draw(rollouts())],
        left_out=draw(st.integers(0, 9)),
        set_aside=[SetAside(trajectory=draw(_vary(played[0])), by=draw(_TEXT))],
        request_words=draw(words),
        rejected_fraction=draw(st.none() | _NUMBER),
        states=draw(st.lists(states, max_size=2)),
        waiting=EnvTiming(steps=draw(st.integers(0, 9)), seconds=draw(_NUMBER)),
        played_in=draw(st.none() | _NUMBER),
        scorer_costs=draw(st.dictionaries(_TEXT, _NUMBER, max_size=2)),
    )
