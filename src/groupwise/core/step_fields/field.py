"""What the table of step fields says of each: what it holds, who says it, where it is written, which column it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupwise.core.records import Step, Trajectory
    from groupwise.core.step_fields.kinds import Kind


class Owner(StrEnum):
    """Who says what a field holds."""

    POLICY = "policy"
    """The model that was sampled."""
    ENVIRONMENT = "environment"
    """The world that was acted in."""
    ROLLOUT = "rollout"
    """The loop that played the attempt."""
    MEASURE = "measure"
    """Who found something out afterwards, before credit; an environment may say such things at once."""
    READER = "reader"
    """Whoever lays steps out as a table, or recorded them elsewhere: our attempts do not say it of themselves."""


class Presence(Enum):
    """When attempts give the step table a column."""

    ALWAYS = auto()
    """Always; None where a step does not say."""
    WHERE_ANY = auto()
    """Where any step says something; None where another does not."""
    WHERE_ALL = auto()
    """Where every step says something: a default for the others would be invented."""
    BY_ITSELF = auto()
    """As `core.step_columns` has a rule for it alone, or only where somebody hands it in."""


class Check(Enum):
    """What the entries of a column are, for the step table."""

    ANYTHING = auto()
    """Anything, kept as it is."""
    NUMBER = auto()
    """Finite numbers of a reward's size."""
    FLAG = auto()
    """True or false."""
    COUNT = auto()
    """Integers from 0 upwards."""
    SUM = auto()
    """Counts, summed over the rows of a step that was cut into segments."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TableColumn:
    """A field as a column of the step table, under its own name."""

    presence: Presence = Presence.WHERE_ANY
    """When attempts give it."""
    check: Check = Check.ANYTHING
    """What its entries are."""
    of_whole_step: bool = False
    """Whether the segments of a step must agree on it."""
    made_by: str = ""
    """Where it comes from, for messages; empty = from the field of `Step` that holds it, or from nowhere by itself."""


KEPT: Any = object()
"""No value of a field: one that is absent at this value is always written."""
ON_STEP: Any = object()
"""What `Step` has where nobody says otherwise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepField:
    """One field of a recorded step.

    Worked example: `entropy` is the entry of a row by that name, a list of finite numbers, which `Step.entropy` holds;
    the policy says it; an empty one is not written; it is no column of the step table and is dropped on the way there.
    """

    name: str
    """Key of a row, and column of the step table where it is one."""
    kind: Kind
    """What it holds."""
    owner: Owner
    """Who says it."""
    meaning: str
    """What it means, for the page of the format."""
    step: str = ""
    """The field of `Step` that holds it; empty = none."""
    trajectory: str = ""
    """The field of `Trajectory` that holds it for all steps, dots allowed; empty = none."""
    make: Callable[[Trajectory, Step], Any] | None = None
    """What a row says, where that is not what the step or the trajectory holds."""
    absent: Any = None
    """The value that is not written, and that a row means which lacks it; None = it says nothing; KEPT = all are."""
    unknown: Any = ON_STEP
    """What a step read back has where its row says nothing; ON_STEP = the default of `Step`."""
    in_rows: bool = True
    """Whether it is a key of a row; else it is only a column."""
    required: bool = False
    """Whether every row has it."""
    uniform: bool = False
    """Whether every row of a file has it, or none: a default for the rest would be an invented number."""
    one_per_token: bool = False
    """Whether it is a list with an entry for each of `response_ids`."""
    bulk: bool = False
    """Whether a file read for credit lets go of it: it is large, and credit does not read it."""
    follows: str = ""
    """The key that it stands behind in the rows of attempts, where that is not the one before it in the table."""
    column: TableColumn | None = None
    """Its column in the step table; None = it is none."""
