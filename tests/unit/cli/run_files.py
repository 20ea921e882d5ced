"""A run file that takes a second, for the tests of the commands that train."""

from __future__ import annotations

from pathlib import Path

from tests.run_file_sections import TINY_WORD_WORLD

SMALL = f"""
[algorithm]
method = "dr_grpo"
{TINY_WORD_WORLD}heads = 2

[rollout]
max_tokens = 1
group_size = 4

[training]
updates = 2
tasks = 2
checkpoint_every = 1

[evaluation]
split = "train"
tasks = 2
rollouts = 3
temperature = 1.0
"""


def small(folder: Path) -> str:
    """Write the file and return its name."""
    (folder / "small.toml").write_text(SMALL, encoding="utf-8")
    return "small.toml"
