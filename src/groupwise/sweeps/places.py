"""How many runs of a sweep train beside each other: as many as cores, memory and GPUs allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MEMORY_SHARE = 0.9
"""Share of the free memory that runs may take: estimates are estimates."""
PROCESS_MEMORY = 0.8e9
"""Bytes of a process that trains, beside its model: the interpreter, torch, transformers."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What a machine has to give."""

    cores: int
    """Cores that nobody else uses."""
    memory: float | None
    """Free bytes; None = the system does not say."""
    gpus: Sequence[float]
    """Free bytes of each GPU that the runs may compute on; none = they compute on the CPU."""


@dataclass(frozen=True, kw_only=True)
class RunNeeds:
    """What one run takes, the largest of a sweep."""

    threads: int
    """Threads that it computes with."""
    memory: float
    """Bytes of weights, gradients, optimiser and activations, on a GPU where there is one."""
    alone_because: str = ""
    """Why no other run may be beside it, in words; empty = others may."""
    fills_gpu: bool = False
    """Whether it has an engine that takes a GPU's memory for itself."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where runs may train at the same time."""

    gpus: tuple[int | None, ...]
    """A place for each run that may train at a time: the number of its GPU, or None on the CPU."""
    reason: str
    """What sets the limit, in words."""


def find_places(num_runs: int, needs: RunNeeds, machine: Machine) -> Places:
    """Where at most `num_runs` runs can train at the same time; there is always one place.

    A run on a GPU needs a core and the memory of that GPU; one on the CPU needs as many cores as it has threads.

    >>> needs = RunNeeds(threads=2, memory=1e9)
    >>> find_places(10, needs, Machine(cores=8, memory=64e9, gpus=()))
    Places(gpus=(None, None, None, None), reason='8 free cores for 2 threads each')
    """
    if needs.alone_because:
        return _take([*range(len(machine.gpus))] or [None], 1, needs.alone_because)
    limits = {"no more runs": num_runs} | _limit_by_memory(needs, machine)
    places: list[int | None] = [None] * num_runs
    if machine.gpus:
        rooms = [_count_room(free, needs) for free in machine.gpus]
        places = [gpu for place in range(max(rooms)) for gpu, room in enumerate(rooms) if place < room]
        limits[f"room on {_count(len(rooms), 'GPU')}"] = len(places)
        limits[_count(machine.cores, "free core")] = machine.cores
    else:
        cores = f"{_count(machine.cores, 'free core')} for {_count(needs.threads, 'thread')} each"
        limits[cores] = machine.cores // needs.threads
    reason = min(limits, key=lambda words: limits[words])
    return _take(places, limits[reason], reason)


def _limit_by_memory(needs: RunNeeds, machine: Machine) -> dict[str, int]:
    """How many processes the machine's own memory holds, with the words for it; nothing where nobody knows."""
    if machine.memory is None:
        return {}
    of_run = PROCESS_MEMORY + (0.0 if machine.gpus else needs.memory)
    return {f"{machine.memory / 1e9:.1f} GB of free memory": int(MEMORY_SHARE * machine.memory / of_run)}


def _take(places: Sequence[int | None], limit: int, reason: str) -> Places:
    return Places(gpus=tuple(places[: max(1, limit)]), reason=reason)


def _count_room(free: float, needs: RunNeeds) -> int:
    """How many runs a GPU holds; one that seems too small is tried all the same."""
    return 1 if needs.fills_gpu else max(1, int(MEMORY_SHARE * free / max(needs.memory, 1.0)))


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
