"""Pages over a run whose credit does not derive again say so, and show what the journal holds."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from groupwise.report.derived_credit import UnderivableCredit
from groupwise.report.groups import find_underived, read_groups
from groupwise.store.journal_file import pack_blob, unpack_blob
from groupwise.training.run_reader import RunFolder
from tests.unit.cli.conftest import Run
from tests.unit.report.rescue_runs import write_rescue_run
from tests.unit.report.run_folders import write_run

REASON = "computed again, the numbers differ by up to 0.5"
SENTENCE = (
    f"The advantages of update 2 cannot be derived again ({REASON}). The numbers are those of the "
    "journal, without the groups; rescued groups are found by their final scores"
)


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """A run whose second update trained on other credit than its algorithm gives now."""
    folder = write_run(tmp_path / "run", updates=2, tasks=2, rollouts=3)
    with sqlite3.connect(folder / "journal.sqlite") as database:
        where = "WHERE number = 2 AND rollout = 0"
        task, blob = database.execute(f"SELECT task, credit FROM trajectories {where}").fetchone()
        first, *others = unpack_blob(blob)
        database.execute(
            f"UPDATE trajectories SET credit = ? {where} AND task = ?", (pack_blob([first + 0.5, *others]), task)
        )
    return folder


def test_groups_and_rollouts_say_why_their_credit_does_not_derive_again(groupwise: Run, changed: Path) -> None:
    with RunFolder(changed) as run:
        groups = read_groups(run, 2)
        assert {group.underived for group in groups} == {SENTENCE}
        assert {group.underived for group in read_groups(run, 1)} == {""}
        assert find_underived(run) == {2: UnderivableCredit(reason=REASON)}
    assert SENTENCE in " ".join(groupwise("inspect", "run", "--update", "2").out.split())
    task = groups[0].task
    assert SENTENCE in " ".join(groupwise("inspect", "run", "--update", "2", "--task", task).out.split())
    assert "derived again" not in groupwise("inspect", "run", "--update", "1").out


def test_inspection_as_json_says_so_too(groupwise: Run, changed: Path) -> None:
    data = json.loads(groupwise("inspect", "run", "--update", "2", "--json").out)
    assert data["underived"] == SENTENCE
    assert {group["compared"] for group in data["groups"]} == {None}
    task = data["groups"][0]["task"]
    assert (
        json.loads(groupwise("inspect", "run", "--update", "2", "--task", task, "--json").out)["underived"] == SENTENCE
    )
    assert json.loads(groupwise("inspect", "run", "--update", "1", "--json").out)["underived"] == ""


def test_the_report_says_so_where_it_shows_credit(groupwise: Run, changed: Path) -> None:
    groupwise("report", "run", "--out", "page.html")
    page = (changed.parent / "page.html").read_text(encoding="utf-8")
    assert page.count(f"{SENTENCE}.") == 2, "with the credit, and with the rollouts"


def test_an_audit_says_so_of_the_runs_own_method(groupwise: Run, changed: Path) -> None:
    ran = groupwise("audit", "run")
    assert ran.status == 0
    assert ran.err == (
        "this run's own method gives other advantages than the journal in 1 update, first in update 2 "
        f"({REASON}). The table shows what it gives the recorded rollouts alone.\n"
    )


def test_a_run_whose_credit_derives_again_is_audited_without_a_word(groupwise: Run, tmp_path: Path) -> None:
    write_run(tmp_path / "run", updates=1, tasks=2, rollouts=3)
    assert groupwise("audit", "run").err == ""


@pytest.mark.parametrize("method", [(), ("--method", "grpo", "--method", "run/config.toml")])
def test_an_audit_says_so_where_it_reads_less_than_trained(
    groupwise: Run, tmp_path: Path, method: tuple[str, ...]
) -> None:
    """Update 2 derives again from the journal, but an audit does not see the success that joined it."""
    write_rescue_run(tmp_path / "run")
    ran = groupwise("audit", "run", *method)
    assert ran.status == 0
    assert ran.err.startswith(
        "this run's own method gives other advantages than the journal in 1 update, first in update 2 "
        "(an audit leaves out replayed rollouts; "
    )
    assert groupwise("audit", "run", "--method", "grpo").err == ""
