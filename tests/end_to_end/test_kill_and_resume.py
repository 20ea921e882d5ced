"""A run that is killed twenty times and resumed ends as the one that never was: weights, metrics, attempts, credit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from transformers import AutoModelForCausalLM

from benchmarks.faults.small_runs import HGPO, R3, REMEMBERING
from benchmarks.faults.small_runs import UPDATES as FEWER
from groupwise.config.run_file import load_run
from groupwise.core.algorithm import Algorithm
from groupwise.core.journal.journal import Journal
from groupwise.reports.run.derived_credit import DerivedCredit
from groupwise.training.checkpoints.state_file import find_latest_checkpoint, read_state
from groupwise.training.learner.weights import hash_weights

ROOT = Path(__file__).parents[2]
UPDATES = 8
RUN = (
    HGPO.replace(f"updates = {FEWER}", f"updates = {UPDATES}")
    .replace("every = 3", "every = 4")
    .replace("tasks = 60\nepochs = 2", "tasks = 150\nepochs = 4")
)
"""The campaign's run with more updates and a longer start: room for twenty kills."""
RESCUED = (
    R3.replace(f"updates = {FEWER}", f"updates = {UPDATES}")
    .replace("every = 3", "every = 4")
    .replace("epochs = 2", "epochs = 4")
)
"""Tasks that come round at once, few attempts: it recalls, reflects and ranks."""


def test_a_run_that_is_killed_twenty_times_ends_as_the_one_that_never_was(tmp_path: Path) -> None:
    killed = train_with_kills(tmp_path, num_kills=20)
    assert len(killed) == 20
    stages = {name for name, _ in killed}
    assert stages >= {"open", "warm start", "checkpoint", "evaluate", "rollout", "learn", "handover", "write"}
    check_weights(tmp_path)
    with open_journal(tmp_path / "whole") as whole, open_journal(tmp_path / "killed") as resumed:
        check_curves(whole, resumed)
        check_evaluations(whole, resumed)
        check_attempts(whole, resumed, load_run(tmp_path / "killed" / "config.toml").algorithm)


def test_a_run_that_recalls_and_reflects_ends_alike_too(tmp_path: Path) -> None:
    assert len(train_with_kills(tmp_path, num_kills=10, run=RESCUED)) == 10
    check_weights(tmp_path)
    with open_journal(tmp_path / "whole") as whole, open_journal(tmp_path / "killed") as resumed:
        check_curves(whole, resumed)
        tasks = {row["task"] for row in whole.attempts() if row["origin"] == "fresh"}
        num_recalled = 0
        for number in whole.update_numbers():
            assert list(resumed.trajectories(number)) == list(whole.trajectories(number))
            assert resumed.past_attempts.list_recalled(number) == whole.past_attempts.list_recalled(number)
            num_recalled += len(whole.past_attempts.list_recalled(number))
        resumed.past_attempts.check(tasks)
        assert num_recalled > 2
        assert {row["origin"] for row in whole.attempts()} == {"fresh", "reflected"}
        assert whole.curve("shaping/groups")


MEMORIES = {
    "algorithm.advantage.of": "a baseline of each task",
    "algorithm.loss.penalties.0": "the multiplier of R2VPO",
    "algorithm.loss.penalties.1": "the usual entropies of EPO",
}
"""The parts of the run below that remember."""
REMEMBERED = (
    REMEMBERING.replace(f"updates = {FEWER}", f"updates = {UPDATES}")
    .replace("every = 3", "every = 4")
    .replace("tasks = 60\nepochs = 2", "tasks = 150\nepochs = 4")
)
"""Three memories at once, with a longer start: room for twenty kills."""


def test_a_run_whose_parts_remember_ends_alike_to_the_bit_when_it_is_killed_twenty_times(tmp_path: Path) -> None:
    """State, weights and journal: after every update and in every checkpoint."""
    assert len(train_with_kills(tmp_path, num_kills=20, run=REMEMBERED)) == 20
    check_weights(tmp_path)
    with open_journal(tmp_path / "whole") as whole, open_journal(tmp_path / "killed") as resumed:
        check_curves(whole, resumed)
        check_evaluations(whole, resumed)
        check_attempts(whole, resumed, load_run(tmp_path / "killed" / "config.toml").algorithm)
        chain = whole.check_digest_chain()
        assert chain.fault is None
        assert resumed.check_digest_chain() == chain
        for number in whole.update_numbers():
            assert resumed.states_before(number) == whole.states_before(number)
        first, last = ({state.path: state.state for state in whole.states_before(number)} for number in (1, UPDATES))
        assert set(first) == set(MEMORIES)
        for path in MEMORIES:
            assert first[path] != last[path], f"nothing was remembered at {path}"
    for number in (0, 2, 4, 6, UPDATES):
        states = [read_state(tmp_path / name / "checkpoints" / f"{number:04d}") for name in ("whole", "killed")]
        assert states[0]["parts"] == states[1]["parts"]
        assert set(states[0]["parts"]) == set(MEMORIES)


OVERLAPPING = RESCUED.replace("[rollout]", "[rollout]\nlag = 1")
"""The same, with the attempts of each update played while the one before is learnt."""


def test_a_run_that_plays_ahead_ends_alike_too(tmp_path: Path) -> None:
    killed = train_with_kills(tmp_path, num_kills=12, run=OVERLAPPING)
    assert {"learn", "wait", "prepare", "handover", "write"} <= {name for name, _ in killed}
    check_weights(tmp_path)
    check_chains(tmp_path)


SERVED = OVERLAPPING + '\n[engine]\nkind = "server"\n'
"""The same, with the engine in another process, which every process that trains starts and stops."""


def test_a_run_that_plays_ahead_in_another_process_ends_as_the_one_in_a_single_one(tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    assert train_with_kills(tmp_path / "local", num_kills=0, run=OVERLAPPING) == []
    assert len(train_with_kills(tmp_path, num_kills=3, run=SERVED)) == 3
    check_weights(tmp_path)
    check_chains(tmp_path)
    shutil.copytree(tmp_path / "local" / "whole", tmp_path / "whole", dirs_exist_ok=True)  # beside it: the served run
    check_weights(tmp_path)
    check_chains(tmp_path)


def check_chains(folder: Path) -> None:
    """Every row of every update is the same, and so is what was played ahead at each checkpoint."""
    with open_journal(folder / "whole") as whole, open_journal(folder / "killed") as resumed:
        chain = whole.check_digest_chain()
        assert chain.fault is None
        assert len(chain.digests) == 1 + UPDATES
        assert resumed.check_digest_chain() == chain
        pending = [whole.digest_pending(number) for number in (2, 4, 6)]
        assert None not in pending
        assert [resumed.digest_pending(number) for number in (2, 4, 6)] == pending


def train_with_kills(folder: Path, *, num_kills: int, run: str = RUN) -> list[tuple[str, int]]:
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


def check_attempts(whole: Journal, resumed: Journal, algorithm: Algorithm) -> None:
    """Attempts and credit are the same, and the credit comes out again when the journal is replayed."""
    for number in whole.update_numbers():
        again = list(resumed.trajectories(number))
        assert again == list(whole.trajectories(number))
        replayed = DerivedCredit.compute(again, algorithm, resumed.states_before(number))
        assert replayed.credit.values.tolist() == list(replayed.recorded)
        assert any(replayed.recorded)
