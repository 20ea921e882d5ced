"""The warm start: what the teacher says, how it strays, and that imitating it teaches."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from groupwise import methods
from groupwise.data.samples import Sample
from groupwise.envs import Household
from groupwise.learner.protocol import hash_weights
from groupwise.models import TinyModel
from groupwise.rollout import Choice, Full, Tagged, Window
from groupwise.rollout.prompts import PromptTemplate
from groupwise.training.config.run_config import RolloutConfig, RunConfig, WarmStartConfig
from groupwise.training.open_run import open_run
from groupwise.training.run import Run
from groupwise.training.warm_start import make_expert_samples, warm_start

HOME = Household(rooms=("bedroom",), categories=("pick",), num_receptacles=3, num_objects=2)


def open_small(folder: Path, rollout: RolloutConfig | None = None) -> Run:
    return open_run(
        RunConfig(
            algorithm=methods.build("hgpo"),
            env=HOME,
            model=TinyModel(hidden=16, layers=1, heads=2),
            rollout=rollout or RolloutConfig(max_tokens=8, history=Full()),
        ),
        folder,
    )


def response_text(run: Run, sample: Sample) -> str:
    """What a sample's weighted tokens say: those of the teacher."""
    weights = sample.advantage
    assert isinstance(weights, tuple)
    return run.prompter.text([token for token, w in zip(sample.response_ids, weights, strict=True) if w == 1.0])


def by_task(samples: list[Sample]) -> list[list[Sample]]:
    return [[one for one in samples if one.trajectory == number] for number in range(samples[-1].trajectory + 1)]


def test_a_teacher_without_noise_is_the_expert(tmp_path: Path) -> None:
    run = open_small(tmp_path)
    tasks = run.tasks[:5]
    for task, samples in zip(tasks, by_task(make_expert_samples(run, tasks, WarmStartConfig())), strict=True):
        world, wanted = HOME.open(task), list[str]()
        while (action := world.expert()) is not None:
            wanted.append(action)
            world.act(action)
        assert [response_text(run, sample) for sample in samples] == wanted


def test_prompts_are_those_of_a_rollout(tmp_path: Path) -> None:
    run = open_small(tmp_path)
    first, second, *_ = make_expert_samples(run, run.tasks[:1], WarmStartConfig())
    assert second.prompt_ids[: len(first.token_ids)] == first.token_ids, "with a full memory each continues the last"


def test_stray_steps_are_played_but_not_imitated(tmp_path: Path) -> None:
    run = open_small(tmp_path)
    samples = make_expert_samples(run, run.tasks[:60], WarmStartConfig(noise=0.3))
    strays = [sample for sample in samples if not sample.trains]
    assert 0.2 < len(strays) / len(samples) < 0.4
    assert all(set(sample.advantage) == {0.0} for sample in strays)  # type: ignore[arg-type]
    texts = [run.prompter.text(sample.prompt_ids) for sample in samples]
    assert any("nothing happens" in text for text in texts), "some strays are not possible any more"


def test_a_noisy_teacher_is_imitated_in_what_is_possible(tmp_path: Path) -> None:
    run = open_small(tmp_path)
    exact = make_expert_samples(run, run.tasks[:60], WarmStartConfig())
    noisy = make_expert_samples(run, run.tasks[:60], WarmStartConfig(expert_noise=0.5))
    assert all(sample.trains for sample in noisy)
    assert len(noisy) > 1.3 * len(exact), "it takes detours"
    texts = [run.prompter.text(sample.prompt_ids) for sample in noisy]
    assert not any("nothing happens" in text for text in texts)


def test_observation_tokens_are_weighted_beside_the_teachers(tmp_path: Path) -> None:
    run = open_small(tmp_path)
    plain = make_expert_samples(run, run.tasks[:3], WarmStartConfig())
    weighted = make_expert_samples(run, run.tasks[:3], WarmStartConfig(observation_weight=0.25))
    for before, after in zip(plain, weighted, strict=True):
        assert after.token_ids == before.token_ids
        assert response_text(run, after) == response_text(run, before)
        assert isinstance(after.advantage, tuple)
        assert set(after.advantage) == {0.25, 1.0}
        shown = [t for t, w in zip(after.response_ids, after.advantage, strict=True) if w == 0.25]
        assert run.prompter.text(shown).endswith(">")


@pytest.mark.parametrize(
    ("rule", "template", "form"),
    [
        (Choice(), PromptTemplate(show_admissible="numbered"), r"\d+"),
        (Tagged(), PromptTemplate(thoughts=True), r"<think> </think> <action> .+ </action>"),
    ],
)
def test_the_teacher_speaks_as_the_action_rule_reads(
    tmp_path: Path, rule: Choice | Tagged, template: PromptTemplate, form: str
) -> None:
    run = open_small(tmp_path, RolloutConfig(action_parser=rule, template=template, history=Window(steps=0)))
    for sample in make_expert_samples(run, run.tasks[:5], WarmStartConfig()):
        response = response_text(run, sample)
        assert re.fullmatch(form, response), response
        assert rule.read(response, stopped=True, admissible=["anything"] * 99).well_formed


def test_imitation_lowers_the_loss_and_hands_the_weights_over(tmp_path: Path) -> None:
    config = WarmStartConfig(tasks=40, epochs=4, batch_tokens=256, learning_rate=1e-2)
    run = open_small(tmp_path / "a")
    first, *_, last = warm_start(run, config)
    assert last < 0.6 * first
    assert run.weight_check.check(run.engine, run.learner, version=0) < 1e-4
    again = open_small(tmp_path / "b")
    warm_start(again, config)
    assert hash_weights(again.learner.weights()) == hash_weights(run.learner.weights())
