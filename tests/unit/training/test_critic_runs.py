"""Runs with a critic: what is recorded, what derives again without it, and what is refused before a model loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise import ConfigError, methods
from groupwise.data.records import Step, Task, Trajectory
from groupwise.data.samples import Sample
from groupwise.learner.config import LearnerConfig, ValueHead
from groupwise.learner.critic import CRITIC
from groupwise.models import PretrainedModel, TinyModel
from groupwise.models.outline import plan_model
from groupwise.parts.part import Part
from groupwise.report.derived_credit import DerivedCredit
from groupwise.store.run_folder import RunPaths
from groupwise.training.checkpoints import open_run_at
from groupwise.training.collect.measuring import value_states
from groupwise.training.config.checks import check_algorithm
from groupwise.training.config.run_config import RolloutConfig, RunConfig
from groupwise.training.needed_memory import check_memory, count_weights
from groupwise.training.open_run import open_run
from groupwise.training.samples import credit_batch, make_samples
from tests.unit.training.runs import small_config


def make_config(method: str = "ppo", *, updates: int = 3, **options: Any) -> RunConfig:
    algorithm = methods.build(method, **{"critic_lr": 0.05, **options})
    return small_config(updates=updates).model_copy(update={"algorithm": algorithm})


@pytest.mark.parametrize("method", ["ppo", "turn_ppo"])
@pytest.mark.parametrize("critic", ["value_head", "value_model"])
def test_what_the_critic_said_is_in_the_journal_and_credit_derives_again_without_it(
    method: str, critic: str, tmp_path: Path
) -> None:
    config = make_config(method, critic_kind=critic)
    with open_run(config, tmp_path) as run:
        list(run.updates())
        said = set[float]()
        for number in run.journal.update_numbers():
            records = list(run.journal.trajectories(number))
            for step in (step for record in records for step in record["steps"]):
                info = step["extra"]
                said.add(info["critic_value"])
                if method == "ppo":
                    assert len(info["critic_values"]) == len(step["response_ids"])
                    assert info["critic_values"][0] == info["critic_value"]
                else:
                    assert "critic_values" not in info
            derived = DerivedCredit.compute(records, config.algorithm)
            assert derived.credit.values.tolist() == list(derived.recorded)
    assert 0.0 in said, "the head begins at 0"
    assert len(said) > 2
    assert (RunPaths(tmp_path).checkpoint(3) / CRITIC).exists()
    # To sample, nothing but the policy is opened.
    with open_run_at(config, tmp_path, read_only=True) as again:
        assert not hasattr(again.learner, "_critic") or again.learner._critic is None


class Saying:
    """A learner whose value of a token is its id, after the number of tokens before it."""

    def __init__(self) -> None:
        self.asked: list[Sample] = []

    def values(self, samples: Sequence[Sample]) -> list[tuple[float, ...]]:
        self.asked += samples
        return [
            tuple(100.0 * (len(sample.prompt_ids) + place) + token for place, token in enumerate(sample.response_ids))
            for sample in samples
        ]


def walk() -> list[list[Trajectory]]:
    steps = (
        Step(index=0, prompt_ids=(1, 2), response_ids=(5, 6), logp_behaviour=(-1.0, -1.0), info={"seen": "it"}),
        Step(index=1, prompt_ids=(1, 2, 3), response_ids=(7, 8, 9), logp_behaviour=(-1.0,) * 3, forced=2),
        Step(index=2, prompt_ids=(1, 2, 3, 4), response_ids=()),
    )
    return [[Trajectory(id="t/0", task=Task(id="t"), rollout=0, steps=steps)]]


def test_states_are_those_before_sampled_tokens() -> None:
    """Forced tokens are read like the prompt; a step without tokens has the value of its prompt's end alone."""
    learner = Saying()
    [[trajectory]] = value_states(learner, ValueHead(by="token"), walk())  # type: ignore[arg-type]
    assert [step.info for step in trajectory.steps] == [
        {"seen": "it", "critic_value": 205.0, "critic_values": [205.0, 306.0]},
        {"critic_value": 509.0, "critic_values": [509.0]},
        {"critic_value": 404.0, "critic_values": []},
    ]
    [[trajectory]] = value_states(learner, ValueHead(by="step"), walk())  # type: ignore[arg-type]
    assert [step.info["critic_value"] for step in trajectory.steps] == [202.0, 508.0, 404.0]
    assert [(sample.prompt_ids, len(sample.response_ids)) for sample in learner.asked[3:]] == [
        ((1, 2), 1),
        ((1, 2, 3, 7, 8), 1),
        ((1, 2, 3, 4), 1),
    ]


@pytest.mark.parametrize("method", ["ppo", "turn_ppo"])
def test_samples_carry_what_the_critic_learns(method: str) -> None:
    """gamma 1, lam 1: the return of a state is what followed."""
    algorithm = methods.build(method, gamma=1.0, lam=1.0)
    assert algorithm.critic is not None
    [[valued]] = value_states(Saying(), algorithm.critic, walk())  # type: ignore[arg-type]
    rewards = (0.25, 0.5, 1.0)
    steps = tuple(replace(step, reward=reward) for step, reward in zip(valued.steps, rewards, strict=True))
    batch = credit_batch(algorithm, [replace(valued, steps=steps)], version=0)
    targets = [sample.targets for sample in make_samples(batch)]
    if method == "ppo":
        assert targets == [((205.0, 306.0), (1.75, 1.75)), ((509.0,), (1.5,)), ((), ())]
    else:
        assert targets == [((202.0,), (1.75,)), ((508.0,), (1.5,)), ((404.0,), (1.0,))]
    plain = credit_batch(methods.dr_grpo(), [replace(valued, steps=steps)], version=0)
    assert [sample.targets for sample in make_samples(plain)] == [None] * 3


def test_a_run_that_samples_ahead_trains_on_the_values_of_the_critic_that_begins_the_update(tmp_path: Path) -> None:
    config = make_config(updates=4)
    fields = {name: getattr(config, name) for name in RunConfig.model_fields}
    ahead = RunConfig(**fields | {"rollout": RolloutConfig(max_tokens=1, group_size=8, lag=1)})
    with open_run(ahead, tmp_path / "whole") as run:
        updates = [update.metrics for update in run.updates()]
        digest = run.journal.digest()
    assert len({metrics["critic/value"] for metrics in updates}) == 4
    with open_run(ahead, tmp_path / "cut") as run:
        for update in run.updates():
            if update.number == 2:
                break
    with open_run(ahead, tmp_path / "cut") as run:
        list(run.updates(resume=True))
        assert run.journal.digest() == digest
    paths = [RunPaths(tmp_path / name).checkpoint(4) / CRITIC for name in ("whole", "cut")]
    assert paths[0].read_bytes() == paths[1].read_bytes()


def with_algorithm(config: RunConfig, **changes: Any) -> RunConfig:
    return config.model_copy(update={"algorithm": config.algorithm.model_copy(update=changes)})


class Alone(Part, slot="learner"):
    """A learner that knows nothing of critics."""

    def open(self, model: Any, loss: Any, *, temperature: float) -> Any:
        raise NotImplementedError


class Handing(Part, slot="learner"):
    """A learner that hands the critic on."""

    def open(self, model: Any, loss: Any, *, temperature: float, critic: Any = None) -> Any:
        return LearnerConfig().open(model, loss, temperature=temperature, critic=critic)


REPLAY = methods.r3().replay
REFUSED: list[tuple[Any, str]] = [
    (
        lambda config: with_algorithm(config, critic=None),
        "algorithm: CriticGae reads 'critic_value', which a critic writes; add algorithm.critic, such as "
        '"value_head"',
    ),
    (
        lambda config: with_algorithm(config, critic=ValueHead(by="step")),
        'algorithm.critic.by: "step" gives no values of tokens, which CriticTokenGae reads; set it to "token"',
    ),
    (
        lambda config: with_algorithm(config, replay=REPLAY),
        "algorithm.replay: replayed rollouts have the values of an older critic; leave out the replay, or choose a "
        "method without a critic",
    ),
    (
        lambda config: config.model_copy(update={"training": config.training.model_copy(update={"learner": Alone()})}),
        "training.learner: Alone cannot train the critic; let its `open` take `critic`, or use the local learner (kind "
        '= "local")',
    ),
    (
        lambda config: config.model_copy(
            update={"model": PretrainedModel(path="somewhere", lora_rank=4, quantise="4bit")}
        ),
        'algorithm.critic: ValueModel(learning_rate=0.05) would copy layers of 4 bits; use the critic "value_head", or '
        "leave out model.quantise",
    ),
]


@pytest.mark.parametrize(("change", "said"), REFUSED)
def test_what_a_critic_cannot_do_is_refused_before_a_model_loads(change: Any, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_algorithm(change(make_config()))
    assert str(caught.value) == said


def test_a_head_on_layers_of_four_bits_is_not_refused() -> None:
    model = PretrainedModel(path="somewhere", lora_rank=4, quantise="4bit")
    check_algorithm(make_config(critic_kind="value_head").model_copy(update={"model": model}))


def test_a_learner_from_elsewhere_may_hand_the_critic_on(tmp_path: Path) -> None:
    config = make_config(updates=1)
    handed = config.model_copy(update={"training": config.training.model_copy(update={"learner": Handing()})})
    with open_run(handed, tmp_path) as run:
        [update] = run.updates()
    assert "critic/loss" in update.metrics


def test_the_memory_of_a_value_model_is_counted_before_it_is_needed() -> None:
    config = make_config()
    plan = plan_model(TinyModel(hidden=64), words=config.words())
    assert plan is not None
    kept = count_weights(plan, LearnerConfig())
    critic = kept["weights"] + kept["gradients"] + kept["optimizer"]
    assert count_weights(plan, LearnerConfig(), has_value_model=True) == kept | {"critic": critic}
    enough = 2 * sum(kept.values()) + kept["weights"]  # the engine has its own
    check_memory(config, plan, available=enough * 1.5, shares=1)
    with pytest.raises(ConfigError, match="critic"):
        check_memory(config, plan, available=enough * 0.7, shares=1)
    check_memory(make_config(critic_kind="value_head"), plan, available=enough * 0.7, shares=1)
