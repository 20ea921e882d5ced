"""Every run file of the examples says what it is; every method and environment has one.

That they run, and to what they come, is in tests/equivalence/test_goldens.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from groupwise.parts.part import load_catalogue

pytest.importorskip("torch")

from groupwise import methods
from tests.equivalence.example_runs import EXAMPLES, FILES, content_of, name_of


def test_every_environment_and_every_method_has_an_example() -> None:
    shown = {content_of(path)["env"]["kind"] for path in EXAMPLES.glob("*.toml")}
    assert shown >= set(load_catalogue("env")) - {"household"}  # the demonstration of the whole
    assert {path.stem for path in EXAMPLES.glob("methods/*.toml")} == set(methods.names())


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_it_says_what_it_shows_and_how_to_run_it(path: Path) -> None:
    first, *rest = path.read_text(encoding="utf-8").splitlines()
    assert first.startswith("# ")
    assert any(line.startswith(f"#     groupwise train examples/{name_of(path)}.toml") for line in rest)


ON_THEIR_OWN = {"hdpo"}
"""Methods that teach only where others do not: economy of searches needs a world with searches, and a start that is
right often, else it prefers lucky guesses."""
ASTRAY = (
    "cispo",
    "dpo",
    "mc_grpo",
    "r3",
    "reg_grpo",
    "salt",
    "sapo",
    "simpo",
    "step_apo",
    "step_grpo",
    "turn_ppo",
    "w_dpo",
)
"""Methods that went astray, or gained nothing, with the step size of the others."""
OWN_LEARNER: dict[str, dict[str, Any]] = {
    "seeupo": {"minibatches": 1},
    **{name: {"learning_rate": 2e-4} for name in ASTRAY},
    "rpo": {"learning_rate": 5e-5},
}
"""A method that divides an update into stages by itself, an optimizer step each; methods that take smaller steps."""


@pytest.mark.parametrize(
    "path", [path for path in sorted(EXAMPLES.glob("methods/*.toml")) if path.stem not in ON_THEIR_OWN], ids=name_of
)
def test_methods_differ_in_their_algorithm_alone(path: Path) -> None:
    content, first = content_of(path), content_of(EXAMPLES / SHOWN_ON.get(path.stem, "methods/grpo.toml"))
    assert content.pop("algorithm")["method"] == path.stem
    del first["algorithm"]
    first["rollout"] |= OWN_ROLLOUT.get(path.stem, {})
    first["training"]["learner"] |= OWN_LEARNER.get(path.stem, {})
    if path.stem in OWN_REWARDS:
        first["rewards"] = OWN_REWARDS[path.stem]
    assert content == first


SHOWN_ON = {
    **dict.fromkeys(("copo", "gardo", "gtpo", "d3s", "dcpo", "verl", "after_dsdr"), "worked_sums.toml"),
    **dict.fromkeys(("spo_chain", "spae", "after_vsrm", "bcpg_nsa"), "worked_sums.toml"),
    "rank_grpo": "ranked_lists.toml",
    "after_webstar": "household.toml",
    "prorag": "lookup.toml",
}
"""Methods that give credit inside an answer, or to its steps: they are shown where there is something to tell apart."""
OWN_REWARDS: dict[str, Any] = {
    "dapo": [{"kind": "environment"}, {"kind": "overlong", "limit": 4, "buffer": 2}],
    "prorag": [{"kind": "graded"}, {"kind": "format", "kept": 1.0, "broken": -1.0, "per": "whole"}],
}
"""What two methods are published with beside what the environment pays."""
OWN_ROLLOUT: dict[str, dict[str, Any]] = {
    "mc_grpo": {"group_size": 9},
    "dapo": {"group_size": 8, "plan": {"kind": "top_up", "rounds": 4}, "max_tokens": 4},
}
"""What two methods ask of the rollout: an odd number of rollouts; dynamic sampling, and room to be overlong in."""
