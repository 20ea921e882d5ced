"""The learner: which way it moves, how batches are cut, and where it stops."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise.data.samples import Sample
from groupwise.learner.local import LocalLearner
from groupwise.learner.protocol import hash_weights
from groupwise.losses import Clip, EntropyBonus, PolicyLoss, SequenceMean, SequenceRatio, TrajectoryMean, Truncate
from groupwise.methods.cispo import Cispo
from groupwise.system.errors import ConfigError, RecordError, TrainingError
from tests.equivalence.models import run_layers_again
from tests.unit.learner.learners import gradient, learner, logps, rollouts, single_steps, tiny, totals

NO_CLIPPING = {"max_grad_norm": math.inf}


def optimizer_state(made: LocalLearner) -> list[Any]:
    """Everything the optimizer remembers, as plain numbers."""
    return [
        (number, key, value.tolist() if isinstance(value, torch.Tensor) else value)
        for number, entries in made.optimizer.state_dict()["state"].items()
        for key, value in entries.items()
    ]


def test_praise_makes_a_response_likelier_and_blame_less_likely() -> None:
    for advantage in (1.0, -1.0):
        made, samples = learner(), single_steps(advantage)
        before = logps(made.model, samples).sum()
        made.learn(samples, totals(samples))
        assert (logps(made.model, samples).sum() > before) == (advantage > 0)


def test_a_step_is_that_of_adamw_on_the_gradient_of_the_loss() -> None:
    """One token, credit 2: the loss on-policy is -2 x ratio, whose gradient is that of -2 logp."""
    model, samples = tiny()[0], [dataclasses.replace(single_steps(2.0)[0], response_ids=(5,), logp_behaviour=(-1.0,))]
    expected = copy.deepcopy(model).eval()
    logits = expected(input_ids=torch.tensor([samples[0].token_ids])).logits[0, 1]
    (-2 * logits.log_softmax(-1)[5]).backward()
    by_hand = torch.optim.AdamW(expected.parameters(), lr=0.05, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.1)
    by_hand.step()
    config = {"learning_rate": 0.05, "betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.1, **NO_CLIPPING}
    loss = PolicyLoss(aggregate=SequenceMean())
    learner(model, loss, **config).learn(samples, totals(samples))
    for weight, wanted in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(weight, wanted, rtol=1e-5, atol=1e-6)


def test_a_long_gradient_is_shortened_and_its_length_reported() -> None:
    samples = rollouts()
    _, whole = gradient(learner(**NO_CLIPPING), samples)
    made = learner(max_grad_norm=0.01)
    _, clipped = gradient(made, samples)
    assert float(clipped.norm()) == pytest.approx(0.01, rel=1e-3)
    torch.testing.assert_close(clipped / clipped.norm(), whole / whole.norm(), rtol=1e-4, atol=1e-6)
    reported = learner(max_grad_norm=0.01).learn(samples, totals(samples)).metrics["learner/grad_norm"]
    assert reported == pytest.approx(float(whole.norm()), rel=1e-5)


def test_the_schedule_is_followed_and_the_rate_reported() -> None:
    made = learner(learning_rate=0.1, schedule={"kind": "linear", "steps": 4, "warmup_steps": 2, "floor": 0.5})
    samples = single_steps(1.0, -1.0)
    metrics = [made.learn(samples, totals(samples)).metrics for _ in range(5)]
    assert [one["learner/learning_rate"] for one in metrics] == pytest.approx([0.05, 0.1, 0.1, 0.075, 0.05])
    assert [one["learner/optimizer_steps"] for one in metrics] == [1, 2, 3, 4, 5]


def test_several_passes_over_mini_batches_make_that_many_steps() -> None:
    samples = single_steps(1.0, -1.0, 0.5, 0.25)
    made = learner(passes=2, minibatches=3)
    assert made.learn(samples, totals(samples)).metrics["learner/optimizer_steps"] == 6
    assert made.steps == 6


def test_later_passes_are_measured_against_the_weights_at_the_start() -> None:
    samples = rollouts()
    made = learner(passes=3, learning_rate=0.05)
    start = logps(made.model, samples)
    moved = made.learn(samples, totals(samples)).metrics
    # The mean over three passes, of which the first has not moved yet.
    assert moved["loss/kl_to_old"] > 1e-4
    behaviour = torch.tensor([value for sample in samples for value in sample.logp_behaviour])
    assert moved["loss/mismatch"] == pytest.approx(float((start - behaviour).mean()), abs=1e-5)


LAYOUTS = [{"token_budget": budget, "share_prefixes": share} for budget in (1, 16, 40, 4096) for share in (True, False)]
UNITS = {
    "sample": PolicyLoss(aggregate=SequenceMean(), old="engine"),
    "step": PolicyLoss(ratio=SequenceRatio(unit="step"), surrogate=Clip(low=0.3, high=0.3), old="engine"),
    "trajectory": PolicyLoss(
        ratio=SequenceRatio(unit="trajectory"),
        surrogate=Clip(low=0.3, high=0.3),
        aggregate=TrajectoryMean(within="step"),
        old="engine",
    ),
    "entropy": PolicyLoss(penalties=(EntropyBonus(weight=0.1),)),
}


@pytest.mark.parametrize("unit", UNITS)
def test_any_split_into_micro_batches_gives_the_same_loss_and_gradient(unit: str) -> None:
    samples, results = rollouts(), []
    for layout in LAYOUTS:
        made = learner(loss=UNITS[unit], **layout, **NO_CLIPPING)
        results.append(gradient(made, samples))
    expected_loss, expected = results[-1]
    for loss, slope in results:
        assert loss == pytest.approx(expected_loss, rel=1e-6)
        assert float((slope - expected).norm() / expected.norm()) < 1e-6


def some_without_credit() -> list[Sample]:
    """Scalar and token-wise credit, of which two thirds are 0; some sampled by another policy."""
    samples = []
    for i, sample in enumerate(rollouts()):
        credit = sample.advantage if i % 3 == 0 else 0.0
        spread = (credit,) * len(sample.response_ids) if i % 2 else credit
        samples.append(dataclasses.replace(sample, advantage=spread, off_policy=i % 4 == 1))
    return samples


@pytest.mark.parametrize("settings", [{}, {"minibatches": 2}, {"minibatches": 2, "passes": 2}])
@pytest.mark.parametrize(
    "loss",
    [
        PolicyLoss(),
        PolicyLoss(surrogate=Cispo(), aggregate=SequenceMean(), old="engine"),
        PolicyLoss(surrogate=Clip(dual=3.0), corrections=(Truncate(),)),
        UNITS["entropy"],
    ],
)
def test_samples_without_credit_are_left_out_where_that_changes_nothing(
    loss: PolicyLoss, settings: dict[str, Any]
) -> None:
    samples = some_without_credit()
    made, whole = learner(loss=loss, **settings), learner(loss=loss, **settings)
    whole._with_credit = lambda every: every  # type: ignore[method-assign]
    metrics, expected = (each.learn(samples, totals(samples)).metrics for each in (made, whole))
    assert (metrics["learner/computed"] < 0.5) == (loss is not UNITS["entropy"])
    assert metrics["loss/total"] == pytest.approx(expected["loss/total"], rel=1e-5, abs=1e-8)
    for one, other in zip(made.model.parameters(), whole.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_metrics_that_no_token_has_are_left_out() -> None:
    """All credit lies in what another policy sampled: of its own tokens there is nothing to say."""
    samples = [
        dataclasses.replace(sample, off_policy=i % 2 == 0, advantage=sample.advantage if i % 2 == 0 else 0.0)
        for i, sample in enumerate(rollouts())
    ]
    metrics = learner().learn(samples, totals(samples)).metrics
    assert not any(math.isnan(value) for value in metrics.values())
    assert "loss/off_policy_ratio" in metrics
    assert "loss/ratio" not in metrics


def test_samples_without_credit_are_checked_all_the_same() -> None:
    samples = single_steps(1.0, 0.0)
    samples[1] = dataclasses.replace(samples[1], logp_behaviour=())
    with pytest.raises(RecordError, match="were not recorded"):
        learner().learn(samples, totals(samples))


def test_a_part_that_computes_something_else_does_not_inherit_the_promise() -> None:
    class Other(Clip):
        def __call__(self, ratio_T: Any, columns: Any) -> Any:
            outcome = super().__call__(ratio_T, columns)
            return dataclasses.replace(outcome, loss=outcome.loss + columns.logp)

    class OtherLoss(PolicyLoss):
        def __call__(self, columns: Any, totals: Any) -> Any:
            return super().__call__(columns, totals)

    class Unpromising(Other):
        scales_with_credit = False

        def __call__(self, ratio_T: Any, columns: Any) -> Any:
            return super().__call__(ratio_T, columns)

    assert PolicyLoss().ignores_zero_credit
    assert not PolicyLoss(surrogate=Unpromising()).ignores_zero_credit
    assert not PolicyLoss(surrogate=Other()).ignores_zero_credit
    assert not OtherLoss().ignores_zero_credit


def test_an_update_without_any_credit_still_makes_its_steps() -> None:
    """AdamW moves on by what it remembers."""
    made = learner()
    made.learn(rollouts(), totals(rollouts()))
    before = hash_weights(made.weights())
    idle = [dataclasses.replace(sample, advantage=0.0) for sample in rollouts()]
    metrics = made.learn(idle, totals(idle)).metrics
    assert (metrics["loss/total"], metrics["learner/grad_norm"], made.steps) == (0.0, 0.0, 2)
    assert metrics["learner/computed"] == 0
    assert "loss/ratio" not in metrics
    assert hash_weights(made.weights()) != before


def test_samples_that_do_not_train_change_no_bit() -> None:
    samples = rollouts()
    idle = [dataclasses.replace(sample, trains=False, advantage=math.nan) for sample in rollouts(2)]
    first, second = learner(), learner()
    first.learn(samples, totals(samples))
    second.learn([*samples, *idle], totals([*samples, *idle]))
    assert hash_weights(first.weights()) == hash_weights(second.weights())


def test_an_update_without_a_token_to_train_on_is_refused() -> None:
    made = learner()
    with pytest.raises(TrainingError) as caught:
        made.learn([dataclasses.replace(sample, trains=False) for sample in single_steps(1.0)], totals([]))
    assert str(caught.value) == "no sample of the update trains; leave the update out"


def test_log_probs_that_were_not_recorded_are_asked_for() -> None:
    samples = [*single_steps(1.0), dataclasses.replace(single_steps(1.0)[0], trajectory=4, logp_behaviour=())]
    with pytest.raises(RecordError) as caught:
        learner().learn(samples, totals(samples))
    assert str(caught.value) == (
        "sample of trajectory 4, step 0: the log-probs of its sampled tokens were not recorded; record those of the "
        "engine"
    )


def test_a_loss_that_is_not_finite_names_its_cause_and_leaves_everything_as_it_was() -> None:
    made = learner(token_budget=4)
    made.learn(single_steps(1.0, -0.5), totals(single_steps(1.0, -0.5)))
    before = hash_weights(made.weights()), optimizer_state(made), made.steps
    samples = single_steps(1.0, 0.5, math.nan)
    with pytest.raises(TrainingError) as caught:
        made.learn(samples, totals(samples))
    assert str(caught.value) == (
        "optimizer step 2: the loss is not finite (nan: trajectory 2, step 0 has advantage nan); weights and optimizer "
        "are unchanged. Lower the learning rate, or look at the rewards of this update"
    )
    assert (hash_weights(made.weights()), optimizer_state(made), made.steps) == before
    assert all(value.grad is None for value in made.model.parameters())


def test_weights_that_are_not_finite_show_in_the_log_probs() -> None:
    made, samples = learner(), single_steps(1.0)
    made.learn(samples, totals(samples))
    with torch.no_grad():
        next(made.model.parameters())[5] = math.nan
    with pytest.raises(TrainingError, match=r"trajectory 0, step 0 has logp_old nan"):
        made.learn(samples, totals(samples))


def test_a_gradient_that_is_not_finite_names_the_weight_and_leaves_everything_as_it_was() -> None:
    made, samples = learner(), single_steps(1.0, -0.5)
    made.learn(samples, totals(samples))
    before = hash_weights(made.weights()), optimizer_state(made), made.steps
    spoilt = dict(made.model.named_parameters())["model.norm.weight"]
    hook = spoilt.register_hook(lambda gradient: gradient * math.nan)
    with pytest.raises(TrainingError) as caught:
        made.learn(samples, totals(samples))
    assert str(caught.value) == (
        "optimizer step 2: the gradient is not finite (nan, first in model.norm.weight); weights and optimizer are "
        "unchanged. Lower the learning rate, or look at the rewards of this update"
    )
    assert (hash_weights(made.weights()), optimizer_state(made), made.steps) == before
    assert all(value.grad is None for value in made.model.parameters())
    hook.remove()
    assert math.isfinite(made.learn(samples, totals(samples)).metrics["loss/total"])


def test_dropout_is_off_so_that_the_learner_scores_what_the_engine_sampled() -> None:
    model = tiny()[0]
    model.config.attention_dropout = 0.5
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    samples = rollouts()
    expected = logps(copy.deepcopy(model).eval(), samples)
    made = learner(model.train(), passes=2, learning_rate=1e-12)
    metrics = made.learn(samples, totals(samples)).metrics
    behaviour = torch.tensor([value for sample in samples for value in sample.logp_behaviour])
    assert metrics["loss/mismatch"] == pytest.approx(float((expected - behaviour).mean()), abs=1e-6)
    assert metrics["loss/kl_to_old"] == pytest.approx(0.0, abs=1e-9)
    assert not made.model.training


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_weights_of_half_precision_are_refused(kind: str) -> None:
    with pytest.raises(ConfigError) as caught:
        learner(tiny()[0].to(getattr(torch, kind)))
    instead = ", or set training.learner.bfloat16_weights" if kind == "bfloat16" else ""
    assert str(caught.value) == (
        f"model.embed_tokens.weight would train in {kind}, which rounds small steps away; load the model in "
        f"float32, or train a LoRA adapter on it (model.lora_rank), whose weights are float32{instead}"
    )


def test_a_model_that_cannot_train_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        learner(tiny()[0].requires_grad_(False))
    assert str(caught.value) == ("no weight of the model trains; load it without freezing, or with a LoRA adapter")


def test_gradient_checkpointing_is_refused() -> None:
    model = tiny()[0]
    run_layers_again(model)
    with pytest.raises(ConfigError, match="gradient checkpointing is on for the whole model"):
        learner(model)
