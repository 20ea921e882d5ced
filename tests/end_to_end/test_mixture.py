"""docs/howto/mixtures.md: two environments in a run, by weight, killed and resumed to the bit, evaluated."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("torch")

from groupwise.store.journal import Journal
from groupwise.training.config.run_file import load_run
from groupwise.training.evaluation.summary import Evaluation, make_verdict
from groupwise.training.open_run import open_run
from tests.architecture.markdown import blocks_of
from tests.end_to_end.resumed_runs import (
    ROOT,
    check_curves,
    check_evaluations,
    check_rollouts,
    check_weights,
    open_journal,
    train_with_kills,
)
from tests.unit.cli.conftest import Run
from tests.unit.cli.conftest import groupwise as groupwise

DATA = ROOT / "examples" / "own_questions.jsonl"
EXAMPLE = (ROOT / "examples" / "mixture.toml").read_text(encoding="utf-8").replace(DATA.name, str(DATA))
RUN = (
    EXAMPLE.replace("updates = 60\ntasks = 16", "updates = 8\ntasks = 8\ncheckpoint_every = 2")
    .replace("tasks = 50", "tasks = 12\nrollouts = 20\nevery = 4")
    .replace("tasks = 200\nepochs = 16", "tasks = 200\nepochs = 12")
)
"""The example, short: six of eight tasks of an update are questions."""


@pytest.mark.more
def test_a_mixed_run_that_is_killed_and_resumed_ends_alike_and_every_update_has_its_shares(tmp_path: Path) -> None:
    assert len(train_with_kills(tmp_path, num_kills=4, run=RUN)) == 4
    check_weights(tmp_path)
    with open_journal(tmp_path / "whole") as whole, open_journal(tmp_path / "killed") as resumed:
        check_curves(whole, resumed)
        check_evaluations(whole, resumed)
        check_rollouts(whole, resumed, load_run(tmp_path / "killed" / "config.toml").algorithm)
        assert resumed.check_digest_chain() == whole.check_digest_chain()
        check_shares(whole)
        check_each_is_reported(whole)


def check_shares(journal: Journal) -> None:
    for number in journal.update_numbers():
        rollouts = Counter(str(record["task"]) for record in journal.trajectories(number))
        assert Counter(task.partition("-")[0] for task in rollouts) == {"data_set": 6, "identity": 2}
        assert set(rollouts.values()) == {8}


def check_each_is_reported(journal: Journal) -> None:
    rows = [row for row in journal.evaluations() if row.number == 8]
    evaluation = Evaluation.from_rows(rows)
    assert [(summary.name, summary.tasks) for summary in evaluation.by_tag()] == [("echo", 3), ("questions", 9)]
    shares = {summary.name: summary.success * summary.tasks for summary in evaluation.by_tag()}
    assert evaluation.success * 12 == pytest.approx(sum(shares.values()))
    verdict = make_verdict(journal.evaluations(), "test")
    assert [(family.name, family.before is not None) for family in verdict.categories] == [
        ("echo", True),
        ("questions", True),
    ]


def test_prompts_are_those_of_each_environment_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    config = load_run(ROOT / "examples" / "mixture.toml")
    with open_run(config, tmp_path / "run") as run:
        first = {run.config.env.open(task).observe().text: task for task in run.tasks[:8]}  # both are among them
        openings = {
            task.tags[0]: run.prompter.tokenizer.decode(run.prompter.for_task(task).encode_opening("").ids)
            for task in first.values()
        }
    assert openings == {"questions": "<s> answer with the final answer alone .", "echo": "<s> repeat the word ."}


def test_the_python_of_the_page_mixes() -> None:
    [block] = blocks_of("docs/howto/mixtures.md", "python")
    *code, last = block.text.strip().splitlines()
    namespace: dict[str, object] = {}
    exec("\n".join(code), namespace)
    shown, _, said = last.partition("  # ")
    assert eval(shown, namespace) == said.split(", ")


@pytest.mark.more
def test_commands_understand_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groupwise: Run) -> None:
    (tmp_path / "run.toml").write_text(RUN, encoding="utf-8")
    monkeypatch.chdir(ROOT)
    file, folder = str(tmp_path / "run.toml"), str(tmp_path / "run")
    shown = groupwise("preview", file, "--trust", "--tasks", "1")
    assert "which is" in shown.out
    assert "repeat the word" in shown.out
    assert groupwise("doctor", file, "--trust").status == 0
    refused = groupwise(
        "train", file, "--set", "rollout.action_parser=choice", "--set", 'rollout.template.show_admissible="numbered"'
    )
    assert refused.status == 2
    assert "'choice' fits echo, which lists its possible actions, but not questions" in refused.err
    assert groupwise("train", file, "--out", folder).status == 0
    evaluated = groupwise("evaluate", folder, "--trust", "--seeds", "1")
    categories = [line.split()[0] for line in evaluated.out.splitlines() if line.startswith(("echo ", "questions "))]
    assert categories == ["echo", "questions"]
