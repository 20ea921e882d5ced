"""Each run file of examples/papers decodes, and has the published values."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from groupwise import methods
from groupwise.training.config.run_file import load_run
from tests.published.run_settings import read_settings
from tests.published.webshop import GIGPO, GRPO, HGPO, Published

ROOT = Path(__file__).parents[2]
PAPERS = ROOT / "examples" / "papers"
PUBLISHED = {"hgpo_webshop_1.5b": HGPO, "gigpo_webshop_1.5b": GIGPO, "grpo_webshop_1.5b": GRPO}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_paper_s_run_file_has_every_published_value(name: str) -> None:
    published = PUBLISHED[name]
    wanted = {row.path: row.value for row in published}
    assert len(wanted) == len(published) > 50
    assert read_settings(PAPERS / f"{name}.toml", wanted) == wanted


@pytest.mark.parametrize("rows", PUBLISHED.values(), ids=PUBLISHED)
def test_every_published_value_names_its_source(rows: list[Published]) -> None:
    assert [row.path for row in rows if "/" not in row.source] == []


def test_grpo_of_the_release_is_gigpo_without_its_state_term() -> None:
    algorithm = load_run(PAPERS / "grpo_webshop_1.5b.toml").algorithm
    released = methods.gigpo(step_weight=0.0, reference=True)
    assert algorithm.loss == released.loss
    assert algorithm.advantage == released.advantage.terms[0].of
