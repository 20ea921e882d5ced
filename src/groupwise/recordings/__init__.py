"""The rollouts file: recorded steps in a documented, versioned format, read within bounded memory."""

from __future__ import annotations

from groupwise.recordings.header import FORMAT, VERSION
from groupwise.recordings.rollouts_chunk import RolloutsChunk
from groupwise.recordings.rollouts_file import RolloutsFile, Source
from groupwise.recordings.row import KEYS, Row
from groupwise.recordings.write import write_rollouts

__all__ = ["FORMAT", "KEYS", "VERSION", "RolloutsChunk", "RolloutsFile", "Row", "Source", "write_rollouts"]
