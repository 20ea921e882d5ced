"""What a preview shows is what training uses: the same tasks, and for the same responses the same ids, step by step."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from groupwise.data.records import Trajectory
from groupwise.report.prompts import read_prompt
from groupwise.store.journal import Update
from groupwise.training.config.run_config import RunConfig
from groupwise.training.config.run_file import load_run
from groupwise.training.doctor.preview import preview_run
from groupwise.training.loop import train
from groupwise.training.observer import RunObserver
from groupwise.training.open_run import open_run
from groupwise.training.run_reader import RunFolder
from tests.equivalence.example_runs import EXAMPLES, find_obstacle, overrides_of

SHOWN = ("household", "gridworld", "boxes", "lookup", "worked_sums", "storefront")
"""One step and several; memories that show everything, nothing, and the last steps; numbered actions."""


def load_example(name: str, *settings: str) -> RunConfig:
    path = EXAMPLES / f"{name}.toml"
    return load_run(path, overrides=[*overrides_of(path), "training.updates=1", "evaluation.tasks=0", *settings])


class FirstUpdate(RunObserver):
    """Keeps the rollouts of the update that is made."""

    def on_update(self, update: Update) -> None:
        self.rollouts = list(update.trajectories)


def train_once(config: RunConfig, folder: Path) -> tuple[list[Trajectory], list[list[str]]]:
    """The rollouts of one update, and what the responses of each say."""
    observer = FirstUpdate()
    with open_run(config, folder) as run:
        train(run, observers=[observer])
        said = [[run.prompter.text(step.response_ids) for step in rollout.steps] for rollout in observer.rollouts]
    return observer.rollouts, said


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["household", "gridworld", "lookup"])
def test_a_recorded_prompt_is_taken_apart_as_a_previewed_one(name: str, tmp_path: Path) -> None:
    config = load_example(name, "rollout.system='be quick .'")
    rollouts, said = train_once(config, tmp_path / "run")
    longest = max(range(len(rollouts)), key=lambda number: len(said[number]))
    rollout, responses = rollouts[longest], said[longest]
    shown = preview_run(config, task_ids=[rollout.task.id], responses=responses, num_steps=len(responses)).rollouts[0]
    compared = 0
    with RunFolder(tmp_path / "run") as folder:
        for number, step in enumerate(shown.steps):
            place = {"number": 1, "task": rollout.task.id, "rollout": rollout.rollout, "step": number}
            recorded = read_prompt(folder, **place)
            assert recorded.prompt_ids == rollout.steps[number].prompt_ids == step.prompt.ids
            assert recorded.prompt_texts == step.prompt_texts
            assert recorded.origins == step.prompt.origins
            compared += 1
            if step.response_ids != rollout.steps[number].response_ids:
                break
    assert compared >= min(2, len(shown.steps))


@pytest.mark.few(1)
@pytest.mark.parametrize("name", SHOWN)
def test_a_preview_has_the_prompts_of_the_first_update(name: str, tmp_path: Path) -> None:
    obstacle = find_obstacle(EXAMPLES / f"{name}.toml")
    if obstacle:
        pytest.skip(obstacle)
    config = load_example(name)
    rollouts, said = train_once(config, tmp_path / "run")
    first = {rollout.task.id: rollout.steps[0].prompt_ids for rollout in rollouts}
    preview = preview_run(config, num_tasks=config.training.tasks)
    assert {rollout.task: rollout.steps[0].prompt.ids for rollout in preview.rollouts} == first
    compared = 0
    for rollout, responses in list(zip(rollouts, said, strict=True))[:3]:
        again = preview_run(config, task_ids=[rollout.task.id], responses=responses, num_steps=len(responses))
        for step, shown in zip(rollout.steps, again.rollouts[0].steps, strict=False):
            assert shown.prompt.ids == step.prompt_ids
            compared += 1
            if shown.response_ids != step.response_ids:  # sampled in another way than the text is cut
                break
    assert compared >= 3
