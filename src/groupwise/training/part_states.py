"""The states of a run's stateful parts: start, read, update, save and load them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.data.records import Task, Trajectory
from groupwise.data.seeds import seed_of
from groupwise.parts.part import Part, kind_of
from groupwise.parts.requirements import check_methods
from groupwise.parts.stateful import (
    METHODS,
    ObservedUpdate,
    PartState,
    ReferenceState,
    StateBefore,
    check_names,
    find_stateful,
    read_columns,
    read_part_state,
)
from groupwise.store.run_folder import CONFIG
from groupwise.system.errors import ConfigError, TrainingError
from groupwise.system.text import describe_value, quote_line
from groupwise.training.samples import CreditedBatch

BEGAN_WITH = (
    f"continue with the settings that the run began with ({CONFIG} has them) and with parts of your own as they were "
    "then, or start a new run in another folder"
)


@dataclass(frozen=True, kw_only=True)
class StartedPart:
    """A stateful part with its state."""

    path: str
    """Its place in the run's settings."""
    kind: str
    state: PartState

    @property
    def where(self) -> str:
        return f"{self.path} ({self.kind})"


class PartStates:
    """The state of every stateful part of a run; most runs have none."""

    def __init__(self, parts: Sequence[StartedPart]) -> None:
        self.parts = parts

    @classmethod
    def start(cls, config: Part, *, seed: int, tasks: Sequence[Task]) -> PartStates:
        """Start every stateful part in a run's settings, and check that its state can be saved and read."""
        parts = [_start(path, part, seed) for path, part in find_stateful(config).items()]
        check_names([(part.where, read_columns(part.where, part.state, tasks[:1])) for part in parts])
        choosing = [part.where for part in parts if isinstance(part.state, ReferenceState)]
        if len(choosing) > 1:
            raise ConfigError(
                f"{choosing[0]} and {choosing[1]} both say which policy is the reference; leave one of them out"
            )
        return cls(parts)

    @property
    def reference(self) -> int | None:
        """The update whose policy is the reference, 0 = the start; None = no part chooses it, and it stays."""
        return next((part.state.reference for part in self.parts if isinstance(part.state, ReferenceState)), None)

    def columns(self, tasks: Sequence[Task]) -> dict[str, dict[str, float]]:
        """The parts' numbers per task now, by the column's name and the task's id; numbers per step are left out."""
        columns: dict[str, dict[str, float]] = {}
        for part in self.parts:
            for name, by_task in read_columns(part.where, part.state, tasks).items():
                numbers = {task: number for task, number in by_task.items() if isinstance(number, float)}
                if numbers or not by_task:
                    columns[name] = numbers
        return columns

    def state_dict(self) -> dict[str, dict[str, Any]]:
        return {part.path: {"kind": part.kind, "state": read_part_state(part.where, part.state)} for part in self.parts}

    def describe_before(self, members: Sequence[Trajectory]) -> list[StateBefore]:
        """The states before an update's advantages are computed, with the parts' columns for its tasks."""
        tasks = list({trajectory.task.id: trajectory.task for trajectory in members}.values())
        return [
            StateBefore(
                path=part.path,
                kind=part.kind,
                state=read_part_state(part.where, part.state),
                columns=read_columns(part.where, part.state, tasks),
            )
            for part in self.parts
        ]

    def observe(
        self, number: int, survivors: Sequence[Trajectory], batch: CreditedBatch, metrics: Mapping[str, float]
    ) -> None:
        """Give every part the update's rollouts without hints, and the advantages of those that were compared."""
        credit = {
            trajectory.id: tuple(values)
            for trajectory, values in zip(batch.trajectories, batch.by_trajectory(), strict=True)
            if not trajectory.off_policy
        }
        update = ObservedUpdate(
            number=number,
            trajectories=tuple(survivors),
            credit=tuple(credit.get(trajectory.id) for trajectory in survivors),
            metrics=dict(metrics),
        )
        before = self.reference
        for part in self.parts:
            part.state.observe(update)
            if isinstance(part.state, ReferenceState) and part.state.reference not in (before, number):
                raise ConfigError(
                    f"{part.where}: after update {number} it names {describe_value(part.state.reference)} as the "
                    f"update whose policy is the reference; name {number}, or leave it at {before}"
                )

    def load_state_dict(self, saved: Any, *, checkpoint: Path) -> None:
        """Load a checkpoint's states; it must hold those of exactly these parts."""
        known = {part.path: part for part in self.parts}
        kinds = {"kind": str, "state": Mapping}
        if not isinstance(saved, Mapping) or not all(
            isinstance(entry, Mapping) and all(isinstance(entry.get(name), kind) for name, kind in kinds.items())
            for entry in saved.values()
        ):
            raise TrainingError(f"checkpoint {checkpoint}: its 'parts' are no states by path; {BEGAN_WITH}")
        for path, entry in saved.items():
            owner = quote_line(f"{path} ({entry['kind']})", limit=200)
            where = f"checkpoint {checkpoint}: it holds the state of {owner}"
            if path not in known:
                raise TrainingError(f"{where}, and this run has no stateful part there; {BEGAN_WITH}")
            if entry["kind"] != known[path].kind:
                raise TrainingError(f"{where}, and this run has {known[path].kind} there; {BEGAN_WITH}")
        for path, part in known.items():
            if path not in saved:
                raise TrainingError(f"checkpoint {checkpoint}: it holds no state of {part.where}; {BEGAN_WITH}")
            _load(part, saved[path]["state"], checkpoint)


def _start(path: str, part: Any, seed: int) -> StartedPart:
    state, kind = part.start(seed=seed_of(seed, "part", path)), kind_of(type(part))
    missing = next((name for name in METHODS if not callable(getattr(state, name, None))), None)
    if missing is not None:
        raise ConfigError(
            f"{path} ({kind}): start returned {describe_value(state)}, which has no {missing}; expected an "
            f"object with {', '.join(METHODS[:-1])} and {METHODS[-1]}"
        )
    check_methods(state, "state", f"{path} ({kind})")
    started = StartedPart(path=path, kind=kind, state=state)
    read_part_state(started.where, state)  # fails now if it cannot be saved
    return started


def _load(part: StartedPart, state: Mapping[str, Any], checkpoint: Path) -> None:
    """Load a part's state, and check that the part then has it."""
    try:
        part.state.load_state_dict(state)
    except Exception as error:  # an outside part may raise anything
        reason = quote_line(str(error), limit=200) or type(error).__name__
        raise TrainingError(
            f"checkpoint {checkpoint}: {part.where} cannot load its state ({reason}); {BEGAN_WITH}"
        ) from error
    if read_part_state(part.where, part.state) != state:
        raise TrainingError(
            f"checkpoint {checkpoint}: {part.where} has another state after load_state_dict than state_dict had "
            "written; see that the one loads all that the other gives"
        )
