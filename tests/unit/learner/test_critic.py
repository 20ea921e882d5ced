"""The critic of the local learner: what it says, what it learns, and what it leaves alone."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise.data.samples import ValueTargets
from groupwise.learner.config import ValueHead, ValueModel
from groupwise.learner.critic import CRITIC
from groupwise.learner.protocol import hash_weights
from groupwise.losses import TokenLoss
from groupwise.system.errors import RecordError, TrainingError
from groupwise.training.config.run_config import WarmStartConfig
from tests.unit.learner.critics import KINDS, compute_values, head_of, open_learner, trunk_of, with_targets
from tests.unit.learner.learners import learner, rollouts, single_steps, tiny, totals

every_kind = pytest.mark.parametrize("kind", KINDS)
PLAIN: dict[str, Any] = {"max_grad_norm": "off"}


def make_critic(kind: str, **settings: Any) -> ValueHead:
    return KINDS[kind](**{"learning_rate": 0.05, **settings})


def flatten(tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([value.detach().double().flatten() for _, value in sorted(tensors.items())])


@every_kind
@pytest.mark.parametrize("by", ["token", "step"])
@pytest.mark.parametrize("config", [{}, {"token_budget": 16}, {"share_prefixes": False}])
def test_it_says_what_the_models_own_pass_and_the_head_say(kind: str, by: str, config: dict[str, Any]) -> None:
    samples = rollouts()
    made = open_learner(make_critic(kind, by=by), **config)
    assert made.values(samples) == [(0.0,) * len(sample.response_ids) for sample in samples]
    made.learn(with_targets(samples, by=by), totals(samples))
    said = made.values(samples)
    with torch.no_grad():
        expected = [compute_values(trunk_of(made), head_of(made), sample).tolist() for sample in samples]
    assert max(abs(value) for of_sample in expected for value in of_sample) > 0.01
    for own, wanted in zip(said, expected, strict=True):
        assert own == pytest.approx(wanted, abs=1e-5)
    # The value of a step is that of its first token, whatever follows in the sample.
    firsts = made.values([replace(sample, response_ids=sample.prompt_ids[-1:]) for sample in samples])
    assert [of_step[0] for of_step in firsts] == pytest.approx([own[0] for own in said], abs=1e-5)


@every_kind
@pytest.mark.parametrize("by", ["token", "step"])
@pytest.mark.parametrize(
    "config", [{}, {"token_budget": 16}, {"passes": 2}, {"minibatch_samples": 5}, {"max_grad_norm": 0.05}]
)
def test_it_makes_the_weights_of_the_slow_loop(kind: str, by: str, config: dict[str, Any]) -> None:
    """One mean squared error, clipped, over all states of a mini-batch; AdamW on it, before the policy's step."""
    config = {**PLAIN, "minibatch_order": "as_sampled", **config}
    model = tiny()[0].double()
    samples = with_targets(rollouts(num=3), by=by, old=0.3)
    samples[1] = replace(samples[1], trained=(True,) * (len(samples[1].response_ids) - 1) + (False,))
    samples[2] = replace(samples[2], trains=False)
    critic = make_critic(kind, by=by, value_clip=0.2)
    made = open_learner(critic, copy.deepcopy(model), learning_rate=1e-12, **config)
    loss_of_first = made.learn(samples, totals(samples)).metrics["critic/loss"]
    made.learn(samples, totals(samples))  # the head is no longer 0, so the trunk has a gradient too

    trunk, head = copy.deepcopy(model).eval(), torch.nn.Linear(16, 1).double()
    for value in head.parameters():
        torch.nn.init.zeros_(value)
    groups = [list(head.parameters())] + ([list(trunk.parameters())] if critic.owns_trunk else [])
    optimizers = [torch.optim.AdamW(group, lr=0.05, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0) for group in groups]
    training = [sample for sample in samples if sample.num_trained]
    size = config.get("minibatch_samples", len(training))
    losses = []
    for _ in range(2 * config.get("passes", 1)):
        for first in range(0, len(training), size):
            states = []
            for sample in training[first : first + size]:
                values = compute_values(trunk if critic.owns_trunk else model, head, sample, by=by)
                trained = sample.trained if by == "token" and sample.trained else (True,) * len(values)
                states += [
                    (value, *target)
                    for value, trains, *target in zip(values, trained, *sample.targets, strict=True)
                    if trains
                ]
            parts = []
            for value, old, target in states:
                held = min(max(value, old - 0.2), old + 0.2)
                parts.append(max((value - target) ** 2, (held - target) ** 2) / 2)
            loss = sum(parts) / len(parts)
            loss.backward()
            losses.append(float(loss.detach()))
            every = [value for group in groups for value in group if value.grad is not None]
            if config["max_grad_norm"] != "off":
                torch.nn.utils.clip_grad_norm_(every, config["max_grad_norm"])
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
    of_first = losses[: len(losses) // 2]
    assert loss_of_first == pytest.approx(sum(of_first) / len(of_first), abs=1e-6)
    assert torch.allclose(flatten(head_of(made).state_dict()), flatten(head.state_dict()), atol=2e-5)
    if critic.owns_trunk:
        assert torch.allclose(flatten(trunk_of(made).state_dict()), flatten(trunk.state_dict()), atol=2e-5)
        assert not torch.allclose(flatten(trunk.state_dict()), flatten(model.state_dict()), atol=1e-3)


@every_kind
def test_the_policy_learns_what_it_learns_without_a_critic_to_the_bit(kind: str) -> None:
    samples = with_targets(rollouts())
    made, plain = open_learner(make_critic(kind)), open_learner(None)
    for _ in range(2):
        metrics, expected = (each.learn(samples, totals(samples)).metrics for each in (made, plain))
        assert {name: value for name, value in metrics.items() if not name.startswith("critic/")} == expected
    assert hash_weights(made.weights()) == hash_weights(plain.weights())
    assert float(head_of(made).weight.detach().abs().max()) > 0


def test_states_of_samples_without_an_advantage_are_learned_all_the_same() -> None:
    samples = with_targets(single_steps(0.0, 0.0, 1.0))
    made = open_learner(make_critic("value_head"), **PLAIN)
    metrics = made.learn(samples, totals(samples)).metrics
    assert metrics["learner/computed"] == pytest.approx(1 / 3)
    returns = [value for sample in samples for value in sample.targets.returns]
    assert metrics["critic/return"] == pytest.approx(sum(returns) / 6)
    assert metrics["critic/loss"] == pytest.approx(sum(value**2 for value in returns) / 6 / 2, abs=1e-6)


def test_metrics_tell_how_well_recorded_values_fit() -> None:
    [one, two] = single_steps(1.0, -1.0)
    samples = [
        replace(one, targets=ValueTargets(values=(0.0, 1.0), returns=(0.0, 2.0))),
        replace(two, targets=ValueTargets(values=(0.0, 0.0), returns=(0.0, 0.0)), trained=(True, False)),
    ]
    made = open_learner(make_critic("value_head", value_clip=0.5), schedule={"kind": "constant", "warmup_steps": 4})
    metrics = made.learn(samples, totals(samples)).metrics
    # Three states train: values 0, 1, 0 and returns 0, 2, 0, with errors 0, 1, 0.
    assert metrics["critic/value"] == pytest.approx(1 / 3)
    assert metrics["critic/return"] == pytest.approx(2 / 3)
    assert metrics["critic/explained_variance"] == pytest.approx(1 - (1 / 3 - 1 / 9) / (4 / 3 - 4 / 9))
    assert metrics["critic/clip_fraction"] == 0.0  # 0 lies outside 1 +- 0.5, but further from 2 than the bound
    assert metrics["critic/learning_rate"] == 0.05 / 4 == 5 * made.optimizer.param_groups[0]["lr"]
    steady = [replace(one, targets=ValueTargets(values=(0.0, 0.0), returns=(1.0, 1.0)))]
    assert "critic/explained_variance" not in made.learn(steady, totals(steady)).metrics


def test_a_value_that_ran_away_from_its_record_has_no_slope() -> None:
    [sample] = single_steps(1.0)
    samples = [replace(sample, targets=ValueTargets(values=(1.0, 1.0), returns=(-1.0, -1.0)))]
    made = open_learner(make_critic("value_head", value_clip=0.5), **PLAIN)
    metrics = made.learn(samples, totals(samples)).metrics  # both values are 0: nearer to -1 than 0.5 is
    assert metrics["critic/clip_fraction"] == 1.0
    assert metrics["critic/loss"] == pytest.approx(1.5**2 / 2)
    assert metrics["critic/grad_norm"] == 0.0
    free = open_learner(make_critic("value_head", value_clip="off"), **PLAIN)
    assert free.learn(samples, totals(samples)).metrics["critic/loss"] == pytest.approx(0.5)


@every_kind
def test_a_checkpoint_brings_it_back_to_the_bit(kind: str, tmp_path: Path) -> None:
    samples = with_targets(rollouts())
    made, other = (open_learner(make_critic(kind), minibatch_samples=5) for _ in range(2))
    for _ in range(2):
        made.learn(samples, totals(samples))
    made.save(tmp_path)
    other.learn(samples[:3], totals(samples[:3]))
    other.load(tmp_path, steps=made.steps)
    assert other.values(samples) == made.values(samples)
    for _ in range(2):
        expected, metrics = (each.learn(samples, totals(samples)).metrics for each in (made, other))
        assert metrics == expected
    assert other.values(samples) == made.values(samples)


def test_a_checkpoint_of_another_critic_is_refused_and_nothing_is_loaded(tmp_path: Path) -> None:
    samples = with_targets(rollouts())
    own, head, bare = open_learner(make_critic("value_model")), open_learner(make_critic("value_head")), learner()
    for made in (own, head, bare):
        made.learn(samples, totals(samples))
    other = open_learner(make_critic("value_head"), tiny(hidden=32)[0])
    other.learn(samples, totals(samples))
    for name, each in {"own": own, "head": head, "bare": bare, "wide": other}.items():
        (tmp_path / name).mkdir()
        each.save(tmp_path / name)
    before = hash_weights(head.weights()), head.values(samples)
    ending = "; use the section [algorithm] of the run's config.toml, or start a new run in another folder"
    said = {
        "own": f"is of another critic: it has 'trunk/model.embed_tokens.weight'{ending}",
        "bare": f"has no critic, because the run had none{ending}",
    }
    for name, words in said.items():
        with pytest.raises(TrainingError) as caught:
            head.load(tmp_path / name, steps=1)
        assert str(caught.value) == f"checkpoint {tmp_path / name} {words}"
        assert (hash_weights(head.weights()), head.values(samples)) == before
    with pytest.raises(TrainingError, match="is of another critic: it has no 'trunk/"):
        own.load(tmp_path / "head", steps=1)
    assert head._critic is not None
    tensors = {name: value[..., :3] for name, value in head._critic.tensors().items() if "optimizer" not in name}
    assert "has the shape [1, 3] there and [1, 16] here" in str(head._critic.find_difference(tensors))
    (tmp_path / "head" / CRITIC).write_bytes(b"no such file")
    with pytest.raises(TrainingError, match="is damaged"):
        head.load(tmp_path / "head", steps=1)


def test_a_learner_without_a_critic_writes_no_file_and_says_so(tmp_path: Path) -> None:
    made = learner()
    made.save(tmp_path)
    assert not (tmp_path / CRITIC).exists()
    with pytest.raises(TrainingError) as caught:
        made.values(rollouts())
    assert str(caught.value) == "the learner has no critic; open it with one (algorithm.critic)"


def test_a_value_model_begins_as_the_policy_after_its_warm_start() -> None:
    samples = with_targets(rollouts())
    made = open_learner(make_critic("value_model"))
    assert trunk_of(made) is not made.model
    made.imitate(samples, WarmStartConfig(epochs=2), seed=0)
    policy = flatten(made.model.state_dict())
    assert torch.equal(flatten(trunk_of(made).state_dict()), policy)
    assert not torch.equal(flatten(open_learner(None).model.state_dict()), policy)
    made.learn(samples, totals(samples))
    assert not torch.equal(flatten(trunk_of(made).state_dict()), flatten(made.model.state_dict()))


def test_an_adapter_is_copied_with_what_it_leaves_frozen(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    torch.manual_seed(1)
    model = peft.get_peft_model(tiny()[0], peft.LoraConfig(r=2, target_modules="all-linear"))
    made, samples = open_learner(make_critic("value_model"), model), with_targets(rollouts())
    made.learn(samples, totals(samples))
    assert made._critic is not None
    names = {name for name in made._critic.tensors() if name.startswith("trunk/")}
    assert names
    assert all("lora_" in name for name in names)


def test_an_output_layer_of_its_own_is_not_trained_and_not_kept() -> None:
    model = tiny()[0]
    model.config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    made = open_learner(make_critic("value_model"), model)
    assert made._critic is not None
    assert "trunk/lm_head.weight" not in made._critic.tensors()
    assert "trunk/model.embed_tokens.weight" in made._critic.tensors()
    samples = with_targets(rollouts())
    made.learn(samples, totals(samples))
    assert torch.equal(trunk_of(made).lm_head.weight, tiny()[0].lm_head.weight)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loss_that_is_not_finite_stops_before_anything_changes(kind: str) -> None:
    made, samples = open_learner(make_critic(kind)), with_targets(rollouts())
    made.learn(samples, totals(samples))
    before = hash_weights(made.weights()), made.values(samples)
    broken = [replace(sample, targets=sample.targets._replace(returns=(math.inf,) * 9)) for sample in samples[:1]]
    broken[0] = replace(
        broken[0], targets=broken[0].targets._replace(returns=(math.inf,) * len(broken[0].response_ids))
    )
    with pytest.raises(TrainingError) as caught:
        made.learn([*broken, *samples[1:]], totals(samples))
    assert str(caught.value) == (
        "the critic: its loss is not finite (inf); the policy is unchanged. Lower algorithm.critic.learning_rate, or "
        "look at the rewards of this update"
    )
    assert (hash_weights(made.weights()), made.values(samples)) == before
    made.learn(samples, totals(samples))


def test_values_that_are_not_finite_are_named_where_they_are_asked_for() -> None:
    made, samples = open_learner(make_critic("value_head")), rollouts()
    with torch.no_grad():
        head_of(made).bias.fill_(math.nan)
    with pytest.raises(TrainingError, match="the critic gives a value that is not finite; continue from the last"):
        made.values(samples)


def test_samples_that_lack_a_target_or_have_too_many_are_named() -> None:
    made, samples = open_learner(make_critic("value_head")), with_targets(rollouts())
    with pytest.raises(RecordError) as caught:
        made.learn([replace(samples[0], targets=None), *samples[1:]], totals(samples))
    assert str(caught.value) == (
        "sample of trajectory 0, step 0: it has no targets for the critic; give Sample.targets"
    )
    with pytest.raises(RecordError) as caught:
        made.learn(with_targets(samples, by="step"), totals(samples))
    assert str(caught.value) == (
        "sample of trajectory 0, step 1: its targets have 1 values and 1 returns for 2 states; give one of each per "
        "state"
    )


class Huber(ValueModel):
    """A critic of one's own, with another loss."""

    def __call__(self, value_T: Any, old_T: Any, return_T: Any) -> TokenLoss:
        return TokenLoss(loss=torch.nn.functional.huber_loss(value_T, return_T, reduction="none"))


def test_the_part_decides_the_loss() -> None:
    samples = with_targets(rollouts())
    made = open_learner(Huber(learning_rate=0.05), **PLAIN)
    metrics = made.learn(samples, totals(samples)).metrics
    returns = [value for sample in samples for value in sample.targets.returns]
    assert metrics["critic/loss"] == pytest.approx(sum(value**2 / 2 for value in returns) / len(returns), abs=1e-6)
    assert metrics["critic/clip_fraction"] == 0.0
