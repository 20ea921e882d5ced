"""What a model computes on, by name."""

from __future__ import annotations

import math
import os

import torch

from groupwise.core import free_memory
from groupwise.core.errors import ConfigError


def choose_device(name: str) -> torch.device:
    """The device of a name; "auto" = a GPU where there is one. One that cannot be used here is refused."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device: {name!r} cannot be used ({reason}); give cpu, cuda, or auto") from None
    return device


def read_memory_size(device: torch.device) -> int:
    """Bytes of memory that a device has, whoever uses them: a GPU's own, or the machine's."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def read_free_memory(device: torch.device) -> float:
    """Bytes that can be had on a device: of a GPU with what torch keeps for later, else of the machine's memory."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return float(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
    if device.type not in ("cpu", "mps"):
        return math.inf  # nobody says
    known = free_memory.read_free_memory()
    return read_memory_size(device) if known is None else known
