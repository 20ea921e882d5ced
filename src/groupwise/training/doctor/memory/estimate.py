"""The memory of a run, part by part and stage by stage, in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LEARN = ("weights", "reference", "gradients", "optimiser", "activations", "work space", "engine", "keys and values")
"""Parts that are there while the learner learns."""
ROLLOUT = ("weights", "reference", "optimiser", "engine", "keys and values", "reading")
"""Parts that are there while attempts are played."""


@dataclass(frozen=True, kw_only=True)
class RunMemory:
    """What a run holds, part by part: bytes of tensors, as torch counts them (`torch.cuda.max_memory_allocated`).

    The CUDA context, and what torch's allocator keeps in reserve between tensors, come on top.
    """

    parts: Mapping[str, float]
    """Bytes by part."""
    is_rehearsed: bool
    """Whether attempts were played to find out how long prompts become; otherwise they are as long as they may be."""

    @property
    def rollout(self) -> float:
        """Most while attempts are played."""
        return sum(self.parts[name] for name in ROLLOUT)

    @property
    def learn(self) -> float:
        """Most while the learner learns."""
        return sum(self.parts[name] for name in LEARN)

    @property
    def peak(self) -> float:
        """Most at all."""
        return max(self.rollout, self.learn)
