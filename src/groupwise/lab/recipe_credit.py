"""The credit that a recipe gives an update, by the same calls as in training: admitted, measured, shaped, credited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from groupwise.core.algorithm import Algorithm
from groupwise.core.errors import ConfigError
from groupwise.core.parts.part import name_of
from groupwise.core.parts.slots import Draw
from groupwise.core.seeds import seed_of
from groupwise.core.segments import FloatArray
from groupwise.lab.recording import Recording
from groupwise.lab.tools import LabTools
from groupwise.rewards import shape_group
from groupwise.rollout.plans.plan import Group
from groupwise.training.attempts.admission import admit_attempts
from groupwise.training.attempts.measuring import add_facts
from groupwise.training.part_states import PartStates
from groupwise.training.samples import CreditedBatch, credit_batch

Level = Literal["attempt", "step", "token"]
"""Below what a recipe's credit differs: all steps of an attempt have one number, or steps have, or tokens have."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RecipeCredit:
    """What a recipe gave every step of a recording."""

    values: FloatArray
    """Credit of each step (N); of a step with credit on its tokens, the mean over those where the policy had a choice;
    0 for what does not train."""
    level: Level
    """Below what it differs, as found in the recording."""


def credit_recording(algorithm: Algorithm, recording: Recording, *, tools: LabTools, seed: int = 0) -> RecipeCredit:
    """Give every update of a recording credit, each by itself, as the first update of a run.

    What a recipe remembers of earlier updates (past attempts that it recalls, states of its parts) and attempts that it
    would ask for with guidance are left out: every update begins anew. Of several channels, the first is taken: that of
    `advantage`.
    """
    check_needs(algorithm, tools)
    values = np.concatenate(
        [
            credit_update(algorithm, groups, tools=tools, seed=seed_of(seed, "update", number))
            for number, groups in enumerate(recording.updates)
        ]
    )
    return RecipeCredit(values=values, level=_find_level(algorithm, recording, values))


def check_needs(algorithm: Algorithm, tools: LabTools) -> None:
    """Refuse an algorithm whose measures need what the lab's policy does not have."""
    for part in algorithm.measures or ():
        for need in sorted(part.needs - tools.gives):
            raise ConfigError(f"{name_of(part)} asks for {need!r}, which this policy does not have")


def credit_update(algorithm: Algorithm, groups: Sequence[Group], *, tools: LabTools, seed: int) -> FloatArray:
    """The credit of every step of an update, in the order of its groups and attempts."""

    def draw(*path: str | int) -> np.random.Generator:
        return np.random.default_rng(seed_of(seed, *path))

    admitted, _ = admit_attempts(groups, algorithm.admissions or (), draw=draw)
    measured = _measure(algorithm, admitted, tools, draw)
    chosen = [attempt for group in measured for attempt in shape_group(group, algorithm.shapers)]
    by_step: dict[tuple[str, int], float] = {}
    if chosen:
        states = PartStates.start(algorithm, seed=seed, tasks=[group[0].task for group in groups])
        version = max((version for attempt in chosen for version in attempt.versions), default=0)
        batch = credit_batch(algorithm, chosen, version=version, states=states.describe_before(chosen))
        by_step = _read_credit(batch)
    return np.array(
        [by_step.get((attempt.id, step.index), 0.0) for group in groups for attempt in group for step in attempt.steps]
    )


def _measure(algorithm: Algorithm, groups: Sequence[Group], tools: LabTools, draw: Draw) -> Sequence[Group]:
    for place, part in enumerate(algorithm.measures or ()):

        def draw_for(*path: str | int, place: int = place) -> np.random.Generator:
            return draw("measure", place, *path)

        groups = add_facts(part, groups, part(groups, tools, draw=draw_for))
    return groups


def _read_credit(batch: CreditedBatch) -> dict[tuple[str, int], float]:
    """The credit of each step that trains, by its attempt and index."""
    steps = [(attempt, step) for attempt in batch.trajectories for step in attempt.steps]
    credit = {}
    for row, (attempt, step) in enumerate(steps):
        value = float(batch.values[row])
        if batch.tokens is not None:
            own = batch.tokens[row]
            had_choice = [entropy > 0 for entropy in step.entropy] or [True] * len(own.values)
            chosen = [
                number
                for number, trains, chose in zip(own.values, own.trains, had_choice, strict=True)
                if trains and chose
            ]
            value = float(np.mean(chosen)) if chosen else 0.0
        credit[attempt.id, step.index] = value if batch.keep[row] else 0.0
    return credit


def _find_level(algorithm: Algorithm, recording: Recording, values: FloatArray) -> Level:
    if algorithm.token_credit is not None:
        return "token"
    place = 0
    for attempt in recording.attempts:
        own = values[place : place + len(attempt.steps)]
        if not np.all(own == own[:1]):
            return "step"
        place += len(attempt.steps)
    return "attempt"
