"""What a run imports while it opens its model and learns, imported at once: processes that are forked need not do so."""

from __future__ import annotations

import groupwise.config.runs
import groupwise.engines.open_engine
import groupwise.models.tiny
import groupwise.training.follow_run
import groupwise.training.imitation.imitate
import groupwise.training.learner.local  # noqa: F401
