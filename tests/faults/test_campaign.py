"""The campaign of faults: a short one of each section runs and comes out clean, and what is planted is counted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from safetensors.torch import load_file, save_file

from benchmarks.faults.__main__ import SECTIONS
from benchmarks.faults.endings import INTOLERABLE, Ending, summarise, without_paths
from benchmarks.faults.environments import Trouble, judge_success
from benchmarks.faults.payloads import PAYLOADS
from benchmarks.faults.same_runs import find_lost_updates
from groupwise.store.journal import Journal
from tests.end_to_end.runs import config, run_to_end

ROOT = Path(__file__).parents[2]
linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it looks into /proc")
EXPECTED = {
    "be_sound": set(),
    "raise_error": {"tracebacks"},
    "hang": {"hangs"},
    "crash": {"crashes"},
    "leave_a_process": {"leftover_processes"},
    "raise_in_a_command": {"tracebacks"},
    "hang_in_a_command": {"hangs"},
    "crash_in_a_command": {"crashes"},
    "leave_a_process_in_a_command": {"leftover_processes"},
    "say_nothing": {"unexplained_endings"},
    "send_controls": {"sent_controls"},
    "run_answers": {"executed_answers"},
    "be_poisoned": {"executed_answers"},
}
"""What each planted case must be counted as."""


def call(*words: str) -> subprocess.CompletedProcess[str]:
    """The campaign in a process of its own: it looks after every child of the one that it is in."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", *words], capture_output=True, text=True, check=False, cwd=ROOT, env=env
    )


@linux_only
def test_whatever_may_never_happen_is_counted_with_its_case(tmp_path: Path) -> None:
    ran = call("tests.faults.planted", str(tmp_path / "result.json"))
    assert ran.returncode == 0, ran.stderr
    result = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    kinds: dict[str, set[str]] = defaultdict(set)
    for failure in result["failures"]:
        kinds[failure["what"]].add(failure["kind"])
    assert {name: kinds[name] for name in EXPECTED} == EXPECTED
    assert set(kinds) <= set(EXPECTED)
    assert result["failing_cases"] == len(EXPECTED) - 1
    assert not result["stopped_early"]


@linux_only
@pytest.mark.slow
def test_a_short_campaign_comes_out_clean(tmp_path: Path) -> None:
    path = tmp_path / "faults.json"
    ran = call("benchmarks.faults", "--seed", "19", "--count", "2", "--write", str(path))
    result = json.loads(path.read_text(encoding="utf-8"))
    sections = result["sections"]
    assert {name: section["failures"] for name, section in sections.items()} == {name: [] for name in SECTIONS}
    assert ran.returncode == 0, ran.stderr
    assert {result["totals"][kind] for kind in INTOLERABLE} == {0}
    for name, section in sections.items():
        num = len(PAYLOADS) if name == "answers" else 2  # one question is given all of them
        assert section["cases"] == (0 if "skipped" in section else num), name
        assert not section.get("stopped_early")
    assert str(tmp_path) not in path.read_text(encoding="utf-8")


@linux_only
def test_sections_are_merged_into_one_result_and_a_failure_gives_status_1(tmp_path: Path) -> None:
    path = tmp_path / "faults.json"
    before = {"cases": 7, **dict.fromkeys(INTOLERABLE, 0), "hangs": 2}
    path.write_text(json.dumps({"sections": {"kills": before}}), encoding="utf-8")
    ran = call("benchmarks.faults", "--sections", "run_files", "--count", "2", "--write", str(path))
    assert ran.returncode == 0, "what an earlier section found is not this one's"
    result = json.loads(path.read_text(encoding="utf-8"))
    assert list(result["sections"]) == ["kills", "run_files"]
    assert result["totals"]["cases"] == 9
    assert result["totals"]["hangs"] == 2


def test_endings_are_counted_and_listed_with_what_repeats_them() -> None:
    sound, failing = Ending(case=0, what="a", ended="read"), Ending(case=3, what="b", ended="refused")
    failing.fail("hangs", f"{ROOT}/src/x.py took long")
    summary = summarise([failing, sound], seed=5)
    assert summary["cases"] == 2
    assert summary["hangs"] == 1
    assert summary["ended"] == {"read": 1, "refused": 1}
    assert summary["failures"] == [
        {"seed": 5, "case": 3, "what": "b", "kind": "hangs", "message": "./src/x.py took long"}
    ]
    with pytest.raises(ValueError, match="there is no counter 'mishaps'"):
        failing.fail("mishaps", "")


def test_results_name_no_folder_of_this_machine() -> None:
    assert without_paths(f"in {ROOT}/src/a.py") == "in ./src/a.py"
    assert without_paths('File "/' + 'opt/lib/python3/x.py", line 1') == 'File "…/x.py", line 1'


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two updates."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    run_to_end(folder, config(2)).journal.close()
    return folder


def test_a_run_and_its_copy_lose_nothing(whole: Path, tmp_path: Path) -> None:
    assert find_lost_updates(whole, Path(shutil.copytree(whole, tmp_path / "copy"))) == []


@pytest.mark.parametrize(
    ("statement", "difference"),
    [
        ("DELETE FROM updates WHERE number = 1", "updates: [2] instead of [1, 2]"),
        ("UPDATE metrics SET value = value + 1 WHERE number = 2 AND name = 'loss/total'", "update 2: other metrics"),
        ("DELETE FROM trajectories WHERE number = 1 AND rollout = 0", "update 1: other rollouts or credit"),
    ],
)
def test_an_update_that_is_missing_or_different_is_lost(
    whole: Path, tmp_path: Path, statement: str, difference: str
) -> None:
    other = Path(shutil.copytree(whole, tmp_path / "copy"))
    with Journal(other / "journal.sqlite") as journal:
        journal._database.execute(statement)
        journal._database.commit()
    assert difference in find_lost_updates(whole, other)


def test_other_weights_are_lost_updates(whole: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(whole, tmp_path / "copy"))
    path = other / "checkpoints" / "0002" / "model.safetensors"
    weights = load_file(path)
    weights["model.norm.weight"][0] += 1e-6
    save_file(weights, path, metadata={"format": "pt"})
    assert find_lost_updates(whole, other) == ["weights: model.safetensors"]


@pytest.mark.parametrize(
    ("deed", "place", "happened", "expected"),
    [
        ("raise", "act", True, {"silent_successes"}),
        ("raise", "act", False, set()),
        ("np.float32", "reward", True, set()),
        ("a text", "success", True, {"silent_successes"}),
    ],
)
def test_a_fault_that_is_not_recorded_is_a_silent_success(
    whole: Path, tmp_path: Path, deed: str, place: str, happened: bool, expected: set[str]
) -> None:
    shutil.copytree(whole, tmp_path / "run")
    if happened:
        (tmp_path / "trace").write_bytes(b".")
    ending: Any = Ending(case=0)
    judge_success(ending, Trouble(place=place, deed=deed, always=False, phase="rollout", workers=0), tmp_path)
    assert {failure.kind for failure in ending.failures} == expected
