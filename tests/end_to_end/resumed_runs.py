"""A run that was killed and resumed held against the one that never was: weights, curves, evaluations, rollouts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from transformers import AutoModelForCausalLM

from groupwise.learner.protocol import hash_weights
from groupwise.parts.algorithm import Algorithm
from groupwise.report.derived_credit import DerivedCredit
from groupwise.store.checkpoint_files import find_latest_checkpoint
from groupwise.store.journal import Journal

ROOT = Path(__file__).parents[2]
UPDATES = 8
"""Updates of the runs that are compared; evaluated before the first, after the fourth and after the last."""


def train_with_kills(folder: Path, *, num_kills: int, run: str) -> list[tuple[str, int]]:
    """Train in `whole` and, with interruptions, in `killed`; the stages after whose beginning it was killed."""
    (folder / "run.toml").write_text(run, encoding="utf-8")
    command = [sys.executable, "-m", "tests.end_to_end.killing", str(folder / "run.toml"), str(folder), f"{num_kills}"]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=env)
    assert ran.returncode == 0, ran.stderr
    return [(name, number) for name, number in json.loads(ran.stdout)]


def open_journal(folder: Path) -> Journal:
    return Journal(folder / "journal.sqlite", read_only=True)


def check_weights(folder: Path) -> None:
    last = [find_latest_checkpoint(folder / name / "checkpoints") for name in ("whole", "killed")]
    assert [path.name for path in last if path] == [f"{UPDATES:04d}"] * 2
    first = folder / "whole" / "checkpoints" / "0000"
    whole, resumed, start = (
        hash_weights(AutoModelForCausalLM.from_pretrained(path).state_dict()) for path in (*last, first)
    )
    assert resumed == whole
    assert start != whole


def check_curves(whole: Journal, resumed: Journal) -> None:
    """Every update once, and all but the clock the same to the bit."""
    assert resumed.update_numbers() == whole.update_numbers() == list(range(1, UPDATES + 1))
    assert resumed.metric_names() == whole.metric_names()
    for name in whole.metric_names():
        if not name.startswith(("seconds/", "speed/")):
            assert resumed.curve(name) == whole.curve(name), name
    assert len(whole.curve("loss/total")) == UPDATES, "every update taught something"


def check_evaluations(whole: Journal, resumed: Journal) -> None:
    """None is left out because the run was killed between a checkpoint and its evaluation."""
    assert {evaluation.number for evaluation in whole.evaluations()} == {0, 4, UPDATES}
    assert resumed.evaluations() == whole.evaluations()


def check_rollouts(whole: Journal, resumed: Journal, algorithm: Algorithm) -> None:
    """Rollouts and credit are the same, and the credit comes out again when the journal is replayed."""
    for number in whole.update_numbers():
        again = list(resumed.trajectories(number))
        assert again == list(whole.trajectories(number))
        replayed = DerivedCredit.compute(again, algorithm, resumed.states_before(number))
        assert replayed.credit.values.tolist() == list(replayed.recorded)
        assert any(replayed.recorded)
