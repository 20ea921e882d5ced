"""What a run is watched for: the section [alarms] of a run file, without torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from groupwise.core.parts.part import Part
from groupwise.training.alarms.rule import AlarmRule
from groupwise.training.alarms.rules import (
    CutOff,
    EntropyCollapse,
    EntropyExplosion,
    FarFromReference,
    LengthCollapse,
    LengthGrowth,
    NoSignal,
    RewardHacking,
    SamplerGap,
    Truncated,
)


class AlarmsConfig(Part):
    """What a run is watched for. Each alarm has an `action` (off, warn, stop) and limits of its own."""

    window: Annotated[int, Field(ge=1)] = 5
    """Updates that are averaged: the latest, and the run's first to compare them with."""
    entropy_collapse: EntropyCollapse = EntropyCollapse()
    """Entropy fell to almost nothing while attempts still fail."""
    entropy_explosion: EntropyExplosion = EntropyExplosion()
    """Entropy grew far beyond what it was, without more success."""
    reference_kl: FarFromReference = FarFromReference()
    """The policy is far from the one that the run started from."""
    sampler_gap: SamplerGap = SamplerGap()
    """Whoever samples and whoever learns give the same tokens other log-probs."""
    length_growth: LengthGrowth = LengthGrowth()
    """Responses grew far beyond what they were, without more success."""
    length_collapse: LengthCollapse = LengthCollapse()
    """Responses shrank to a fraction of what they were, without more success."""
    cut_off: CutOff = CutOff()
    """Many responses come to be cut off by `rollout.max_tokens`."""
    truncated: Truncated = Truncated()
    """Many attempts come to be cut off by the environment's limit on steps."""
    no_signal: NoSignal = NoSignal()
    """For long, no group has any credit."""
    reward_hacking: RewardHacking = RewardHacking()
    """The training reward rises while held-out success falls."""

    def list_rules(self) -> Iterator[tuple[str, AlarmRule]]:
        """The alarms that are not off, by name."""
        for name in type(self).model_fields:
            rule = getattr(self, name)
            if isinstance(rule, AlarmRule) and rule.action != "off":
                yield name, rule
