"""The variable by which a run's processes know the cluster that they were launched on."""

from __future__ import annotations

import pytest

from groupwise.engines.ray_cluster import VARIABLE, LaunchedOn, read_launched_on
from groupwise.system.errors import ConfigError


def test_what_is_told_is_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert read_launched_on() is None
    for name, value in LaunchedOn("10.0.0.1:6379", 0.25).as_variables().items():
        monkeypatch.setenv(name, value)
    assert read_launched_on() == LaunchedOn("10.0.0.1:6379", 0.25)


@pytest.mark.parametrize("content", ["10.0.0.1:6379", "10.0.0.1:6379 many", "a b c"])
def test_other_content_is_one_sentence(monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    monkeypatch.setenv(VARIABLE, content)
    with pytest.raises(ConfigError) as caught:
        read_launched_on()
    assert str(caught.value) == (
        f"the variable {VARIABLE} is {content!r}, but must have an address and a number of CPUs; unset it and use "
        "`groupwise launch`"
    )
