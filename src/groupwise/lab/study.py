"""The study: every recipe's credit, held against the truth of one recording."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from groupwise import recipes
from groupwise.core.algorithm import Algorithm
from groupwise.core.errors import ConfigError, GroupwiseError
from groupwise.core.segments import FloatArray
from groupwise.envs.environment import EnvironmentPart
from groupwise.lab.listed_recording import FIRST_PROMPT_ID, Key, ListedTask, Sight, list_task, record_listed
from groupwise.lab.measures import measure_credit
from groupwise.lab.recipe_credit import credit_recording
from groupwise.lab.recording import Recording
from groupwise.lab.skill import make_skilled_policy
from groupwise.lab.tools import LabTools, ListedTools


@dataclass(frozen=True, kw_only=True)
class ListedCondition:
    """Circumstances in which credit is studied, in a world that can be listed."""

    env: EnvironmentPart
    """The environment: one whose tasks `enumerate_task` can list."""
    tasks: int = 8
    """Tasks of every update, the first of the training panel."""
    attempts: int = 8
    """Attempts of a group."""
    updates: int = 100
    """How often all groups are drawn."""
    skill: float = 1.5
    """How much likelier than by chance the policy does what is best."""
    roughness: float = 0.5
    """How different its habits are from one situation to the next."""
    sees: Sight = 0
    """How many past steps the policy sees beside the text of now; or "situation": the whole state, as a policy does
    that remembers everything."""
    key: Key = "situation"
    """What makes two steps comparable."""
    gamma: float = 1.0
    """How much a reward one step later counts in the truth."""
    seed: int = 0
    """Where all random numbers come from."""


def record_condition(condition: ListedCondition) -> tuple[Recording, LabTools]:
    """Play a condition and find the truth of its steps."""
    make_policy = partial(
        make_skilled_policy, skill=condition.skill, roughness=condition.roughness, seed=condition.seed
    )
    tasks: list[ListedTask] = []
    for task in condition.env.panel("train")[: condition.tasks]:
        first = tasks[-1].next_prompt if tasks else FIRST_PROMPT_ID
        tasks.append(list_task(condition.env, task, make_policy, sees=condition.sees, first_prompt=first))
    recording = record_listed(
        tasks,
        updates=condition.updates,
        attempts=condition.attempts,
        key=condition.key,
        gamma=condition.gamma,
        seed=condition.seed,
    )
    return recording, ListedTools(condition.env, tasks)


def list_algorithms(names: Sequence[str] | None = None) -> dict[str, Algorithm]:
    """The recipes of the catalogue by name, with their own defaults; None = all of them."""
    return {name: recipes.build(name) for name in names or recipes.names()}


def study_recording(
    recording: Recording,
    algorithms: Mapping[str, Algorithm],
    *,
    tools: LabTools,
    seed: int = 0,
    tell: Callable[[str], None] = lambda name: None,
) -> dict[str, Any]:
    """Hold the credit of each algorithm against the truth of a recording.

    Returns what the recording is like, and for each algorithm how far it is from the truth; or why it cannot be said;
    or the earlier algorithm whose credit is the same in every digit.
    """
    results: dict[str, Any] = {}
    known: dict[str, FloatArray] = {}
    for name, algorithm in algorithms.items():
        tell(name)
        try:
            credit = credit_recording(algorithm, recording, tools=tools, seed=seed)
        except GroupwiseError as error:
            results[name] = {"not_measured": str(error)}
            continue
        twin = next((other for other, values in known.items() if np.array_equal(values, credit.values)), None)
        if twin is not None:
            results[name] = {"level": credit.level, "same_as": twin}
            continue
        known[name] = credit.values
        results[name] = {"level": credit.level, **_leave_out_nan(asdict(measure_credit(credit.values, recording)))}
    if not known:
        raise ConfigError("none of the recipes that were asked for can be measured here; ask for others")
    return {"recording": recording.describe(), "recipes": results}


def _leave_out_nan(numbers: Any) -> Any:
    """The same with None where a number is not known, as JSON has it."""
    if isinstance(numbers, dict):
        return {name: _leave_out_nan(number) for name, number in numbers.items()}
    return None if isinstance(numbers, float) and not np.isfinite(numbers) else numbers
