"""Mini-batches of a fixed number of samples: their content, denominators and order, and losses that refuse them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise import ConfigError, methods
from groupwise.data.samples import Sample, count_totals
from groupwise.learner.config import LearnerConfig
from groupwise.learner.local import LocalLearner, cut_minibatches
from groupwise.learner.protocol import hash_weights
from groupwise.losses import PolicyLoss
from groupwise.training.config.checks import check_algorithm
from groupwise.training.config.run_config import RunConfig
from groupwise.training.config.run_file import load_run
from tests.unit.learner import rank_jobs, small_learners
from tests.unit.learner.learners import learner, rollouts, totals
from tests.unit.learner.several_ranks import run_whole

RUN = Path(__file__).parents[3] / "examples" / "methods" / "grpo.toml"


def open_learner(size: int, order: str = "as_sampled") -> LocalLearner:
    # Against the engine, so that no log-probs of the update's start are needed.
    return learner(loss=PolicyLoss(old="engine"), minibatch_samples=size, minibatch_order=order)


def test_each_mini_batch_is_an_update_of_its_own_with_its_own_denominators() -> None:
    samples = [sample for sample in rollouts(num=5) if sample.response_ids]
    made, by_hand = open_learner(4), learner(loss=PolicyLoss(old="engine"))
    metrics = made.learn(samples, totals(samples)).metrics
    for first in range(0, len(samples), 4):
        batch = samples[first : first + 4]
        by_hand.learn(batch, count_totals(batch, max_tokens=4))
    assert len(samples) % 4, "the last mini-batch has fewer"
    assert metrics["learner/optimizer_steps"] == by_hand.steps == -(-len(samples) // 4)
    assert hash_weights(made.weights()) == hash_weights(by_hand.weights())


def test_a_mini_batch_that_holds_all_samples_is_the_whole_update() -> None:
    samples = rollouts(num=4)
    made, whole = open_learner(len(samples)), learner(loss=PolicyLoss(old="engine"))
    assert made.learn(samples, totals(samples)).metrics == whole.learn(samples, totals(samples)).metrics
    assert hash_weights(made.weights()) == hash_weights(whole.weights())


def test_samples_that_do_not_train_fill_no_mini_batch() -> None:
    samples = rollouts(num=4)
    idle = [replace(sample, trains=False) for sample in samples]
    made = open_learner(len(samples))
    assert made.learn([*idle, *samples], totals([*idle, *samples])).metrics["learner/optimizer_steps"] == 1


def number_samples(num: int) -> list[Sample]:
    return [
        Sample(prompt_ids=(1,), response_ids=(2,), advantage=1.0, trajectory=number, step=0, group=0)
        for number in range(num)
    ]


def test_the_order_follows_from_the_seed_and_keeps_every_sample_once() -> None:
    samples = number_samples(1500)
    first, again, other = (cut_minibatches(samples, 256, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert [len(batch) for batch in first] == [256, 256, 256, 256, 256, 220]
    assert sorted(sample.trajectory for batch in first for sample in batch) == list(range(1500))
    as_sampled = cut_minibatches(samples, 256, seed=None)
    assert [sample for batch in as_sampled for sample in batch] == samples


def test_a_resumed_learner_shuffles_as_the_uninterrupted_one(tmp_path: Path) -> None:
    samples = rollouts(num=5)
    whole, begun, resumed = (open_learner(3, "shuffled") for _ in range(3))
    for _ in range(2):
        whole.learn(samples, totals(samples))
    begun.learn(samples, totals(samples))
    begun.save(tmp_path)
    resumed.load(tmp_path, steps=begun.steps)
    resumed.learn(samples, totals(samples))
    assert hash_weights(resumed.weights()) == hash_weights(whole.weights())
    in_order = open_learner(3)
    for _ in range(2):
        in_order.learn(samples, totals(samples))
    assert hash_weights(in_order.weights()) != hash_weights(whole.weights())


def test_two_ranks_learn_the_mini_batches_of_the_local_learner() -> None:
    samples = small_learners.make_samples(small_learners.UNEVEN)
    settings: dict[str, Any] = {"minibatch_samples": 5, **small_learners.UNCLIPPED}
    local = small_learners.open_local(PolicyLoss(), **settings)
    metrics = local.learn(samples, count_totals(samples, max_tokens=8)).metrics
    packing = {"learner/token_ratio"}  # samples of one group are on both ranks, and share less
    for of_rank, weights in run_whole(rank_jobs.learn_minibatches, settings):
        assert of_rank.keys() == metrics.keys()
        for name in metrics.keys() - packing:
            assert of_rank[name] == pytest.approx(metrics[name], rel=1e-5, abs=1e-6)
        for name, value in local.weights().items():
            assert float((value - torch.from_numpy(weights[name])).abs().max()) < 1e-6


def test_two_ways_to_divide_an_update_are_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        LearnerConfig(minibatches=4, minibatch_samples=256)
    assert str(caught.value) == (
        "LearnerConfig: minibatch_samples = 256 and minibatches = 4 both say how an update is divided; leave out one "
        "of the two"
    )


def load(method: str) -> RunConfig:
    changes = {"algorithm.method": method, "training.learner.minibatches": 1, "training.learner.minibatch_samples": 64}
    return load_run(RUN, overrides=[f"{path}={value}" for path, value in changes.items()])


@pytest.mark.parametrize(("method", "whole"), [("disco", "groups"), ("dpo", "groups"), ("rec", None), ("gspo", None)])
def test_losses_over_whole_groups_are_refused_before_a_model_loads(method: str, whole: str | None) -> None:
    config = load(method)
    if whole is None:
        check_algorithm(config)
        return
    with pytest.raises(ConfigError) as caught:
        check_algorithm(config)
    assert str(caught.value).startswith("training.learner.minibatch_samples: the loss ")
    assert str(caught.value).endswith(
        f" is over whole {whole}, which mini-batches of a fixed number of samples divide; use "
        "training.learner.minibatches"
    )


def test_a_ratio_over_a_whole_rollout_is_refused_too() -> None:
    config = load("grpo")
    loss = PolicyLoss(ratio={"kind": "sequence_ratio", "unit": "trajectory"})
    algorithm = methods.grpo().model_copy(update={"loss": loss})
    with pytest.raises(ConfigError, match="is over whole rollouts, which mini-batches"):
        check_algorithm(config.model_copy(update={"algorithm": algorithm}))
