"""The settings that the README, Learn and How to name are settings that there are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from groupwise.training.config.schema import make_run_schema
from tests.architecture.markdown import inline_code_of, pages
from tests.architecture.prose import is_plain

SECTIONS = "algorithm|alarms|checkpoints|engine|env|evaluation|model|rewards|rollout|training|warm_start"
SETTING = re.compile(rf"((?:{SECTIONS})(?:\.\w+)+)(?: = .*)?")
NOT_SETTINGS = re.compile(
    r"env\.(?:rollout|history_length|env_name)\b|algorithm\.(?:adv_estimator|norm_adv|gigpo)|.*\.py$"
)
"""Names of other trainers (docs/howto/coming_from.md), and files."""
schema = cache(make_run_schema)


def find_fields(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The fields of a setting, of each kind that it may have."""
    if "$ref" in node:
        yield from find_fields(schema()["definitions"][node["$ref"].rpartition("/")[2]])
    if "properties" in node:
        yield node["properties"]
    for key in ("allOf", "anyOf", "oneOf"):
        for inner in node.get(key, ()):
            yield from find_fields(inner)


def is_setting(name: str) -> bool:
    nodes = [schema()]
    for key in name.split("."):
        nodes = [fields[key] for node in nodes for fields in find_fields(node) if key in fields]
    return bool(nodes)


@pytest.mark.parametrize("page", [page for page in pages() if is_plain(page)])
def test_settings_that_a_page_names_are_there(page: str) -> None:
    pytest.importorskip("torch")
    named = [match[1] for code in inline_code_of(page) if (match := SETTING.fullmatch(code))]
    assert [name for name in named if not NOT_SETTINGS.match(name) and not is_setting(name)] == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [("rollout.group_size", True), ("rollout.history.steps", True), ("rollout.attempts", False), ("env.kinds", False)],
)
def test_settings_that_are_not_there_are_found(name: str, expected: bool) -> None:
    pytest.importorskip("torch")
    assert is_setting(name) is expected
