"""groupwise: group-based reinforcement learning of language-model agents.

from groupwise import StepTable, recipes

table = StepTable.from_columns(task=..., attempt=..., index=..., state=..., reward=...)
credit = recipes.hgpo(depth=2).advantage(table)
credit.values, credit.compared

Training, which needs torch, is loaded when it is first asked for:

folder = groupwise.train({"algorithm": {"recipe": "hgpo"}, "env": {"kind": "household"}, "model": {"kind": "tiny"}})
groupwise.read_run(folder).metrics()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupwise import recipes
from groupwise.core.algorithm import Algorithm
from groupwise.core.credit import Credit
from groupwise.core.errors import ConfigError, FileError, GroupwiseError, RecordError
from groupwise.core.lazy_names import import_when_asked
from groupwise.core.parts.part import Part
from groupwise.core.records import Origin, Step, StopReason, Task, Trajectory
from groupwise.core.step_table import StepTable

if TYPE_CHECKING:
    from groupwise.config.run_file import load_run
    from groupwise.config.runs import open_run, train
    from groupwise.export.write_folder import export_run
    from groupwise.reports.run.recorded_run import read_run
    from groupwise.training.observer import RunObserver
    from groupwise.training.run_config import RunConfig

__version__ = "0.1.0"

__getattr__ = import_when_asked(
    __name__,
    {
        "RunObserver": "groupwise.training.observer:RunObserver",
        "RunConfig": "groupwise.training.run_config:RunConfig",
        "export_run": "groupwise.export.write_folder:export_run",
        "load_run": "groupwise.config.run_file:load_run",
        "open_run": "groupwise.config.runs:open_run",
        "read_run": "groupwise.reports.run.recorded_run:read_run",
        "train": "groupwise.config.runs:train",
    },
)

__all__ = [
    "Algorithm",
    "ConfigError",
    "Credit",
    "FileError",
    "GroupwiseError",
    "Origin",
    "Part",
    "RecordError",
    "RunConfig",
    "RunObserver",
    "Step",
    "StepTable",
    "StopReason",
    "Task",
    "Trajectory",
    "__version__",
    "export_run",
    "load_run",
    "open_run",
    "read_run",
    "recipes",
    "train",
]
