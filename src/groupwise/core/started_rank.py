"""What torchrun tells the processes that it starts, by variables; their own children may not believe it too."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from groupwise.core.errors import ConfigError

NAMES = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
PREFIXES = ("GROUP_", "ROLE_", "TORCHELASTIC_")


@dataclass(frozen=True, kw_only=True)
class StartedRank:
    """What torchrun tells a process about itself."""

    rank: int
    """Number of the process."""
    world: int
    """How many there are."""
    local_rank: int
    """Number of the process on its machine, which is the number of its GPU."""


def read_started_rank() -> StartedRank:
    """Who this process is, as torchrun says it in variables; alone where it does not."""
    try:
        rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        return StartedRank(rank=rank, world=world, local_rank=int(os.environ.get("LOCAL_RANK", rank)))
    except ValueError as error:
        raise ConfigError(
            f"RANK, WORLD_SIZE and LOCAL_RANK are not whole numbers ({error}); start the run with torchrun, which sets "
            "them, or unset all three"
        ) from None


def drop_torchrun_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment for a process that is no rank: a server that finds these variables waits for ranks of its own.

    >>> drop_torchrun_variables({"RANK": "0", "TORCHELASTIC_USE_AGENT_STORE": "True", "LANG": "C"})
    {'LANG': 'C'}
    """
    return {name: value for name, value in environment.items() if name not in NAMES and not name.startswith(PREFIXES)}
