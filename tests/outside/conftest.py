"""The packages from outside, importable in the test's own process as well."""

from __future__ import annotations

import pytest

from tests.outside.running import PACKAGES


@pytest.fixture(autouse=True)
def _packages_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PACKAGES))
