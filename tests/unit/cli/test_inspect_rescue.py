"""`groupwise inspect` on a run whose groups were rescued."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupwise.report.number_format import NO_NUMBER
from tests.unit.cli.calls import invoke, show_json, words
from tests.unit.report.rescue_runs import FAILED, REPLAYED, write_rescue_run


@pytest.fixture(scope="module")
def rescue_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rescue_run(tmp_path_factory.mktemp("runs") / "rescued")


def test_the_group_table_marks_rescued_groups_and_says_what_was_done(rescue_path: Path) -> None:
    lines = words(invoke("inspect", rescue_path, "--update", 2))
    assert lines[0] == "rescued, update 2: 6 groups, 0 without a learning signal, 5 rescued"
    assert lines[2] == "t 4 0 0 0 0 0 0.000 4 4 0.250 rescued"
    assert lines[5] == "v 2 1 0 1 0.500 2 2 1.000"
    assert lines[6] == "w 2 0 0 0 0.000 2 2 0.354 rescued"
    assert [line.replace(NO_NUMBER, "none") for line in lines[9:]] == [
        "rescued by",
        "task replayed shaped hint |advantage| without with",
        "t 1 from update 1 none none 0.000 0.250",
        "t~beef none none shown rollout 0 of update 1 none 1.000",
        "u none 2 of 4 none 0.000 0.905",
        "w none none 1 success with a hint joined 0.000 0.354",
        "w~cafe none none shown rollout 3 of update 1 none 1.000",
    ]


def test_the_group_table_as_json_holds_the_rescue(rescue_path: Path) -> None:
    data = {group["task"]: group for group in show_json("inspect", rescue_path, "--update", 2)["groups"]}
    assert data["v"]["rescue"] is None
    rescue = data["t"]["rescue"]
    assert rescue["is_rescued"] is True
    assert rescue["size_without"] == 0.0
    assert rescue["size"] == pytest.approx(-FAILED)
    assert [source["number"] for source in rescue["replayed"]] == [1]
    assert data["t~beef"]["rescue"]["hint"]["rollout"] == 0


def test_a_groups_view_lists_what_was_replayed(rescue_path: Path) -> None:
    lines = words(invoke("inspect", rescue_path, "--update", 2, "--task", "t"))
    assert lines[:3] == [
        "t, update 2",
        "mean |advantage| 0.000 without added rollouts and rewards, 0.250 with them",
        "rollout outcome ended steps advantage, step by step from",
    ]
    assert lines[7].startswith(
        "4 1 terminated 1 █ replayed from update 1, rollout 2: every rollout failed, log-ratio 0.125,"
    )
    data = show_json("inspect", rescue_path, "--update", 2, "--task", "t")
    (joined,) = data["joined"]
    assert joined["rollout"] == 4
    assert joined["source"]["number"] == 1
    assert joined["credit"] == [pytest.approx(REPLAYED)]
    assert data["rollout"]["rollout"] == 0


def test_a_replayed_rollout_is_shown_as_a_dialogue_and_explained(rescue_path: Path) -> None:
    arguments = ("inspect", rescue_path, "--update", 2, "--task", "t", "--rollout", 4)
    lines = words(invoke(*arguments))
    assert "> say 2 reward 1" in " ".join(lines)
    assert "advantage +1.000 │████████ compared with 4 others by task" in lines
    assert lines[-1] == "terminated; outcome 1"
    data = show_json(*arguments, "--step", 0)
    assert data["value"] == data["recorded"] == pytest.approx(REPLAYED)
    assert data["largest_gap"] <= 1e-9


def test_a_group_with_hint_or_shaping_says_so(rescue_path: Path) -> None:
    hinted = words(invoke("inspect", rescue_path, "--update", 2, "--task", "t~beef"))
    assert hinted[1] == "with a hint in the prompt: rollout 0 of update 1 of t"
    ranked = words(invoke("inspect", rescue_path, "--update", 2, "--task", "u"))
    assert ranked[1:3] == [
        "rewards shaped: 2 of 4",
        "mean |advantage| 0.000 without added rollouts and rewards, 0.905 with them",
    ]
    assert "> say 0 reward 0.5, of which 0.5 by reward shaping" in " ".join(ranked)
