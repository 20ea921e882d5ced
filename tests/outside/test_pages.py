"""The parts on the pages under docs/howto/extending, copied out as a reader would copy them, train from a run file."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise.extend import TokenColumns, Totals
from groupwise.store.journal import Journal
from tests.outside.running import ROOT, SMALL_RUN, groupwise, train_from_file

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ENDS = SMALL_RUN.replace("group_size = 4", 'group_size = 3\nplan = "page_plans:Paced"')
"""The small run, with a plan of a page."""
CREDIT = (
    'rewards = ["environment", { kind = "length", each = -0.1 }]'
    + ENDS
    + """
[engine]
kind = "page_engine:Counted"

[training.learner]
kind = "page_learner:AveragedLearner"

[training.weight_sync]
kind = "page_learner:Logged"

[algorithm]
advantage = "page_token_credit:AboveMean"
token_credit = "page_token_credit:BySurprise"
rollout_filters = ["page_plans:Distinct"]
scorers = ["page_scorers:Repeated"]
loss = "page_loss:Even"
"""
)
MEMORY = (
    'rewards = ["environment", { kind = "length", each = -0.1 }]'
    + SMALL_RUN
    + """
[algorithm]
filters = ["page_token_credit:OnlyPraise"]
scorers = ["judge_score"]
judge = "page_scorers:Polite"
loss = "page_loss:Reinforce"

[algorithm.advantage]
kind = "relative"
by = "by_task"
of = "page_state:Surprise"
baseline = "no_baseline"
scale = "no_scale"
"""
)


CRITIC = (
    SMALL_RUN
    + """
[algorithm]
method = "turn_ppo"

[algorithm.critic]
kind = "page_critic:Huber"
by = "step"
learning_rate = 1e-3
"""
)


@pytest.mark.parametrize("run_file", [CREDIT, MEMORY, CRITIC], ids=["credit", "memory", "critic"])
def test_the_parts_of_the_pages_train_and_are_explained(tmp_path: Path, run_file: str) -> None:
    for page in (ROOT / "docs" / "howto" / "extending").glob("*.md"):
        code = "\n\n".join(BLOCK.findall(page.read_text(encoding="utf-8")))
        (tmp_path / f"page_{page.stem}.py").write_text(code, encoding="utf-8")
    run = train_from_file(tmp_path, run_file)
    with closing(Journal(run / "journal.sqlite", read_only=True)) as journal:
        [trajectory, *_] = journal.trajectories(2)
    place = ["--update", "2", "--task", trajectory["task"], "--rollout", str(trajectory["rollout"]), "--step", "0"]
    shown = groupwise("inspect", "run", *place, "--trust", cwd=tmp_path).stdout
    assert "the journal has" in shown
    assert ": the same number" in shown
    if "Logged" in run_file:
        assert (tmp_path / "run" / "weights" / "weight_syncs.txt").read_text(encoding="utf-8").startswith("1: ")


def test_the_loss_of_the_page_has_one_gradient_whatever_the_split() -> None:
    """The law that the page asks for: against the formula over all tokens at once, with autograd."""
    names: dict[str, Any] = {"__name__": "page_loss"}
    for block in BLOCK.findall((ROOT / "docs" / "howto" / "extending" / "loss.md").read_text(encoding="utf-8")):
        exec(compile(block, "loss.md", "exec", dont_inherit=True), names)
    logp = torch.tensor([-0.5, -1.0, -0.25, -2.0, -3.0, -0.1], dtype=torch.float64)
    trajectory, trains = torch.tensor([0, 0, 1, 2, 2, 2]), torch.tensor([True, True, True, True, False, True])
    whole = logp.clone().requires_grad_()
    scores = torch.stack([whole[trains & (trajectory == number)].mean() for number in range(3)])
    expected = scores.var(correction=0)
    expected.backward()
    totals = Totals.count(tokens=[2, 1, 2], trajectory=[0, 1, 2], step=[0, 0, 0], group=[0, 0, 0], max_tokens=4)
    for split in ([range(6)], [range(1), range(1, 4), range(4, 6)]):
        batches = [columns_of(logp[list(part)], trajectory[list(part)], trains[list(part)]) for part in split]
        loss = names["Even"]()
        first, *others = [loss.first_pass(columns, totals) for columns in batches]
        results = [loss(columns, totals, sum(others, first)) for columns in batches]
        for result in results:
            result.loss.backward()
        assert sum(result.loss.item() for result in results) == pytest.approx(expected.item())
        gradient = torch.cat([columns.logp.grad for columns in batches])  # type: ignore[misc]
        assert torch.allclose(gradient, whole.grad)  # type: ignore[arg-type]


def columns_of(logp: Any, trajectory: Any, trains: Any) -> TokenColumns:
    """Tokens of one group, each trajectory a sample of its own."""
    return TokenColumns(
        logp=logp.clone().requires_grad_(),
        logp_behaviour=logp,
        advantage=torch.zeros_like(logp),
        mask=trains,
        sample=trajectory,
        step=torch.zeros_like(trajectory),
        trajectory=trajectory,
        group=torch.zeros_like(trajectory),
    )
