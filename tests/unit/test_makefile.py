"""What the Makefile's targets would do: `make -n` prints the commands and runs none."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = {
    "test-vllm": "GROUPWISE_VLLM_RECORD=benchmarks/results/vllm_cpu.json",
    "test-scale": "GROUPWISE_SCALE_RECORD=benchmarks/results/test_scale.json",
}


def list_commands(*arguments: str) -> list[str]:
    """The commands of a target, with nothing taken over from the `make` that runs these tests."""
    if shutil.which("make") is None:
        pytest.skip("needs make")
    variables = {name: value for name, value in os.environ.items() if "MAKE" not in name and name != "RECORD"}
    done = subprocess.run(
        ["make", "-n", *arguments], cwd=ROOT, env=variables, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize("target", RESULTS)
@pytest.mark.parametrize("unset", [(), ("RECORD=",), ("RECORD=0",)])
def test_tracked_results_are_not_written_unless_that_is_asked_for(target: str, unset: tuple[str, ...]) -> None:
    commands = list_commands(target, *unset)
    assert " -m pytest -m " in commands[-1]
    assert [command for command in commands if "benchmarks/" in command] == []


@pytest.mark.parametrize("target", RESULTS)
def test_results_are_saved_where_that_is_asked_for(target: str) -> None:
    assert list_commands(target, "RECORD=1")[-1].startswith(f"OMP_NUM_THREADS=1 {RESULTS[target]} ")
