"""Which steps of a table may not train, and which filter says so."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from groupwise.core.algorithm import Algorithm
from groupwise.core.credit import Credit
from groupwise.core.parts.part import name_of
from groupwise.core.parts.slots import Filter
from groupwise.core.step_table import StepTable


@dataclass(frozen=True, kw_only=True)
class DroppedStep:
    """A step that a filter dropped once it had seen its credit."""

    filter: str
    """The filter, in a few words."""
    task: str | int
    """Id of the step's task."""
    attempt: str | int
    """Id of its attempt."""
    index: int
    """Its index."""
    credit: float
    """Its credit, which it does not train on."""


def find_steps_dropped_by_credit(algorithm: Algorithm, table: StepTable, credit: Credit) -> list[DroppedStep]:
    """Every step that a filter drops which reads the credit, in the order of the filters and of the table."""
    seen, earned = algorithm.estimator_table(table), credit.by_step()
    return [
        DroppedStep(
            filter=name_of(part),
            task=table.task_ids[table.task[step]],
            attempt=table.attempt_ids[table.attempt[step]],
            index=int(table.index[step]),
            credit=float(earned.values[step]),
        )
        for part in algorithm.credit_filters
        for step in np.flatnonzero(~part(seen, earned)).tolist()
    ]


def find_filters_that_drop(algorithm: Algorithm, table: StepTable, credit: Credit, step: int) -> list[str]:
    """The filters that drop one step, each in a few words; with none it trains."""
    seen, earned = algorithm.estimator_table(table), credit.by_step()
    bare = replace(table, filters=())
    reading = [part for part in algorithm.credit_filters if not part(seen, earned)[step]]
    others = [cast(Filter, part) for part in algorithm.filters if not getattr(part, "reads_credit", False)]
    return [name_of(part) for part in (*(part for part in others if not part(bare)[step]), *reading)]
