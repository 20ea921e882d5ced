"""Weight transfer: how weights come from the learner to the engine. The canary looks whether they arrived."""

from __future__ import annotations

from groupwise.core.parts.part import Part
from groupwise.training.weight_transfer.adapter import Adapter
from groupwise.training.weight_transfer.in_memory import InMemory
from groupwise.training.weight_transfer.nccl import Nccl
from groupwise.training.weight_transfer.protocol import WeightTransfer, WeightTransferPart, WeightTransferSlot
from groupwise.training.weight_transfer.through_file import ThroughFile

WEIGHT_TRANSFERS: dict[str, type[Part]] = {
    "in_memory": InMemory,
    "through_file": ThroughFile,
    "adapter": Adapter,
    "nccl": Nccl,
}

__all__ = [
    "WEIGHT_TRANSFERS",
    "Adapter",
    "InMemory",
    "Nccl",
    "ThroughFile",
    "WeightTransfer",
    "WeightTransferPart",
    "WeightTransferSlot",
]
