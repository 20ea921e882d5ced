"""The rules of `groupwise check part MODULE:CLASS`, for your own parts before a run."""

from __future__ import annotations

from typing import Any

import numpy as np

from groupwise.data.credit import Credit
from groupwise.data.records import Task
from groupwise.data.step_table import StepTable
from groupwise.parts.part import Part, Slot, kind_of, name_of
from groupwise.parts.requirements import REQUIRED, check_members, check_methods
from groupwise.parts.stateful import is_stateful, read_columns, read_part_state
from groupwise.system.errors import ConfigError, RecordError, TrainingError
from groupwise.system.quoted_errors import BrokenRuleError, NotTestedError, RuleResult, describe_result, try_rule

ASKED_WITH_A_TABLE = ("grouper", "signal", "estimator", "filter", "pairing")
"""Slots whose parts can be called without a run."""


def check_part(part: Part) -> list[RuleResult]:
    results = []
    for rule in RULES:
        try:
            results.append(try_rule(rule, lambda: part, passing=(ConfigError, TrainingError)))
        except (ConfigError, TrainingError) as error:  # its message names the part already
            results.append(describe_result(rule, "broken", str(error)))
    return results


def has_what_its_slot_needs(part: Part) -> str:
    """A method that is missing, or takes other arguments, would end a run in the middle."""
    check_members(part, part.slot)
    needed = [name for name, required in REQUIRED[part.slot].items() if required.written]
    return f"it is a {part.slot}, with {', '.join(needed)}"


def can_stand_in_a_run_file(part: Part) -> str:
    """A run stores its settings, and makes its parts from them again when it is resumed."""
    config = part.config()
    again = Slot(part.slot).fill(config)
    if again != part:
        raise BrokenRuleError(f"its settings {config} build a different part, {name_of(again)}")
    return f"{config}"


def gives_what_is_needed(part: Part) -> str:
    """A wrong result would fail later, in other code."""
    return f"for a table of {len(_make_table())} steps, it returned {type(_ask(part, _make_table())).__name__}"


def keeps_tasks_apart(part: Part) -> str:
    """The results for a task's steps must not depend on the other tasks of the update."""
    if part.mixes_tasks:
        raise NotTestedError("it declares that it compares across tasks")
    together, alone = _make_table(), _make_table(("pears",))
    rows = together.task == together.task_ids.index("pears")
    first, second = _flatten(_ask(part, together), together)[rows], _flatten(_ask(part, alone), alone)
    if part.slot == "grouper":  # labels are only names: compare which steps have the same one
        first, second = ((labels[:, None] == labels) & (labels >= 0) for labels in (first, second))
    if not np.array_equal(first, second):
        raise BrokenRuleError(
            f"the steps of a task get {second.tolist()} without other tasks in the table, and {first.tolist()} with "
            "another task"
        )
    return "a task's steps get the same results alone and beside another task"


def goes_on_where_it_was(part: Part) -> str:
    """A resumed run starts the part from its state in the journal."""
    where, tasks = kind_of(type(part)), [Task(id="pears"), Task(id="plums")]
    if not is_stateful(part):
        raise NotTestedError("it has no state: it has no method start(seed)")
    state, again = part.start(seed=0), part.start(seed=0)
    check_methods(state, "state", where)
    kept = read_part_state(where, state)
    again.load_state_dict(kept)
    if read_part_state(where, again) != kept or read_columns(where, again, tasks) != read_columns(where, state, tasks):
        raise BrokenRuleError(f"after load_state_dict({kept}) its state is {read_part_state(where, again)}")
    return "load_state_dict restores the result of state_dict"


RULES = (
    has_what_its_slot_needs,
    can_stand_in_a_run_file,
    gives_what_is_needed,
    keeps_tasks_apart,
    goes_on_where_it_was,
)


def _make_table(tasks: tuple[str, ...] = ("pears", "plums")) -> StepTable:
    """Three rollouts of two steps per task, which share states and get different rewards."""
    places = [(task, rollout, index) for task in tasks for rollout in range(3) for index in range(2)]
    num = len(places)
    return StepTable.from_columns(
        task=[task for task, _, _ in places],
        rollout=[rollout for _, rollout, _ in places],
        step=[index for _, _, index in places],
        state=[f"{task}, {index * (rollout % 2)}" for task, rollout, index in places],
        reward=[float(rollout * index) for _, rollout, index in places],
        action=[f"go {rollout % 2}" for _, rollout, _ in places],
        stop=["terminated" if index else None for _, _, index in places],
        **{name: [True] * num for name in ("well_formed", "accepted")},
        cut=[False] * num,
        tokens=[3] * num,
    )


def _ask(part: Any, table: StepTable) -> Any:
    if part.slot not in ASKED_WITH_A_TABLE:
        raise NotTestedError(f"a {part.slot} is called within a run, which checks each result")
    if getattr(part, "reads_credit", False):
        raise NotTestedError("it reads the advantages of a run")
    try:
        return part(table)
    except RecordError as error:
        raise NotTestedError(f"it cannot read the table of this check: {error}") from None


def _flatten(result: Any, table: StepTable) -> np.ndarray[Any, Any]:
    """A part's result as an array of one number per step."""
    if isinstance(result, Credit):
        return result.trace.values
    if isinstance(result, np.ndarray):
        return result
    won = np.zeros(len(table))
    for pair in result:
        won += pair.weight * ((table.rollout == pair.winner) * 1.0 - (table.rollout == pair.loser))
    return won
