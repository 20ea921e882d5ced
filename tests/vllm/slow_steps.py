"""Runs in vLLM's environment: a server whose tokens take their time while a file is there.

A small model samples faster than vLLM's front end reads on a busy machine. Then the front end answers nothing else, not
even a pause, until the responses are over.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from vllm.v1.sample.logits_processor import LogitsProcessor

STEP_SECONDS = 0.1


class SlowSteps(LogitsProcessor):  # type: ignore[misc]
    """Changes no number. Each step waits while a file called `slow` lies beside the model's folder."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._file = Path(vllm_config.model_config.model).parent / "slow"

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self._file.exists():
            time.sleep(STEP_SECONDS)
        return logits

    def is_argmax_invariant(self) -> bool:
        return True

    def update_state(self, batch_update: Any) -> None:
        pass
