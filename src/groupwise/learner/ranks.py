"""The processes of a sharded learner: how they start, communicate, and stop if one fails.

Weights and gradients go through torch's default group (NCCL on GPUs). Everything else, such as samples and errors, goes
through a second group over gloo. It notices a dead process at once, and a rank may wait for hours while rank 0 runs
rollouts.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.rendezvous import rendezvous

from groupwise.system.errors import ConfigError, TrainingError
from groupwise.system.processes import StartedRank, read_started_rank

PATIENCE = timedelta(days=7)
"""How long a rank waits for the next call: the rollouts of an update may take hours."""
MAX_START = timedelta(hours=2)
"""How long ranks wait for each other at the start: rank 0 may start engines first."""
FAULT_SECONDS = 5.0
"""How long a rank that lost the others waits for the error message of one of them."""
LOST = ("gloo", "NCCL", "Connection closed", "Connection reset", "Broken pipe", "Timed out", "timed out")
"""Words in errors that come from another rank."""


class AgreedFault(TrainingError):
    """An error that every rank raises at the same place, so all ranks stay synchronized."""


class Ranks:
    """All processes of a learner, as one of them sees them."""

    def __init__(self, device: torch.device, *, timeout: float) -> None:
        started = read_started_rank()
        self._owns_group = not dist.is_initialized()
        if self._owns_group:
            _start_group(started, device, timeout)
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        if self.world != started.world:
            raise ConfigError(
                f"{started.world} processes were started, but torch's process group in this one has {self.world}; let "
                "nothing else start a group here, such as vLLM in the trainer's own process"
            )
        self.device = device
        self.on_device = 1 if device.type == "cuda" else int(os.environ.get("LOCAL_WORLD_SIZE", self.world))
        """How many ranks share a device's memory: one per GPU; on CPUs, all ranks of the machine."""
        self.mesh: DeviceMesh = init_device_mesh(device.type, (self.world,))
        self._control = dist.new_group(backend="gloo", timeout=PATIENCE)

    @property
    def is_leader(self) -> bool:
        return self.rank == 0

    def broadcast(self, value: Any) -> Any:
        """Send rank 0's value to all ranks; no tensors, which would be put on rank 0's device."""
        if self.world == 1:
            return value
        # Plain pickle: torch's own way takes ten times as long for samples, which are many single numbers.
        box: list[Any] = [pickle.dumps(value) if self.is_leader else None]
        with self.name_faults():
            dist.broadcast_object_list(box, src=0, group=self._control)
        return value if self.is_leader else pickle.loads(box[0])  # from our own processes, never from a file

    def gather(self, value: Any) -> list[Any]:
        """Collect the values of all ranks on every rank, in rank order; tensors are put on this rank's device."""
        if self.world == 1:
            return [value]
        written: list[Any] = [None] * self.world
        buffer = io.BytesIO()
        torch.save(value, buffer)
        with self.name_faults():
            dist.all_gather_object(written, buffer.getvalue(), group=self._control)
        # From our own processes, never from a file; a summary of a loss may be an object of any class.
        return [torch.load(io.BytesIO(each), map_location=self.device, weights_only=False) for each in written]

    def agree(self, fault: str | None) -> None:
        """Raise the first rank's error on every rank, if there is one. All ranks call it together."""
        faults = [(rank, said) for rank, said in enumerate(self.gather(fault)) if said]
        if faults:
            rank, said = faults[0]
            raise AgreedFault(said if self.world == 1 else f"rank {rank} of {self.world}: {said}")

    def leave(self, fault: BaseException | None = None) -> None:
        """Leave the group; an error is stored first, so the other ranks can report it."""
        if not dist.is_initialized():
            return
        if fault is not None:
            with suppress(RuntimeError, ValueError, dist.DistError):  # the store may have gone with rank 0
                _store().set(f"fault of rank {self.rank}", f"{type(fault).__name__}: {fault}")
            if self.device.type == "cuda":
                return  # NCCL would wait for the others; the process ends, and torchrun ends theirs
        if self._owns_group:
            with suppress(RuntimeError, dist.DistError):
                dist.destroy_process_group()

    @contextmanager
    def name_faults(self) -> Iterator[None]:
        """If other ranks are gone, raise an error that says which rank stopped, and why."""
        try:
            yield
        except (RuntimeError, dist.DistError) as error:
            if not isinstance(error, dist.DistError) and not any(word in str(error) for word in LOST):
                raise
            for rank in [rank for rank in range(self.world) if rank != self.rank]:
                key, said = f"fault of rank {rank}", ""
                with suppress(RuntimeError, ValueError, dist.DistError):  # it stored nothing, or the store is gone
                    _store().wait([key], timedelta(seconds=FAULT_SECONDS))
                    said = _store().get(key).decode()
                if said:
                    raise TrainingError(
                        f"rank {self.rank} of {self.world} stops because rank {rank} did: {said}; what was "
                        "saved is complete, so continue with --resume"
                    ) from error
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise TrainingError(
                f"rank {self.rank} of {self.world} lost the others ({reason}); look for the rank that ended first in "
                "the lines above, then continue with --resume"
            ) from error


def _start_group(started: StartedRank, device: torch.device, timeout: float) -> None:
    backend = "nccl" if device.type == "cuda" else "gloo"
    wait = timedelta(seconds=timeout)
    if started.world == 1:
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1, timeout=wait)
        return
    try:
        # Rank 0 joins when environments, engine and model are open, which may take longer than any pass.
        store, rank, world = next(rendezvous("env://", timeout=MAX_START))
        store.set(_place_key(rank), device.type)
        store.wait([_place_key(other) for other in range(world)], MAX_START)
        check_same_places(store, rank, world, device)
        dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=wait)
    except (ValueError, RuntimeError, dist.DistError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ConfigError(
            f"rank {started.rank} of {started.world} did not find the others ({reason}); start all of them with one "
            "torchrun command, or give every node the same --rdzv-endpoint"
        ) from None


def check_same_places(store: Any, rank: int, world: int, device: torch.device) -> None:
    for other in range(world):
        place = store.get(_place_key(other)).decode()
        if place != device.type:
            raise ConfigError(
                f"rank {rank} of {world} computes on {device.type}, but rank {other} on {place}; give every rank a GPU "
                "of its own, or set device to what all of them have"
            )


def _place_key(rank: int) -> str:
    return f"place of rank {rank}"


def _store() -> Any:
    return dist.distributed_c10d._get_default_store()
