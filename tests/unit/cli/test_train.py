"""`groupwise train`: folders, resuming, stopping, trackers, and what is shown meanwhile."""

from __future__ import annotations

import io
import os
import pty
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

pytest.importorskip("torch")

from groupwise import methods
from groupwise.cli import arguments as run_folders
from groupwise.cli import live
from groupwise.envs import Identity, task_set_hash
from groupwise.store.journal import Journal
from groupwise.training.config.run_file import load_run
from groupwise.training.evaluation.summary import Evaluation
from tests.unit.cli.conftest import Run
from tests.unit.cli.run_files import SMALL, small
from tests.unit.cli.updates import update
from tests.unit.evaluations import make_evaluated

ROOT = Path(__file__).parents[3]


def test_a_run_goes_to_runs_under_the_files_name_and_says_what_to_do_next(groupwise: Run, tmp_path: Path) -> None:
    ran = groupwise("train", small(tmp_path))
    assert ran.status == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[0].startswith("before the first update: success ")
    assert [line[:11] for line in lines[1:3]] == ["update    1", "update    2"]
    assert lines[3].startswith("after update 2: success ")
    assert lines[4:] == [
        "",
        "The run is in runs/small. Inspect it:",
        "  groupwise inspect runs/small",
        "  groupwise report runs/small",
        "  groupwise evaluate runs/small",
    ]
    folder = tmp_path / "runs" / "small"
    assert load_run(folder / "config.toml") == load_run(tmp_path / "small.toml")
    assert '[made_by]\nmethod = "dr_grpo"\n' in (folder / "config.toml").read_text(encoding="utf-8")
    assert groupwise("inspect", "runs/small").out.startswith("small: dr_grpo on identity\n")
    with Journal(folder / "journal.sqlite") as journal:
        assert journal.last_number() == 2
        assert sorted({row.number for row in journal.evaluations()}) == [0, 2]


def test_a_run_with_parts_of_ones_own_is_looked_at_with_trust(
    groupwise: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_words.py").write_text(
        "from groupwise.envs import Identity\n\n\nclass OwnWords(Identity, slot='env'):\n    pass\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    ran = groupwise("train", small(tmp_path), "--set", "env.kind=own_words:OwnWords", "--set", "training.updates=1")
    assert ran.status == 0, ran.err
    hints = [line.split()[1:] for line in ran.out.splitlines() if line.startswith("  groupwise ")]
    assert hints == [[command, "runs/small", "--trust"] for command in ("inspect", "report", "evaluate")]
    assert groupwise(*hints[-1]).status == 0


def test_a_depth_of_history_beside_another_memory_is_noted_in_one_line(groupwise: Run, tmp_path: Path) -> None:
    ran = groupwise("train", small(tmp_path), "--set", "algorithm.method=hgpo", "--set", "training.updates=0")
    assert (ran.status, ran.err) == (0, ""), "prompts show two steps unless told otherwise, and the depth is two"
    other = ("--set", "algorithm.method=hgpo", "--set", "algorithm.depth=1", "--set", "training.updates=0")
    ran = groupwise("train", "small.toml", *other, "--out", "other")
    assert (ran.status, ran.err) == (
        0,
        "note: steps are compared by up to 1 earlier states, while prompts show 2 past steps; the published method "
        "takes the same number for both (algorithm.depth, rollout.history)\n",
    )


def test_a_lag_that_is_refused_is_not_noted_first(groupwise: Run, tmp_path: Path) -> None:
    ran = groupwise("train", small(tmp_path), "--set", "rollout.lag=free")
    assert ran.status == 2
    assert ran.err.startswith('error: rollout.lag: "free" continues rollouts during weight syncs, which')


def test_a_folder_with_a_run_is_refused_before_anything_is_read(groupwise: Run, tmp_path: Path) -> None:
    (tmp_path / "there" / "checkpoints").mkdir(parents=True)
    (tmp_path / "broken.toml").write_text("[")
    ran = groupwise("train", "broken.toml", "--out", "there")
    assert (ran.status, ran.err) == (
        2,
        "error: there already has a run; continue it with --resume, or choose another folder with --out\n",
    )


def test_a_run_file_that_is_not_there_is_named_before_a_folder_that_is(groupwise: Run, tmp_path: Path) -> None:
    small(tmp_path)
    (tmp_path / "runs" / "small" / "checkpoints").mkdir(parents=True)
    ran = groupwise("train", "small.tml")
    assert ran.status == 2
    assert ran.err.startswith("error: small.tml: there is no such file; did you mean small.toml?")


def test_a_run_goes_on_by_its_folder_alone_and_says_what_changed(groupwise: Run, tmp_path: Path) -> None:
    small(tmp_path)
    groupwise("train", "small.toml", "--out", "run")
    ran = groupwise("train", "--resume", "run", "--set", "training.updates=3")
    assert ran.status == 0, ran.err
    assert ran.err == "changed since the run began: training.updates was 2, is 3\nresumes after update 2 of 3\n"
    assert load_run(tmp_path / "run").made_by == {"method": "dr_grpo"}, "the name is carried on"
    assert [line[:11] for line in ran.out.splitlines() if line.startswith("update")] == ["update    3"]
    assert load_run(tmp_path / "run" / "config.toml").training.updates == 3


def test_a_wrong_run_file_stops_before_a_folder_is_made(groupwise: Run, tmp_path: Path) -> None:
    ran = groupwise("train", small(tmp_path), "--set", "training.updtes=3")
    assert ran.status == 2
    assert "training.updtes: unknown setting; did you mean 'updates'?" in ran.err
    assert not (tmp_path / "runs").exists()


def test_another_method_than_the_files_trains_and_says_what_it_leaves_out(groupwise: Run, tmp_path: Path) -> None:
    text = SMALL.replace('method = "dr_grpo"', 'method = "hgpo"\ndepth = 3')
    (tmp_path / "file.toml").write_text(text, encoding="utf-8")
    options = ("--set", "algorithm.method=grpo", "--unset", "training.updates", "--set", "training.updates=1")
    ran = groupwise("train", "file.toml", *options)
    assert ran.status == 0, ran.err
    assert "note: the method 'grpo' does not have algorithm.depth: left out" in ran.err.splitlines()
    config = load_run(tmp_path / "runs" / "file")
    assert (config.algorithm, config.training.updates) == (methods.grpo(), 1)


def test_a_tracker_by_name_logs_and_is_kept_in_the_config(groupwise: Run, tmp_path: Path) -> None:
    ran = groupwise("train", small(tmp_path), "--tracker", "csv")
    assert ran.status == 0, ran.err
    folder = tmp_path / "runs" / "small"
    rows = (folder / "metrics.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["update", "0", "1", "2"]
    assert [type(tracker).__name__ for tracker in load_run(folder / "config.toml").trackers] == ["Csv"]


def test_an_absent_tracker_stops_before_a_folder_is_made(
    groupwise: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupwise.training.trackers.find_spec", lambda name: None)
    ran = groupwise("train", small(tmp_path), "--tracker", "mlflow")
    said = "the tracker 'mlflow' needs the package mlflow, which is not installed: pip install 'groupwise[mlflow]'"
    assert ran.err == f"error: {said}\n"
    assert not (tmp_path / "runs").exists()


def test_a_run_that_is_refused_leaves_no_folder(groupwise: Run, tmp_path: Path) -> None:
    ran = groupwise("train", small(tmp_path), "--set", "task_set=nowhere.json")
    assert (ran.status, ran.err) == (
        2,
        f"error: {tmp_path}/nowhere.json: there is no such file; make it with `groupwise tasks ENV --out "
        f"{tmp_path}/nowhere.json`\n",
    )
    ran = groupwise("train", "small.toml", "--set", "device=nonsense")
    assert ran.status == 2
    assert not (tmp_path / "runs" / "small").exists()


def test_a_tracker_that_cannot_start_leaves_no_folder(
    groupwise: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unable(*args: Any, **kwargs: Any) -> None:
        raise OSError("no dashboard")

    monkeypatch.setattr("groupwise.training.trackers.Csv.start", unable)
    ran = groupwise("train", small(tmp_path), "--tracker", "csv")
    assert (ran.status, ran.err) == (
        2,
        "error: the tracker 'csv' cannot be started (OSError: no dashboard); fix that, or leave it out\n",
    )
    assert not (tmp_path / "runs" / "small").exists()


def test_a_folder_that_was_there_stays_when_a_run_is_refused(groupwise: Run, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    ran = groupwise("train", small(tmp_path), "--out", "mine", "--set", "device=nonsense")
    assert ran.status == 2
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_a_finished_run_says_so_and_does_nothing(
    groupwise: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groupwise("train", small(tmp_path), "--out", "run")

    def never(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a finished run was opened")

    monkeypatch.setattr("groupwise.training.open_run.open_run", never)
    said = "run is finished: 2 of {} updates; to continue, raise the limit with --set training.updates=N\n"
    assert groupwise("train", "--resume", "run").out == said.format(2)
    # Of the evaluation before the updates were fewer nothing is missing either.
    ran = groupwise("train", "--resume", "run", "--set", "training.updates=1")
    assert (ran.err, ran.out) == (
        "",
        "run already has 2 updates, more than 1; nothing was changed; to continue, raise the limit with --set "
        "training.updates=N\n",
    )
    assert load_run(tmp_path / "run" / "config.toml").training.updates == 2


def test_a_run_that_lacks_its_last_evaluation_is_not_finished(groupwise: Run, tmp_path: Path) -> None:
    groupwise("train", small(tmp_path), "--out", "run", "--set", "evaluation.tasks=0")
    ran = groupwise("train", "--resume", "run", "--set", "evaluation.tasks=2")
    assert ran.status == 0, ran.err
    assert [line[:23] for line in ran.out.splitlines() if "success" in line] == ["after update 2: success"]


def test_a_run_that_goes_on_with_other_tasks_says_so(groupwise: Run, tmp_path: Path) -> None:
    groupwise("train", small(tmp_path), "--out", "run")
    ran = groupwise("train", "--resume", "run", "--set", "training.updates=3")
    assert ran.status == 0
    assert "task_set was" not in ran.err
    database = sqlite3.connect(tmp_path / "run" / "journal.sqlite")
    with database:
        database.execute("UPDATE about SET value = ? WHERE key = 'task_set train'", ("0" * 64,))
    database.close()
    ran = groupwise("train", "--resume", "run", "--set", "training.updates=4")
    now = task_set_hash(Identity(num_words=4, length=1).task_set("train"))[:12]
    assert f"changed since the run began: the train task set was 000000000000, is {now}\n" in ran.err


def test_an_interrupt_says_how_to_go_on_and_leaves_status_130(
    groupwise: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("groupwise.training.loop.train", interrupt)
    ran = groupwise("train", small(tmp_path), "--out", "my run")
    assert (ran.status, ran.err) == (130, "stopped; resume with: groupwise train --resume 'my run'\n")


def test_without_the_trainer_one_sentence_says_what_to_install(groupwise: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_folders, "find_spec", lambda name: None if name in ("torch", "peft") else object())
    ran = groupwise("train", "small.toml")
    assert (ran.status, ran.err) == (2, "error: this command needs torch, peft: pip install 'groupwise[train]'\n")


def evaluation(number: int) -> Evaluation:
    row = make_evaluated(number=number, success=0.0, outcome=0.0)
    return Evaluation.from_rows([row])


def draw(task_set: live.LiveDisplay, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(task_set)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_the_task_set_shows_progress_stage_curves_and_the_last_lines() -> None:
    task_set = live.LiveDisplay("runs/[x]", updates=40)
    task_set.on_stage("warm start", 0)
    task_set.on_warm_start_epoch([3.0], 2)
    assert "warm start, epoch 1 of 2 done, loss 3.000" in draw(task_set)
    task_set.on_warm_start([3.0, 0.5])
    task_set.on_evaluation(evaluation(0))
    for number in range(1, 11):
        task_set.on_update(update(number, number / 10))
    task_set.on_stage("learn", 11)
    shown = draw(task_set)
    assert "runs/[x]" in shown
    assert "update 10 of 40" in shown
    assert "2 min 0 s left" in shown  # 30 updates of 4 s
    assert "learn 0 s (last update: rollout 3.00 s  learn 1.00 s)" in shown
    assert "success ▁▂▃▄▅▅▆▇██ 1.000" in shown
    assert "return  ▁▁▂▃▄▅▆▇██ 2.000" in shown
    assert "warm start: loss 3.000 to 0.500 over 2 epochs" in shown
    assert "before the first update: success 0.0 % [0.0, 79.3]" in shown
    assert [f"update   {number:2d}  success" in shown for number in (5, 6, 10)] == [False, True, True]
    assert task_set.summary()[-1].startswith("update   10")
    assert len(task_set.summary()) == 3


def test_the_task_set_of_a_run_that_has_not_begun_is_drawn_and_fits_a_narrow_terminal() -> None:
    task_set = live.LiveDisplay("runs/x", updates=0)
    assert "update 0 of 0" in draw(task_set)
    for number in range(1, 300):
        task_set.on_update(update(number, 0.5))
    assert max(len(line) for line in draw(task_set, width=60).splitlines()) <= 60


def test_a_long_curve_is_averaged_and_a_flat_one_is_drawn_at_the_bottom() -> None:
    assert live.draw_sparkline([0.0] * 50 + [1.0] * 50, 0.0, 1.0, width=4) == "▁▁██"
    assert live.draw_sparkline([0.0, 1.0] * 50, 0.0, 1.0, width=2) == "▅▅"
    assert live.draw_sparkline([2.0, 2.0], 2.0, 2.0) == "▁▁"


def on_a_terminal(folder: Path, code: str) -> tuple[int, str]:
    """Run code with its output on a terminal; exit status and what the terminal got."""
    mine, theirs = pty.openpty()
    env = os.environ | {"PYTHONPATH": str(ROOT / "src"), "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"}
    child = subprocess.Popen([sys.executable, "-c", code], cwd=folder, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    got = b""
    while True:
        try:
            piece = os.read(mine, 65536)
        except OSError:  # the terminal is gone: nobody holds its other end any more
            break
        if not piece:
            break
        got += piece
    os.close(mine)
    return child.wait(), got.decode()


SCREEN = """
import sys
sys.path.insert(0, {root!r})
from tests.unit.cli.updates import update
from groupwise.cli.live import show_live
with show_live("runs/x", 4, plain={plain}) as screen:
    for number in (1, 2):
        screen.on_stage("learn", number)
        screen.on_update(update(number, 0.5))
    {end}
"""


def test_on_a_terminal_the_task_set_is_drawn_and_an_error_follows_it_whole(tmp_path: Path) -> None:
    status, got = on_a_terminal(
        tmp_path, SCREEN.format(root=str(ROOT), plain=False, end="raise RuntimeError('x' * 99)")
    )
    assert status == 1
    assert "update 2 of 4" in got
    assert got.count("\x1b[?25l") == got.count("\x1b[?25h") == 1  # the cursor was hidden, and is back
    after = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", got[got.rindex("\x1b[2K") :]).replace("\r\n", "\n")
    assert after.startswith("update    2  success 0.500  return 1.000  4.00 s\nTraceback (most recent call last):\n")
    assert after.rstrip().endswith(f"RuntimeError: {'x' * 99}")


def test_plain_lines_on_a_terminal_move_no_cursor(tmp_path: Path) -> None:
    status, got = on_a_terminal(tmp_path, SCREEN.format(root=str(ROOT), plain=True, end="pass"))
    assert status == 0
    assert "\x1b[?25l" not in got
    assert "\x1b[1A" not in got
    assert [line[:11] for line in got.splitlines()] == ["update    1", "update    2"]
