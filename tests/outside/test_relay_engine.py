"""(xi) A package's engine answers out of order through `submit`, with version spans: the same ids as in lock-step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from groupwise.training.config.run_file import load_run
from groupwise.training.loop import train
from groupwise.training.open_run import open_run
from groupwise.training.run import Run
from tests.outside.recorded_runs import rows_of, weights_of
from tests.outside.running import OFTEN_RIGHT, PACKAGES

RUN = (
    OFTEN_RIGHT
    + """
[engine]
kind = "relay_engine:RelayEngine"
in_order = IN_ORDER

[algorithm]
method = "hgpo"
"""
)


def finish(folder: Path, *, in_order: bool, updates: int = 2, resume: bool = False) -> Run:
    file = folder.with_suffix(".toml")
    file.write_text(RUN.replace("IN_ORDER", str(in_order).lower()), encoding="utf-8")
    run = open_run(load_run(file, overrides=[f"training.updates={updates}"]), folder)
    train(run, resume=resume)
    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path, Run]]:
    folder = tmp_path_factory.mktemp("relay")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PACKAGES))
        finish(folder / "in_step", in_order=True)
        yield folder / "in_step", folder / "any", finish(folder / "any", in_order=False)


def spans(row: dict[str, Any]) -> list[int]:
    """The version that sampled each token."""
    return list(row.get("versions") or [row["version"]] * len(row["response_ids"]))


def test_the_same_ids_come_of_either_order(runs: tuple[Path, Path, Run]) -> None:
    in_step, in_any_order, run = runs
    assert run.engine.overtakings > 5, "the order was another one"  # type: ignore[attr-defined]
    assert rows_of(in_any_order) == rows_of(in_step)
    assert weights_of(in_any_order, 2) == weights_of(in_step, 2) != weights_of(in_step, 1)


def test_the_journal_says_which_weights_sampled_which_token(runs: tuple[Path, Path, Run]) -> None:
    _, in_any_order, _ = runs
    rows = rows_of(in_any_order)
    assert {version for row in rows[1] for version in spans(row)} == {0}
    assert not any("versions" in row for row in rows[1])
    for row in rows[2]:
        assert spans(row) == [0, 1][: len(row["response_ids"])]
    assert sum(row.get("versions") == [0, 1] for row in rows[2]) > 10
