"""Credit below the step: how the tokens of a response share its credit, and which of them train."""

from __future__ import annotations

from groupwise.advantages.token_credit.conflict_tokens import ConflictTokens
from groupwise.advantages.token_credit.dual_down_sampling import DualDownSampling
from groupwise.advantages.token_credit.judged_credit import JudgedCredit
from groupwise.advantages.token_credit.line_gains import LineGains
from groupwise.advantages.token_credit.plain_tokens import DiscountedTokens, FirstTokens
from groupwise.advantages.token_credit.potential_credit import PotentialCredit
from groupwise.advantages.token_credit.rank_bonus import RankBonus
from groupwise.advantages.token_credit.rank_credit import RankCredit
from groupwise.advantages.token_credit.segment_credit import SegmentCredit
from groupwise.advantages.token_credit.spared_segments import SparedSegments
from groupwise.advantages.token_credit.tempered_credit import TemperedCredit
from groupwise.advantages.token_credit.token_gae import TokenGae
from groupwise.advantages.token_credit.token_return import TokenReturn
from groupwise.advantages.token_credit.whitened_tokens import WhitenedTokens
from groupwise.core.parts.part import Part

TOKEN_CREDITS: dict[str, type[Part]] = {
    "discounted_tokens": DiscountedTokens,
    "first_tokens": FirstTokens,
    "token_return": TokenReturn,
    "token_gae": TokenGae,
    "whitened_tokens": WhitenedTokens,
    "conflict_tokens": ConflictTokens,
    "dual_down_sampling": DualDownSampling,
    "segment_credit": SegmentCredit,
    "line_gains": LineGains,
    "potential_credit": PotentialCredit,
    "tempered_credit": TemperedCredit,
    "rank_bonus": RankBonus,
    "judged_credit": JudgedCredit,
    "spared_segments": SparedSegments,
    "rank_credit": RankCredit,
}

__all__ = [
    "TOKEN_CREDITS",
    "ConflictTokens",
    "DiscountedTokens",
    "DualDownSampling",
    "FirstTokens",
    "JudgedCredit",
    "LineGains",
    "PotentialCredit",
    "RankBonus",
    "RankCredit",
    "SegmentCredit",
    "SparedSegments",
    "TemperedCredit",
    "TokenGae",
    "TokenReturn",
    "WhitenedTokens",
]
