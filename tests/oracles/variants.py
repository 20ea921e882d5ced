"""Every method, with the settings under which it is tested, and the oracle that judges it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tests.oracles.batchwide import a_grae, dgpo, reinforce_pp, reinforce_pp_baseline
from tests.oracles.critics import ppo, turn_ppo
from tests.oracles.diversity import after_dsdr
from tests.oracles.doubt import gardo
from tests.oracles.edges import salt
from tests.oracles.episode import dr_grpo, flow_grpo, grpo, mc_grpo, ngrpo, rloo
from tests.oracles.history import hgpo
from tests.oracles.homogeneous import after_vgpo, copo_off
from tests.oracles.off_policy import asymre, opmd, red_weight
from tests.oracles.progress import pav
from tests.oracles.rescue import r3, r3_hgpo
from tests.oracles.roles import mars
from tests.oracles.rows import Result
from tests.oracles.sets import after_polychromic
from tests.oracles.staged import srpo
from tests.oracles.state import gigpo, step_grpo
from tests.oracles.temporal import gagpo, hgae, shrunk_hgae

ORACLES: dict[str, Callable[..., Result]] = {
    "a_grae": a_grae,
    "after_vsrm": dr_grpo,
    "asymre": asymre,
    "cispo": grpo,
    "d3s": grpo,
    "dapo": grpo,
    "dcpo": grpo,
    "dgpo": dgpo,
    "dr_grpo": dr_grpo,
    "flow_grpo": flow_grpo,
    "gagpo": gagpo,
    "gigpo": gigpo,
    "grpo": grpo,
    "gspo": grpo,
    "gtpo": dr_grpo,
    "hgae": hgae,
    "hgpo": hgpo,
    "mars": mars,
    "mc_grpo": mc_grpo,
    "ngrpo": ngrpo,
    "opmd": opmd,
    "pav": pav,
    "r3": r3,
    "r3_grpo_ablation": r3,
    "r3_hgpo": r3_hgpo,
    "rec": dr_grpo,
    "red_weight": red_weight,
    "reinforce_pp": reinforce_pp,
    "reinforce_pp_baseline": reinforce_pp_baseline,
    "rloo": rloo,
    "salt": salt,
    "sapo": grpo,
    "shrunk_hgae": shrunk_hgae,
    "spae": dr_grpo,
    "spo_chain": rloo,
    "step_grpo": step_grpo,
    "verl": grpo,
    "bcpg_nsa": dr_grpo,
    "prorag": partial(grpo, eps=1e-4),
    "srpo": srpo,
    "after_concise_r": grpo,
    "seeupo": dr_grpo,
    "after_polychromic": after_polychromic,
    "after_dsdr": after_dsdr,
    "hdpo": grpo,
    # Losses of another kind, beside the credit that reports show.
    "after_etr": grpo,
    "r2vpo": grpo,
    "disco": grpo,
    "rank_grpo": grpo,
    "after_webstar": grpo,
    "reg_grpo": grpo,
    "llds": grpo,
    "epo": grpo,
    "gardo": gardo,
    "after_vgpo": after_vgpo,
    "copo": copo_off,
    "simpo": grpo,
    "dpo": grpo,
    "rpo": grpo,
    "w_dpo": grpo,
    "step_apo": grpo,
    "p3o": rloo,
    "ppo": ppo,
    "turn_ppo": turn_ppo,
}

DISCOUNTED = {"gagpo", "gigpo", "hgae", "shrunk_hgae", "hgpo", "mars", "r3_hgpo", "reinforce_pp", "ppo"}
"""Methods with a gamma."""

BATCH_WIDE = {"reinforce_pp", "reinforce_pp_baseline", "dgpo", "a_grae", "mars", "turn_ppo"}
"""Methods that read other tasks by design."""

WITH_CRITIC = {"ppo", "turn_ppo"}
"""Methods that read what a critic says of each step: `tests.strategies.with_values` makes it up."""


WITHOUT_INFO: dict[str, dict[str, object]] = {
    "gardo": {"diversity": False},
    "after_vgpo": {"k": 0.0},
    "copo": {"mode": "off"},
    "pav": {"alpha": 0.0},
}
"""Settings under which methods take tables of any returns, without what an environment or a scorer tells."""


@dataclass(frozen=True)
class Variant:
    """A method's name and the settings it is called with."""

    method: str
    hyper: dict[str, object] = field(default_factory=dict)

    @property
    def oracle(self) -> Callable[..., Result]:
        return ORACLES[self.method]

    @property
    def is_batch_wide(self) -> bool:
        return self.method in BATCH_WIDE

    @property
    def is_value(self) -> bool:
        """Whether the credit is in units of the reward, not divided by a deviation."""
        if self.method == "mars":
            return self.hyper.get("scale", "none") == "none" and not self.hyper.get("whiten")
        return (
            self.method in {"dr_grpo", "rloo", "p3o", "rec", "opmd", "asymre", "gardo", "seeupo"}
            or self.method in {"pav", "gtpo", "spo_chain", "spae", "after_vsrm", "bcpg_nsa", "after_polychromic"}
            or self.method == "ppo"
            or (self.method == "turn_ppo" and self.hyper.get("whiten") is False)
            or "none" in (self.hyper.get("scale"), self.hyper.get("scale_by"))
            or self.hyper.get("base") == "rloo"
        )

    def __str__(self) -> str:
        return f"{self.method}({', '.join(f'{key}={value}' for key, value in self.hyper.items())})"


def _variants(method: str, *hypers: dict[str, object]) -> list[Variant]:
    return [Variant(method, hyper) for hyper in hypers]


VARIANTS: list[Variant] = [
    *_variants(
        "grpo",
        {},
        {"ddof": 0},
        {"eps": 1e-4},
        {"average": "step"},
        {"alone": "raw"},
        {"average": "step", "alone": "raw"},
    ),
    *[
        Variant(name)
        for name in (
            "dapo",
            "gspo",
            "cispo",
            "sapo",
            "after_etr",
            "r2vpo",
            "disco",
            "reg_grpo",
            "llds",
            "epo",
            "hdpo",
            "seeupo",
            "simpo",
            "dpo",
            "rpo",
            "w_dpo",
            "step_apo",
            "p3o",
        )
    ],
    *[
        Variant(name)
        for name in (
            "gtpo",
            "d3s",
            "dcpo",
            "verl",
            "prorag",
            "bcpg_nsa",
            "rank_grpo",
            "after_webstar",
            "spo_chain",
            "spae",
            "after_vsrm",
        )
    ],
    *_variants("dr_grpo", {}, {"average": "step"}, {"alone": "raw"}),
    Variant("rec"),
    *[Variant(name, hyper) for name, hyper in WITHOUT_INFO.items()],
    Variant("after_concise_r"),
    *_variants("after_polychromic", {}, {"size": 2}, {"size": 3, "variety": "share"}, {"size": 2, "key": "accepted"}),
    *_variants("after_dsdr", {}, {"floor": 1.0}),
    *_variants("srpo", {}, {"k": 1}, {"k": 2, "best": 0.5}),
    *_variants("opmd", {}, {"baseline": "log_mean_exp"}, {"baseline": "log_mean_exp", "temperature": 0.25}),
    *_variants("asymre", {}, {"shift": -0.5}),
    *_variants("red_weight", {}, {"temperature": 0.5}),
    *_variants("rloo", {}, {"average": "step"}, {"alone": "raw"}),
    *_variants("flow_grpo", {}, {"reference": True}),
    *_variants("mc_grpo", {}, {"eps": 0.01}, {"reference": True}),
    *_variants("ngrpo", {}, {"best": 2.0, "virtual": 3}, {"virtual": 0}, {"reference": True}),
    *_variants("reinforce_pp", {}, {"eps": 1e-4}),
    *_variants("reinforce_pp_baseline", {}, {"eps": 1e-4}),
    *_variants(
        "gigpo",
        {},
        {"scale": "none"},
        {"step_weight": 0.5, "invalid_penalty": 0.25},
        {"refused_penalty": 0.25},
        {"similarity": 0.9},
        {"similarity": 0.9, "reference": True},
        {"reference": True},
        {"reference": True, "scale": "none"},
        {"peers": "other_rollouts"},
        {"peers": "other_rollouts", "similarity": 0.9, "scale": "none"},
    ),
    *_variants(
        "hgpo",
        {},
        {"depth": 0},
        {"depth": 4, "alpha": 2.0},
        {"alpha": 0.0, "invalid_penalty": 0.25},
        {"refused_penalty": 0.25, "episode": True, "reference": True},
        {"scale": "none"},
        {"episode": True},
        {"episode": True, "scale": "none"},
        {"reference": True},
        {"reference": True, "depth": 4, "alpha": 2.0},
        {"reference": True, "episode": True},
        {"reference": True, "episode": True, "scale": "none"},
        {"skip_average": True},
        {"skip_average": True, "episode": True, "depth": 4, "alpha": 2.0, "scale": "none"},
        {"peers": "other_rollouts"},
        {"peers": "other_rollouts", "episode": True, "depth": 4},
        {"peers": "other_rollouts", "reference": True},
    ),
    *_variants(
        "gagpo",
        {},
        {"lam": 0.0, "scale_by": "none"},
        {"lam": 0.5, "scale_by": "none", "invalid_penalty": 0.25},
        {"lam": 1.0, "scale_by": "none"},
        {"lam": 0.5, "scale_by": "state"},
    ),
    *_variants(
        "hgae",
        {},
        {"depth": 0, "lam": 0.5},
        {"depth": 4, "alpha": 2.0, "lam": 0.0, "scale_by": "none"},
        {"lam": 0.5, "scale_by": "none", "leave_out": True},
        {"lam": 0.8, "scale_by": "state", "invalid_penalty": 0.25},
    ),
    *_variants(
        "shrunk_hgae",
        {},
        {"strength": 0.5, "depth": 4, "scale_by": "none"},
        {"strength": 0.0, "lam": 0.5, "scale_by": "none"},
        {"lam": 1.0, "scale_by": "none", "depth": 0, "invalid_penalty": 0.25},
        {"scale_by": "state"},
    ),
    *_variants("r3", {}, {"alpha": 3.0}, {"with_replay": False}),
    *_variants("r3_grpo_ablation", {}, {"with_replay": True}),
    *_variants("r3_hgpo", {}, {"depth": 0}, {"depth": 4, "alpha": 1.5}, {"with_replay": False}),
    *_variants(
        "salt",
        {},
        {"history": 0},
        {"next_state": False},
        {"count": "step"},
        {"base": "rloo"},
        {"history": 2, "next_state": False, "count": "step", "base": "rloo"},
    ),
    *_variants("dgpo", {}, {"temperature": 0.5}, {"reference": True}),
    *_variants("a_grae", {}, {"alpha": 0.5}, {"reference": True}),
    *_variants("mars", {}, {"scale": "std"}, {"whiten": True}, {"scale": "std", "whiten": True}),
    *_variants("step_grpo", {}, {"eps": 1e-4}),
    *_variants("ppo", {}, {"lam": 0.0}, {"lam": 0.95}),
    *_variants("turn_ppo", {}, {"whiten": False}, {"whiten": False, "gamma": 0.5, "lam": 0.0}, {"gamma": 1, "lam": 1}),
]

LAW_VARIANTS: list[Variant] = [
    *[Variant(method, WITHOUT_INFO.get(method, {})) for method in ORACLES],
    *_variants("grpo", {"average": "step", "alone": "raw"}),
    *_variants("gigpo", {"scale": "none"}, {"similarity": 0.9}, {"reference": True}, {"peers": "other_rollouts"}),
    *_variants("hgpo", {"peers": "other_rollouts"}, {"peers": "other_rollouts", "scale": "none", "depth": 0}),
    *_variants("hgpo", {"episode": True, "depth": 4}, {"scale": "none"}, {"reference": True, "episode": True}),
    *_variants("hgpo", {"skip_average": True}),
    *_variants("salt", {"history": 2, "next_state": False, "count": "step", "base": "rloo"}),
    *_variants("hgae", {"lam": 0.5, "scale_by": "none", "leave_out": True}),
    *_variants("mc_grpo", {"reference": True}),
    *_variants("ngrpo", {"reference": True}),
    *_variants("mars", {"scale": "std", "whiten": True}),
    *_variants("opmd", {"baseline": "log_mean_exp"}),
]
"""Each method as it comes, and settings that take another path through the library: enough for the laws, where every
case draws many tables."""
