"""Turns learnt one after the other: the learner against a slow loop, and what it refuses."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any, ClassVar

import pytest

torch = pytest.importorskip("torch")

from groupwise import ConfigError, Part, methods
from groupwise.data.samples import Sample
from groupwise.learner.local import LocalLearner
from groupwise.learner.micro_batches import split_into_stages
from groupwise.losses import PolicyLoss
from groupwise.methods.seeupo import LastTurnFirst
from tests.oracles.turns import learn_turns
from tests.unit.learner.learners import learner, rollouts, single_steps, tiny, totals

RATE = 0.02
PLAIN = {"learning_rate": RATE, "max_grad_norm": math.inf}


def learn(samples: list[Sample], loss: Any, **config: Any) -> tuple[LocalLearner, dict[str, float]]:
    made = learner(tiny()[0].double(), loss, **{**PLAIN, **config})
    learned = made.learn(samples, totals(samples))
    return made, dict(learned.metrics)


def weights_of(model: Any) -> torch.Tensor:
    return torch.cat([value.detach().flatten() for value in model.parameters()])


@pytest.mark.parametrize(
    ("stages", "order", "passes"),
    [(8, [[3], [2], [1], [0]], 1), (2, [[2, 3], [0, 1]], 1), (8, [[3], [2], [1], [0]], 2), (1, [[0, 1, 2, 3]], 2)],
)
def test_the_learner_makes_the_weights_of_the_slow_loop(stages: int, order: list[list[int]], passes: int) -> None:
    samples = rollouts(num=5)  # of three turns and of four
    made, metrics = learn(samples, methods.seeupo(stages=stages).loss, passes=passes)
    slow = copy.deepcopy(tiny()[0].double()).eval()
    optimizer = torch.optim.AdamW(slow.parameters(), lr=RATE, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    settings = made.optimizer.param_groups[0]
    for name in ("betas", "eps", "weight_decay"):
        optimizer.param_groups[0][name] = settings[name]
    factor = learn_turns(slow, samples, stages=order, width=0.2, optimizer=optimizer, passes=passes)
    assert max(abs(value - 1) for value in factor.values()) > 0.02
    assert metrics["learner/optimizer_steps"] == len(order) * passes
    assert torch.allclose(weights_of(made.model), weights_of(slow), rtol=0, atol=1e-6)


@pytest.mark.parametrize("config", [{"token_budget": 16}, {"token_budget": 24, "share_prefixes": False}])
def test_any_split_into_micro_batches_gives_the_same_weights(config: dict[str, Any]) -> None:
    samples = rollouts(num=5)
    whole, _ = learn(samples, methods.seeupo().loss)
    cut, _ = learn(samples, methods.seeupo().loss, **config)
    assert torch.allclose(weights_of(whole.model), weights_of(cut.model), rtol=0, atol=1e-7)


def test_rollouts_of_one_turn_are_learnt_as_the_loss_within_to_the_bit() -> None:
    samples = single_steps(1.0, -0.5, 0.25, 0.0)
    loss = methods.seeupo().loss
    assert isinstance(loss, LastTurnFirst)
    for config in ({}, {"passes": 3}, {"minibatches": 2}):
        made, metrics = learn(samples, loss, **config)
        plain, expected = learn(samples, loss.of, **config)
        assert torch.equal(weights_of(made.model), weights_of(plain.model))
        assert metrics["loss/total"] == pytest.approx(expected["loss/total"], abs=1e-12)


def test_the_order_matters_and_what_later_turns_became_does_too() -> None:
    samples = rollouts(num=5)
    together, _ = learn(samples, methods.seeupo(stages=1).loss)
    by_turn, _ = learn(samples, methods.seeupo().loss)
    without, _ = learn(samples, LastTurnFirst(min_factor=1.0, max_factor=1.0))
    assert not torch.allclose(weights_of(together.model), weights_of(by_turn.model), atol=1e-5)
    assert not torch.allclose(weights_of(without.model), weights_of(by_turn.model), atol=1e-7)


def test_against_the_engine_the_factor_is_taken_against_the_engine_too() -> None:
    samples = [replace(sample, advantage=1.0) for sample in rollouts(num=2)]
    against_engine = LastTurnFirst(of=PolicyLoss(old="engine"))
    assert against_engine.needs == frozenset()
    made, _ = learn(samples, against_engine, learning_rate=1e-12)
    columns = made._columns(made._micro_batches(samples)[0])
    far = against_engine.carry(columns, totals(samples))
    assert far.abs().max() > 0.1  # the engine's log-probs are not the model's
    assert LastTurnFirst().carry(columns, totals(samples)).abs().max() < 1e-6


class Backwards(Part, slot="loss"):
    """A loss whose order forgets a turn."""

    needs: ClassVar[frozenset[str]] = frozenset()
    unit: ClassVar[str] = "step"

    def order_turns(self, num_turns: int) -> list[list[int]]:
        return [[turn] for turn in reversed(range(1, num_turns))]

    def __call__(self, columns: Any, totals: Any) -> Any:
        raise NotImplementedError


def test_an_order_that_is_none_of_all_turns_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        split_into_stages(Backwards(), rollouts())
    assert str(caught.value) == (
        "algorithm.loss: Backwards orders 4 turns as [[3], [2], [1]]; return each turn from 0 to 3 once"
    )
