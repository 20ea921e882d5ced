"""groupwise: group-based reinforcement learning of language-model agents.

from groupwise import StepTable, recipes

table = StepTable.from_columns(task=..., attempt=..., index=..., state=..., reward=...)
credit = recipes.hgpo(depth=2).advantage(table)
credit.values, credit.compared
"""

from __future__ import annotations

from groupwise import recipes
from groupwise.core.algorithm import Algorithm
from groupwise.core.credit import Credit
from groupwise.core.errors import ConfigError, FileError, GroupwiseError, RecordError
from groupwise.core.parts import Part
from groupwise.core.records import Origin, Step, StopReason, Task, Trajectory
from groupwise.core.step_table import StepTable

__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "ConfigError",
    "Credit",
    "FileError",
    "GroupwiseError",
    "Origin",
    "Part",
    "RecordError",
    "Step",
    "StepTable",
    "StopReason",
    "Task",
    "Trajectory",
    "__version__",
    "recipes",
]
