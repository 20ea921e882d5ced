"""A further field of a step is one entry of the table and one field of `Step`: nothing else spells it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import groupwise

PACKAGE = Path(groupwise.__file__).parent
REPOSITORY = PACKAGE.parents[1]
ON_STEP = '''    patience: float | None = None
    """How long the agent waited, in seconds; None = not known."""
    role: str | int | None = None
'''
IN_THE_TABLE = """    StepField(
        name="patience", kind=kinds.NUMBER, owner=Owner.ENVIRONMENT,
        meaning="how long the agent waited, in seconds",
        step="patience", column=TableColumn(),
    ),
    StepField(
        name="role","""
SCRIPT = """
import importlib.util, json, sys
from pathlib import Path

from groupwise import Step, StepTable, Task, Trajectory
from groupwise.store.journal import Journal, Update
from groupwise.store import RolloutsFile, write_rollouts
from groupwise.report.derived_credit import make_step_table
from groupwise.data.step_fields import RESERVED_NAMES

folder = Path(sys.argv[1])
steps = (Step(index=0, patience=1.5), Step(index=1))
one = Trajectory(id="t/0", task=Task(id="t"), rollout=0, steps=steps, versions=(1,))
waited = [1.5, None]

assert StepTable.from_trajectories([one]).column("patience").tolist() == waited
for name in ("rollouts.jsonl", "rollouts.parquet"):
    write_rollouts(folder / name, [one])
    assert [row.get("patience") for row in RolloutsFile.open(folder / name).rows()] == waited
    (part,) = RolloutsFile.open(folder / name).chunks()
    assert part.table().column("patience").tolist() == waited
import pyarrow.parquet
assert str(pyarrow.parquet.read_schema(folder / "rollouts.parquet").field("patience").type) == "double"
with Journal(folder / "journal.sqlite") as journal:
    journal.write(Update(number=2, version=2, metrics={}, trajectories=[one], credit=[[0.0, 0.0]]))
    (found,) = journal.trajectories(2)
    assert [row.get("patience") for row in found["steps"]] == waited
    assert make_step_table(found["steps"]).column("patience").tolist() == waited
    (past,) = journal.past_rollouts.newest(max_rollouts=1, after=0)
    assert journal.past_rollouts.read(past).steps == steps
try:
    write_rollouts(folder / "wrong.jsonl", [{"task": "t", "rollout": 0, "step": 0, "reward": 0.0, "patience": "long"}])
except ValueError as error:
    assert str(error) == "row 0: key 'patience' is \\"long\\"; it takes a finite number", error
assert "patience" in RESERVED_NAMES
spec = importlib.util.spec_from_file_location("build_step_fields", sys.argv[2])
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)
assert "| `patience` | a finite number | environment | yes | how long the agent waited, in seconds |" in script.table()
print("all of it")
"""


def test_one_entry_and_one_field_are_all_it_takes(tmp_path: Path) -> None:
    data = tmp_path / "groupwise" / "data"
    data.mkdir(parents=True)
    for entry in PACKAGE.iterdir():
        if entry.name not in ("data", "__pycache__"):
            (data.parent / entry.name).symlink_to(entry)
    changed = {
        "records.py": ("    role: str | int | None = None\n", ON_STEP),
        "step_fields.py": ('    StepField(\n        name="role",', IN_THE_TABLE),
    }
    for entry in (PACKAGE / "data").rglob("*.py"):
        name = entry.relative_to(PACKAGE / "data")
        (data / name).parent.mkdir(exist_ok=True)
        if str(name) in changed:
            before, after = changed[str(name)]
            text = entry.read_text(encoding="utf-8")
            assert text.count(before) == 1
            (data / name).write_text(text.replace(before, after), encoding="utf-8")
        else:
            (data / name).symlink_to(entry)
    ran = subprocess.run(
        [sys.executable, "-B", "-c", SCRIPT, str(tmp_path), str(REPOSITORY / "docs" / "build_step_fields.py")],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "all of it\n", "")
