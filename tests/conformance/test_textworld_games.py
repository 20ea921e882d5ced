"""TextWorld's generated games keep every rule of environments."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupwise.envs import Textworld, check_environment

PARTS = {
    "coin_collector": Textworld(level=3, num_train=2, max_steps=12),
    "treasure_hunter": Textworld(game="treasure_hunter", level=3, num_train=2, max_steps=10),
    "cooking": Textworld(game="cooking", num_train=2, max_steps=10, tell_way=True),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PARTS)
def test_every_rule_is_kept(name: str, tmp_path: Path) -> None:
    pytest.importorskip("textworld", reason="pip install 'groupwise[textworld]' to play TextWorld's games")
    part = PARTS[name].model_copy(update={"path": str(tmp_path)})
    results = check_environment(part, tasks=2)
    assert [(result.rule, result.found) for result in results if result.status != "kept"] == []
