"""groupwise: group-based reinforcement learning of language-model agents.

from groupwise import StepTable, methods

table = StepTable.from_columns(task=..., rollout=..., step=..., state=..., reward=...)
credit = methods.hgpo(depth=2).advantage(table)
credit.values, credit.compared

Training needs torch, and is loaded at its first use:

folder = groupwise.train({"algorithm": {"method": "hgpo"}, "env": {"kind": "household"}, "model": {"kind": "tiny"}})
groupwise.read_run(folder).metrics()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from groupwise import methods
from groupwise.data.credit import Credit
from groupwise.data.records import Origin, Step, StopReason, Task, Trajectory
from groupwise.data.step_table import StepTable
from groupwise.parts.algorithm import Algorithm
from groupwise.parts.part import Part
from groupwise.system.errors import ConfigError, FileError, GroupwiseError, RecordError
from groupwise.system.lazy_names import import_when_asked

if TYPE_CHECKING:
    from groupwise.report.recorded_run import read_run
    from groupwise.training.config.run_config import RunConfig
    from groupwise.training.config.run_file import load_run
    from groupwise.training.export import export_run
    from groupwise.training.loop import train
    from groupwise.training.observer import RunObserver
    from groupwise.training.open_run import open_run

__version__ = "0.1.0"

__getattr__ = import_when_asked(
    __name__,
    {
        "RunObserver": "groupwise.training.observer:RunObserver",
        "RunConfig": "groupwise.training.config.run_config:RunConfig",
        "export_run": "groupwise.training.export:export_run",
        "load_run": "groupwise.training.config.run_file:load_run",
        "open_run": "groupwise.training.open_run:open_run",
        "read_run": "groupwise.report.recorded_run:read_run",
        "train": "groupwise.training.loop:train",
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
    "methods",
    "open_run",
    "read_run",
    "train",
]
