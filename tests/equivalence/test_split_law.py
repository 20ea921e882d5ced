"""The split law, for every loss that the catalogues can make: however an update is laid out and cut, it is one update.

One sample a micro-batch = all in one = packed = padded = prefix-shared, value and gradient, in float64; the gradient is
that of finite differences; a token that does not train changes nothing, whatever it holds, and is in no denominator;
and it never reaches the head. A loss that joins a catalogue is held to all of it without being named here.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from groupwise.data.samples import Sample, count_totals
from groupwise.learner.micro_batches import split_into_stages
from groupwise.losses import OLD_LOGP, REFERENCE_LOGP, TokenColumns
from groupwise.models import forward as logps
from groupwise.models.pack import Pack, PaddedRows, pack, pad_rows, pad_within_budget
from groupwise.parts.part import load_catalogue
from tests.equivalence.catalogue_losses import PIECES, list_losses
from tests.equivalence.method_losses import apart, give_context, pair_up, update
from tests.equivalence.models import VOCABULARY, build
from tests.equivalence.rollouts import make_tangled_samples, with_token_credit
from tests.equivalence.stopped_gradients import STOPPED, HoldingConstants, find_stop
from tests.unit.learner.learners import learner

Layouts = Sequence[Pack | PaddedRows]
LOSSES: dict[str, Any] = list_losses()
every_loss = pytest.mark.parametrize("name", LOSSES)


@functools.cache
def model() -> nn.Module:
    return build("gpt_neox").double()  # the family whose norms do not fall back to float32


@functools.cache
def list_samples() -> list[Sample]:
    """Shared prompts and histories; some samples are of another policy, as replayed ones are, some do not train, and of
    some only a part, whose other tokens hold NaN."""
    samples = [replace(sample, off_policy=sample.trajectory % 4 == 1) for sample in make_tangled_samples()]
    return [with_garbage(sample, math.nan) for sample in with_token_credit(samples)]


def with_garbage(sample: Sample, garbage: float) -> Sample:
    """The sample, with this in place of what its tokens hold that do not train."""
    if sample.trained is None:
        return sample
    assert isinstance(sample.advantage, tuple)
    advantage, logp = (
        tuple(value if trains else garbage for value, trains in zip(values, sample.trained, strict=True))
        for values in (sample.advantage, sample.logp_behaviour)
    )
    return replace(sample, advantage=advantage, logp_behaviour=logp)


def list_layouts(samples: Sequence[Sample], unit: str) -> dict[str, Layouts]:
    return {
        "one a micro-batch": pad_within_budget(samples, token_budget=1, unit=unit),
        "all in one": pad_rows(samples),
        "padded": pad_within_budget(samples, token_budget=80, unit=unit),
        "packed": pack(samples, token_budget=60, share=False, unit=unit),
        "prefix-shared": pack(samples, token_budget=60, gate=0.0, unit=unit),
        "all prefix-shared": pack(samples, token_budget=10_000),
    }


def test_every_part_of_every_catalogue_is_held_to_the_law() -> None:
    held = {type(part) for loss in LOSSES.values() for part in loss.parts()}
    assert {name for slot in ("loss", *PIECES) for name, kind in load_catalogue(slot).items() if kind not in held} == (
        set()
    )


@pytest.mark.few(20)
@every_loss
def test_every_split_and_layout_gives_one_value_and_gradient(name: str) -> None:
    loss, samples = LOSSES[name], list_samples()
    laid = list_layouts(samples, loss.unit)
    if loss.unit != "trajectory":
        assert len(laid["one a micro-batch"]) == count_totals(samples, max_tokens=16).samples
    value, gradient = update(model(), loss, samples, laid.pop("one a micro-batch"))
    assert gradient.norm() > 0
    for layout, layouts in laid.items():
        total, other = update(model(), loss, samples, layouts)
        assert total == pytest.approx(value, rel=1e-12, abs=1e-12), layout
        assert apart(other, gradient) < 1e-11, layout


@every_loss
def test_the_gradient_is_that_of_finite_differences(name: str) -> None:
    loss = LOSSES[name]
    slope, difference = differentiate(loss, holds_constants=find_stop(loss) is not None)
    if find_stop(loss) is None or not hasattr(loss, "first_pass"):
        assert difference == pytest.approx(slope, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("why", STOPPED)
def test_where_a_gradient_is_stopped_the_value_does_move_otherwise(why: str) -> None:
    apart_by = []
    for loss in LOSSES.values():
        if any(STOPPED[why](part) for part in loss.parts()):
            slope, difference = differentiate(loss, holds_constants=False)
            apart_by.append(abs(slope - difference))
    assert max(apart_by) > 1e-3


def differentiate(loss: Any, *, holds_constants: bool) -> tuple[float, float]:
    """The slope along one direction of all weights, by the gradient and by a difference of two values."""
    samples, parameters = list_samples(), list(model().parameters())
    layouts = pack(samples, token_budget=10_000)
    generator = torch.Generator().manual_seed(0)
    direction = [torch.randn(value.shape, generator=generator, dtype=torch.float64) for value in parameters]
    held = HoldingConstants(loss) if holds_constants else loss
    _, gradient = update(model(), held, samples, layouts)
    values = []
    for shift in (1e-6, -1e-6):
        with move(parameters, direction, shift):
            values.append(update(model(), held, samples, layouts)[0])
    slope = float(gradient @ torch.cat([way.flatten() for way in direction]))
    return slope, (values[0] - values[1]) / 2e-6


@contextmanager
def move(parameters: Sequence[nn.Parameter], direction: Sequence[Tensor], shift: float) -> Iterator[None]:
    kept = [value.detach().clone() for value in parameters]
    with torch.no_grad():
        for value, way in zip(parameters, direction, strict=True):
            value += shift * way
    yield
    with torch.no_grad():
        for value, before in zip(parameters, kept, strict=True):
            value.copy_(before)


@every_loss
def test_a_masked_token_that_holds_nan_changes_not_one_bit(name: str) -> None:
    """Among the columns of a micro-batch, and among the tokens of a sample."""
    loss, samples = LOSSES[name], list_samples()
    layouts = pack(samples, token_budget=60, gate=0.0, unit=loss.unit)
    value, gradient = update(model(), loss, samples, layouts)
    assert math.isfinite(value)
    filled = [with_garbage(sample, 0.25) for sample in samples]
    for listed, change in ((samples, among_masked_tokens), (filled, lambda columns: columns)):
        total, other = update(model(), loss, listed, layouts, change)
        assert total == value
        assert torch.equal(other, gradient)


def among_masked_tokens(columns: TokenColumns) -> TokenColumns:
    """The columns with a masked copy of every token before them, which holds NaN wherever a number can."""

    def double(column: Tensor) -> Tensor:
        copy = torch.full_like(column, math.nan) if column.is_floating_point() else column
        return torch.cat([copy.detach(), column])

    given = {field: double(column) for field, column in columns.list_columns() if hasattr(columns, field)}
    given["mask"] = torch.cat([torch.zeros_like(columns.mask), columns.mask])
    named, channels = ({key: double(column) for key, column in by.items()} for by in (columns.named, columns.channels))
    return replace(columns, **given, named=named, channels=channels)


@every_loss
def test_a_tail_that_does_not_train_leaves_every_denominator(name: str) -> None:
    """An answer that goes on with tokens that do not train is, to the bit, the answer without them."""
    loss, samples = LOSSES[name], list_samples()
    value, gradient = update(model(), loss, samples, pack(samples, token_budget=60, gate=0.0, unit=loss.unit))
    longer = [with_tail(sample, number) for number, sample in enumerate(samples)]
    total, other = update(model(), loss, longer, pack(longer, token_budget=60, gate=0.0, unit=loss.unit))
    assert total == value
    assert torch.equal(other, gradient)


def with_tail(sample: Sample, number: int) -> Sample:
    num, tail = len(sample.response_ids), tuple((number + 7 * place) % VOCABULARY for place in range(1 + number % 3))
    own = sample.advantage if isinstance(sample.advantage, tuple) else (sample.advantage,) * num
    nothing = (math.nan,) * len(tail)
    return replace(
        sample,
        response_ids=sample.response_ids + tail,
        advantage=own + nothing,
        logp_behaviour=sample.logp_behaviour + nothing,
        trained=(sample.trained or (True,) * num) + (False,) * len(tail),
    )


@every_loss
def test_only_targets_that_train_reach_the_head(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted through the learner: each of its passes hands the head every token that trains once, and no other."""
    loss = LOSSES[name]
    samples = [give_context(sample, loss) for sample in list_samples()]
    made = learner(build("gpt_neox"), loss, passes=2, token_budget=60)
    if REFERENCE_LOGP in loss.needs:
        made.hold_reference()
    logps.check_packs(made.model)  # which asks the head too, once a model
    seen: list[int] = []
    compute = logps.compute_head_logps

    def count(head: Any, hidden: Tensor, predictions: Any, tiling: Any) -> Any:
        seen.append(len(predictions.target))
        assert len(hidden) <= len(predictions.target)
        return compute(head, hidden, predictions, tiling)

    monkeypatch.setattr(logps, "compute_head_logps", count)
    totals = count_totals(samples, max_tokens=16, pairs=pair_up(samples))
    made.learn(samples, totals)
    num_passes = (OLD_LOGP in loss.needs) + (REFERENCE_LOGP in loss.needs) + 2 * (1 + hasattr(loss, "first_pass"))
    assert totals.tokens < sum(len(sample.response_ids) for sample in samples if sample.trains)
    trained = [sample for sample in samples if sample.num_trained]
    stages = split_into_stages(loss, trained) if hasattr(loss, "order_turns") else [trained]
    num_carried = sum(
        sample.num_trained for stage in stages[:-1] for sample in stage
    )  # asked again what became of them
    assert sum(seen) == num_passes * totals.tokens + num_carried
