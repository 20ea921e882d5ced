"""`groupwise check env`: the report, its exit status, its settings."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from typer.testing import CliRunner

from groupwise import ConfigError
from groupwise.cli.main import main, make_app
from groupwise.envs.checker import RULES

BROKEN = """
from tests.unit.envs.corridor import Corridor, CorridorPart


class Nan(Corridor):
    def reward(self):
        return float("nan")


class MyEnv(CorridorPart):
    world = Nan
"""


@pytest.fixture(autouse=True)
def _own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", sys.path[:])


def test_a_built_in_environment_passes() -> None:
    ran = CliRunner().invoke(
        make_app(), ["check", "env", "household", "--set", 'categories=["pick"]', "--set", "num_objects=2"]
    )
    assert ran.exit_code == 0
    lines = ran.stdout.splitlines()
    assert lines[0] == f"Household(categories=('pick',), num_objects=2): {len(RULES)} rules, 0 broken, 0 not tested"
    assert len(lines) == 1 + len(RULES)
    assert all(line.startswith(" ok ") for line in lines[1:])
    assert lines[-1].endswith("steps per second, including opening")


def test_a_broken_one_of_your_own_is_named_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_broken_env.py").write_text(BROKEN)
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(make_app(), ["check", "env", "my_broken_env:MyEnv"])
    assert ran.exit_code == 1
    assert " broken     rewards_are_finite: Outcome.reward is nan (float); give a finite number" in ran.stdout
    assert "Why it matters: One NaN in a group makes the advantages of all its members NaN." in ran.stdout


def test_what_could_not_be_tried_is_not_called_ok() -> None:
    ran = CliRunner().invoke(make_app(), ["check", "env", "countdown", "--tasks", "3"])
    assert ran.exit_code == 0, "not tested is not broken"
    lines = ran.stdout.splitlines()
    assert lines[0] == f"Countdown: {len(RULES)} rules, 0 broken, 2 not tested"
    assert [line for line in lines if line.startswith(" not tested ")] == [
        " not tested state_key_has_no_counter_or_clock: too few situations occurred again to detect a counter: none",
        " not tested admissible_actions_are_accepted: no actions are listed",
    ]
    report = json.loads(CliRunner().invoke(make_app(), ["check", "env", "countdown", "--tasks", "3", "--json"]).stdout)
    assert [rule["rule"] for rule in report["rules"] if rule["status"] == "not tested"] == [
        "state_key_has_no_counter_or_clock",
        "admissible_actions_are_accepted",
    ]


def test_an_environment_whose_package_is_missing_is_no_broken_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    monkeypatch.setattr(sys, "argv", ["groupwise", "check", "env", "gymnasium", "--set", "id='FrozenLake-v1'"])
    errors = io.StringIO()
    with redirect_stdout(io.StringIO()) as shown, redirect_stderr(errors), pytest.raises(SystemExit) as stopped:
        main()
    assert (stopped.value.code, shown.getvalue(), errors.getvalue()) == (
        2,
        "",
        "error: the environment 'gymnasium' needs a package that is not installed; "
        "pip install 'groupwise[gymnasium]'\n",
    )


def test_json_for_machines() -> None:
    ran = CliRunner().invoke(make_app(), ["check", "env", "identity", "--tasks", "3", "--json"])
    report = json.loads(ran.stdout)
    assert report["env"] == {"kind": "identity", "num_words": 8, "length": 2, "max_steps": 8}
    assert [rule["rule"] for rule in report["rules"]] == [rule.__name__ for rule in RULES]
    assert report["rules"][0]["found"] == "6 rollouts of 3 tasks, 12 steps"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["houshold"],
            "there is no env 'houshold'; did you mean 'household'? docs/reference/environments.md lists them all",
        ),
        (["household", "--set", "num_objects"], "'num_objects' has no value; write --set num_objects=VALUE"),
        (["household", "--set", "num_objetcs=3"], "num_objetcs: unknown setting; did you mean 'num_objects'?"),
        (["household", "--set", "categories=pick"], "categories: expected a list, found 'pick'"),
        (["nowhere:Env"], "cannot load the env 'nowhere:Env': No module named 'nowhere'"),
    ],
)
def test_mistakes_are_explained(arguments: list[str], message: str) -> None:
    ran = CliRunner().invoke(make_app(), ["check", "env", *arguments])
    assert isinstance(ran.exception, ConfigError)
    assert message in str(ran.exception)
