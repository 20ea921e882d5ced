"""The critic of a learner in shares is that of the local one, on one rank and on two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise.data.samples import count_totals
from groupwise.learner.config import LearnerConfig
from groupwise.learner.local import LocalLearner
from groupwise.losses import PolicyLoss
from tests.unit.learner import rank_jobs, small_learners
from tests.unit.learner.critics import KINDS, with_targets
from tests.unit.learner.several_ranks import run_whole

SETTINGS: dict[str, Any] = {**small_learners.UNCLIPPED, "learning_rate": 1e-12}
"""A step in proportion to the gradient, and a policy that stays where it is: a head sees the same trunk."""


@pytest.mark.few(4)
@pytest.mark.parametrize("world", [2, 1])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("by", "gather"), [("token", "every_pass"), ("step", "once_a_step")])
def test_ranks_learn_what_the_local_learner_learns(kind: str, by: str, gather: str, world: int, tmp_path: Path) -> None:
    critic = KINDS[kind](by=by, learning_rate=0.5, value_clip=0.2)
    samples = with_targets(small_learners.make_samples(small_learners.UNEVEN), by=by, old=0.3)
    totals = count_totals(samples, max_tokens=8)
    config = LearnerConfig(token_budget=small_learners.BUDGET, **SETTINGS)
    local = LocalLearner(small_learners.tiny_model(), PolicyLoss(), config, critic=critic)
    expected = [local.learn(samples, totals).metrics for _ in range(2)]
    said = local.values(samples)
    assert local._critic is not None
    for first, second, values, tensors, is_restored in run_whole(
        rank_jobs.learn_critic, critic, gather, SETTINGS, tmp_path, world=world
    ):
        for metrics, wanted in zip((first, second), expected, strict=True):
            for name in {name for name in wanted if name.startswith("critic/")}:
                assert metrics[name] == pytest.approx(wanted[name], rel=1e-5, abs=1e-6), name
        for own, of_sample in zip(values, said, strict=True):
            assert own == pytest.approx(of_sample, abs=1e-6)
        assert tensors.keys() == local._critic.tensors().keys()
        for name, value in local._critic.tensors().items():
            assert float((value.double() - torch.from_numpy(tensors[name]).double()).abs().max()) < 1e-6, name
        assert is_restored
    assert max(abs(value) for of_sample in said for value in of_sample) > 0.01
    local.load(tmp_path, steps=2)  # what ranks wrote is what the local learner writes
    for own, of_sample in zip(local.values(samples), said, strict=True):
        assert own == pytest.approx(of_sample, abs=1e-6)


def test_the_trunk_begins_as_the_policy_after_its_warm_start() -> None:
    assert run_whole(rank_jobs.start_critic) == [(True, False)] * 2


def test_all_ranks_refuse_a_loss_that_is_not_finite_on_one_of_them() -> None:
    for said, is_unchanged, is_moved in run_whole(rank_jobs.break_critic):
        assert said.startswith("the critic: its loss is not finite (inf); the policy is unchanged.")
        assert is_unchanged
        assert is_moved
