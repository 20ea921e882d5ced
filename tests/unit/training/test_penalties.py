"""Whether penalties alone made an update's credit, and who says so."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("torch")

from rich.console import Console

from groupwise import Algorithm, Step, Task, Trajectory, methods
from groupwise.cli import live
from groupwise.cli.main import make_app
from groupwise.credit import EnvironmentReward, OverlongReward
from groupwise.credit.scoring import score_trajectory
from groupwise.store.journal import Journal, Update
from groupwise.training.samples import credit_batch
from groupwise.training.update_metrics import credit_rests_on_penalties


def rollout(number: int, *, paid: float = 0.0, well_formed: bool = True, tokens: int = 1) -> Trajectory:
    steps = (
        Step(index=0, state_key="start", response_ids=(1,) * tokens, well_formed=well_formed),
        Step(index=1, state_key="end", response_ids=(1,), reward=paid),
    )
    scores = {"success": float(paid > 0)}
    return Trajectory(id=str(number), task=Task(id="t"), rollout=number, steps=steps, scores=scores, versions=(0,))


MALFORMED = [rollout(0, well_formed=False), rollout(1), rollout(2)]
"""Nobody succeeds, and one of them said what is not possible."""


def rests(trajectories: list[Trajectory], algorithm: Algorithm) -> bool:
    return credit_rests_on_penalties(algorithm, credit_batch(algorithm, trajectories, version=0))


def test_a_penalty_on_malformed_steps_is_all_there_is() -> None:
    assert rests(MALFORMED, methods.hgpo(invalid_penalty=0.1))
    assert not rests(MALFORMED, methods.hgpo(invalid_penalty=0.0))  # no credit at all
    assert not rests([rollout(0), rollout(1)], methods.hgpo())


def test_whoever_earns_something_earns_credit() -> None:
    assert not rests([*MALFORMED, rollout(3, paid=1.0)], methods.hgpo())
    assert not rests([*MALFORMED, rollout(3, paid=-1.0)], methods.hgpo())  # the environment's own verdict


def test_a_charge_for_length_is_a_penalty_and_the_judges_reward_is_none() -> None:
    rewards = (EnvironmentReward(), OverlongReward(limit=4, buffer=3))
    long = [score_trajectory(one, rewards) for one in (rollout(0, tokens=4), rollout(1), rollout(2))]
    assert rests(long, methods.grpo())
    solved = score_trajectory(rollout(3, paid=1.0), rewards)
    assert not rests([*long, solved], methods.grpo())


def test_what_a_method_makes_of_failure_by_itself_is_no_penalty() -> None:
    """NGRPO compares with a made-up success: the failures have credit, whatever they said."""
    failed = [rollout(0), rollout(1)]
    assert credit_batch(methods.ngrpo(), failed, version=0).values.any()
    assert not rests(failed, methods.ngrpo())


def test_what_was_added_for_the_group_is_no_penalty() -> None:
    rewards = (EnvironmentReward(), OverlongReward(limit=4, buffer=3))
    ranked = [score_trajectory(rollout(number), rewards) for number in range(2)]
    ranked[0] = replace(ranked[0], steps=(replace(ranked[0].steps[0], shaped=0.5), *ranked[0].steps[1:]))
    assert not rests(ranked, methods.grpo())


def test_a_part_that_refuses_what_was_never_played_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = methods.hgpo()
    credit = credit_batch(algorithm, MALFORMED, version=0)

    def refuse(*_: object) -> None:
        raise ValueError("all steps are valid")

    monkeypatch.setattr(Algorithm, "credit", refuse)
    assert not credit_rests_on_penalties(algorithm, credit)


# the screen


def update(number: int, alone: float) -> Update:
    return Update(number=number, version=number, metrics={"advantage/penalties_alone": alone, "rollout/success": 0.0})


def test_the_screen_says_it_at_the_update_and_at_the_end() -> None:
    out = io.StringIO()
    lines = live.PlainLines(Console(file=out, width=200))
    for number, alone in enumerate([1.0, 0.0, 1.0], start=1):
        lines.on_update(update(number, alone))
    lines.close()
    said = out.getvalue().splitlines()
    assert [line for line in said if "penalties alone" in line] == [said[1], said[4], said[5]]
    assert said[1] == "  the advantages come from penalties alone: no rollout got a reward"
    assert said[5].startswith(
        "In 2 of 3 updates (1, 3) the advantages come from penalties alone: no rollout got a reward"
    )
    task_set = live.LiveDisplay("run", updates=3)
    for number in (1, 2, 3):
        task_set.on_update(update(number, 1.0))
    assert task_set.summary()[-1].startswith("In every update the advantages come from penalties alone")
    task_set = live.LiveDisplay("run", updates=1)
    task_set.on_update(update(1, 0.0))
    assert not any("penalties" in line for line in task_set.summary())


# a run

RUN = """
seed = 0
threads = 1
rewards = [{ kind = "environment" }, { kind = "overlong", limit = 24, buffer = 23 }]
[algorithm]
method = "grpo"
[env]
kind = "countdown"
[model]
kind = "tiny"
hidden = 16
layers = 1
[rollout]
max_tokens = 24
group_size = 8
[training]
updates = 2
tasks = 2
[evaluation]
tasks = 0
"""
"""Sums that a model which knows nothing never solves, and a charge for long answers."""


def invoke(*arguments: Any) -> str:
    result = CliRunner().invoke(make_app(), [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return " ".join(re.sub(r"<[^>]*>", " ", result.stdout).split())


def test_a_run_whose_credit_is_penalties_alone_says_so_on_the_screen_in_the_report_and_to_inspect(
    tmp_path: Path,
) -> None:
    file, folder = tmp_path / "run.toml", tmp_path / "run"
    file.write_text(RUN)
    printed = invoke("train", file, "--out", folder, "--plain")
    with Journal(folder / "journal.sqlite", read_only=True) as journal:
        assert [value for _, value in journal.curve("advantage/penalties_alone")] == [1.0, 1.0]
        assert all(value > 0 for _, value in journal.curve("advantage/size"))
        assert all(value == 0 for _, value in journal.curve("rollout/success"))
    sentence = "In every update the advantages come from penalties alone: no rollout got a reward"
    assert printed.count("the advantages come from penalties alone") == 3
    assert sentence in printed
    assert sentence in invoke("inspect", folder)
    invoke("report", folder)
    assert sentence in (folder / "report.html").read_text(encoding="utf-8")
