"""How a policy is evaluated: which tasks, how often, at which temperature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from groupwise.parts.part import Part
from groupwise.parts.slots import REFUSED_SAMPLING


class EvaluationConfig(Part):
    """How the policy is evaluated."""

    refused_fields: ClassVar[Mapping[str, str]] = REFUSED_SAMPLING

    split: str = "test"
    """Panel of tasks, disjoint from training's."""
    tasks: Annotated[int, Field(ge=0)] = 200
    """How many of its tasks, from the first; 0 = no evaluation."""
    every: Annotated[int, Field(ge=0)] = 0
    """Updates between evaluations; 0 = only before the first update and after the last."""
    patience: Annotated[int, Field(ge=0)] = 0
    """Evaluations in a row without a higher success after which the run ends early; 0 = it makes all its updates."""
    attempts: Annotated[int, Field(ge=1)] = 1
    """Attempts at each."""
    temperature: Annotated[float, Field(ge=0)] = 0.4
    """Divides the logits; 0 = always the likeliest token."""
