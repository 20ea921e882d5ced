"""Runs of the methods that give credit inside an answer: info in the journal, and every number derived again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytest.importorskip("torch")

from groupwise.cli.main import make_app
from groupwise.envs.kit.words import split_words
from groupwise.store.journal import Journal
from tests.equivalence.example_runs import EXAMPLES, play_example

INFO = {
    "gtpo": set[str](),
    "d3s": set[str](),
    "dcpo": {"logp_hot", "logp_cold"},
    "verl": {"effective_rank", "rank_velocity", "rank_acceleration"},
    "spo_chain": {"segment_ends", "segment_values"},
    "spae": {"potential_ends", "potentials"},
    "bcpg_nsa": {"judged_ends", "judged_scores"},
    "after_vsrm": {"line_token_ends", "line_accuracy"},
    "rank_grpo": {"item_tokens", "end_token"},
}
OF_SUMS = {"lines_right", "lines_on_track", "line_ends", "answer", "gold_answer"}
OF_LISTS = {"graded_match", "items", "item_relevance", "items_exact", "item_spans", "best_relevance", "list_length"}


@pytest.fixture(scope="module", params=INFO)
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    name: str = request.param
    folder = tmp_path_factory.mktemp(name)
    play_example(EXAMPLES / "methods" / f"{name}.toml", folder)
    return name, folder


def list_answers(run: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each rollout of the second update, with its one step."""
    for trajectory in list_rollouts(run):
        (row,) = trajectory["steps"]
        yield trajectory, row


def list_rollouts(run: Path) -> list[dict[str, Any]]:
    """The rollouts of the second update."""
    with closing(Journal(run / "journal.sqlite", read_only=True)) as journal:
        return list(journal.trajectories(2))


@pytest.mark.few(2)
def test_measures_are_info_that_fit_the_answer(played: tuple[str, Path]) -> None:
    name, run = played
    for _, row in list_answers(run):
        info, num = row["extra"], len(row["response_ids"])
        names = (OF_LISTS if name == "rank_grpo" else OF_SUMS) | INFO[name]
        assert set(info) in (names, names - {"graded_match"})  # what is no list has none
        for ends in {"segment_ends", "potential_ends", "line_token_ends"} & INFO[name]:
            assert info[ends][-1] == num
        if name == "after_vsrm" and "; ;" not in f"; {row['action']} ;":  # a line of nothing is none to the world
            assert info["line_token_ends"][:-1] == info["line_ends"][:-1], "the scorer cuts where the world does"
        if name == "rank_grpo":  # the tiny model's tokens are words, and ; is one
            widths = [len(split_words(row["action"][begin:end])) for begin, end in info["item_spans"]]
            assert [end - begin for begin, end in info["item_tokens"]] == widths
            assert info["end_token"] == (None if row["cut"] else num - 1)
        if name == "dcpo":
            assert len(info["logp_hot"]) == len(info["logp_cold"]) == num


@pytest.mark.few(2)
def test_the_credit_of_tokens_is_derived_again_from_the_journal(played: tuple[str, Path]) -> None:
    name, run = played
    trained = 0
    for trajectory, row in list(list_answers(run))[: 16 if name == "d3s" else 3]:  # where few tokens train
        for token in range(0, len(row["response_ids"]), 5):
            asked = ["inspect", run, "--update", 2, "--task", trajectory["task"], "--rollout", trajectory["rollout"]]
            result = CliRunner().invoke(make_app(), [*map(str, asked), "--step", "0", "--token", str(token), "--json"])
            assert result.exit_code == 0, result.output
            explained = json.loads(result.stdout)["token"]
            trained += explained["trains"]
            if explained["trains"]:
                assert explained["by_hand"] == pytest.approx(explained["value"], abs=1e-9)
                assert explained["not_derived"] == ""
    assert trained


def test_judged_steps_of_several_are_derived_again_from_the_journal(tmp_path: Path) -> None:
    play_example(EXAMPLES / "methods" / "prorag.toml", tmp_path)
    rollouts = list_rollouts(tmp_path)
    scores = [row["extra"]["judged_scores"] for rollout in rollouts for row in rollout["steps"]]
    assert {score for of_step in scores for score in of_step} == {2.0, -2.0}
    trajectory = next(rollout for rollout in rollouts if len(rollout["steps"]) > 1)
    asked = ["inspect", tmp_path, "--update", 2, "--task", trajectory["task"], "--rollout", trajectory["rollout"]]
    for why in range(len(trajectory["steps"])):
        result = CliRunner().invoke(make_app(), [*map(str, asked), "--step", str(why), "--token", "0", "--json"])
        assert result.exit_code == 0, result.output
        explained = json.loads(result.stdout)["token"]
        assert explained["by_hand"] == pytest.approx(explained["value"], abs=1e-9)
        assert explained["not_derived"] == ""
