"""How much is tried: by `make test` a part of everything, by `make test-more` the rest, by `make test-all` all."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatch

import pytest
from hypothesis import HealthCheck, settings

from tests.effort import THOROUGH

# Building a table draws many small values, which Hypothesis takes for a slow strategy on a busy machine.
SUPPRESSED = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile(
    "ci",
    max_examples=50 if THOROUGH else 15,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=SUPPRESSED,
)
settings.load_profile("ci")

MORE = (
    # Scripts under benchmarks/ and docs/, and what they recorded.
    "tests/unit/test_*",
    # The lab.
    "tests/unit/lab/*",
    # Several ranks, servers and runs at once: `make test` has one of each.
    "tests/end_to_end/test_overlap.py",
    "tests/unit/engines/test_load_through.py",
    "tests/unit/engines/test_replica_hand_overs.py",
    "tests/unit/learner/test_replica_weight_check.py",
    "tests/unit/learner/test_sharded_runs.py",
    # Kernels of a GPU, in Triton's interpreter.
    "tests/unit/engines/test_decoding_kernel.py",
    "tests/unit/engines/test_own_layers.py",
    # Adapters of other people's environments and verifiers.
    "tests/conformance/test_*_games.py",
    "tests/conformance/test_*_worlds.py",
    "tests/unit/envs/alfworld/*",
    "tests/unit/envs/bfcl/*",
    "tests/unit/envs/verifier/*",
    "tests/unit/envs/webshop/*",
    "tests/security/test_verifier_boundary.py",
    "tests/unit/envs/test_babyai_environment.py",
    "tests/unit/envs/test_gem.py",
    "tests/unit/envs/test_gymnasium_text.py",
    "tests/unit/envs/test_hugging_face.py",
    "tests/unit/envs/test_java_worlds.py",
    "tests/unit/envs/test_openenv_environment.py",
    "tests/unit/envs/test_reasoning_gym_environment.py",
    "tests/unit/envs/test_sokoban.py",
    "tests/unit/envs/test_textarena.py",
    "tests/unit/envs/test_textworld_environment.py",
)
"""Files whose tests are all marked `more`."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as `more` what `make test` leaves to `make test-more`: files of `MORE`, and cases beyond those of `few`."""
    seen: Counter[tuple[str, str]] = Counter()
    for item in items:
        few = item.get_closest_marker("few")
        if few is not None:
            case = item.nodeid.partition("[")[0], "few"
            seen[case] += 1
            if seen[case] > few.args[0]:
                item.add_marker(pytest.mark.more)
        if any(fnmatch(item.nodeid.partition("::")[0], pattern) for pattern in MORE):
            item.add_marker(pytest.mark.more)
