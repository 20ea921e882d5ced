"""Parts from outside that give credit: by segments of a rollout, by token, and a filter that reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from groupwise.cli.main import make_app
from groupwise.store.journal import Journal
from tests.outside.running import SMALL_RUN as RUN
from tests.outside.running import train_from_file

SMALL_RUN = 'rewards = ["environment", { kind = "length", each = -0.1 }]' + RUN
"""Responses of one token and of two earn something else, so that a model that knows nothing gets credit."""
LOSS = '\n[algorithm.loss]\nkind = "policy_loss"\n'
SEGMENTS = SMALL_RUN + '[algorithm]\nadvantage = { kind = "segment_credit:BySegment", length = 2 }\n' + LOSS
TOKENS = SMALL_RUN + (
    "[algorithm]\n"
    'advantage = { kind = "relative", by = "by_task", of = { kind = "return_to_go", gamma = 0.9 }, average = "step" }\n'
    'token_credit = { kind = "surprise_credit:BySurprise", min_surprise = 0.5 }\n'
    'filters = ["praise_filter:OnlyPraise"]\n' + LOSS
)


def inspect(run: Path, *arguments: object, status: int = 0) -> str:
    """What `groupwise inspect` prints of update 2."""
    given = ["inspect", run, "--update", 2, *arguments, "--trust"]
    result = CliRunner().invoke(make_app(), [str(argument) for argument in given], catch_exceptions=False)
    assert result.exit_code == status, result.output
    return result.stdout


def list_steps(run: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any], float]]:
    """Every step of update 2 as the journal holds it: rollout, row, credit."""
    with closing(Journal(run / "journal.sqlite", read_only=True)) as journal:
        for trajectory in list(journal.trajectories(2)):
            for row, credit in zip(trajectory["steps"], trajectory["credit"], strict=True):
                yield trajectory, row, credit


@pytest.fixture(scope="module")
def segment_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_from_file(tmp_path_factory.mktemp("segments"), SEGMENTS)


@pytest.fixture(scope="module")
def token_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_from_file(tmp_path_factory.mktemp("tokens"), TOKENS)


def test_a_segment_level_estimator_trains_and_is_derived_again(segment_run: Path) -> None:
    run, steps = segment_run, list(list_steps(segment_run))
    by_segment: dict[tuple[str, int, int], set[float]] = {}
    for trajectory, row, credit in steps:
        by_segment.setdefault((trajectory["task"], trajectory["rollout"], row["step"] // 2), set()).add(credit)
    assert all(len(values) == 1 for values in by_segment.values())  # the steps of a segment share one number
    assert any(credit for _, _, credit in steps)
    trajectory, row, credit = next(step for step in steps if step[2])
    asked = ("--task", trajectory["task"], "--rollout", trajectory["rollout"], "--step", row["step"])
    explained = json.loads(inspect(run, *asked, "--json"))
    assert explained["what"] == "BySegment"
    assert explained["recorded"] == credit
    assert explained["by_hand"] == pytest.approx(credit)
    assert explained["largest_gap"] < 1e-9
    assert explained["not_derived"] == ""
    assert {member["rollout"] for member in explained["members"] if member["is_self"]} == {trajectory["rollout"]}
    shown = inspect(run, *asked)
    assert f"segment {row['step'] // 2}: " in shown
    assert "derived again by hand from the members, it agrees" in " ".join(shown.split())


def test_a_trace_that_derives_another_number_is_told(segment_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trajectory, row, _ = next(step for step in list_steps(segment_run) if step[2])
    import segment_credit  # type: ignore[import-not-found] # on the path of these tests alone

    honest = segment_credit.SegmentTrace.derive
    monkeypatch.setattr(
        segment_credit.SegmentTrace,
        "derive",
        lambda self, table, step: type(d := honest(self, table, step))(value=d.value + 0.25, formula=d.formula),
    )
    asked = ("--task", trajectory["task"], "--rollout", trajectory["rollout"], "--step", row["step"])
    assert "does not agree" in inspect(segment_run, *asked, status=1)


def test_tokens_of_one_step_have_credit_of_their_own_that_is_derived_again(token_run: Path) -> None:
    run, steps = token_run, list(list_steps(token_run))
    trajectory, row, credit = next(step for step in steps if step[2] > 0 and len(step[1]["response_ids"]) == 2)
    asked = ("--task", trajectory["task"], "--rollout", trajectory["rollout"], "--step", row["step"])
    explained = [json.loads(inspect(run, *asked, "--token", n, "--json")) for n in range(2)]
    surprise = [-logp for logp in row["logp_behaviour"]]
    for n, token in enumerate(one["token"] for one in explained):
        assert token["token"] == row["response_ids"][n]
        assert token["trains"] == (surprise[n] >= 0.5)
        if token["trains"]:
            assert token["value"] == pytest.approx(credit * 2 * surprise[n] / sum(surprise))
            assert token["by_hand"] == pytest.approx(token["value"])
            assert [member["position"] for member in token["members"]] == [0, 1]
    shown = inspect(run, *asked, "--token", 0)
    assert f"token 0, id {row['response_ids'][0]}" in shown
    # The filter that reads the credit: what it dropped is listed with its credit, and no step of it trained.
    dropped = explained[0]["dropped_by_credit"]
    assert [one["credit"] for one in dropped] == [value for _, _, value in steps if value <= 0]
    assert {one["filter"] for one in dropped} == {"OnlyPraise"}
    blamed, its_row, _ = next(step for step in steps if step[2] < 0)
    asked = ("--task", blamed["task"], "--rollout", blamed["rollout"], "--step", its_row["step"])
    assert "it does not train: OnlyPraise drops it" in inspect(run, *asked)
    with closing(Journal(run / "journal.sqlite", read_only=True)) as journal:
        tokens = dict(journal.curve("learner/tokens"))[2]
    praised = [-logp for _, row, value in steps if value > 0 for logp in row["logp_behaviour"]]
    assert tokens == sum(one >= 0.5 for one in praised)


def test_a_token_that_is_not_there_is_told(token_run: Path) -> None:
    run, (trajectory, row, _) = token_run, next(list_steps(token_run))
    given = [
        "inspect",
        run,
        "--update",
        2,
        "--task",
        trajectory["task"],
        "--rollout",
        trajectory["rollout"],
        "--token",
        9,
    ]
    result = CliRunner().invoke(make_app(), [str(one) for one in [*given, "--step", row["step"], "--trust"]])
    assert "has no token 9; its tokens run from 0 to" in f"{result.output}{result.exception}"
    result = CliRunner().invoke(make_app(), [str(one) for one in [*given, "--trust"]])
    assert "--token needs a step; add --step N" in f"{result.output}{result.exception}"
