"""BFCL's tasks, BabyAI's levels and Sokoban's rooms keep every rule of environments."""

from __future__ import annotations

from typing import Any

import pytest

from groupwise.envs import Babyai, Bfcl, Sokoban, check_environment
from groupwise.parts.part import Part

PARTS: dict[str, tuple[str, Part]] = {
    "bfcl": ("bfcl_eval", Bfcl()),
    "bfcl, late functions and values": ("bfcl_eval", Bfcl(categories=("miss_func", "miss_param"))),
    "babyai": ("minigrid", Babyai(num_train=20, num_validation=2, num_test=2)),
    "babyai, doors and keys": (
        "minigrid",
        Babyai(level="BabyAI-UnlockLocal-v0", num_train=20, num_validation=2, num_test=2, goal_in_text=True),
    ),
    "sokoban": ("gym_sokoban", Sokoban(num_train=8, num_validation=1, num_test=2)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PARTS)
def test_every_rule_is_kept(name: str) -> None:
    package, part = PARTS[name]
    pytest.importorskip(package, reason=f"the package {package} is not installed")
    subject: Any = part
    results = check_environment(subject, tasks=6)
    broken = [(result.rule, result.found) for result in results if result.status == "broken"]
    assert broken == []
    untested = {result.rule for result in results if result.status == "not tested"}
    assert untested <= {"admissible_actions_are_accepted"}, "calls cannot be listed"
