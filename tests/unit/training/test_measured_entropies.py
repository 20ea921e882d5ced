"""Entropies that the learner measures where the engine gives none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("torch")

from groupwise import ConfigError
from groupwise.data.records import FAULTS, Trajectory
from groupwise.envs import Identity
from groupwise.learner.protocol import hash_weights, read_entropies
from groupwise.parts.slots import SCORES, VERSIONS
from groupwise.rollout.episodes import Rollout
from groupwise.store.journal import Journal
from groupwise.system.errors import TrainingError
from groupwise.training import LocalEngine
from groupwise.training.collect.collect import collect_update, measure_entropies
from groupwise.training.config.run_config import EvaluationConfig, RolloutConfig, RunConfig
from groupwise.training.open_run import open_run
from groupwise.training.run import Run
from tests.end_to_end import runs
from tests.unit.learner.learners import learner, tiny


class Silent(LocalEngine):
    """The engine of this process, which keeps its entropies to itself."""

    gives: ClassVar[frozenset[str]] = frozenset({SCORES, VERSIONS})

    def open(self, source: Any) -> Any:
        engine: Any = super().open(source)
        generate = engine.generate
        engine.gives = self.gives
        engine.generate = lambda requests: [replace(answer, entropy=()) for answer in generate(requests)]
        return engine


def ranked(updates: int, **changes: Any) -> RunConfig:
    """R^3 over answers of several words, most of them wrong: ranked by their entropies."""
    fields: dict[str, Any] = {
        "env": Identity(num_words=4, length=2),
        "rollout": RolloutConfig(max_tokens=3, group_size=8, temperature=0.7),
        "evaluation": EvaluationConfig(tasks=0),
    }
    return runs.config(updates, method="r3", checkpoint_every=1, **(fields | changes))


def entropies_of(trajectories: Any) -> list[tuple[float, ...]]:
    return [step.entropy for trajectory in trajectories for step in trajectory.steps]


def test_they_are_those_of_the_engine_within_rounding(tmp_path: Path) -> None:
    given, measured = (
        collect_update(open_run(ranked(1, engine=engine), tmp_path / type(engine).__name__), 1).chosen
        for engine in (LocalEngine(), Silent())
    )
    pairs = list(zip(entropies_of(given), entropies_of(measured), strict=True))
    assert len(pairs) > 16
    assert all(len(some) == len(other) >= 1 for some, other in pairs)
    far = max(abs(a - b) for some, other in pairs for a, b in zip(some, other, strict=True))
    assert 0 <= far < 1e-4
    assert max(max(some) for some, _ in pairs) > 1, "there is something to measure"


def test_the_ranking_trains_as_with_an_engine_that_gives_them(tmp_path: Path) -> None:
    rewards = []
    for engine in (LocalEngine(), Silent()):
        folder = tmp_path / type(engine).__name__
        runs.run_to_end(folder, ranked(1, engine=engine))
        with Journal(folder / "journal.sqlite", read_only=True) as journal:
            rewards.append([row["credit"] for row in journal.trajectories(1)])
            assert journal.metrics(1)["rollout/entropy"] > 1
    assert rewards[0] == rewards[1]
    assert any(any(credit) for credit in rewards[0])


def test_a_resumed_run_measures_the_same_to_the_bit(tmp_path: Path) -> None:
    def play(name: str, updates: int, *, resume: bool = False) -> Run:
        return runs.run_to_end(tmp_path / name, ranked(updates, engine=Silent()), resume=resume)

    whole = play("whole", 3)
    play("parted", 2)
    parted = play("parted", 3, resume=True)
    for number in (1, 2, 3):
        rows, again = (list(run.journal.trajectories(number)) for run in (whole, parted))
        assert [(row["steps"], row["credit"]) for row in rows] == [(row["steps"], row["credit"]) for row in again]
        assert all(step["entropy"] for row in rows for step in row["steps"])
    assert hash_weights(whole.learner.weights()) == hash_weights(parted.learner.weights())


def test_nothing_is_measured_for_an_algorithm_that_reads_none(tmp_path: Path) -> None:
    quiet = open_run(runs.config(1, engine=Silent()), tmp_path)
    assert not quiet.measures_entropies
    assert set(entropies_of(collect_update(quiet, 1).chosen)) == {()}


def test_each_rollout_has_its_temperature_and_forced_tokens_have_none(tmp_path: Path) -> None:
    run = open_run(ranked(1, engine=Silent()), tmp_path / "silent")
    plain = open_run(ranked(1), tmp_path / "plain")
    task = run.tasks[0]
    word = run.prompter.encode(task.payload["words"][0] if "words" in task.payload else "w")[:1]
    rollouts = [
        Rollout(task=task, number=0, seed=1),
        Rollout(task=task, number=1, seed=2, temperature=2.0),
        Rollout(task=task, number=2, seed=3, forced=word),
    ]
    expected = plain.player.play(rollouts, temperature=0.7)
    measured = measure_entropies(run.learner, rollouts, run.player.play(rollouts, temperature=0.7), 0.7)
    for some, other in zip(entropies_of(expected), entropies_of(measured), strict=True):
        assert other == pytest.approx(some, abs=1e-4)
    assert measured[2].steps[0].entropy[0] == 0.0


def test_rollouts_that_an_error_ended_are_left_as_they_are() -> None:
    made = learner()
    task = runs.config(1).env.task_set("train")[0]
    broken = Trajectory(id="q/0", task=task, rollout=0, steps=(), stop=sorted(FAULTS)[0])
    rollouts = [Rollout(task=broken.task, number=0, seed=0)]
    assert measure_entropies(made, rollouts, [broken], 1.0) == [broken]


PAIRS = [((2, 4), (5, 3, 6)), ((2, 4, 5), (4,)), ((2, 4), (5, 3))]


@pytest.mark.parametrize("token_budget", [4, 1024])
def test_a_learner_measures_the_distribution_of_each_token(token_budget: int) -> None:
    model = tiny()[0]
    entropies = learner(model, token_budget=token_budget).entropies(PAIRS, temperature=0.5)
    import torch

    for (prompt, response), found in zip(PAIRS, entropies, strict=True):
        logits = model(input_ids=torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1] / 0.5
        expected = torch.distributions.Categorical(logits=logits).entropy()
        assert found == pytest.approx(expected.tolist(), abs=1e-5)
    assert learner(model).entropies([]) == []


class Shy:
    """A learner that hides what it could measure."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if name == "entropies":
            raise AttributeError(name)
        return getattr(self._inner, name)


def test_a_learner_that_cannot_measure_them_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = ranked(1, engine=Silent())
    part: Any = type(config.training.learner)
    opens = part.open
    monkeypatch.setattr(part, "open", lambda self, *args, **named: Shy(opens(self, *args, **named)))
    with pytest.raises(ConfigError, match=r"which neither the engine Silent.* nor Shy gives; add entropies\(\)"):
        open_run(config, tmp_path)


@pytest.mark.parametrize("answer", [None, [(0.5,) * 3, (0.5,)], [(0.5,) * 3, (0.5,), (0.5, float("nan"))]])
def test_an_answer_that_is_no_entropies_names_the_learner(answer: Any) -> None:
    with pytest.raises(TrainingError, match=r"^the learner Mine returned .* as the entropies of 3 responses; return "):
        read_entropies(answer, PAIRS, "the learner Mine")
