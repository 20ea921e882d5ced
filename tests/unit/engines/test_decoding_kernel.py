"""The kernel of decoding is softmax attention over each row's own columns, as Triton's interpreter computes it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from groupwise.engines.static_cache.kernels import choose_num_splits
from tests.unit.engines.kernel_cases import CASES


@pytest.fixture(scope="module")
def interpreted() -> Any:
    """What every case gives, in a process of its own: whether Triton interprets is settled when it is imported."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "tests.unit.engines.kernel_cases"]
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


@pytest.mark.parametrize("name", CASES)
def test_it_is_softmax_attention_over_the_rows_own_columns(interpreted: Any, name: str) -> None:
    assert interpreted[name]["gap"] < 1e-5


@pytest.mark.parametrize(
    ("programs", "width", "parts"),
    [(768, 384, 1), (256, 4096, 1), (192, 384, 2), (48, 384, 4), (48, 1024, 8), (3, 8192, 16), (3, 128, 2), (3, 64, 1)],
)
def test_columns_are_split_where_rows_are_few(programs: int, width: int, parts: int) -> None:
    assert choose_num_splits(programs, width) == parts
