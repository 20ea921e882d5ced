"""Recorded rollouts become the samples that a rollout of the run would have made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from groupwise.data.step_columns import make_rows
from groupwise.envs import Household
from groupwise.system.errors import RecordError
from groupwise.training.config.run_config import WarmStartConfig
from groupwise.training.evaluation.evaluate import evaluate_run
from groupwise.training.open_run import open_run
from groupwise.training.warm_start import make_expert_samples, make_recorded_samples
from tests.unit.training.runs import small_config, small_run


def row(rollout: int, index: int, reward: float, **more: Any) -> dict[str, Any]:
    return {"task": "t", "rollout": rollout, "step": index, "reward": reward} | more


def test_tokens_are_taken_as_they_are(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    played = evaluate_run(run, seeds=range(8), write=False).trajectories
    rows = [
        {**each, "group": f"{number}"} for number, trajectory in enumerate(played) for each in make_rows(trajectory)
    ]
    samples = make_recorded_samples(run, rows, min_return=-1.0)
    steps = [step for trajectory in played for step in trajectory.steps]
    assert [(sample.prompt_ids, sample.response_ids) for sample in samples] == [
        (step.prompt_ids, step.response_ids) for step in steps
    ]
    solved = [step for trajectory in played if trajectory.scores["success"] for step in trajectory.steps]
    assert 0 < len(solved) < len(steps)
    assert [sample.response_ids for sample in make_recorded_samples(run, rows)] == [
        step.response_ids for step in solved
    ]


def test_text_is_put_together_as_a_rollout_would_put_it(tmp_path: Path) -> None:
    config = small_config().model_copy(update={"env": Household()})
    run = open_run(config, tmp_path)
    tasks = run.tasks[:3]
    rows = []
    for task in tasks:
        environment, index, ended = config.env.open(task), 0, False
        while not ended:
            seen, action = environment.observe(), environment.expert()
            outcome = environment.act(action)
            rows.append(
                {
                    "task": task.id,
                    "rollout": 0,
                    "step": index,
                    "reward": outcome.reward,
                    "observation": seen.text,
                    "action": action,
                }
            )
            index, ended = index + 1, outcome.ended
    expected = make_expert_samples(run, tasks, WarmStartConfig())
    samples = make_recorded_samples(run, reversed(rows))
    key = {(sample.prompt_ids, sample.response_ids, sample.step) for sample in expected}
    assert {(sample.prompt_ids, sample.response_ids, sample.step) for sample in samples} == key
    assert len(samples) == len(expected)


def test_an_outcome_decides_where_there_is_one(tmp_path: Path) -> None:
    run = small_run(tmp_path)
    rows = [
        row(0, 0, 5.0, outcome=0.0, observation="Say alpha.", action="alpha"),
        row(1, 0, 0.0, outcome=1.0, observation="Say bravo.", action="bravo"),
    ]
    [sample] = make_recorded_samples(run, rows)
    assert run.prompter.text(sample.response_ids) == "bravo"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            [row(0, 0, 0.0, observation="x", action="y")],
            "none of 1 recorded rollouts has a return of more than 0; lower the bound with --min-return",
        ),
        (
            [row(0, 0, 1.0, action="go")],
            "task 't', rollout 0, step 0: it has neither prompt_ids and response_ids nor an observation and an "
            "action; record one of the two pairs",
        ),
        (
            [row(0, 0, 1.0, prompt_ids=[1, 99999], response_ids=[2])],
            "task 't', rollout 0, step 0: token id 99999 is not among the model's {size}; the ids come from another "
            "tokenizer. Remove `prompt_ids` from the file; the prompts are then made from its text",
        ),
        (
            [row(0, 0, 1.0, prompt_ids=[1, -1], response_ids=[2])],
            "task 't', rollout 0, step 0: token id -1 is not among the model's {size}; the ids come from another "
            "tokenizer. Remove `prompt_ids` from the file; the prompts are then made from its text",
        ),
    ],
)
def test_what_cannot_teach_is_told(tmp_path: Path, rows: list[dict[str, Any]], said: str) -> None:
    run = small_run(tmp_path)
    size = run.learner.vocabulary_size
    with pytest.raises(RecordError) as caught:
        make_recorded_samples(run, rows)  # type: ignore[arg-type]
    assert str(caught.value) == said.format(size=size)
