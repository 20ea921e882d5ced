"""What an attempt is paid: rewards map it to a number a step; shapers add what comparing it with its group is worth."""

from __future__ import annotations

from groupwise.core.parts.part import Part
from groupwise.rewards.concise import ConciseWhenSolved
from groupwise.rewards.conduct import FormatReward, MalformedResponseReward, RefusedActionReward, StepReward
from groupwise.rewards.diversity import DiversityBonus
from groupwise.rewards.entropy_ranking import EntropyRanking
from groupwise.rewards.function import FunctionReward
from groupwise.rewards.ladder import LadderReward
from groupwise.rewards.length import BrevityReward, LengthReward, OverlongReward
from groupwise.rewards.reference_kl import ReferenceKl
from groupwise.rewards.reward import Reward, RewardSlot
from groupwise.rewards.scoring import score_trajectory
from groupwise.rewards.shaping import shape_group
from groupwise.rewards.success import EnvironmentReward, GradedReward, OutcomeReward
from groupwise.rewards.unlikeliness import Unlikeliness

REWARDS: dict[str, type[Part]] = {
    "environment": EnvironmentReward,
    "function": FunctionReward,
    "outcome": OutcomeReward,
    "graded": GradedReward,
    "step": StepReward,
    "malformed_response": MalformedResponseReward,
    "refused_action": RefusedActionReward,
    "format": FormatReward,
    "overlong": OverlongReward,
    "length": LengthReward,
    "brevity": BrevityReward,
    "ladder": LadderReward,
}

SHAPERS: dict[str, type[Part]] = {
    "concise_when_solved": ConciseWhenSolved,
    "diversity_bonus": DiversityBonus,
    "entropy_ranking": EntropyRanking,
    "reference_kl": ReferenceKl,
    "unlikeliness": Unlikeliness,
}

__all__ = [
    "REWARDS",
    "SHAPERS",
    "BrevityReward",
    "ConciseWhenSolved",
    "DiversityBonus",
    "EntropyRanking",
    "EnvironmentReward",
    "FormatReward",
    "FunctionReward",
    "GradedReward",
    "LadderReward",
    "LengthReward",
    "MalformedResponseReward",
    "OutcomeReward",
    "OverlongReward",
    "ReferenceKl",
    "RefusedActionReward",
    "Reward",
    "RewardSlot",
    "StepReward",
    "Unlikeliness",
    "score_trajectory",
    "shape_group",
]
