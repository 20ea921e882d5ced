"""Each method's parts, as its docstring states them: the defaults of the papers, and what `reference` changes."""

from __future__ import annotations

from typing import Any

import pytest

from groupwise import methods

TASK = {"kind": "by_task"}
EPISODE = {"kind": "episode_return"}
STEP_REWARD = {"kind": "step_reward"}
MEAN = {"kind": "mean"}
NO_SCALE = {"kind": "no_scale"}


def deviation(ddof: int = 1, eps: float = 1e-6, factor: float = 1.0) -> dict[str, Any]:
    return {"kind": "deviation", "ddof": ddof, "eps": eps, "factor": factor}


def relative(**fields: Any) -> dict[str, Any]:
    return {
        "kind": "relative",
        "by": TASK,
        "of": EPISODE,
        "baseline": MEAN,
        "scale": deviation(),
        "average": "rollout",
        "alone": "zero",
        "virtual": [],
        "virtual_is_company": True,
    } | fields


def returns(gamma: float) -> dict[str, Any]:
    return {"kind": "return_to_go", "gamma": gamma, "of": STEP_REWARD, "within": "rollout"}


def penalty_on(of: dict[str, Any], penalty: float) -> dict[str, Any]:
    return {"kind": "penalised", "of": of, "penalty": penalty}


def bound(best: float) -> dict[str, Any]:
    return {"kind": "bounded", "of": EPISODE, "best": best}


def level(depth: int, **fields: Any) -> dict[str, Any]:
    fields = {"scale": deviation(ddof=0), "of": penalty_on(returns(0.95), 0.1), "average": "step"} | fields
    return relative(by={"kind": "by_history", "depth": depth, "peers": "any"}, **fields)


def level_with_replay(depth: int, gamma: float = 0.95, factor: float = 1.0) -> dict[str, Any]:
    return level(depth, of=penalty_on(returns(gamma), 0.0), mixed_scale=deviation(0, factor=factor))


def whiten(of: dict[str, Any], eps: float = 1e-8) -> dict[str, Any]:
    return {"kind": "whitened", "of": of, "eps": eps}


PENALISED_RETURNS = returns(0.95) | {"of": penalty_on(STEP_REWARD, 0.1)}
RAW_RETURNS = relative(of=returns(1.0), baseline={"kind": "no_baseline"}, scale=NO_SCALE, average="step", alone="raw")
STATE = {"kind": "by_state", "same_numbers": True, "peers": "any"}
STATE_TERM = relative(by=STATE, of=penalty_on(returns(0.95), 0.1), average="step")
RELEASED_EPISODE = relative(of=penalty_on(EPISODE, 0.1), average="step", alone="raw")

PROGRESS = RAW_RETURNS | {"of": {"kind": "column", "name": "prover_progress"}}


def gigpo(episode: dict[str, Any], state: dict[str, Any], weight: float = 1.0) -> dict[str, Any]:
    return {"kind": "sum", "terms": [{"weight": 1.0, "of": episode}, {"weight": weight, "of": state}]}


def hgpo(*terms: tuple[float, dict[str, Any]], absent: str = "not_compared", eps: float = 0.0) -> dict[str, Any]:
    listed = [{"weight": weight, "of": of} for weight, of in terms]
    return {"kind": "blend", "terms": listed, "absent": absent, "eps": eps}


def salt(of: dict[str, Any], history: int = 1, next_state: bool = True, count: str = "rollout") -> dict[str, Any]:
    edge = {"kind": "by_edge", "history": history, "next_state": next_state}
    return {"kind": "merged", "of": of, "by": edge, "count": count}


def by_differences(of: dict[str, Any], lam: float = 0.95, truncated: str = "zero") -> dict[str, Any]:
    fields = {"returns": PENALISED_RETURNS, "gamma": 0.95, "lam": lam, "truncated": truncated}
    return {"kind": "temporal_differences", "of": of} | fields


def scale_over(of: dict[str, Any], by: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "scaled", "of": of, "by": by, "scale": {"kind": "root_mean_square", "eps": 1e-6}}


def shrunk(depth: int, strength: float) -> dict[str, Any]:
    levels = [TASK, *({"kind": "by_history", "depth": k, "peers": "any"} for k in range(depth + 1))]
    return {"kind": "shrunk", "levels": levels, "of": PENALISED_RETURNS, "strength": strength}


def mars(scale: dict[str, Any], gamma: float = 1.0) -> dict[str, Any]:
    role = {"kind": "by_role"}
    turns = {
        "kind": "return_to_go",
        "gamma": gamma,
        "of": {"kind": "centred", "of": STEP_REWARD, "by": role},
        "within": "role",
    }
    mean = {"kind": "distinct_mean", "decimals": 6}
    return relative(by={"kind": "by_player"}, of=turns, baseline=mean, scale=scale, average="step")


def dgpo(eps: float, temperature: float = 2.0) -> dict[str, Any]:
    of = relative(scale={"kind": "mean_absolute_deviation", "eps": eps})
    return {"kind": "question_weighted", "of": of, "temperature": temperature}


def a_grae(alpha: float, denominator: str, eps: float) -> dict[str, Any]:
    fields = {"alpha": alpha, "easy_denominator": denominator, "eps": eps}
    return {"kind": "asymmetric", "of": relative()} | fields


ABOVE_VALUE: dict[str, Any] = {"of": PENALISED_RETURNS, "scale": NO_SCALE, "average": "step"}
EXPECTED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("grpo", {}, relative()),
    (
        "grpo",
        {"ddof": 0, "eps": 0.5, "average": "step", "alone": "raw"},
        relative(scale=deviation(0, 0.5), average="step", alone="raw"),
    ),
    ("dr_grpo", {}, relative(scale=NO_SCALE)),
    ("gtpo", {}, relative(scale=NO_SCALE)),
    ("spae", {}, relative(scale=NO_SCALE)),
    ("after_vsrm", {}, relative(scale=NO_SCALE)),
    ("bcpg_nsa", {}, relative(scale=NO_SCALE)),
    ("prorag", {}, relative(scale={"kind": "deviation", "ddof": 1, "eps": 1e-4, "factor": 1.0})),
    ("pav", {}, gigpo(relative(baseline={"kind": "leave_one_out"}, scale=NO_SCALE), PROGRESS, 0.5)),
    ("pav", {"alpha": 0.0}, relative(baseline={"kind": "leave_one_out"}, scale=NO_SCALE)),
    ("spo_chain", {}, relative(baseline={"kind": "leave_one_out"}, scale=NO_SCALE)),
    ("dr_grpo", {"average": "step", "alone": "error"}, relative(scale=NO_SCALE, average="step", alone="error")),
    ("rloo", {}, relative(baseline={"kind": "leave_one_out"}, scale=NO_SCALE)),
    (
        "rloo",
        {"average": "step", "alone": "raw"},
        relative(baseline={"kind": "leave_one_out"}, scale=NO_SCALE, average="step", alone="raw"),
    ),
    ("reinforce_pp", {}, whiten(RAW_RETURNS)),
    ("reinforce_pp", {"gamma": 0.5, "eps": 0.1}, whiten(RAW_RETURNS | {"of": returns(0.5)}, 0.1)),
    ("reinforce_pp_baseline", {}, whiten(relative(scale=NO_SCALE))),
    ("reinforce_pp_baseline", {"eps": 0.1}, whiten(relative(scale=NO_SCALE), 0.1)),
    ("flow_grpo", {}, relative()),
    ("flow_grpo", {"reference": True}, relative(average="step")),
    ("step_grpo", {}, relative(by=STATE, of=STEP_REWARD, average="step")),
    ("step_grpo", {"eps": 0.5}, relative(by=STATE, of=STEP_REWARD, average="step", scale=deviation(eps=0.5))),
    ("gigpo", {}, gigpo(relative(), STATE_TERM)),
    (
        "gigpo",
        {"scale": "none", "step_weight": 0.5, "gamma": 0.9, "invalid_penalty": 0.2, "similarity": 0.8},
        gigpo(
            relative(scale=NO_SCALE),
            relative(by=STATE | {"similarity": 0.8}, of=penalty_on(returns(0.9), 0.2), scale=NO_SCALE, average="step"),
            weight=0.5,
        ),
    ),
    (
        "gigpo",
        {"reference": True},
        gigpo(RELEASED_EPISODE, STATE_TERM | {"by": {"kind": "by_state", "same_numbers": False, "peers": "any"}}),
    ),
    (
        "gigpo",
        {"reference": True, "scale": "none", "invalid_penalty": 0.3},
        gigpo(
            RELEASED_EPISODE | {"of": penalty_on(EPISODE, 0.3), "scale": NO_SCALE},
            STATE_TERM
            | {
                "by": {"kind": "by_state", "same_numbers": False, "peers": "any"},
                "of": penalty_on(returns(0.95), 0.3),
                "scale": NO_SCALE,
            },
        ),
    ),
    ("hgpo", {}, hgpo((1.0, level(0)), (2.0, level(1)), (3.0, level(2)))),
    ("hgpo", {"depth": 0}, hgpo((1.0, level(0)))),
    (
        "hgpo",
        {"depth": 1, "alpha": 2.0, "gamma": 0.5, "scale": "none", "invalid_penalty": 0.2},
        hgpo(
            *(
                (weight, level(k, scale=NO_SCALE, of=penalty_on(returns(0.5), 0.2)))
                for k, weight in enumerate((1.0, 4.0))
            )
        ),
    ),
    (
        "hgpo",
        {"depth": 1, "episode": True},
        hgpo((1.0, relative()), (2.0, level(0)), (3.0, level(1))),
    ),
    (
        "hgpo",
        {"depth": 1, "episode": True, "scale": "none"},
        hgpo((1.0, relative(scale=NO_SCALE)), *((2.0 + k, level(k, scale=NO_SCALE)) for k in range(2))),
    ),
    ("hgpo", {"depth": 1, "skip_average": True}, hgpo((1.0, level(0)), (2.0, level(1)), absent="zero_valued")),
    (
        "hgpo",
        {"depth": 1, "reference": True},
        hgpo((2.0, level(0)), (3.0, level(1)), absent="zero_valued", eps=1e-6),
    ),
    (
        "hgpo",
        {"depth": 0, "alpha": 2.0, "reference": True, "episode": True},
        hgpo((1.0, RELEASED_EPISODE), (4.0, level(0)), absent="zero_valued", eps=1e-6),
    ),
    ("gagpo", {}, scale_over(by_differences(relative(by=STATE, **ABOVE_VALUE)), TASK)),
    (
        "gagpo",
        {"lam": 0.5, "scale_by": "state", "truncated": "value"},
        scale_over(by_differences(relative(by=STATE, **ABOVE_VALUE), 0.5, "value"), STATE),
    ),
    ("hgae", {}, scale_over(by_differences(hgpo(*((k + 1.0, level(k, **ABOVE_VALUE)) for k in range(3)))), TASK)),
    (
        "hgae",
        {"depth": 1, "alpha": 2.0, "leave_out": True, "scale_by": "none"},
        by_differences(
            hgpo(*(((k + 1.0) ** 2, level(k, **ABOVE_VALUE, baseline={"kind": "leave_one_out"})) for k in range(2)))
        ),
    ),
    ("shrunk_hgae", {"gamma": 0.95}, scale_over(by_differences(shrunk(2, 8.0), 0.0), TASK)),
    (
        "shrunk_hgae",
        {"depth": 0, "strength": 1.0, "lam": 0.5, "gamma": 0.95, "scale_by": "none", "truncated": "value"},
        by_differences(shrunk(0, 1.0), 0.5, "value"),
    ),
    ("ppo", {}, {"kind": "critic_gae", "gamma": 1.0, "lam": 1.0}),
    ("turn_ppo", {}, whiten({"kind": "critic_gae", "gamma": 0.99, "lam": 0.9})),
    ("turn_ppo", {"whiten": False, "lam": 0.5}, {"kind": "critic_gae", "gamma": 0.99, "lam": 0.5}),
    ("r3", {}, relative(scale=deviation(0), mixed_scale=deviation(0))),
    ("r3", {"alpha": 3.0}, relative(scale=deviation(0), mixed_scale=deviation(0, factor=3.0))),
    ("r3", {"with_replay": False}, relative(scale=deviation(0))),
    ("r3_grpo_ablation", {}, relative(scale=deviation(0))),
    ("r3_grpo_ablation", {"with_replay": True}, relative(scale=deviation(0), mixed_scale=deviation(0))),
    ("r3_hgpo", {}, hgpo(*((k + 1.0, level_with_replay(k)) for k in range(3)))),
    ("r3_hgpo", {"depth": 0, "gamma": 0.5, "alpha": 4.0}, hgpo((1.0, level_with_replay(0, gamma=0.5, factor=4.0)))),
    ("salt", {}, salt(relative())),
    (
        "salt",
        {"history": 2, "next_state": False, "count": "step", "base": "rloo"},
        salt(relative(baseline={"kind": "leave_one_out"}, scale=NO_SCALE), 2, False, "step"),
    ),
    (
        "mc_grpo",
        {"eps": 0.5},
        relative(
            baseline={"kind": "median"}, scale={"kind": "median_absolute_deviation", "eps": 0.5, "fallback": 1e-3}
        ),
    ),
    ("rec", {}, relative(scale=NO_SCALE)),
    ("gardo", {}, {"kind": "distinct_credit", "of": relative(scale=NO_SCALE), "info_key": "embedding"}),
    ("gardo", {"diversity": False}, relative(scale=NO_SCALE)),
    ("after_vgpo", {}, {"kind": "anchored", "of": relative(), "by": TASK, "level": EPISODE, "k": 0.1}),
    (
        "copo",
        {},
        {
            "kind": "local_share",
            "of": relative(),
            "blend": {"mode": "soft_forced", "gain": 5.0, "midpoint": 1.0, "answers": "answer"},
        },
    ),
    ("seeupo", {}, relative(scale=NO_SCALE)),
    (
        "after_dsdr",
        {"floor": 0.1},
        relative(scale={"kind": "floored_deviation", "ddof": 1, "eps": 1e-6, "factor": 1.0, "floor": 0.1}),
    ),
    (
        "after_polychromic",
        {},
        {"kind": "set_shared", "of": EPISODE, "key": "action", "size": 4, "variety": "beyond_first"},
    ),
    (
        "srpo",
        {"k": 2, "best": 3.0},
        {
            "kind": "sum",
            "terms": [
                {"weight": 1.0, "of": relative()},
                {
                    "weight": 1.0,
                    "of": {"kind": "pass_at_bonus", "of": EPISODE, "best": 3.0, "k": 2, "eps": 1e-6},
                },
            ],
        },
    ),
    ("p3o", {}, relative(baseline={"kind": "leave_one_out"}, scale=NO_SCALE)),
    ("opmd", {}, relative(scale=NO_SCALE)),
    (
        "opmd",
        {"baseline": "log_mean_exp", "temperature": 0.5},
        relative(baseline={"kind": "log_mean_exp", "temperature": 0.5}, scale=NO_SCALE),
    ),
    ("asymre", {}, relative(baseline={"kind": "shifted_mean", "shift": 0.1}, scale=NO_SCALE)),
    (
        "red_weight",
        {},
        {"kind": "exponentially_weighted", "of": relative(scale=NO_SCALE), "temperature": 1.0},
    ),
    ("ngrpo", {}, relative(of=bound(1.0), virtual=[1.0])),
    ("ngrpo", {"virtual": 0}, relative()),
    (
        "ngrpo",
        {"best": 5.0, "virtual": 3, "eps": 0.5, "reference": True},
        relative(of=bound(5.0), virtual=[5.0] * 3, scale=deviation(eps=0.5), alone="raw", virtual_is_company=False),
    ),
    ("dgpo", {}, dgpo(eps=1e-9)),
    ("dgpo", {"reference": True, "temperature": 1.0}, dgpo(eps=1e-4, temperature=1.0)),
    ("a_grae", {}, a_grae(1.0, "paper", 0.0)),
    ("a_grae", {"reference": True, "alpha": 0.5}, a_grae(0.5, "code", 1e-6)),
    ("mars", {}, mars(NO_SCALE)),
    (
        "mars",
        {"gamma": 0.9, "scale": "std", "whiten": True},
        whiten(mars({"kind": "distinct_deviation", "decimals": 6, "eps": 1e-6}, gamma=0.9)),
    ),
]


@pytest.mark.parametrize(("name", "options", "advantage"), EXPECTED)
def test_a_method_is_made_of_the_parts_its_docstring_states(
    name: str, options: dict[str, Any], advantage: dict[str, Any]
) -> None:
    assert methods.build(name, **options).config()["advantage"] == advantage


def test_every_method_with_credit_of_its_own_is_looked_at() -> None:
    plain = methods.grpo().advantage
    own = {name for name in methods.names() if methods.build(name).advantage != plain}
    assert own <= {name for name, _, _ in EXPECTED}


CRITIC = {"kind": "value_model", "gamma": 1.0, "lam": 1.0, "learning_rate": 1e-5, "value_clip": 0.5}


@pytest.mark.parametrize(
    ("name", "options", "critic"),
    [
        ("ppo", {}, {**CRITIC, "by": "token"}),
        (
            "ppo",
            {"critic_kind": "value_head", "lam": 0.95},
            {**CRITIC, "kind": "value_head", "by": "token", "lam": 0.95},
        ),
        ("turn_ppo", {}, {**CRITIC, "by": "step", "gamma": 0.99, "lam": 0.9}),
        (
            "turn_ppo",
            {"critic_lr": 1e-3, "value_clip": "off"},
            {**CRITIC, "by": "step", "gamma": 0.99, "lam": 0.9, "learning_rate": 1e-3, "value_clip": "off"},
        ),
    ],
)
def test_critics_learn_as_verl_agent_sets_them(name: str, options: dict[str, Any], critic: dict[str, Any]) -> None:
    assert methods.build(name, **options).config()["critic"] == critic


def test_the_advantages_of_tokens_are_whitened_unless_told_otherwise() -> None:
    of = {"kind": "critic_token_gae", "gamma": 1.0, "lam": 1.0}
    assert methods.ppo().config()["token_credit"] == whiten(of) | {"kind": "whitened_tokens"}
    assert methods.ppo(whiten=False).config()["token_credit"] == of
    assert methods.turn_ppo().token_credit is None


def test_four_of_them_drop_rows_and_the_others_keep_all() -> None:
    filters = {name: methods.build(name).config()["filters"] for name, _, _ in EXPECTED}
    assert {name: names for name, names in filters.items() if names} == {
        "mc_grpo": [{"kind": "drop_pivot"}],
        "ngrpo": [{"kind": "drop_solved", "best": 1.0}],
        "gtpo": [{"kind": "zero_spread", "alone": "drop"}],
        "bcpg_nsa": [{"kind": "zero_spread", "alone": "drop"}],
    }
    assert methods.ngrpo(best=3.0).config()["filters"] == [{"kind": "drop_solved", "best": 3.0}]


def test_the_released_median_scale_has_no_fallback() -> None:
    scale = methods.mc_grpo(reference=True).advantage.scale  # type: ignore[attr-defined]
    assert (scale.eps, scale.fallback) == (1e-3, 0.0)
