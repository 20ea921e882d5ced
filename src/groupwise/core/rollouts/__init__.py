"""The rollouts file: recorded steps in a documented, versioned format, read within bounded memory."""

from __future__ import annotations

from groupwise.core.rollouts.header import FORMAT, VERSION
from groupwise.core.rollouts.part import Rollouts
from groupwise.core.rollouts.rollouts_file import RolloutsFile, Source
from groupwise.core.rollouts.row import KEYS, Row
from groupwise.core.rollouts.write import write_rollouts

__all__ = ["FORMAT", "KEYS", "VERSION", "Rollouts", "RolloutsFile", "Row", "Source", "write_rollouts"]
