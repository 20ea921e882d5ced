"""The settings that the README, Learn and How to name are settings that there are."""

from __future__ import annotations

import re

import pytest

from tests.architecture.markdown import inline_code_of, pages
from tests.architecture.prose import is_plain
from tests.architecture.settings import is_setting

SECTIONS = "algorithm|alarms|checkpoints|engine|env|evaluation|model|rewards|rollout|training|warm_start"
SETTING = re.compile(rf"((?:{SECTIONS})(?:\.\w+)+)(?: = .*)?")
NOT_SETTINGS = re.compile(
    r"env\.(?:rollout|history_length|env_name)\b|algorithm\.(?:adv_estimator|norm_adv|gigpo)|.*\.py$"
)
"""Names of other trainers (docs/howto/coming_from.md), and files."""


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
