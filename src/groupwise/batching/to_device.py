"""Moving what holds tensors to a device."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch


def moved(holder: Any, device: torch.device | str) -> dict[str, Any]:
    """The fields of a dataclass that can be moved to a device, moved."""
    return {
        field.name: value.to(device) for field in fields(holder) if hasattr(value := getattr(holder, field.name), "to")
    }
