"""What torchrun tells the processes that it starts, by variables; their own children may not believe it too."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from groupwise.core.errors import ConfigError

NAMES = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
NUMBERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
WAYS = "start the run with torchrun, which sets all of them, or unset them for a run in one process"
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
    local_world: int
    """How many there are on its machine."""


def read_started_rank() -> StartedRank:
    """Who this process is, as torchrun says it in variables; alone where it says nothing.

    Half of what it says is refused: a process that took itself for alone would write where another one does.
    """
    given = {name: os.environ[name] for name in NUMBERS if name in os.environ}
    if not given:
        return StartedRank(rank=0, world=1, local_rank=0, local_world=1)
    for name in NUMBERS:
        if name not in given and name != "LOCAL_WORLD_SIZE":
            raise ConfigError(
                f"{' and '.join(given)} {'is' if len(given) == 1 else 'are'} set, but {name} is not; {WAYS}"
            )
    try:
        rank, world, local_rank = (int(given[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
        local_world = int(given.get("LOCAL_WORLD_SIZE", local_rank + 1))
    except ValueError as error:
        raise ConfigError(f"{', '.join(given)} are not whole numbers ({error}); {WAYS}") from None
    if not (0 <= local_rank <= rank < world and local_rank < local_world <= world):
        shown = ", ".join(f"{name}={value}" for name, value in given.items())
        raise ConfigError(f"{shown} do not go together: ranks are counted from 0, and are fewer than all; {WAYS}")
    return StartedRank(rank=rank, world=world, local_rank=local_rank, local_world=local_world)


def check_started_rank() -> StartedRank:
    """Who this process is; one of several that is not told where to find the others is refused before it loads."""
    started = read_started_rank()
    for name in ("MASTER_ADDR", "MASTER_PORT") if started.world > 1 else ():
        if not os.environ.get(name):
            raise ConfigError(
                f"{started.world} processes were started, but {name} does not say where they meet; {WAYS}"
            )
    return started


def drop_torchrun_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment for a process that is no rank: a server that finds these variables waits for ranks of its own.

    >>> drop_torchrun_variables({"RANK": "0", "TORCHELASTIC_USE_AGENT_STORE": "True", "LANG": "C"})
    {'LANG': 'C'}
    """
    return {name: value for name, value in environment.items() if name not in NAMES and not name.startswith(PREFIXES)}
