"""Each method's loss, as its docstring states it: the values of the papers and releases."""

from __future__ import annotations

from typing import Any

import pytest

from groupwise import ConfigError, methods
from groupwise.credit import ByState, ColumnSignal, DropSolved, EpisodeReturn, ReturnToGo, ZeroSpread
from groupwise.losses import (
    AllPairs,
    BestAgainstWorst,
    Clip,
    ClippedChannels,
    ConstantLength,
    EntropyBonus,
    EntropyShare,
    Kl,
    Plain,
    PolicyLoss,
    SequenceMean,
    SequenceRatio,
    SquaredChange,
    SquaredDrift,
    TokenMean,
    TokenRatio,
    TrajectoryMean,
)
from groupwise.methods.after_etr import ElasticClip
from groupwise.methods.cispo import Cispo
from groupwise.methods.disco import Disco
from groupwise.methods.dpo import Dpo
from groupwise.methods.epo import EntropyCorridor
from groupwise.methods.gardo import GatedKl
from groupwise.methods.llds import Llds
from groupwise.methods.mc_grpo import DropPivot
from groupwise.methods.p3o import P3o
from groupwise.methods.r2vpo import RatioVariance
from groupwise.methods.rec import Rec, Reinforce
from groupwise.methods.reg_grpo import Regression
from groupwise.methods.rpo import Rpo
from groupwise.methods.sapo import Sapo
from groupwise.methods.seeupo import LastTurnFirst
from groupwise.methods.simpo import Simpo
from groupwise.methods.step_apo import Siblings, StepApo
from groupwise.methods.w_dpo import ByVerdict

GRPO = PolicyLoss(
    ratio=TokenRatio(clamp=20.0),
    surrogate=Clip(low=0.2, high=0.2),
    aggregate=SequenceMean(),
    penalties=(Kl(estimator="k3", weight=0.001),),
)
RLOO = PolicyLoss(
    ratio=SequenceRatio(unit="step", length="sum"), surrogate=Clip(low=0.2, high=0.2), aggregate=SequenceMean()
)
TOKENS = PolicyLoss(surrogate=Clip(low=0.2, high=0.2), aggregate=TokenMean())

GAGPO = PolicyLoss(
    ratio=SequenceRatio(unit="step", length="mean"),
    surrogate=Clip(low=0.2, high=0.2),
    aggregate=SequenceMean(),
    penalties=(Kl(estimator="k3", weight=0.01),),
)

EXPECTED: list[tuple[str, dict[str, Any], Any]] = [
    ("grpo", {}, GRPO),
    ("grpo", {"average": "step", "alone": "raw"}, GRPO),
    ("dr_grpo", {}, PolicyLoss(surrogate=Clip(low=0.2, high=0.2), aggregate=ConstantLength(per_sequence=True))),
    ("rloo", {}, RLOO),
    ("reinforce_pp", {}, TOKENS),
    ("reinforce_pp_baseline", {}, TOKENS),
    ("dapo", {}, PolicyLoss(surrogate=Clip(low=0.2, high=0.28), aggregate=TokenMean())),
    ("dapo", {"low": 0.1, "high": 0.3}, PolicyLoss(surrogate=Clip(low=0.1, high=0.3), aggregate=TokenMean())),
    (
        "gspo",
        {},
        PolicyLoss(
            ratio=SequenceRatio(unit="step", length="mean", clamp=10.0),
            surrogate=Clip(low=3e-4, high=4e-4),
            aggregate=SequenceMean(),
        ),
    ),
    (
        "gspo",
        {"unit": "trajectory", "low": 0.1, "high": 0.2},
        PolicyLoss(ratio=SequenceRatio(unit="trajectory"), surrogate=Clip(low=0.1, high=0.2), aggregate=SequenceMean()),
    ),
    ("cispo", {}, PolicyLoss(surrogate=Cispo(cap=5.0), aggregate=TokenMean())),
    ("cispo", {"cap": 2.0}, PolicyLoss(surrogate=Cispo(cap=2.0), aggregate=TokenMean())),
    ("sapo", {}, PolicyLoss(surrogate=Sapo(tau_positive=1.0, tau_negative=1.05), aggregate=SequenceMean())),
    (
        "sapo",
        {"tau_positive": 2.0, "tau_negative": 3.0},
        PolicyLoss(surrogate=Sapo(tau_positive=2.0, tau_negative=3.0), aggregate=SequenceMean()),
    ),
    (
        "rec",
        {},
        PolicyLoss(surrogate=Rec(region="one_side", weighted=False, low=0.2, high=0.2), old="engine"),
    ),
    (
        "rec",
        {"region": "ring", "by_answer": True},
        PolicyLoss(
            ratio=SequenceRatio(unit="step", length="mean"),
            surrogate=Rec(region="ring", weighted=False, low=3e-4, high=4e-4, far_low=0.6, far_high=2.0),
            aggregate=SequenceMean(),
            old="engine",
        ),
    ),
    ("opmd", {}, PolicyLoss(surrogate=Reinforce(), penalties=(SquaredChange(weight=0.1),), old="engine")),
    ("asymre", {}, PolicyLoss(surrogate=Reinforce(), old="engine")),
    ("red_weight", {}, PolicyLoss(surrogate=Reinforce(), old="engine")),
    (
        "gigpo",
        {},
        PolicyLoss(
            surrogate=Clip(low=0.2, high=0.2, dual=3.0),
            aggregate=TokenMean(),
            penalties=(Kl(estimator="k3", weight=0.01), EntropyBonus(weight=0.001)),
        ),
    ),
    (
        "hgpo",
        {},
        PolicyLoss(
            surrogate=Clip(low=0.2, high=0.2, dual=3.0),
            aggregate=TokenMean(),
            penalties=(Kl(estimator="k3", weight=0.01),),
        ),
    ),
    ("hgpo", {"reference": True}, methods.gigpo().loss),
    ("hgpo", {"entropy_bonus": 0.001}, methods.gigpo().loss),
    ("hgpo", {"entropy_bonus": 0.0, "reference": True}, methods.hgpo().loss),
    ("gagpo", {}, GAGPO),
    ("hgae", {}, GAGPO),
    ("shrunk_hgae", {}, GAGPO),
    (
        "ppo",
        {},
        PolicyLoss(surrogate=Clip(low=0.2, high=0.2, dual=3.0), aggregate=TokenMean(), penalties=GAGPO.penalties),
    ),
    ("turn_ppo", {}, GAGPO),
    ("r3", {}, GRPO),
    ("r3_grpo_ablation", {}, GRPO),
    ("r3_hgpo", {}, methods.hgpo().loss),
    ("salt", {}, GRPO),
    ("salt", {"base": "rloo"}, RLOO),
    (
        "mc_grpo",
        {},
        PolicyLoss(
            surrogate=Clip(low=0.2, high=0.2),
            aggregate=SequenceMean(),
            penalties=(Kl(estimator="k3", weight=0.04),),
        ),
    ),
    ("ngrpo", {}, PolicyLoss(surrogate=Clip(low=0.16, high=0.24), aggregate=TokenMean())),
    ("dgpo", {}, TOKENS),
    ("a_grae", {}, GRPO),
    ("a_grae", {"reference": True}, GRPO),
    (
        "mars",
        {},
        PolicyLoss(
            surrogate=Clip(low=0.2, high=0.2, dual=3.0),
            aggregate=TokenMean(),
            penalties=(Kl(estimator="k3", weight=0.2),),
        ),
    ),
    (
        "flow_grpo",
        {},
        PolicyLoss(
            surrogate=Clip(low=0.2, high=0.3),
            aggregate=TrajectoryMean(within="step"),
            penalties=(Kl(estimator="k3", weight=0.001),),
        ),
    ),
    ("step_grpo", {}, GRPO),
    (
        "srpo",
        {},
        PolicyLoss(surrogate=Clip(low=0.2, high=0.2, dual=10.0), penalties=(Kl(estimator="k3", weight=0.001),)),
    ),
    ("after_concise_r", {}, PolicyLoss(surrogate=Clip(low=0.2, high=0.28))),
    (
        "after_concise_r",
        {"stage": 1},
        PolicyLoss(surrogate=Clip(low=0.2, high=0.28), penalties=(EntropyBonus(weight=0.001),)),
    ),
    (
        "hdpo",
        {},
        PolicyLoss(surrogate=ClippedChannels(low=0.2, high=0.2, weights={"economy": 0.15}), aggregate=SequenceMean()),
    ),
    (
        "seeupo",
        {},
        LastTurnFirst(
            of=PolicyLoss(
                ratio=SequenceRatio(unit="step", length="mean"),
                surrogate=Clip(low=0.2, high=0.2),
                aggregate=SequenceMean(),
            ),
            stages=8,
            min_factor=0.5,
            max_factor=2.0,
        ),
    ),
    (
        "after_dsdr",
        {},
        PolicyLoss(
            surrogate=Clip(low=0.2, high=0.2), aggregate=SequenceMean(), penalties=(EntropyShare(weight=0.001),)
        ),
    ),
    ("after_polychromic", {}, PolicyLoss(surrogate=Clip(low=0.2, high=0.2), aggregate=SequenceMean())),
    ("hdpo", {"tool_weight": 0.0}, PolicyLoss(surrogate=Clip(low=0.2, high=0.2), aggregate=SequenceMean())),
    ("after_etr", {}, PolicyLoss(surrogate=ElasticClip(low=0.2, high=0.2), aggregate=SequenceMean())),
    (
        "r2vpo",
        {},
        PolicyLoss(surrogate=Plain(), penalties=(RatioVariance(first=0.04, max_variance=0.01, rate=0.1),)),
    ),
    ("r2vpo", {"old": "engine"}, PolicyLoss(surrogate=Plain(), penalties=(RatioVariance(),), old="engine")),
    ("disco", {}, Disco(tau=10.0, max_kl=1e-4, stiffness=1e3)),
    ("disco", {"score": "ratio", "negatives": "mean"}, Disco(score="ratio", tau=1.0, negatives="mean")),
    ("reg_grpo", {}, Regression(floor=0.5, length="sum", penalties=(Kl(estimator="k3", weight=0.04),))),
    ("llds", {}, Llds(of=GRPO, weight=0.1, gate="step", per="active")),
    (
        "epo",
        {"updates": 40},
        PolicyLoss(
            aggregate=SequenceMean(),
            penalties=(
                Kl(estimator="k3", weight=0.001),
                EntropyCorridor(weight=0.001, smoothing=1.0, low=0.0, high=2.0, outside=0.1, updates=40),
            ),
        ),
    ),
    ("after_vgpo", {}, PolicyLoss(aggregate=SequenceMean())),
    (
        "copo",
        {},
        PolicyLoss(
            surrogate=ClippedChannels(low=0.2, high=0.2, dual=3.0, weights={"global": 1.0}), aggregate=SequenceMean()
        ),
    ),
    ("gardo", {}, PolicyLoss(aggregate=SequenceMean(), penalties=(GatedKl(weight=0.04, max_kl=0.05, every=15),))),
    ("gtpo", {}, PolicyLoss(surrogate=Plain(), aggregate=SequenceMean())),
    ("d3s", {}, TOKENS),
    ("dcpo", {}, PolicyLoss(surrogate=Clip(low=0.2, high=0.2, dual=3.0), aggregate=TokenMean())),
    (
        "verl",
        {},
        PolicyLoss(
            surrogate=Clip(low=0.2, high=0.2),
            aggregate=TokenMean(),
            penalties=(Kl(estimator="k3", weight=0.001), EntropyBonus(weight=0.001)),
        ),
    ),
    ("prorag", {}, TOKENS),
    ("after_webstar", {}, GRPO),
    (
        "bcpg_nsa",
        {},
        PolicyLoss(
            surrogate=Reinforce(), aggregate=SequenceMean(), penalties=(SquaredDrift(weight=1e-3),), old="engine"
        ),
    ),
    (
        "rank_grpo",
        {},
        PolicyLoss(
            ratio=SequenceRatio(unit="span", length="mean"),
            surrogate=Clip(low=0.06, high=0.08),
            aggregate=TokenMean(),
            penalties=(Kl(estimator="k3", weight=0.001),),
        ),
    ),
    ("spo_chain", {}, TOKENS),
    ("pav", {}, TOKENS),
    ("spae", {}, PolicyLoss(surrogate=Clip(low=0.2, high=0.28), aggregate=TokenMean())),
    ("after_vsrm", {}, TOKENS),
    ("simpo", {}, Simpo(beta=2.5, margin=0.55)),
    ("dpo", {}, Dpo(beta=0.1, reference=True, per="weight")),
    ("rpo", {}, Rpo(beta=0.01, eta=0.005)),
    ("w_dpo", {}, Dpo(beta=0.1, reference=True, per="pair")),
    ("w_dpo", {"reference": False}, Dpo(beta=0.1, reference=False, per="pair")),
    ("step_apo", {}, StepApo(beta=0.3, alpha=1.0)),
    ("p3o", {}, P3o(clip="none")),
    ("p3o", {"clip": "separate", "width": 0.1}, P3o(clip="separate", width=0.1, joint_width=0.2)),
]


@pytest.mark.parametrize(("name", "options", "loss"), EXPECTED)
def test_a_method_has_the_loss_its_docstring_states(name: str, options: dict[str, Any], loss: Any) -> None:
    assert methods.build(name, **options).loss == loss


def test_every_method_is_looked_at() -> None:
    assert {name for name, _, _ in EXPECTED} == set(methods.names())


@pytest.mark.parametrize("name", ["gigpo", "mc_grpo", "a_grae"])
def test_what_the_release_credits_differently_it_minimises_alike(name: str) -> None:
    assert methods.build(name, reference=True).loss == methods.build(name).loss


@pytest.mark.parametrize(
    ("name", "filters"),
    [("dapo", (ZeroSpread(),)), ("mc_grpo", (DropPivot(),)), ("ngrpo", (DropSolved(),)), ("gspo", ()), ("grpo", ())],
)
def test_the_filters_of_a_method(name: str, filters: tuple[object, ...]) -> None:
    assert methods.build(name).filters == filters


@pytest.mark.parametrize("name", ["dapo", "gspo", "cispo", "sapo"])
def test_methods_named_for_their_loss_keep_the_credit_of_grpo(name: str) -> None:
    assert methods.build(name).advantage == methods.grpo().advantage


def test_who_is_paired_in_a_method() -> None:
    pairings = {name: part for name in methods.names() if (part := methods.build(name).pairing) is not None}
    best = BestAgainstWorst()
    state = Siblings(by=ByState(), of=ReturnToGo(gamma=1.0))
    verdict = ByVerdict(outcome=EpisodeReturn(), verdict=ColumnSignal(name="accepted"))
    assert pairings == {
        "simpo": best,
        "dpo": best,
        "rpo": best,
        "w_dpo": verdict,
        "step_apo": state,
        "p3o": AllPairs(counts="pair"),
    }
    assert methods.dpo(pairs="all").pairing == AllPairs(counts="task")
    assert methods.step_apo(pairs="all", gamma=0.5).pairing == Siblings(
        by=ByState(), of=ReturnToGo(gamma=0.5), which="all"
    )


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("dapo", {"low": -0.1}, "Clip: low: expected a number greater than or equal to 0, found -0.1"),
        ("gspo", {"unit": "token"}, "gspo: unit: expected 'step' or 'trajectory', found 'token'"),
        ("cispo", {"cap": 0.0}, "Cispo: cap: expected a number greater than 0, found 0.0"),
        (
            "rec",
            {"region": "ring", "far_low": 0.1},
            "Rec: the ring begins within the region (low 0.2, far_low 0.1, high 0.2, far_high 2); give far_low and "
            "far_high that are at least low and high",
        ),
        ("opmd", {"tau": -1.0}, "SquaredChange: weight: expected a number greater than or equal to 0, found -1.0"),
        ("verl", {"kappa": 0.5}, "RankBonus: kappa: expected a number greater than or equal to 1, found 0.5"),
        ("verl", {"stride": 0}, "verl: stride: expected a number greater than or equal to 1, found 0"),
        ("prorag", {"weight": -0.3}, "JudgedCredit: weight: expected a number greater than or equal to 0, found -0.3"),
        ("prorag", {"per": "step"}, "prorag: per: expected 'token' or 'segment', found 'step'"),
        ("bcpg_nsa", {"beta": 1.5}, "SparedSegments: beta: expected a number less than or equal to 1, found 1.5"),
        ("bcpg_nsa", {"tau": -1.0}, "SquaredDrift: weight: expected a number greater than or equal to 0, found -1.0"),
        ("sapo", {"tau": 1.0}, "sapo: tau: unknown setting; Valid: tau_negative, tau_positive"),
    ],
)
def test_a_bound_that_cannot_be_meant_is_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        methods.build(name, **options)
    assert str(caught.value) == message


def test_a_loss_can_be_changed_by_its_place_in_the_configuration() -> None:
    """Without the KL penalty there is no need of a reference model."""
    config = methods.grpo().config()
    config["loss"]["penalties"][0]["weight"] = 0.0
    assert type(methods.grpo())(**config).loss.needs == {"old_logp"}
