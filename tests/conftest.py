"""Hypothesis profiles: `ci` (the default) draws the same examples each time, `dev` draws fresh ones."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Building a table draws many small values, which Hypothesis takes for a slow strategy on a busy machine.
SUPPRESSED = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile(
    "ci", max_examples=50, deadline=None, derandomize=True, database=None, suppress_health_check=SUPPRESSED
)
settings.register_profile("dev", max_examples=25, deadline=None, suppress_health_check=SUPPRESSED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
