"""How many threads a run computes with, where it leaves that to the machine: settled once, and kept with the run.

Sums come out in another order with another number of threads, and so do the last digits of a run. A run that is resumed
takes the number that it began with, whatever the machine does by then. Ranks of one run settle on the same number.
"""

from __future__ import annotations

import os
from pathlib import Path

from groupwise.core.free_cores import choose_threads
from groupwise.core.run_paths import RunPaths
from groupwise.core.started_rank import read_started_rank
from groupwise.core.text.files import parse_toml, read_text_file
from groupwise.training.run_config import RunConfig


def settle_threads(config: RunConfig, folder: Path) -> RunConfig:
    """Settle how many threads a run computes with: as many as it began with, or as the machine has to spare now."""
    if not config.shares_cores:
        return config
    threads = _read_recorded(folder) or choose_threads(config.threads, ranks=_count_ranks_here())
    return config.model_copy(update={"threads": threads, "shares_cores": False})


def _count_ranks_here() -> int:
    """Processes of this run on this machine; all of them where nothing says how many are on another one."""
    started = read_started_rank()
    return started.local_world if "LOCAL_WORLD_SIZE" in os.environ else started.world


def _read_recorded(folder: Path) -> int | None:
    """The number that the run in a folder began with; None where there is none."""
    try:
        recorded = parse_toml(read_text_file(RunPaths(folder).config)).get("threads")
    except (OSError, ValueError):  # no run, or one whose settings cannot be read, which is told elsewhere
        return None
    return recorded if isinstance(recorded, int) and recorded > 0 else None
