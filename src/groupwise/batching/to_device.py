"""Moving dataclasses that hold tensors to a device."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, TypeVar

import torch

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Holder = TypeVar("Holder", bound="DataclassInstance")


def to_device(holder: Holder, device: torch.device | str) -> Holder:
    """The same dataclass with those of its fields on a device that can be moved there."""
    values = {field.name: getattr(holder, field.name) for field in fields(holder)}
    return replace(holder, **{name: value.to(device) for name, value in values.items() if hasattr(value, "to")})
