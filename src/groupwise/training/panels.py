"""The panels of a run: which tasks it trains and is evaluated on, by their hashes."""

from __future__ import annotations

from pathlib import Path

from groupwise.core.parts.part import Part
from groupwise.envs.kit.panel import panel_hash
from groupwise.envs.kit.panel_file import PanelFile
from groupwise.envs.part_queries import ask_panel
from groupwise.training.run_config import RunConfig


def check_panels(config: RunConfig) -> dict[str, str]:
    """The hash of each panel that the run uses, whole, by split; raise if the run's panel file says otherwise."""
    env = config.env
    if config.panel:
        assert isinstance(env, Part), "the slot is filled by parts"
        PanelFile.read(Path(config.panel)).check(env, name=config.panel)
    splits = ["train", config.evaluation.split] if config.evaluation.tasks else ["train"]
    return {split: panel_hash(ask_panel(env, split)) for split in splits}
