"""The loop on a tiny model: it learns, it repeats itself to the bit, and it goes on after an interruption."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from groupwise import recipes  # noqa: E402
from groupwise.core.errors import RecordError, TrainingError  # noqa: E402
from groupwise.engines import TinyModel  # noqa: E402
from groupwise.envs import Identity  # noqa: E402
from groupwise.rollout import Flat  # noqa: E402
from groupwise.training.checkpoint import latest_checkpoint  # noqa: E402
from groupwise.training.evaluation_summary import evaluations_of  # noqa: E402
from groupwise.training.learner_config import LearnerConfig  # noqa: E402
from groupwise.training.loop import train  # noqa: E402
from groupwise.training.run import Run, open_run, parameter_hash  # noqa: E402
from groupwise.training.run_config import EvaluationConfig, RolloutConfig, RunConfig, TrainingConfig  # noqa: E402


def config(updates: int, *, recipe: str = "dr_grpo", seed: int = 0, checkpoint_every: int = 2) -> RunConfig:
    return RunConfig(
        seed=seed,
        algorithm=recipes.build(recipe),
        env=Identity(num_words=4, length=1),
        model=TinyModel(hidden=32, layers=2),
        rollout=RolloutConfig(max_tokens=1, plan=Flat(attempts=16)),
        training=TrainingConfig(
            updates=updates,
            tasks=2,
            learner=LearnerConfig(learning_rate=1e-2, token_budget=256),
            checkpoint_every=checkpoint_every,
        ),
        evaluation=EvaluationConfig(split="train", tasks=2, attempts=25, temperature=1.0),
    )


def finished(folder: Path, settings: RunConfig, *, resume: bool = False) -> Run:
    run = open_run(settings, folder)
    train(run, resume=resume)
    return run


def test_a_policy_learns_to_repeat_a_word(tmp_path: Path) -> None:
    run = open_run(config(32), tmp_path)
    train(run)
    before, after = evaluations_of(run.journal.evaluations())
    assert (before.number, after.number) == (0, 32)
    assert before.success < 0.3
    assert after.success > 0.85
    assert [version for version, _ in run.journal.curve("rollout/success")] == list(range(1, 33))


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(tmp_path: Path) -> None:
    first, same = (parameter_hash(finished(tmp_path / name, config(3)).learner.model) for name in ("a", "b"))
    other = parameter_hash(finished(tmp_path / "c", config(3, seed=1)).learner.model)
    assert first == same
    assert first != other


def test_the_reference_is_the_policy_the_run_started_from(tmp_path: Path) -> None:
    run = open_run(config(4, recipe="hgpo"), tmp_path)
    with torch.no_grad():  # what a warm start would do: other weights than those the run was opened with
        for value in run.learner.model.parameters():
            value.mul_(1.5)
    run.engine.load(run.learner.weights(), version=0)
    train(run)
    # At the first update the policy is the reference still.
    first, *later = (value for _, value in run.journal.curve("loss/kl_to_reference"))
    assert first == pytest.approx(0.0, abs=1e-9)
    assert max(later) > 1e-6


@pytest.mark.parametrize("recipe", ["hgpo", "gspo"])
def test_a_resumed_run_equals_the_uninterrupted_one(tmp_path: Path, recipe: str) -> None:
    whole = finished(tmp_path / "whole", config(5, recipe=recipe))
    finished(tmp_path / "cut", config(3, recipe=recipe, checkpoint_every=2))
    # Pretend that the process died after update 3 and before its checkpoint was complete.
    (tmp_path / "cut" / "checkpoints" / "latest").write_text("0002\n")
    resumed = finished(tmp_path / "cut", config(5, recipe=recipe), resume=True)
    assert parameter_hash(resumed.learner.model) == parameter_hash(whole.learner.model)
    for name in whole.journal.metric_names():
        if not name.startswith(("seconds/", "speed/")):
            assert resumed.journal.curve(name) == whole.journal.curve(name), name
    for number in range(1, 6):
        assert list(resumed.journal.trajectories(number)) == list(whole.journal.trajectories(number))


def test_a_folder_with_a_run_is_not_overwritten(tmp_path: Path) -> None:
    finished(tmp_path, config(1))
    with pytest.raises(TrainingError) as caught:
        finished(tmp_path, config(1))
    assert str(caught.value) == f"{tmp_path} holds a run already; go on with --resume, or choose another folder"


def test_weights_that_do_not_arrive_stop_the_run_within_one_update(tmp_path: Path) -> None:
    run = open_run(config(3), tmp_path)
    real_load = run.engine.load
    run.engine.load = lambda weights, *, version: real_load({}, version=version)  # type: ignore[method-assign]
    with pytest.raises(TrainingError) as caught:
        train(run)
    assert "the engine did not take the weights over" in str(caught.value)
    assert run.journal.last() <= 1


def test_a_reward_that_is_not_a_number_stops_the_run_before_anything_is_learnt(tmp_path: Path) -> None:
    run = open_run(config(2), tmp_path)
    before = parameter_hash(run.learner.model)
    real_act = run.host.act

    def spoilt(actions):  # type: ignore[no-untyped-def]
        from dataclasses import replace

        return {number: replace(outcome, reward=float("nan")) for number, outcome in real_act(actions).items()}

    run.host.act = spoilt  # type: ignore[method-assign]
    with pytest.raises(RecordError, match="step 0: the environment's own reward is nan"):
        train(run)
    assert parameter_hash(run.learner.model) == before


def test_a_damaged_checkpoint_names_the_one_before(tmp_path: Path) -> None:
    finished(tmp_path, config(4))
    latest = latest_checkpoint(tmp_path / "checkpoints")
    assert latest is not None
    assert latest.name == "0004"
    weights = latest / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(TrainingError) as caught:
        finished(tmp_path, config(6), resume=True)
    assert "0004 is damaged" in str(caught.value)
    assert f"the one before it is 0002: write `0002` into {tmp_path / 'checkpoints' / 'latest'} and resume" in str(
        caught.value
    )


@pytest.mark.parametrize("evaluated", [True, False])
def test_an_environment_that_always_fails_stops_the_run_with_the_causes(tmp_path: Path, evaluated: bool) -> None:
    settings = config(2)
    if not evaluated:
        settings = settings.model_copy(update={"evaluation": EvaluationConfig(tasks=0)})
    run = open_run(settings, tmp_path)

    class Broken:
        def act(self, action: str) -> None:
            raise OSError("no such room")

        def observe(self):  # type: ignore[no-untyped-def]
            return Identity(num_words=4, length=1).open(run.tasks[0]).observe()

    run.host._env = type("Env", (), {"open": lambda self, task: Broken()})()  # type: ignore[assignment]
    with pytest.raises(TrainingError) as caught:
        train(run)
    assert str(caught.value) == (
        "evaluation on split 'train': none of 50 attempts says whether it succeeded (50 x OSError: no such room); mend "
        "the environment, which `groupwise check env` looks at"
        if evaluated
        else "update 1: only 0 of 32 attempts survived (32 x OSError: no such room); mend the environment"
    )
