"""What an engine is opened with: the run's model, loaded, and where it came from."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """The model that an engine shall speak for.

    Worked example: an engine of this process takes `copy_model()`, or `share_model()` where it shares the learner's
    weights; a client of a server reads the vocabulary off
    `tokenizer` and `path` to see whether the server holds the same model, and copies nothing.
    """

    model: PreTrainedModel
    """The learner's own model; to be looked at, never changed."""
    tokenizer: Any
    """Its tokenizer."""
    path: str | None
    """The folder or hub name it was loaded from; None = it was made from scratch."""
    folder: Path | None = None
    """A place of the run's own for what its engine writes, which need not exist: logs of servers, a model for them to
    load. None = the run is only read, and nothing may be written into its folder."""

    device: torch.device | None = None
    """What the model computes on; one that will be divided is not there yet. None = where it is."""

    def share_model(self) -> PreTrainedModel:
        """The model once more over the very same weights: modules, buffers and settings of its own, no weight twice.

        Whoever gets it reads the learner's weights as they are at any moment, and must not change them.
        """
        same: dict[int, Any] = {id(value): value for value in self.model.parameters()}
        return copy.deepcopy(self.model, same)

    def copy_model(self) -> PreTrainedModel:
        """The model once more, with weights of its own on the learner's device: a hand-over to it is a real one."""
        copied: Any = copy.deepcopy(self.model)
        return copied if self.device is None else copied.to(self.device)  # type: ignore[no-any-return]
