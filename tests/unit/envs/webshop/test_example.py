"""examples/webshop.toml beside the settings that HGPO released for WebShop: the page lists those that differ."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.published.run_settings import read_settings
from tests.published.webshop import HGPO

ROOT = Path(__file__).parents[4]
EXAMPLE = ROOT / "examples" / "webshop.toml"
PAGE = (ROOT / "docs" / "reference" / "envs" / "webshop.md").read_text(encoding="utf-8")
NOT_IN_THE_EXAMPLE = (
    *("rollout.max_prompt_tokens", "training.learner.minibatch_samples"),
    # Settings of another template, and a penalty that the example's algorithm does not have.
    *("rollout.template.admissible_item", "rollout.template.admissible_join", "rollout.template.history_line"),
    *("algorithm.loss.penalties.1.kind", "algorithm.loss.penalties.1.weight"),
)


def test_the_page_lists_every_setting_that_is_not_as_released() -> None:
    table = PAGE.partition("<!-- examples/webshop.toml beside HGPO's release -->\n")[2].partition("\n\n")[0]
    rows = [re.findall(r"`([^`]+)`", row) for row in table.splitlines()[2:]]
    listed = {path: tuple(tomllib.loads(f"value = {value}")["value"] for value in values) for path, *values in rows}
    released = {path: value for path, value, _ in HGPO}
    example = read_settings(EXAMPLE, released)
    assert listed == {path: (released[path], value) for path, value in example.items() if value != released[path]}
    assert len(listed) == 20
    assert sorted(released.keys() - example.keys()) == sorted(NOT_IN_THE_EXAMPLE)
