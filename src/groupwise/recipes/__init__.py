"""Named algorithms: functions that return an `Algorithm`, with the paper's values as keyword defaults."""

from __future__ import annotations

from collections.abc import Callable

from groupwise.core.algorithm import Algorithm
from groupwise.recipes.catalogue import build, names, summary
from groupwise.recipes.difficulty import a_grae, dgpo
from groupwise.recipes.diversity import after_dsdr, after_polychromic
from groupwise.recipes.episode import (
    dr_grpo,
    flow_grpo,
    grpo,
    mc_grpo,
    ngrpo,
    reinforce_pp,
    reinforce_pp_baseline,
    rloo,
)
from groupwise.recipes.graph import salt
from groupwise.recipes.history import hgpo
from groupwise.recipes.homogeneous import after_vgpo, copo
from groupwise.recipes.judged import after_webstar, bcpg_nsa, prorag
from groupwise.recipes.ladders import after_concise_r, srpo
from groupwise.recipes.objectives import cispo, dapo, gspo, sapo
from groupwise.recipes.off_policy import asymre, opmd, rec, red_weight
from groupwise.recipes.preferences import dpo, p3o, rpo, simpo, step_apo, w_dpo
from groupwise.recipes.probes import after_vsrm, spae, spo_chain
from groupwise.recipes.progress import pav
from groupwise.recipes.recipe import RecipeSummary, recipe
from groupwise.recipes.regularisers import epo, gardo
from groupwise.recipes.rescue import r3, r3_grpo_ablation, r3_hgpo
from groupwise.recipes.roles import mars
from groupwise.recipes.state import gigpo, step_grpo
from groupwise.recipes.temporal import gagpo, hgae, shrunk_hgae
from groupwise.recipes.tokens import d3s, dcpo, gtpo, rank_grpo, verl
from groupwise.recipes.tool_use import hdpo
from groupwise.recipes.trust_regions import after_etr, disco, llds, r2vpo, reg_grpo
from groupwise.recipes.turns import seeupo

RECIPES: dict[str, Callable[..., Algorithm]] = {
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "rloo": rloo,
    "reinforce_pp": reinforce_pp,
    "reinforce_pp_baseline": reinforce_pp_baseline,
    "dapo": dapo,
    "gspo": gspo,
    "cispo": cispo,
    "sapo": sapo,
    "rec": rec,
    "opmd": opmd,
    "asymre": asymre,
    "red_weight": red_weight,
    "after_etr": after_etr,
    "r2vpo": r2vpo,
    "disco": disco,
    "reg_grpo": reg_grpo,
    "llds": llds,
    "after_vgpo": after_vgpo,
    "copo": copo,
    "epo": epo,
    "gardo": gardo,
    "srpo": srpo,
    "after_concise_r": after_concise_r,
    "hdpo": hdpo,
    "seeupo": seeupo,
    "after_polychromic": after_polychromic,
    "after_dsdr": after_dsdr,
    "gigpo": gigpo,
    "hgpo": hgpo,
    "gagpo": gagpo,
    "hgae": hgae,
    "shrunk_hgae": shrunk_hgae,
    "r3": r3,
    "r3_grpo_ablation": r3_grpo_ablation,
    "r3_hgpo": r3_hgpo,
    "salt": salt,
    "mc_grpo": mc_grpo,
    "ngrpo": ngrpo,
    "dgpo": dgpo,
    "a_grae": a_grae,
    "mars": mars,
    "flow_grpo": flow_grpo,
    "step_grpo": step_grpo,
    "gtpo": gtpo,
    "d3s": d3s,
    "dcpo": dcpo,
    "verl": verl,
    "prorag": prorag,
    "bcpg_nsa": bcpg_nsa,
    "rank_grpo": rank_grpo,
    "after_webstar": after_webstar,
    "spo_chain": spo_chain,
    "spae": spae,
    "after_vsrm": after_vsrm,
    "pav": pav,
    "simpo": simpo,
    "dpo": dpo,
    "rpo": rpo,
    "w_dpo": w_dpo,
    "step_apo": step_apo,
    "p3o": p3o,
}

__all__ = [
    "RECIPES",
    "RecipeSummary",
    "a_grae",
    "after_concise_r",
    "after_dsdr",
    "after_etr",
    "after_polychromic",
    "after_vgpo",
    "after_vsrm",
    "after_webstar",
    "asymre",
    "bcpg_nsa",
    "build",
    "cispo",
    "copo",
    "d3s",
    "dapo",
    "dcpo",
    "dgpo",
    "disco",
    "dpo",
    "dr_grpo",
    "epo",
    "flow_grpo",
    "gagpo",
    "gardo",
    "gigpo",
    "grpo",
    "gspo",
    "gtpo",
    "hdpo",
    "hgae",
    "hgpo",
    "llds",
    "mars",
    "mc_grpo",
    "names",
    "ngrpo",
    "opmd",
    "p3o",
    "pav",
    "prorag",
    "r2vpo",
    "r3",
    "r3_grpo_ablation",
    "r3_hgpo",
    "rank_grpo",
    "rec",
    "recipe",
    "red_weight",
    "reg_grpo",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "rloo",
    "rpo",
    "salt",
    "sapo",
    "seeupo",
    "shrunk_hgae",
    "simpo",
    "spae",
    "spo_chain",
    "srpo",
    "step_apo",
    "step_grpo",
    "summary",
    "verl",
    "w_dpo",
]
