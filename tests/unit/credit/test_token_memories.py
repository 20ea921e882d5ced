"""What token credit remembers between updates: progress of a schedule, and entropies of a run."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from groupwise import Step, Task, Trajectory
from groupwise.methods import d3s, dcpo, gtpo, verl
from groupwise.methods.d3s import DualDownSampling
from groupwise.methods.dcpo import TemperedCredit
from groupwise.methods.gtpo import ConflictTokens
from groupwise.methods.verl import LEVELS, RANKS, RankBonus
from groupwise.parts.stateful import ObservedUpdate, find_stateful

TASKS = [Task(id="a"), Task(id="b")]


def make_update(entropies: list[tuple[float, ...]], logps: list[tuple[float, ...]], forced: int = 0) -> ObservedUpdate:
    trajectories = [
        Trajectory(
            id=str(number),
            task=TASKS[0],
            rollout=number,
            steps=(Step(index=0, response_ids=(1,) * len(logp), entropy=entropy, logp_behaviour=logp, forced=forced),),
        )
        for number, (entropy, logp) in enumerate(zip(entropies, logps, strict=True))
    ]
    return ObservedUpdate(number=1, trajectories=trajectories, credit=[None] * len(trajectories))


NOTHING = make_update([()], [()])


def levels(part: Any, *updates: ObservedUpdate) -> list[float]:
    """What the table reads before each update and after the last; the state goes through its dict in between."""
    state, read = part.start(seed=0), []
    for update in (*updates, None):
        ((_, column),) = state.columns(TASKS).items()
        assert column.dtype == np.float64
        assert column[0] == column[1]
        read.append(float(column[0]))
        if update is not None:
            state.observe(update)
            kept, state = state.state_dict(), part.start(seed=0)
            state.load_state_dict(kept)
            assert state.state_dict() == kept
    return read


def test_progress_goes_from_0_to_1_and_stays() -> None:
    assert levels(DualDownSampling(updates=2), NOTHING, NOTHING, NOTHING) == [0.0, 0.5, 1.0, 1.0]


def test_the_initial_entropy_is_that_of_the_first_answers() -> None:
    first = make_update([(0.2, 0.4), (0.9,)], [(-1.0, -1.0), (-1.0,)])
    later = make_update([(5.0,)], [(-1.0,)])
    assert levels(ConflictTokens(), NOTHING, first, later) == [-1.0, -1.0, pytest.approx(0.6), pytest.approx(0.6)]


def test_the_initial_entropy_leaves_out_forced_tokens() -> None:
    all_forced = make_update([(0.0,)], [(-1.0,)], forced=1)
    begun = make_update([(0.0, 0.2, 0.4)], [(-1.0, -1.0, -1.0)], forced=1)
    assert levels(ConflictTokens(), all_forced, begun) == [-1.0, -1.0, pytest.approx(0.3)]


def test_the_last_entropy_is_the_mean_surprise_of_sampled_tokens() -> None:
    first = make_update([(), ()], [(-1.0, -2.0), (-3.0,)])
    forced = make_update([()], [(-9.0, -0.5)], forced=1)
    assert levels(TemperedCredit(), first, NOTHING, forced) == [0.0, 2.0, 2.0, 0.5]


def make_ranked(*ranks: tuple[float, float, float]) -> ObservedUpdate:
    """An update whose answers have these ranks, velocities and accelerations, beside one that nobody measured."""
    measured = [Step(index=0, info=dict(zip(RANKS, values, strict=True))) for values in ranks]
    trajectories = [
        Trajectory(id=str(number), task=TASKS[0], rollout=number, steps=(step,))
        for number, step in enumerate([*measured, Step(index=0)])
    ]
    return ObservedUpdate(number=1, trajectories=trajectories, credit=[None] * len(trajectories))


def test_ranks_move_their_averages_once_an_update_and_begin_them() -> None:
    part = RankBonus(new_share=0.25)
    state, read = part.start(seed=0), []
    for update in (NOTHING, make_ranked((2.0, 0.5, -0.1), (4.0, 0.7, 0.3)), NOTHING, make_ranked((7.0, -0.6, 0.1))):
        state.observe(update)
        kept, state = state.state_dict(), part.start(seed=0)
        state.load_state_dict(json.loads(json.dumps(kept)))
        assert state.state_dict() == kept
        columns = state.columns(TASKS)
        assert list(columns) == list(LEVELS)
        assert all(column.dtype == np.float64 and column[0] == column[1] for column in columns.values())
        read.append([float(column[0]) for column in columns.values()])
    assert read == [
        [-1.0, 0.0, 0.0],
        [3.0, pytest.approx(0.6), pytest.approx(0.1)],
        [3.0, pytest.approx(0.6), pytest.approx(0.1)],
        [4.0, pytest.approx(0.3), pytest.approx(0.1)],
    ]


@pytest.mark.parametrize("method", [d3s, dcpo, gtpo, verl])
def test_the_run_finds_the_memory(method: Any) -> None:
    assert list(find_stateful(method(), "algorithm")) == ["algorithm.token_credit"]
