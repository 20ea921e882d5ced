"""Rollouts that were sampled ahead, saved and read back exactly, without pickle.

Steps that several trajectories share (the rollout as it was sampled, scored, chosen) are written once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from groupwise.data.exact_values import Reader, read_fields, read_value, write_fields, write_value
from groupwise.data.past_rollouts import PastRollout, ReplayedRollout
from groupwise.data.records import Origin, SetAside, Step, StopReason, Task, Trajectory
from groupwise.parts.stateful import StateBefore
from groupwise.rollout.environment_runner import EnvTiming
from groupwise.store.journal import PendingRollouts
from groupwise.store.journal_file import pack_blob, unpack_blob
from groupwise.training.collect.collect import UpdateRollouts

_TRAJECTORY_FIELDS = tuple(entry.name for entry in fields(Trajectory))


def write_pending(rollouts: UpdateRollouts) -> PendingRollouts:
    """Write the rollouts of an update: first the lists, then the trajectories."""
    trajectories = _TrajectoryWriter()
    content = {
        "played": trajectories.write(rollouts.played),
        "survivors": trajectories.write(rollouts.survivors),
        "chosen": trajectories.write(rollouts.chosen),
        "replayed": [_write_replayed(replayed, trajectories) for replayed in rollouts.replayed],
        "left_out": rollouts.left_out,
        "set_aside": [(*trajectories.write([aside.trajectory]), aside.by) for aside in rollouts.set_aside],
        "request_words": [(*rollout, words) for rollout, words in rollouts.request_words.items()],
        "rejected_fraction": rollouts.rejected_fraction,
        "states": [
            (state.path, state.kind, write_value(state.state), write_value(state.columns)) for state in rollouts.states
        ],
        "scorer_costs": dict(rollouts.scorer_costs),
        "tasks": trajectories.tasks,
        "trajectories": trajectories.trajectories,
    }
    clock = {"steps": rollouts.waiting.steps, "seconds": rollouts.waiting.seconds, "played_in": rollouts.played_in}
    return PendingRollouts(contents=[pack_blob(content), *trajectories.pack_steps()], clock=pack_blob(clock))


def read_pending(pending: PendingRollouts) -> UpdateRollouts:
    """Read the rollouts; ValueError, TypeError or LookupError if they are not as `write_pending` writes them."""
    content, *rollouts = (unpack_blob(blob) for blob in pending.contents)
    clock = unpack_blob(pending.clock)
    tasks = [Task(**read_fields(task)) for task in content["tasks"]]
    steps = [[Step(**read_fields(step)) for step in of_rollout] for of_rollout in rollouts]
    trajectories = [_read_trajectory(trajectory, tasks, steps) for trajectory in content["trajectories"]]
    return UpdateRollouts(
        played=[trajectories[place] for place in content["played"]],
        survivors=[trajectories[place] for place in content["survivors"]],
        chosen=[trajectories[place] for place in content["chosen"]],
        replayed=[_read_replayed(replayed, trajectories) for replayed in content["replayed"]],
        left_out=content["left_out"],
        set_aside=[SetAside(trajectory=trajectories[place], by=by) for place, by in content["set_aside"]],
        request_words={(task, rollout): words for task, rollout, words in content["request_words"]},
        rejected_fraction=content["rejected_fraction"],
        states=[
            StateBefore(path=path, kind=kind, state=read_value(state), columns=read_value(columns))
            for path, kind, state, columns in content["states"]
        ],
        scorer_costs=content["scorer_costs"],
        waiting=EnvTiming(steps=clock["steps"], seconds=clock["seconds"]),
        played_in=clock["played_in"],
    )


class _TrajectoryWriter:
    """Numbers trajectories and tasks, and writes each step of a rollout once."""

    def __init__(self) -> None:
        self.tasks: list[dict[str, Any]] = []
        self.trajectories: list[dict[str, Any]] = []
        self._written: list[Trajectory] = []
        self._place_of_object: dict[int, int] = {}  # `_written` keeps the objects, so ids stay unique
        self._steps: dict[str, dict[int, Step]] = {}
        self._place_of_rollout: dict[str, int] = {}
        self._place_of_task: dict[str, int] = {}

    def write(self, trajectories: Iterable[Trajectory]) -> list[int]:
        return [self._write_one(trajectory) for trajectory in trajectories]

    def pack_steps(self) -> list[bytes]:
        """The steps of all rollouts, one blob per rollout."""
        return [pack_blob([write_fields(step) for step in steps.values()]) for steps in self._steps.values()]

    def _write_one(self, trajectory: Trajectory) -> int:
        if id(trajectory) not in self._place_of_object:
            self._place_of_object[id(trajectory)] = len(self.trajectories)
            self._written.append(trajectory)
            known = self._steps.setdefault(trajectory.id, {})
            for step in trajectory.steps:
                known.setdefault(id(step), step)
            places = {key: place for place, key in enumerate(known)}
            self.trajectories.append(
                write_fields(trajectory, skip=("task", "steps"))
                | {
                    "task": self._write_task(trajectory.task),
                    "rollout_place": self._place_of_rollout.setdefault(trajectory.id, len(self._place_of_rollout)),
                    "steps": [places[id(step)] for step in trajectory.steps],
                }
            )
        return self._place_of_object[id(trajectory)]

    def _write_task(self, task: Task) -> int:
        if id(task) not in self._place_of_object:
            content = write_fields(task)
            place = self._place_of_task.setdefault(repr(content), len(self.tasks))  # repr: 1 and 1.0 differ
            self.tasks += [content] if place == len(self.tasks) else []
            self._place_of_object[id(task)] = place
        return self._place_of_object[id(task)]


def _write_replayed(replayed: ReplayedRollout, trajectories: _TrajectoryWriter) -> dict[str, Any]:
    past = replayed.past
    return write_fields(replayed, skip=("past", "trajectory")) | {
        "past": write_fields(past, skip=("states", "rewards"))
        | {"states": past.states.tolist(), "rewards": past.rewards.tolist()},
        "trajectory": None if replayed.trajectory is None else trajectories.write([replayed.trajectory])[0],
    }


def _read_replayed(content: Mapping[str, Any], trajectories: Sequence[Trajectory]) -> ReplayedRollout:
    readers: Mapping[str, Reader] = {
        "past": lambda past: PastRollout(**read_fields(past, _PAST_READERS)),
        "trajectory": lambda place: None if place is None else trajectories[place],
    }
    return ReplayedRollout(**read_fields(content, readers))


def _read_trajectory(content: Mapping[str, Any], tasks: Sequence[Task], steps: Sequence[Sequence[Step]]) -> Trajectory:
    of_rollout = steps[content["rollout_place"]]
    readers: Mapping[str, Reader] = {
        "task": tasks.__getitem__,
        "steps": lambda places: tuple(of_rollout[place] for place in places),
        "stop": StopReason,
        "origin": Origin,
    }
    return Trajectory(**read_fields({name: content[name] for name in _TRAJECTORY_FIELDS}, readers))


_PAST_READERS: Mapping[str, Reader] = {
    "states": lambda states: np.array(states, dtype=np.int64),
    "rewards": lambda rewards: np.array(rewards, dtype=np.float64),
}
