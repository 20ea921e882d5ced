"""The parts on the pages under docs/seams, copied out as a reader would copy them, train from a run file."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("torch")

from groupwise.core.journal import Journal
from tests.outside.running import ROOT, SMALL_RUN, groupwise, train_from_file

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ENDS = SMALL_RUN.replace('plan = { kind = "flat", attempts = 4 }', 'plan = { kind = "page_plans:Paced", attempts = 3 }')
"""The small run, with a plan of a page."""
CREDIT = (
    'rewards = ["environment", { kind = "length", each = -0.1 }]'
    + ENDS
    + """
[engine]
kind = "page_engine:Counted"

[training.learner]
kind = "page_learner:AveragedLearner"

[training.weight_transfer]
kind = "page_learner:Logged"

[algorithm]
advantage = "page_token_credit:AboveMean"
token_credit = "page_token_credit:BySurprise"
admissions = ["page_plans:Distinct"]
measures = ["page_measures:Repeated"]
loss = "page_loss:Even"
"""
)
MEMORY = (
    'rewards = ["environment", { kind = "length", each = -0.1 }]'
    + SMALL_RUN
    + """
[algorithm]
filters = ["page_token_credit:OnlyPraise"]
measures = ["judge_score"]
judge = "page_measures:Polite"
loss = "page_loss:Reinforce"

[algorithm.advantage]
kind = "relative"
by = "by_task"
of = "page_state:Surprise"
baseline = "no_baseline"
scale = "no_scale"
"""
)


@pytest.mark.parametrize("run_file", [CREDIT, MEMORY], ids=["credit", "memory"])
def test_the_parts_of_the_pages_train_and_are_explained(tmp_path: Path, run_file: str) -> None:
    for page in (ROOT / "docs" / "seams").glob("*.md"):
        code = "\n\n".join(BLOCK.findall(page.read_text(encoding="utf-8")))
        (tmp_path / f"page_{page.stem}.py").write_text(code, encoding="utf-8")
    run = train_from_file(tmp_path, run_file)
    with closing(Journal(run / "journal.sqlite", read_only=True)) as journal:
        [found, *_] = journal.trajectories(2)
    place = ["--update", "2", "--task", found["task"], "--attempt", str(found["attempt"]), "--why", "0"]
    shown = groupwise("inspect", "run", *place, "--trust", cwd=tmp_path).stdout
    assert "the journal holds" in shown
    assert ": the same number" in shown
    if "Logged" in run_file:
        assert (tmp_path / "run" / "weights" / "hand_overs.txt").read_text(encoding="utf-8").startswith("1: ")
