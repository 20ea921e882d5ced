"""`groupwise check part`: what is kept, what is broken and why, and what is no part."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from groupwise.cli.main import make_app
from groupwise.parts.check_part import ASKED_WITH_A_TABLE, RULES, check_part
from groupwise.parts.part import load_catalogue

OWN = """
import numpy as np

from groupwise import Part


class Doubled(Part, slot="signal"):
    by: float = 2.0

    def __call__(self, table):
        return table.reward * self.by


class AsList(Part, slot="signal"):
    def __call__(self, table):
        return table.reward.tolist()


class Ranked(Part, slot="signal"):
    def __call__(self, table):
        return table.reward - table.reward.mean() - len(table.task_ids)


class Everybody(Part, slot="grouper"):
    def __call__(self, table):
        return table.task


class Short(Part, slot="loss"):
    def __call__(self, columns):
        return None


class Forgetful(Part, slot="signal"):
    def start(self, *, seed):
        return State()

    def __call__(self, table):
        return table.reward


class State:
    def __init__(self):
        self.seen = 0

    def columns(self, tasks):
        self.seen += 1
        return {"seen_before": np.full(len(tasks), float(self.seen))}

    def observe(self, update):
        pass

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"] + 1


class Loose(Part):
    pass
"""


@pytest.fixture(autouse=True)
def _own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_checked_parts.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_checked_parts", raising=False)


def check(name: str, *options: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """The exit status, and what became of each rule."""
    ran = CliRunner().invoke(make_app(), ["check", "part", f"my_checked_parts:{name}", "--json", *options])
    rules = json.loads(ran.stdout)["rules"]
    assert [rule["rule"] for rule in rules] == [rule.__name__ for rule in RULES]
    return ran.exit_code, {rule["rule"]: (rule["status"], rule["found"]) for rule in rules}


def test_a_part_that_keeps_every_rule_passes() -> None:
    ran = CliRunner().invoke(make_app(), ["check", "part", "my_checked_parts:Doubled", "--set", "by=3.0"])
    assert ran.exit_code == 0, ran.stdout
    assert ran.stdout.splitlines()[0] == "Doubled(by=3.0): 5 rules, 0 broken, 1 not tested"
    status, rules = check("Everybody")
    assert status == 0
    assert rules["gives_what_is_needed"] == ("kept", "for a table of 12 steps, it returned ndarray")


@pytest.mark.parametrize(
    ("name", "rule", "said"),
    [
        (
            "AsList",
            "gives_what_is_needed",
            "AsList returned a list of 12; expected a NumPy array of one finite float for each step",
        ),
        ("Ranked", "keeps_tasks_apart", "the steps of a task get ["),
        ("Short", "has_what_its_slot_needs", "Short has no 'needs'; write `needs: ClassVar["),
        ("Forgetful", "goes_on_where_it_was", "after load_state_dict({'seen': 0}) its state is {'seen': 1}"),
    ],
)
def test_what_is_broken_is_named(name: str, rule: str, said: str) -> None:
    status, rules = check(name)
    assert status == 1
    assert rules[rule][0] == "broken"
    assert said in rules[rule][1]


@pytest.mark.parametrize("place", ["my_checked_parts:Loose", "my_checked_parts:State", "math:pi"])
def test_what_is_no_part_is_refused(place: str) -> None:
    ran = CliRunner().invoke(make_app(), ["check", "part", place])
    assert f"{place!r} is no part with a slot" in str(ran.exception)


def test_an_environment_has_rules_of_its_own() -> None:
    ran = CliRunner().invoke(make_app(), ["check", "part", "groupwise.envs.household:Household"])
    assert "use `groupwise check env`" in str(ran.exception)


@pytest.mark.parametrize("slot", ASKED_WITH_A_TABLE)
def test_the_parts_that_come_with_groupwise_keep_the_rules(slot: str) -> None:
    """The rules are no stricter than what the loop relies on."""
    for kind, known in load_catalogue(slot).items():
        if not any(field.is_required() for field in known.model_fields.values()):
            broken = [(result.rule, result.found) for result in check_part(known()) if result.status == "broken"]
            assert not broken, kind
