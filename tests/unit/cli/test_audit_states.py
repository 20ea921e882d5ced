"""`groupwise audit --state`: tables and JSON of recorded sessions, and what is wrong with the options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from groupwise.cli.main import make_app
from groupwise.system.errors import ConfigError, FileError, GroupwiseError, RecordError
from tests.unit.agents.chats import exchange, says, user
from tests.unit.cli.calls import invoke, show_json, words

SESSIONS = Path(__file__).parents[3] / "examples" / "sessions.jsonl"


def test_the_json_has_every_rule_and_every_method() -> None:
    found = show_json("audit", SESSIONS, "--state", "exchange,none", "--method", "grpo", "--method", "hgpo")
    assert (found["tasks"], found["rollouts"], found["steps"], found["later_steps"]) == (3, 12, 46, 34)
    assert [rule["name"] for rule in found["rules"]] == ["exchange", "none"]
    assert [(share["method"], share["rule"]) for share in found["methods"]] == [
        ("grpo", "exchange"),
        ("grpo", "none"),
        ("hgpo", "exchange"),
        ("hgpo", "none"),
    ]
    assert found["rules"][1]["peers"] == 0.0
    assert [finding["level"] for finding in found["findings"] if finding["rule"] == "none"] == []


def test_writes_of_the_header_can_be_replaced() -> None:
    declared = show_json("audit", SESSIONS, "--state", "writes")["rules"][0]["keys"]
    refunds = show_json("audit", SESSIONS, "--state", "writes", "--writes", "refund_*")["rules"][0]["keys"]
    assert (declared, refunds) == (3, 2)


def test_without_writing_tools_the_pairs_that_differ_by_writes_are_unknown() -> None:
    declared, none = (
        show_json("audit", SESSIONS, "--state", "exchange", *options)["rules"][0]["false_by_writes"]
        for options in ([], ["--writes", ""])
    )
    assert declared is not None
    assert none is None


def test_ignored_tools_are_a_setting() -> None:
    def count_keys(*options: str) -> int:
        keys: int = show_json("audit", SESSIONS, "--state", "tool_history", *options)["rules"][0]["keys"]
        return keys

    assert count_keys("--ignore", "") > count_keys() > count_keys("--ignore", "think,get_*")


def test_without_scores_there_are_no_advantages(tmp_path: Path) -> None:
    path = tmp_path / "sessions.jsonl"
    chat = [user("Hello."), *exchange("find", "{}", "nothing"), says("I found nothing.")]
    path.write_text("".join(json.dumps({"task": "t", "messages": chat}) + "\n" for _ in range(2)), encoding="utf-8")
    printed = words(invoke("audit", path, "--state", "exchange"))
    assert (
        "1 tasks, 2 rollouts, 4 steps, 2 of them later steps (not the first of a rollout); final scores: not recorded"
        in (" ".join(printed))
    )
    assert "Advantages" not in printed
    assert "exchange 1 100.0 % 1.0 unknown unknown unknown 100.0 % 1 unknown" in [
        line.replace("exchange 2", "exchange 1") for line in printed
    ]


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        (
            ["--state", "exchnge"],
            ConfigError,
            "--state exchnge: there is no state_rule 'exchnge'; did you mean 'exchange'",
        ),
        (
            ["--state", "my.rules:Mine"],
            ConfigError,
            "--state my.rules:Mine: the state_rule 'my.rules:Mine' is not loaded",
        ),
        (["--state", "exchange", "--format", "verl_agent"], ConfigError, "--state recognises the form of sessions by"),
        (
            ["--state", "exchange", "--map", "task=a,reward=b"],
            ConfigError,
            "--state recognises the form of sessions by",
        ),
        *(
            (["--state", "exchange", *option], ConfigError, "--depth and --gamma compare recorded states, and --state")
            for option in (["--depth", "4"], ["--gamma", "0"])
        ),
        (
            ["--state", "writes", "--writes", ""],
            ConfigError,
            "--state writes: name the tools that change the environment",
        ),
        (["--writes", "send_*"], ConfigError, "--writes and --ignore are settings of state rules; add --state, e.g."),
    ],
)
def test_wrong_options(options: list[str], kind: type[GroupwiseError], message: str) -> None:
    with pytest.raises(kind) as caught:
        CliRunner().invoke(make_app(), ["audit", str(SESSIONS), *options], catch_exceptions=False)
    assert str(caught.value).startswith(message)


def test_wrong_files(tmp_path: Path) -> None:
    path = tmp_path / "sessions.jsonl"

    def audit(content: object, rules: str = "exchange") -> None:
        path.write_text(json.dumps(content) + "\n", encoding="utf-8")
        CliRunner().invoke(make_app(), ["audit", str(path), "--state", rules], catch_exceptions=False)

    with pytest.raises(ConfigError, match="--state writes: name the tools that change the environment: --writes TOOL"):
        audit({"task": "t", "messages": [user("hi"), says("hi")]}, "writes")
    with pytest.raises(RecordError, match=r"sessions.jsonl: the file has no model call: no session has a message of"):
        audit({"task": "t", "messages": [user("hi")]})
    with pytest.raises(FileError, match=r"sessions.jsonl, line 1: field 'task' is missing"):
        audit({"messages": [user("hi")]})
