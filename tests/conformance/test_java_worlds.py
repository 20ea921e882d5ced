"""ScienceWorld's experiments and TextWorldExpress's games keep every rule of environments."""

from __future__ import annotations

import shutil

import pytest

from groupwise.envs import Scienceworld, TextworldExpress, check_environment

GAMES = {
    "coin": TextworldExpress(num_train=4),
    "simonsays": TextworldExpress(game="simonsays", num_train=4, max_steps=10),
    "cookingworld": TextworldExpress(game="cookingworld", num_train=4),
    "sorting": TextworldExpress(game="sorting", num_train=4, max_steps=10),
}


@pytest.fixture(autouse=True)
def _java_is_here() -> None:
    if shutil.which("java") is None:
        pytest.skip("there is no Java here")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", GAMES)
def test_textworld_express_keeps_every_rule(name: str) -> None:
    pytest.importorskip("textworld_express", reason="pip install 'groupwise[textworld_express]' to play its games")
    results = check_environment(GAMES[name], tasks=2)
    assert [(result.rule, result.found) for result in results if result.status != "kept"] == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_scienceworld_keeps_every_rule() -> None:
    pytest.importorskip("scienceworld", reason="pip install 'groupwise[scienceworld]' to play ScienceWorld")
    results = check_environment(Scienceworld(max_steps=12), tasks=1)
    broken = [(result.rule, result.found) for result in results if result.status != "kept"]
    assert [each for each in broken if each[0] != "acts_fast_enough"] == [], "its speed is the simulator's"
