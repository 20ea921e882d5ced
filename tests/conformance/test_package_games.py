"""Games of textarena and GEM keep every rule of environments."""

from __future__ import annotations

from typing import Any

import pytest

from groupwise.envs import Gem, Textarena, check_environment

MOVES = ("up", "down", "left", "right")
FEW: dict[str, Any] = {"num_train": 12, "num_validation": 2, "num_test": 2}
TEXTARENA = {
    "FrozenLake": Textarena(id="FrozenLake-v0", actions=MOVES, **FEW),
    "FifteenPuzzle": Textarena(id="FifteenPuzzle-v0", actions=MOVES, max_steps=12, **FEW),
    "2048": Textarena(id="2048-v0", actions=MOVES, words=("4x4",), max_steps=8, **FEW),
    "GuessTheNumber": Textarena(id="GuessTheNumber-v0", kwargs={"max_number": 60}, **FEW),
    "Mastermind": Textarena(id="Mastermind-v0", **FEW),
    "LightsOut": Textarena(id="LightsOut-v0", words=("5x5",), **FEW),
}
GEM = {
    "FifteenPuzzle": Gem(id="game:FifteenPuzzle-v0-easy", kwargs={"num_rows": 3}, actions=MOVES, **FEW),
    "2048": Gem(id="game:Game2048-v0-easy", actions=MOVES, max_steps=8, **FEW),
    "Sokoban": Gem(id="game:Sokoban-v0-easy", actions=MOVES, max_steps=8, **FEW),
    "Mastermind": Gem(id="game:Mastermind-v0-easy", **FEW),
    "Minesweeper": Gem(id="game:Minesweeper-v0-easy", seeds_differ=True, **FEW),
}


def check(part: Textarena | Gem) -> None:
    results = check_environment(part, tasks=2)
    assert [(result.rule, result.found) for result in results if result.status == "broken"] == []
    untested = {result.rule for result in results if result.status == "not tested"}
    assert untested == {"expert_succeeds"} | (set() if part.actions else {"admissible_actions_are_accepted"})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", TEXTARENA)
def test_textarena_keeps_every_rule(name: str) -> None:
    pytest.importorskip("textarena", reason="pip install 'groupwise[textarena]' to play its games")
    check(TEXTARENA[name])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", GEM)
def test_gem_keeps_every_rule(name: str) -> None:
    pytest.importorskip(
        "gem.envs.registration", reason="pip install 'groupwise[gem]', then --no-deps gem-llm, to play its games"
    )
    check(GEM[name])
