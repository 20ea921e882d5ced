"""A run that leaves its threads to the machine settles on a number once, and keeps it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise.system import processes as free_cores
from groupwise.training.config.run_config import RunConfig
from groupwise.training.config.run_file import load_run
from groupwise.training.loop import train
from groupwise.training.open_run import open_run, settle_threads
from tests.unit.cli.run_files import small


@pytest.fixture(autouse=True)
def _keep_threads() -> Any:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def make_idle(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    """A machine that has so many cores and does nothing."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(free_cores, "count_usable_cores", lambda: cores)
    monkeypatch.setattr(free_cores, "read_load", lambda: 0.0)


def load(folder: Path, *settings: str) -> RunConfig:
    return load_run(folder / small(folder), overrides=["training.updates=1", *settings])


def test_a_run_keeps_the_number_that_it_began_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = load(tmp_path, "threads=2", "shares_cores=true")
    make_idle(monkeypatch, 1)
    with open_run(config, tmp_path / "run") as run:
        assert (run.config.threads, torch.get_num_threads()) == (1, 1)
        train(run)
    make_idle(monkeypatch, 64)
    assert settle_threads(config, tmp_path / "run").threads == 1
    assert settle_threads(config, tmp_path / "another").threads == 2
    kept = load_run(tmp_path / "run")
    assert (kept.threads, kept.shares_cores) == (1, False)


def test_a_number_that_is_no_limit_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make_idle(monkeypatch, 1)
    assert settle_threads(load(tmp_path, "threads=2"), tmp_path / "run").threads == 2


def test_a_folder_whose_settings_cannot_be_read_is_as_if_there_were_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_idle(monkeypatch, 3)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text("threads = [", encoding="utf-8")
    assert settle_threads(load(tmp_path, "threads=0", "shares_cores=true"), tmp_path / "run").threads == 3


def test_ranks_share_the_cores_of_their_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = load(tmp_path, "threads=0", "shares_cores=true")
    make_idle(monkeypatch, 12)
    for name, value in {"RANK": 1, "WORLD_SIZE": 4, "LOCAL_RANK": 1}.items():
        monkeypatch.setenv(name, str(value))
    assert settle_threads(config, tmp_path / "run").threads == 3
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert settle_threads(config, tmp_path / "run").threads == 6
