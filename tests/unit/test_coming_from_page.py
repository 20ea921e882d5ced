"""The page for those who come from elsewhere names settings that there are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from groupwise import methods
from groupwise.parts.algorithm import Algorithm
from groupwise.parts.part import load_catalogue
from groupwise.training.config.run_config import RunConfig

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "coming_from.md").read_text(encoding="utf-8")
ROWS = [line.split("|")[2] for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| TRL")]
PATHS = sorted({path for cell in ROWS for path in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)", cell)})
SECTIONS = {"algorithm", "env", "model", "engine", "rollout", "training", "evaluation", "rewards", "trackers"}


def find_fields(kind: Any) -> set[str]:
    """The settings of a section, and of every part that can stand there."""
    return set(getattr(kind, "model_fields", {}))


def test_there_are_paths_to_look_at() -> None:
    assert len(PATHS) > 20


@pytest.mark.parametrize("path", PATHS)
def test_a_setting_that_the_page_names_is_one(path: str) -> None:
    section, name, *_ = path.split(".")
    assert section in SECTIONS
    if section == "algorithm":
        options = {option for method in methods.names() for option in methods.summary(method).options}
        assert name in options | {"method"} | set(Algorithm.model_fields)
    elif section == "env":
        assert name in {"kind", "max_steps"}
    elif section in ("model", "engine"):
        assert name == "kind" or name in set().union(*map(find_fields, load_catalogue(section).values()))
    else:
        annotation = RunConfig.model_fields[section].annotation
        assert name in find_fields(annotation)
