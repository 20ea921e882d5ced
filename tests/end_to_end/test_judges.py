"""Runs that ask a judge: three kinds by the run file alone, every call written down, killed and resumed to the bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from groupwise.store.journal import Journal
from groupwise.system.errors import EngineFault
from groupwise.training.config.run_file import load_run
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from tests.equivalence.example_runs import EXAMPLES, overrides_of
from tests.unit.rollout.fake_endpoint import FakeEndpoint, say_digest, serve

ROOT = Path(__file__).parents[2]
RUN = """
seed = 0
threads = 1

[algorithm]
advantage = { kind = "relative", by = "by_task", of = { kind = "column", name = "judge_score" }, average = "step" }
loss = { kind = "policy_loss" }
scorers = ["judge_score"]
judge = JUDGE

[env]
kind = "identity"
num_words = 4
length = 2

[model]
kind = "tiny"
hidden = 16
layers = 1

[rollout]
max_tokens = 2
group_size = 4

[training]
updates = 3
tasks = 3
checkpoint_every = 1

[evaluation]
tasks = 0
"""
JUDGES = {
    "rule": '{ kind = "phrase_judge", phrases = [["alpha", 1.0], ["bravo", 0.5]] }',
    "function": '{ kind = "function_judge", function = "tests.unit.rollout.graders:count_words" }',
    "endpoint": '{ kind = "endpoint_judge", url = "URL", model = "m", api_key = "${SOME_JUDGE_KEY}", retries = 0 }',
}
KEY = "very-secret-value"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_JUDGE_KEY", KEY)


def write_run(folder: Path, judge: str, endpoint: FakeEndpoint) -> Path:
    file = folder / "run.toml"
    file.write_text(RUN.replace("JUDGE", JUDGES[judge]).replace("URL", endpoint.url), encoding="utf-8")
    return file


def read_run(folder: Path) -> tuple[Any, ...]:
    """What a run has come to: steps, credit and every metric that is no clock."""
    with closing(Journal(folder / "journal.sqlite", read_only=True)) as journal:
        numbers = range(1, journal.last_number() + 1)
        rollouts = [
            (rollout["task"], rollout["rollout"], rollout["steps"], rollout["credit"])
            for number in numbers
            for rollout in journal.trajectories(number)
        ]
        curves = {name: list(journal.curve(name)) for name in journal.metric_names() if "seconds" not in name}
    weights = (folder / "checkpoints" / "0003" / "model.safetensors").read_bytes()
    return rollouts, {name: curve for name, curve in curves.items() if not name.startswith("speed/")}, weights


@pytest.mark.parametrize("judge", JUDGES)
def test_any_kind_of_judge_by_configuration(judge: str, tmp_path: Path) -> None:
    with serve() as endpoint:
        run = open_run(load_run(write_run(tmp_path, judge, endpoint)), tmp_path / "run")
        train(run)
    rollouts, curves, _ = read_run(tmp_path / "run")
    scores = {row["extra"]["judge_score"] for *_, rows, _ in rollouts for row in rows}
    assert len(scores) > 1
    assert [value for _, value in curves["scorers/questions"]] == [
        sum(len(rows) for _, _, rows, _ in rollouts[start : start + 12]) for start in (0, 12, 24)
    ]
    record = tmp_path / "run" / "judge.jsonl"
    assert record.exists() is (judge != "rule")
    if judge != "rule":
        lines = [json.loads(line) for line in record.read_text(encoding="utf-8").splitlines()]
        assert sum(value for _, value in curves["judge/calls"]) == len(lines)
    if judge == "endpoint":
        assert len(endpoint.requests) == len(lines)
    for path in (tmp_path / "run").rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


LOGITS = {
    "rule": "checked_steps",
    "function": JUDGES["function"],
    "endpoint": "{ kind = 'endpoint_judge', url = 'URL', model = 'm', choices = [['good', 2.0], ['bad', -2.0]] }",
}


@pytest.mark.few(1)
@pytest.mark.parametrize("judge", LOGITS)
def test_a_method_that_reads_a_judge_takes_any_kind(judge: str, tmp_path: Path) -> None:
    def say_grade(request: dict[str, Any]) -> str:
        return "good" if say_digest(request)[-1] in "02468" else "bad"

    example = EXAMPLES / "methods" / "prorag.toml"
    with serve(say_grade) as endpoint:
        override = f"algorithm.judge={LOGITS[judge].replace('URL', endpoint.url)}"
        train(open_run(load_run(example, overrides=[*overrides_of(example), override]), tmp_path))
    with closing(Journal(tmp_path / "journal.sqlite", read_only=True)) as journal:
        rows = [row for rollout in journal.trajectories(2) for row in rollout["steps"]]
    scores = {score for row in rows for score in row["extra"]["judged_scores"]}
    assert len(scores) > 1
    if judge == "endpoint":
        assert scores == {2.0, -2.0}


READERS = {
    "after_webstar": ("step_score", "['yes', 9.0], ['no', 1.0]"),
    "bcpg_nsa": ("judged_scores", "['yes', 1.0], ['no', 0.0]"),
}
"""Further methods that read a judge: the info value, and scores that mean something to them."""


@pytest.mark.few(1)
@pytest.mark.parametrize("method", READERS)
def test_every_method_that_reads_a_judge_takes_a_server(method: str, tmp_path: Path) -> None:
    info_key, choices = READERS[method]
    example = EXAMPLES / "methods" / f"{method}.toml"
    with serve(lambda request: "yes" if say_digest(request)[-1] in "02468" else "no") as endpoint:
        judge = f"{{ kind = 'endpoint_judge', url = '{endpoint.url}', model = 'm', choices = [{choices}] }}"
        overrides = [*overrides_of(example), f"algorithm.judge={judge}"]
        if method == "after_webstar":
            overrides.append("algorithm.scorers=[{ kind = 'judge_score', info_key = 'step_score', about = 'action' }]")
        train(open_run(load_run(example, overrides=overrides), tmp_path))
    with closing(Journal(tmp_path / "journal.sqlite", read_only=True)) as journal:
        info = [row["extra"][info_key] for rollout in journal.trajectories(2) for row in rollout["steps"]]
    scores = {score for entry in info for score in (entry if isinstance(entry, list) else [entry])}
    assert len(scores) == 2


@pytest.mark.more
def test_killed_in_the_middle_of_its_questions_a_run_resumes_to_the_bit(tmp_path: Path) -> None:
    with serve() as endpoint:
        file = write_run(tmp_path, "endpoint", endpoint)
        train(open_run(load_run(file), tmp_path / "whole"))
        num = len(endpoint.requests)
        endpoint.requests.clear()
        started = threading.Event()
        child = start_training(file, tmp_path / "killed")

        def kill_late(request: dict[str, Any]) -> str:
            if len(endpoint.requests) == num - 3:
                started.wait()
                os.kill(child.pid, signal.SIGKILL)
                child.wait()
            return say_digest(request)

        endpoint.say = kill_late
        started.set()
        child.wait(timeout=120)
        assert child.returncode == -signal.SIGKILL
        asked_before = len(endpoint.requests)
        recorded = (tmp_path / "killed" / "judge.jsonl").read_bytes().count(b"\n")
        endpoint.say = say_digest
        train(open_run(load_run(file), tmp_path / "killed"), resume=True)
        assert len(endpoint.requests) - asked_before == num - recorded, "what was written down was not asked again"
    assert read_run(tmp_path / "killed") == read_run(tmp_path / "whole")


def test_a_server_that_dies_ends_the_run_with_a_sentence_and_the_run_goes_on_later(tmp_path: Path) -> None:
    with serve() as endpoint:
        file = write_run(tmp_path, "endpoint", endpoint)
        train(open_run(load_run(file), tmp_path / "whole"))
        first = next(
            number
            for number, line in enumerate((tmp_path / "whole" / "judge.jsonl").read_text(encoding="utf-8").splitlines())
            if json.loads(line)["update"] == 2
        )
        endpoint.requests.clear()
        endpoint.say = lambda request: say_digest(request) if len(endpoint.requests) <= first else 503
        with pytest.raises(EngineFault, match=r"status 503\); check its log \(asked once\), then continue with"):
            train(open_run(load_run(file), tmp_path / "parted"))
        endpoint.say = say_digest
        train(open_run(load_run(file), tmp_path / "parted"), resume=True)
    assert read_run(tmp_path / "parted") == read_run(tmp_path / "whole")


def start_training(file: Path, folder: Path) -> subprocess.Popen[bytes]:
    code = (
        "import sys, pathlib; from groupwise.training.config.run_file import load_run; "
        "from groupwise.training.open_run import open_run; from groupwise.training.loop import train; "
        "train(open_run(load_run(pathlib.Path(sys.argv[1])), sys.argv[2]))"
    )
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", code, str(file), str(folder)], env=environment, cwd=ROOT)
