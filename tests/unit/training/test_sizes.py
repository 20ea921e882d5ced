"""What a run takes: the engine's own weights and its keys and values."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from groupwise import recipes  # noqa: E402
from groupwise.training.doctor import hardware  # noqa: E402
from groupwise.training.doctor.hardware import Gpu  # noqa: E402
from groupwise.training.doctor.sizes import estimate_sizes  # noqa: E402
from groupwise.training.run_config import RunConfig  # noqa: E402
from tests.unit.training.runs import small_config  # noqa: E402

TOKEN = 2 * 16
"""Numbers that a token's keys and values are, in one layer of 16 units."""


def config(*, device: str = "auto", **engine: Any) -> RunConfig:
    return RunConfig.model_validate({**dict(small_config()), "engine": engine, "device": device})


@pytest.fixture(autouse=True)
def _two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU of ten million bytes, and one of twenty."""
    gpus = [Gpu(name="small", free=1.0, memory=size, has_bfloat16=True) for size in (10e6, 20e6)]
    monkeypatch.setattr(hardware, "list_gpus", lambda: gpus)


def test_the_engines_weights_are_counted_in_its_precision() -> None:
    whole, half = (estimate_sizes(config(device="cpu", precision=each)) for each in ("float32", "bfloat16"))
    assert (whole.engine, half.engine) == (whole.parameters * 4, whole.parameters * 2)
    assert whole.memory - half.memory == whole.parameters * 2


def test_a_reference_that_only_a_measure_asks_is_counted() -> None:
    runs = [
        RunConfig.model_validate({**dict(small_config()), "algorithm": recipes.rloo(kl_in_reward=weight)})
        for weight in (0.0, 0.03)
    ]
    without, with_it = (estimate_sizes(run) for run in runs)
    assert with_it.memory - without.memory == without.parameters * 4


@pytest.mark.parametrize(
    ("device", "engine", "bytes_of_keys_and_values"),
    [
        ("auto", {"memory": 0.3}, 3e6),
        ("cuda", {"memory": 0.2}, 2e6),
        ("cuda:1", {"memory": 0.3}, 6e6),
        ("cuda:2", {"memory": 0.3}, 0),
        ("cpu", {"memory": 0.3}, 0),
        ("cuda", {"memory": 0.3, "decoding": "eager"}, 0),
    ],
)
def test_keys_and_values_may_take_their_share_of_the_gpu(
    device: str, engine: dict[str, Any], bytes_of_keys_and_values: float
) -> None:
    run = config(device=device, rows=4096, **engine)
    sizes = estimate_sizes(run)
    assert sizes.engine == sizes.parameters * 4 + bytes_of_keys_and_values
    nowhere = estimate_sizes(config(device="cpu"))
    assert sizes.memory == nowhere.memory + bytes_of_keys_and_values


@pytest.mark.parametrize(("precision", "width"), [("float32", 4), ("bfloat16", 2)])
def test_keys_and_values_of_few_rows_are_no_more_than_the_model_can_read(precision: str, width: int) -> None:
    run = config(rows=3, precision=precision)
    context = run.model.context  # type: ignore[attr-defined]
    sizes = estimate_sizes(run)
    assert sizes.engine == sizes.parameters * width + 3 * context * TOKEN * width
