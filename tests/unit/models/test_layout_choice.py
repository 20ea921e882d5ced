"""Which layout a model gets: packs where it runs them exactly, padded rows with a warning where it does not."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from groupwise.data.samples import Sample
from groupwise.learner.config import LearnerConfig
from groupwise.models import forward as logps
from groupwise.models.forward import Forward, compute_token_logps, find_packing_fault
from groupwise.models.pack import Pack, PaddedRows
from tests.equivalence.models import build
from tests.equivalence.rollouts import make_tangled_samples


def lay_out(model: Any, *, token_budget: int) -> list[Pack | PaddedRows]:
    samples = make_tangled_samples()
    return Forward(model, LearnerConfig()).lay_out(samples, token_budget=token_budget, unit="sample")


def test_a_sound_model_gets_packs() -> None:
    model = build("llama")
    layouts = lay_out(model, token_budget=60)
    assert find_packing_fault(model, longest=60) is None
    assert all(isinstance(layout, Pack) for layout in layouts)
    assert sum(layout.raw_tokens for layout in layouts) > 1.3 * sum(map(len, layouts))


def test_a_window_that_is_too_short_gets_rows_and_a_warning() -> None:
    model = build("gemma3", sliding_window=8)
    with pytest.warns(
        UserWarning, match=r"attention window of 8 tokens.*training continues with padded rows"
    ) as warned:
        layouts = lay_out(model, token_budget=60)
    assert len(warned) == 1
    assert_padded(layouts, make_tangled_samples())
    assert all(len(layout) <= 60 for layout in layouts)


def assert_padded(layouts: Sequence[Pack | PaddedRows], samples: Sequence[Sample]) -> None:
    """Every sample that trains has its place in some padded rows, once."""
    assert all(isinstance(layout, PaddedRows) for layout in layouts)
    members = sorted(int(number) for layout in layouts for number in layout.members)
    assert members == [number for number, sample in enumerate(samples) if sample.num_trained]


def test_a_model_that_ignores_positions_is_found_out() -> None:
    model = build("llama")
    body, forward = model.model, model.model.forward  # type: ignore[union-attr]
    body.forward = lambda position_ids=None, **inputs: forward(**inputs)  # type: ignore[union-attr, operator]
    body.forward.__signature__ = inspect.signature(forward)  # type: ignore[union-attr]
    fault = find_packing_fault(model, longest=20)
    assert fault is not None
    assert "does not run packed" in fault
    with pytest.warns(UserWarning, match="padded rows"):
        (rows, *_) = lay_out(model, token_budget=1000)
    assert torch.isfinite(compute_token_logps(model, rows)[0]).all()


def test_a_kernel_that_fails_costs_the_packs_not_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: object, **__: object) -> None:
        raise RuntimeError("no kernel image is available\nfor execution on the device")

    monkeypatch.setattr(logps, "make_pack_inputs", break_down)
    with pytest.warns(UserWarning, match=r"does not run packed \(no kernel image is available\).*padded rows"):
        layouts = lay_out(build("llama"), token_budget=60)
    assert_padded(layouts, make_tangled_samples())


def test_memory_that_runs_out_is_not_taken_for_a_model_that_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(logps, "make_pack_inputs", full)
    with pytest.raises(torch.OutOfMemoryError):
        lay_out(build("llama"), token_budget=60)
