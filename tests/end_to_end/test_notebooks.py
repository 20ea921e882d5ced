"""The notebooks of the examples run from the first cell to the last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.more

pytest.importorskip("torch")
pytest.importorskip("pandas")

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_holds_no_output(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    content = json.loads(notebook.read_text(encoding="utf-8"))
    assert content["nbformat"] == 4
    names: dict[str, Any] = {}
    cells = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    assert cells
    for number, cell in enumerate(cells):
        assert not cell["outputs"], "outputs would be of another machine"
        exec(compile("".join(cell["source"]), f"{notebook.name}, cell {number}", "exec"), names)


def test_the_first_notebook_shows_a_policy_that_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from groupwise import read_run

    notebook = next(path for path in NOTEBOOKS if path.stem == "first_run")
    monkeypatch.chdir(tmp_path)
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {}
    for cell in [cell for cell in cells if cell["cell_type"] == "code"][:2]:
        exec("".join(cell["source"]), names)
    success = list(read_run(names["folder"]).evaluations()["success"])
    assert success[-1] > success[0] + 0.2
