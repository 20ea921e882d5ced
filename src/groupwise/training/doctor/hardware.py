"""The hardware that torch sees: GPUs with their memory, and threads."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A CUDA device."""

    name: str
    free: float
    """Free bytes."""
    memory: float
    """All bytes."""
    has_bfloat16: bool


def count_threads() -> int:
    return torch.get_num_threads()


def list_gpus() -> list[Gpu]:
    devices = []
    for number in range(torch.cuda.device_count()):
        free, whole = torch.cuda.mem_get_info(number)
        name = torch.cuda.get_device_properties(number).name
        has_bfloat16 = torch.cuda.get_device_capability(number) >= (8, 0)
        devices.append(Gpu(name=name, free=float(free), memory=float(whole), has_bfloat16=has_bfloat16))
    return devices
