"""The published methods, one file each: a function that returns an `Algorithm`, with the parts that only it uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from groupwise.methods.a_grae import Asymmetric, a_grae
from groupwise.methods.after_concise_r import ConciseWhenSolved, after_concise_r
from groupwise.methods.after_dsdr import DiversityBonus, RightDiversity, after_dsdr
from groupwise.methods.after_etr import ElasticClip, OutcomeSpread, after_etr
from groupwise.methods.after_polychromic import SetShared, after_polychromic
from groupwise.methods.after_vgpo import Anchored, after_vgpo
from groupwise.methods.after_vsrm import ForcedAnswers, LineGains, after_vsrm
from groupwise.methods.after_webstar import ExpertScore, ScoredSteps, after_webstar
from groupwise.methods.bcpg_nsa import SparedSegments, bcpg_nsa
from groupwise.methods.cispo import Cispo, cispo
from groupwise.methods.copo import GlobalShare, LocalShare, copo
from groupwise.methods.d3s import DualDownSampling, d3s
from groupwise.methods.dapo import dapo
from groupwise.methods.dcpo import TemperedCredit, TemperedScore, dcpo
from groupwise.methods.dgpo import QuestionWeighted, dgpo
from groupwise.methods.disco import Disco, disco
from groupwise.methods.dpo import Dpo, dpo
from groupwise.methods.dr_grpo import dr_grpo
from groupwise.methods.epo import EntropyCorridor, epo
from groupwise.methods.flow_grpo import flow_grpo
from groupwise.methods.gagpo import gagpo
from groupwise.methods.gardo import DistinctCredit, DoubtGate, GatedKl, gardo
from groupwise.methods.gigpo import gigpo
from groupwise.methods.grpo import grpo
from groupwise.methods.gspo import gspo
from groupwise.methods.gtpo import ConflictTokens, gtpo
from groupwise.methods.hdpo import ToolEconomy, hdpo
from groupwise.methods.hgae import Shrunk, hgae, shrunk_hgae
from groupwise.methods.hgpo import hgpo
from groupwise.methods.llds import Llds, llds
from groupwise.methods.mars import ByPlayer, ByRole, mars
from groupwise.methods.mc_grpo import DropPivot, mc_grpo
from groupwise.methods.method import MethodSummary, method, summarise
from groupwise.methods.ngrpo import Bounded, ngrpo
from groupwise.methods.p3o import P3o, p3o
from groupwise.methods.pav import ProverValues, pav
from groupwise.methods.ppo import CriticGae, CriticTokenGae, ppo, turn_ppo
from groupwise.methods.prorag import JudgedCredit, prorag
from groupwise.methods.r2vpo import RatioVariance, r2vpo
from groupwise.methods.r3 import (
    CrossContextReplay,
    EntropyRanking,
    HistoryKeyedReplay,
    Reflection,
    r3,
    r3_grpo_ablation,
    r3_hgpo,
)
from groupwise.methods.rank_grpo import ItemTokens, RankCredit, rank_grpo
from groupwise.methods.rec import ExponentiallyWeighted, Rec, Reinforce, asymre, opmd, rec, red_weight
from groupwise.methods.reg_grpo import Regression, reg_grpo
from groupwise.methods.reinforce_pp import reinforce_pp, reinforce_pp_baseline
from groupwise.methods.rloo import rloo
from groupwise.methods.rpo import Rpo, rpo
from groupwise.methods.salt import ByEdge, Merged, salt
from groupwise.methods.sapo import Sapo, sapo
from groupwise.methods.seeupo import LastTurnFirst, seeupo
from groupwise.methods.selective_buffer import SelectiveBuffer
from groupwise.methods.simpo import Simpo, simpo
from groupwise.methods.spae import AnswerPotential, PotentialCredit, spae
from groupwise.methods.spo_chain import SegmentCredit, SegmentValues, spo_chain
from groupwise.methods.srpo import PassAtBonus, srpo
from groupwise.methods.step_apo import Siblings, StepApo, step_apo
from groupwise.methods.step_grpo import step_grpo
from groupwise.methods.unlikeliness import Unlikeliness
from groupwise.methods.verl import EffectiveRank, RankBonus, verl
from groupwise.methods.w_dpo import ByVerdict, w_dpo
from groupwise.parts.algorithm import Algorithm
from groupwise.parts.part import Part
from groupwise.system.errors import ConfigError, nearest

CATALOGUE: dict[str, dict[str, type[Part]]] = {
    "grouper": {"by_role": ByRole, "by_player": ByPlayer, "by_edge": ByEdge},
    "filter": {"drop_pivot": DropPivot, "scored_steps": ScoredSteps},
    "signal": {"bounded": Bounded, "tool_economy": ToolEconomy},
    "estimator": {
        "merged": Merged,
        "question_weighted": QuestionWeighted,
        "asymmetric": Asymmetric,
        "exponentially_weighted": ExponentiallyWeighted,
        "outcome_spread": OutcomeSpread,
        "anchored": Anchored,
        "local_share": LocalShare,
        "global_share": GlobalShare,
        "doubt_gate": DoubtGate,
        "distinct_credit": DistinctCredit,
        "pass_at_bonus": PassAtBonus,
        "set_shared": SetShared,
        "shrunk": Shrunk,
        "critic_gae": CriticGae,
    },
    "token_credit": {
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
        "critic_token_gae": CriticTokenGae,
    },
    "loss": {
        "simpo": Simpo,
        "dpo": Dpo,
        "rpo": Rpo,
        "step_apo": StepApo,
        "p3o": P3o,
        "disco": Disco,
        "regression": Regression,
        "llds": Llds,
        "last_turn_first": LastTurnFirst,
    },
    "pairing": {"siblings": Siblings, "by_verdict": ByVerdict},
    "surrogate": {"cispo": Cispo, "sapo": Sapo, "elastic_clip": ElasticClip, "reinforce": Reinforce, "rec": Rec},
    "penalty": {"gated_kl": GatedKl, "entropy_corridor": EntropyCorridor, "ratio_variance": RatioVariance},
    "scorer": {
        "segment_values": SegmentValues,
        "forced_answers": ForcedAnswers,
        "answer_potential": AnswerPotential,
        "tempered_score": TemperedScore,
        "effective_rank": EffectiveRank,
        "right_diversity": RightDiversity,
        "item_tokens": ItemTokens,
        "expert_score": ExpertScore,
        "prover_values": ProverValues,
    },
    "shaper": {
        "concise_when_solved": ConciseWhenSolved,
        "diversity_bonus": DiversityBonus,
        "entropy_ranking": EntropyRanking,
        "unlikeliness": Unlikeliness,
    },
    "replay": {
        "cross_context_replay": CrossContextReplay,
        "history_keyed_replay": HistoryKeyedReplay,
        "selective_buffer": SelectiveBuffer,
    },
    "hint": {"reflection": Reflection},
}
"""Slot -> kind -> class."""

METHODS: dict[str, Callable[..., Algorithm]] = {
    function.__name__: function
    for function in (
        *(grpo, dr_grpo, rloo, reinforce_pp, reinforce_pp_baseline, dapo, gspo, cispo, sapo),
        *(rec, opmd, asymre, red_weight, after_etr, r2vpo, disco, reg_grpo, llds),
        *(after_vgpo, copo, epo, gardo, srpo, after_concise_r, hdpo, seeupo, after_polychromic, after_dsdr),
        *(gigpo, hgpo, gagpo, hgae, shrunk_hgae, r3, r3_grpo_ablation, r3_hgpo, salt),
        *(mc_grpo, ngrpo, dgpo, a_grae, mars, flow_grpo, step_grpo, ppo, turn_ppo),
        *(gtpo, d3s, dcpo, verl, prorag, bcpg_nsa, rank_grpo, after_webstar, spo_chain, spae, after_vsrm, pav),
        *(simpo, dpo, rpo, w_dpo, step_apo, p3o),
    )
}
"""The methods by name, simplest first."""


def names() -> list[str]:
    return list(METHODS)


def build(name: str, /, **options: Any) -> Algorithm:
    """Make the algorithm that a method describes: `build("hgpo", depth=4)` is `hgpo(depth=4)`."""
    return _find(name)(**options)


def summary(name: str) -> MethodSummary:
    return summarise(name, _find(name))


def _find(name: str) -> Callable[..., Algorithm]:
    if name not in METHODS:
        raise ConfigError(
            f"there is no method {name!r}; {nearest(name, METHODS, listed_by='`groupwise methods`')}", key=("method",)
        )
    return METHODS[name]
