"""examples/webshop.toml beside the settings that HGPO released for WebShop: the page lists those that differ."""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from groupwise.methods import METHODS
from groupwise.training.config.run_file import load_run

ROOT = Path(__file__).parents[4]
EXAMPLE = ROOT / "examples" / "webshop.toml"
PAGE = (ROOT / "docs" / "reference" / "envs" / "webshop.md").read_text(encoding="utf-8")
RELEASED = {
    "env.size": "1000",
    "env.goals": "synthetic",
    "env.num_test": 500,
    "env.num_validation": 0,
    "env.is_graded": False,
    "env.success_reward": 10.0,
    "env.max_steps": 30,
    "algorithm.depth": 2,
    "algorithm.alpha": 1.0,
    "algorithm.gamma": 0.95,
    "algorithm.scale": "none",
    "algorithm.episode": False,
    "algorithm.invalid_penalty": 0.1,
    "algorithm.refused_penalty": 0.0,
    "algorithm.reference": True,
    "rollout.history.steps": 2,
    "rollout.template.kind": "published_template",
    "rollout.action_parser.kind": "tagged",
    "rollout.action_parser.fallback": 20,
    "rollout.group_size": 8,
    "rollout.max_tokens": 512,
    "rollout.temperature": 1.0,
    "training.tasks": 16,
    "training.updates": 160,
    "training.learner.optimizer": "adamw",
    "training.learner.learning_rate": 1e-6,
    "training.learner.weight_decay": 0.01,
    "training.learner.max_grad_norm": 1.0,
    "training.learner.passes": 1,
    "evaluation.temperature": 0.4,
    "evaluation.tasks": 256,
    "evaluation.every": 5,
}
"""The released script and configuration of HGPO (arXiv:2602.22817) for WebShop, history of two steps."""


@pytest.fixture
def example() -> dict[str, Any]:
    """The example's settings by their paths, those of its method by the method's own names."""
    pytest.importorskip("torch")
    algorithm = tomllib.loads(EXAMPLE.read_text(encoding="utf-8"))["algorithm"]
    options = inspect.signature(METHODS[algorithm.pop("method")]).parameters
    settings: dict[str, Any] = load_run(EXAMPLE).config()
    settings["algorithm"] = {name: option.default for name, option in options.items()} | algorithm
    by_path = {}
    for path in RELEASED:
        by_path[path] = settings
        for name in path.split("."):
            by_path[path] = by_path[path][name]
    return by_path


def test_the_page_lists_every_setting_that_is_not_as_released(example: dict[str, Any]) -> None:
    table = PAGE.partition("<!-- examples/webshop.toml beside HGPO's release -->\n")[2].partition("\n\n")[0]
    rows = [re.findall(r"`([^`]+)`", row) for row in table.splitlines()[2:]]
    listed = {path: tuple(tomllib.loads(f"value = {value}")["value"] for value in values) for path, *values in rows}
    differing = {path: (value, example[path]) for path, value in RELEASED.items() if value != example[path]}
    assert len(differing) == 10
    assert listed == differing
