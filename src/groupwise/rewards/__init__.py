"""What an attempt is paid: parts that map a trajectory to a number a step, and their sum."""

from __future__ import annotations

from groupwise.core.parts import Part
from groupwise.rewards.conduct import FormatReward, InvalidActionReward, StepReward
from groupwise.rewards.length import LengthReward, OverlongReward
from groupwise.rewards.rescored import rescored
from groupwise.rewards.reward import Reward, RewardSlot
from groupwise.rewards.success import EnvironmentReward, OutcomeReward

REWARDS: dict[str, type[Part]] = {
    "environment": EnvironmentReward,
    "outcome": OutcomeReward,
    "step": StepReward,
    "invalid_action": InvalidActionReward,
    "format": FormatReward,
    "overlong": OverlongReward,
    "length": LengthReward,
}

__all__ = [
    "REWARDS",
    "EnvironmentReward",
    "FormatReward",
    "InvalidActionReward",
    "LengthReward",
    "OutcomeReward",
    "OverlongReward",
    "Reward",
    "RewardSlot",
    "StepReward",
    "rescored",
]
