"""What a request to score text names: the prompt with the response to it, and whose weights score it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

PromptAndResponse = tuple[Sequence[int], Sequence[int]]
"""Ids of a prompt, and of a response to it."""
Whose = Literal["current", "reference"]
"""Which weights are asked: those of now, which sampled the update's attempts, or those that the run started from."""
