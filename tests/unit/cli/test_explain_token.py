"""`groupwise explain --token`: the credit of one token of a recorded file, and what a filter dropped by its credit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from groupwise.cli.main import make_app
from tests.unit.cli.files import row, write

# Task t: rollout a earns 1 and samples three tokens, b earns 0 and samples one; credit by dr_grpo 0.5 and -0.5.
ROWS = [
    row("u", "c", 0, "s", 0.0, response_ids=[1]),
    row("t", "b", 0, "s", 0.0, response_ids=[9]),
    row("t", "a", 0, "s", 1.0, response_ids=[5, 6, 7], logp_behaviour=[-0.5, -1.0, -2.0]),
]
ALGORITHM = """[algorithm]
method = "dr_grpo"
filters = [{ kind = "small_credit", min_size = 0.25 }]

[algorithm.token_credit]
kind = "discounted_tokens"
gamma = 0.5
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    method = tmp_path / "method.toml"
    method.write_text(ALGORITHM, encoding="utf-8")
    return write(tmp_path / "rollouts.jsonl", ROWS), method


def explain_json(file: Path, *arguments: object, status: int = 0) -> str:
    given = ["explain", file, "--task", "t", "--rollout", "a", "--step", 0, *arguments]
    result = CliRunner().invoke(make_app(), [str(argument) for argument in given], catch_exceptions=False)
    assert result.exit_code == status, result.output
    return result.stdout


def test_a_token_of_a_recorded_step_is_explained(files: tuple[Path, Path]) -> None:
    file, method = files
    lines = explain_json(file, "--method", method, "--token", 1).splitlines()
    assert lines[-6:] == [
        "token 1, id 6 (log-prob -1): DiscountedTokens(gamma=0.5)",
        "   5 »6« 7   (tokens 0 to 2)",
        "  advantage of its step: 0.5",
        "  its weight: 0.5",
        "0.5 x 0.5 = 0.25; advantage of the token +0.250000000, by hand +0.250000000",
        "dropped by their advantage: u, rollout c, step 0 (+0)",
    ]


def test_the_same_as_json(files: tuple[Path, Path]) -> None:
    file, method = files
    data: dict[str, Any] = json.loads(explain_json(file, "--method", method, "--token", 0, "--json"))
    assert (data["value"], data["largest_gap"]) == (0.5, 0.0)
    assert {name: data["token"][name] for name in ("position", "token", "value", "by_hand", "trains")} == {
        "position": 0,
        "token": 5,
        "value": 0.125,
        "by_hand": 0.125,
        "trains": True,
    }
    assert [(step["task"], step["rollout"]) for step in data["dropped_by_credit"]] == [("u", "c")]


def test_without_a_token_part_a_token_has_the_credit_of_its_step(files: tuple[Path, Path]) -> None:
    text = explain_json(files[0], "--method", "dr_grpo", "--token", 2)
    assert "no token_credit: each token has the advantage of its step" in text
    assert "advantage of the token +0.500000000" in text
    assert "dropped_by_credit" not in json.loads(explain_json(files[0], "--method", "dr_grpo", "--json"))


def test_what_is_not_derived_is_said(tmp_path: Path) -> None:
    """The weights of A-GRAE come from its own arithmetic, which `explain` does not repeat."""
    file = write(tmp_path / "rollouts.jsonl", ROWS[1:])
    lines = explain_json(file, "--method", "a_grae").splitlines()
    assert "; derived again by hand in part, it agrees (gap " in lines[-2]
    assert lines[-1] == "not derived again, taken as computed: the weights of Asymmetric"
