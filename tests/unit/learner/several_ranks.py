"""Functions run on several ranks: processes that join by a file and talk over gloo.

They are forked from a server that has imported everything once: a fork of pytest itself would copy its threads' locks.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_SECONDS = 120.0
"""Until which all ranks must have ended by themselves; a busy machine takes a few."""
PRELOADED = ["tests.unit.learner.rank_jobs", "tests.preloaded", "peft.tuners.lora"]


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a rank ended."""

    value: Any = None
    """What its function returned."""
    error: BaseException | None = None
    """What it raised, or None."""
    said: str = ""
    """The traceback, for whoever looks at a failed test."""


def run_on_ranks(function: Callable[..., Any], *args: Any, world: int = 2) -> list[Ended]:
    """Run a function on ranks 0, 1, ...; how each ended. A rank that died without a word has no value and no error."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            context.Process(target=_run, args=(function, args, rank, world, Path(folder)), daemon=True)
            for rank in range(world)
        ]
        for process in processes:
            process.start()
        deadline = time.monotonic() + MAX_SECONDS
        for process in processes:
            process.join(max(deadline - time.monotonic(), 0.1))
        stuck = [rank for rank, process in enumerate(processes) if process.is_alive()]
        for rank in stuck:
            processes[rank].kill()
        assert not stuck, f"ranks {stuck} had not ended after {MAX_SECONDS:.0f} s"
        return [_read(Path(folder) / f"rank {rank}") for rank in range(world)]


def run_whole(function: Callable[..., Any], *args: Any, world: int = 2) -> list[Any]:
    """Run a function that no rank may fail in; what each returned."""
    ended = run_on_ranks(function, *args, world=world)
    for rank, end in enumerate(ended):
        assert end.error is None, f"rank {rank}: {end.said}"
    return [end.value for end in ended]


def _read(path: Path) -> Ended:
    return pickle.loads(path.read_bytes()) if path.exists() else Ended()


def _run(function: Callable[..., Any], args: tuple[Any, ...], rank: int, world: int, folder: Path) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(world))
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=world)
    try:
        ended = Ended(value=function(rank, *args))
    except BaseException as error:
        ended = Ended(error=error, said=traceback.format_exc())
    (folder / f"rank {rank}").write_bytes(pickle.dumps(ended))
