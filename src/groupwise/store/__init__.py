"""What is on the disk: the journal, run folder, lock and checkpoint files of a run; rollout files of any format."""

from __future__ import annotations

from groupwise.store.rollout_lines import FORMAT, VERSION
from groupwise.store.rollout_rows import KEYS, RolloutRow
from groupwise.store.rollouts_file import RolloutsChunk, RolloutsFile, write_rollouts

__all__ = ["FORMAT", "KEYS", "VERSION", "RolloutRow", "RolloutsChunk", "RolloutsFile", "write_rollouts"]
