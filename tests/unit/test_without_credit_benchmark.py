"""The benchmark of samples without credit really hears all of them in every other update, and only then."""

from __future__ import annotations

from benchmarks.without_credit import measure


def test_every_other_update_computes_all_samples() -> None:
    result = measure(2, "warm_start.tasks=8", "warm_start.epochs=1", "training.tasks=2", "model.hidden=16")
    every, heard = result["updates"]
    assert every["computed"] == 1.0
    assert heard["computed"] < 1.0  # who has seen eight rollouts solves next to nothing
    assert result["times_faster"] == every["seconds"] / heard["seconds"]
