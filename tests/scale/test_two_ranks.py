"""A learner in two shares and a vLLM server, all on the CPU: the run learns what one process learns."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from groupwise.training.evaluation.summary import Evaluation
from tests.measured_numbers import Numbers
from tests.scale.environment import read_curve, read_evaluations, start_command, start_ranks, write_run_file
from tests.vllm.environment import PYTHON, find_reason_to_skip


def describe(evaluation: Evaluation) -> list[float]:
    return [round(evaluation.success, 3), *(round(end, 3) for end in evaluation.interval), evaluation.tasks]


def test_two_ranks_and_a_vllm_server_learn(beginning: Path, tmp_path: Path, numbers: Numbers) -> None:
    reason = find_reason_to_skip()
    if reason:
        pytest.skip(reason)
    changes = {
        "engine": {"kind": "vllm", "replicas": 1, "python": PYTHON},
        "training.learner": {"kind": "sharded", "ranks": 2},
    }
    file, began = write_run_file(tmp_path / "run.toml", beginning, changes), time.monotonic()
    with start_command(start_ranks(file, tmp_path / "run"), tmp_path / "log") as command:
        command.finish()
    before, after = read_evaluations(tmp_path / "run")
    numbers.measured["two ranks and vLLM: success before, 95 % interval, tasks"] = describe(before)
    numbers.measured["two ranks and vLLM: success after 12 updates of 8 x 8 rollouts, 95 % interval, tasks"] = describe(
        after
    )
    numbers.measured["two ranks and vLLM: seconds of the run"] = round(time.monotonic() - began)
    assert set(read_curve(tmp_path / "run", "replicas/alive").values()) == {1.0}
    assert after.number == 12
    assert after.success > before.interval[1]
