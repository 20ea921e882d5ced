"""Errors know the names that other trainers, and earlier versions of groupwise, give to a setting."""

from __future__ import annotations

import pytest

from groupwise.system.errors import OTHER_NAMES, ConfigError, Problem
from groupwise.training.config.run_file import decode_run
from tests.architecture.settings import is_setting


def test_every_setting_that_an_error_points_to_is_there() -> None:
    pytest.importorskip("torch")
    assert [ours for ours in OTHER_NAMES.values() if not is_setting(ours)] == []


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"num_generations": 8}, "num_generations: unknown setting; here: rollout.group_size"),
        ({"training": {"n": 8}}, "training.n: unknown setting; here: rollout.group_size"),
        ({"rollout": {"plan": {"kind": "flat", "attempts": 8}}}, "rollout.plan.attempts: unknown setting; here: rol"),
        ({"evaluation": {"attempts": 2}}, "evaluation.attempts: unknown setting; here: evaluation.rollouts"),
        ({"rollout": {"max_completion_length": 9}}, "rollout.max_completion_length: unknown setting; here: rollout.m"),
        ({"training": {"learner": {"lr": 1}}}, "training.learner.lr: unknown setting; here: training.learner.learn"),
        ({"warm_start": {"lr": 1}}, "warm_start.lr: unknown setting; here: warm_start.learning_rate"),
        ({"algorithm": {"method": "grpo", "kl_coef": 1}}, "algorithm.kl_coef: unknown setting; here: algorithm.loss"),
        ({"algorithm": {"recipe": "grpo"}}, "algorithm.recipe: unknown setting; here: algorithm.method"),
        ({"algorithm": {"method": "grpo"}, "model": {"kind": "tiny", "lora_rank": 8}}, "model.lora_rank: unknown set"),
    ],
)
def test_an_unknown_setting_is_named_as_it_is_here(section: dict[str, object], expected: str) -> None:
    content = {"algorithm": {"method": "grpo"}, "env": "household", "model": "tiny", **section}
    with pytest.raises(ConfigError) as error:
        decode_run(content)
    assert error.value.describe().startswith(expected)


def test_a_near_name_of_the_same_section_comes_first() -> None:
    assert str(Problem.of_unknown(["training", "beta"], ["betas", "eps"], listed_by="")) == (
        "training.beta: unknown setting; did you mean 'betas'? Valid: betas, eps"
    )


def test_a_setting_that_another_kind_has_is_not_pointed_to_itself() -> None:
    assert str(Problem.of_unknown(["model", "lora_rank"], ["hidden"], listed_by="")) == (
        "model.lora_rank: unknown setting; Valid: hidden"
    )
