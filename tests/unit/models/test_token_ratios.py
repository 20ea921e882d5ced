"""What sharing saves, against the closed forms of one prompt with G responses."""

from __future__ import annotations

import numpy as np
import pytest

from groupwise.models.forest import merge_sequences

LINEAR = 24_576
"""Work of a token that does not depend on its position, in units of one attended pair (a 7B model)."""


@pytest.mark.parametrize(
    ("prompt", "response", "rollouts", "attention", "pointwise", "combined", "speed_up"),
    [
        (4096, 1024, 4, 0.5200, 0.4000, 0.4207, 2.377),
        (8192, 1024, 4, 0.4074, 0.3333, 0.3535, 2.829),
        (8192, 1024, 8, 0.3086, 0.2222, 0.2458, 4.068),
        (16384, 512, 16, 0.1185, 0.0909, 0.1021, 9.791),
        (512, 4096, 8, 0.9892, 0.9028, 0.9164, 1.091),
        (1024, 1024, 8, 0.7812, 0.5625, 0.5793, 1.726),
    ],
)
def test_one_prompt_with_many_responses(
    prompt: int,
    response: int,
    rollouts: int,
    attention: float,
    pointwise: float,
    combined: float,
    speed_up: float,
) -> None:
    trunk = list(range(prompt))
    merged = merge_sequences([trunk + [number] * response for number in range(rollouts)])
    # A token at depth d looks at d + 1 tokens; counted as a square, a row of length L costs L x L.
    tokens, pairs = len(merged), int(np.sum(2 * merged.depth + 1))
    raw_tokens, raw_pairs = len(merged.node), rollouts * (prompt + response) ** 2
    work, raw_work = LINEAR * tokens + pairs, LINEAR * raw_tokens + raw_pairs
    assert pairs / raw_pairs == pytest.approx(attention, abs=5e-5)
    assert tokens / raw_tokens == pytest.approx(pointwise, abs=5e-5)
    assert work / raw_work == pytest.approx(combined, abs=5e-5)
    assert raw_work / work == pytest.approx(speed_up, abs=5e-4)
    assert merged.token_ratio == raw_tokens / tokens
