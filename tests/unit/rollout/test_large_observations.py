"""An observation of a megabyte ends its own rollout with one sentence; the others go on."""

from __future__ import annotations

from typing import Any

import pytest

from groupwise.envs.plain_records import MAX_RECORD_CHARACTERS
from groupwise.rollout.environment_runner import Fault, InProcess
from groupwise.rollout.worker_pool import Workers
from tests.unit.rollout.verbose import Verbose, task

BESIDE = len("listen") + 2
"""Characters of the goal and the listed actions."""
MESSAGE = "EnvironmentFault: an observation has 1,048,584 characters, 262,144 at most; shorten it"


@pytest.mark.parametrize("workers", [0, 1])
def test_a_megabyte_is_a_fault_of_its_rollout_alone(workers: int) -> None:
    with Workers(Verbose(), num=1, timeout=10.0) if workers else InProcess(Verbose()) as host:
        shown: dict[int, Any] = dict(host.open({0: task(3), 1: task(2**20), 2: task(MAX_RECORD_CHARACTERS - BESIDE)}))
        assert shown[0].text == "xxx"
        assert isinstance(shown[1], Fault)
        assert (shown[1].reason, shown[1].message) == ("error", MESSAGE)
        assert len(shown[2].text) == MAX_RECORD_CHARACTERS - BESIDE, "as much as is allowed"
        acted: dict[int, Any] = dict(host.act({0: "4", 2: str(2**20)}))
        assert acted[0].observation.text == "xxxx"
        assert acted[2].message == MESSAGE
        assert dict(host.act({0: "1"}))[0].observation.text == "x"  # type: ignore[union-attr]
