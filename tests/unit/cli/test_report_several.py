"""`groupwise report` with several folders: runs, sweeps, and what is refused in a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from groupwise.store.run_folder import SWEEP_PLAN
from tests.fresh_interpreter import HELP, fresh, without
from tests.unit.cli.conftest import Run
from tests.unit.report.several_runs import write_small_run


def write_sweep(folder: Path, seeds: tuple[int, ...] = (0, 1), *, begun: bool = True) -> Path:
    """The folder of a sweep with two variants."""
    variants = [{"name": name, "choices": {}, "settings": {}} for name in ("slow", "fast")]
    folder.mkdir()
    (folder / SWEEP_PLAN).write_text(
        json.dumps({"schema": 2, "threads": 1, "seeds": seeds, "variants": variants}), encoding="utf-8"
    )
    for seed in seeds if begun else ():
        write_small_run(folder / "slow" / f"seed{seed}", seed=seed)
        write_small_run(folder / "fast" / f"seed{seed}", seed=seed, wins={0: 1, 3: 4})
    return folder


def read_title(page: Path) -> str:
    return page.read_text(encoding="utf-8").partition("<title>")[2].partition("</title>")[0]


def test_several_runs_make_one_page_where_the_user_stands(groupwise: Run, tmp_path: Path) -> None:
    for name in ("grpo", "rloo"):
        write_small_run(tmp_path / name, method=name)
    ran = groupwise("report", "grpo", "rloo")
    assert ran.status == 0, ran.err
    assert ran.out.startswith("wrote report.html (")
    assert read_title(tmp_path / "report.html") == "grpo, rloo: 2 runs"
    assert groupwise("report", "rloo", "grpo", "--out", "other.html").status == 0
    assert read_title(tmp_path / "other.html") == "rloo, grpo: 2 runs"


def test_a_page_that_is_there_is_not_overwritten_unless_it_is_named(groupwise: Run, tmp_path: Path) -> None:
    write_sweep(tmp_path / "sweep")
    folders = [str(folder) for folder in sorted((tmp_path / "sweep").glob("*/seed?"))[:2]]
    (tmp_path / "report.html").write_text("of other runs", encoding="utf-8")
    ran = groupwise("report", *folders)
    assert ran.status == 2
    assert ran.err.strip() == (
        "error: report.html exists already, maybe from other runs; choose another file with --out, or give "
        "--out report.html to replace it"
    )
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == "of other runs"
    assert groupwise("report", *folders, "--out", "report.html").status == 0
    assert (tmp_path / "report.html").stat().st_size > 10_000


def test_one_run_is_reported_as_ever(groupwise: Run, tmp_path: Path) -> None:
    write_small_run(tmp_path / "run")
    assert groupwise("report", "run").status == 0
    assert read_title(tmp_path / "run" / "report.html") == "grpo on household: run"


def test_a_sweep_is_one_page_in_its_folder(groupwise: Run, tmp_path: Path) -> None:
    write_sweep(tmp_path / "sweep")
    assert groupwise("report", "sweep").status == 0
    assert read_title(tmp_path / "sweep" / "report.html") == "slow, fast: sweep"


def test_sweeps_and_runs_are_put_together(groupwise: Run, tmp_path: Path) -> None:
    write_sweep(tmp_path / "one")
    write_sweep(tmp_path / "two", (3,))
    write_small_run(tmp_path / "run", method="rloo")
    assert groupwise("report", "one", "two", "run").status == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert all(f"{name}</span>" in page for name in ("one: slow", "one: fast", "two: slow", "two: fast", "rloo"))


def test_no_torch_is_needed(tmp_path: Path) -> None:
    write_sweep(tmp_path / "sweep")
    shown = fresh(without("torch", "transformers") + HELP.format(arguments=["report", str(tmp_path / "sweep")]))
    assert shown.startswith("wrote ")


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        (
            ("run", "nowhere"),
            "nowhere: there is no such folder; give the folder that `groupwise train --out FOLDER` wrote",
        ),
        (
            ("run", "empty"),
            "empty: not the folder of a run: it has no journal.sqlite; give the folder that `groupwise train --out "
            "FOLDER` wrote",
        ),
        (("run", "run"), "run is given twice; give each run once"),
        (
            ("run", "elsewhere"),
            "run and elsewhere were evaluated on different tasks (split test, hash p and split test, hash q), so "
            "they cannot be compared; report them one by one, or evaluate both on the same tasks",
        ),
        (("unbegun",), "unbegun: no run of the sweep has begun; start them with `groupwise sweep`"),
    ],
)
def test_bad_input_is_one_sentence(groupwise: Run, tmp_path: Path, folders: tuple[str, ...], message: str) -> None:
    write_small_run(tmp_path / "run")
    write_small_run(tmp_path / "elsewhere", method="rloo", task_set="q")
    write_sweep(tmp_path / "unbegun", begun=False)
    (tmp_path / "empty").mkdir()
    ran = groupwise("report", *folders)
    assert (ran.status, ran.err) == (2, f"error: {message}\n")
    assert not (tmp_path / "report.html").exists()
