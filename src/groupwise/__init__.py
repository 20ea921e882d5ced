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

from importlib import import_module
from typing import TYPE_CHECKING, Any

from groupwise import methods
from groupwise.data.credit import Credit
from groupwise.data.records import Origin, Step, StopReason, Task, Trajectory
from groupwise.data.step_table import StepTable
from groupwise.parts.algorithm import Algorithm
from groupwise.parts.part import Part
from groupwise.system.errors import ConfigError, FileError, GroupwiseError, RecordError

if TYPE_CHECKING:
    from groupwise.agents import Ended, agent
    from groupwise.report.recorded_run import read_run
    from groupwise.training.config.run_config import RunConfig
    from groupwise.training.config.run_file import load_run
    from groupwise.training.export import export_run
    from groupwise.training.loop import train
    from groupwise.training.observer import RunObserver
    from groupwise.training.open_run import open_run

__version__ = "0.1.0"

_LOADED_WHEN_ASKED = {
    "agent": "groupwise.agents",
    "Ended": "groupwise.agents",
    "RunObserver": "groupwise.training.observer",
    "RunConfig": "groupwise.training.config.run_config",
    "export_run": "groupwise.training.export",
    "load_run": "groupwise.training.config.run_file",
    "open_run": "groupwise.training.open_run",
    "read_run": "groupwise.report.recorded_run",
    "train": "groupwise.training.loop",
}
"""Names whose modules take seconds to load, or need torch."""


def __getattr__(name: str) -> Any:
    if name not in _LOADED_WHEN_ASKED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_LOADED_WHEN_ASKED[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == __name__:
            raise
        raise ImportError(
            f"{__name__}.{name} needs {error.name}, which is not installed: pip install 'groupwise[train]'"
        ) from error


__all__ = [
    "Algorithm",
    "ConfigError",
    "Credit",
    "Ended",
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
    "agent",
    "export_run",
    "load_run",
    "methods",
    "open_run",
    "read_run",
    "train",
]
