"""Seconds, memory and gradients of an update's forward and backward passes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from benchmarks.prefix.layouts import LAYOUTS, Layouts
from groupwise.data.samples import Sample
from groupwise.models.forward import compute_token_logps
from groupwise.models.pack import spread_over_tokens


@dataclass(frozen=True, kw_only=True)
class Update:
    """Micro-batches of one layout, on the device, with the advantages of their tokens."""

    layouts: Layouts
    advantages: Sequence[torch.Tensor]

    @classmethod
    def of(cls, layouts: Layouts, samples: Sequence[Sample], device: str) -> Update:
        placed = [layout.to(device) for layout in layouts]
        values = [sample.advantage for sample in samples]
        return cls(layouts=placed, advantages=[spread_over_tokens(layout, values) for layout in placed])

    @property
    def tokens(self) -> int:
        """Tokens computed, padding included."""
        return sum(map(len, self.layouts))


def train(net: Any, update: Update) -> None:
    """Gradients of all micro-batches, added up, as an update computes them."""
    for layout, advantage in zip(update.layouts, update.advantages, strict=True):
        # As new: a block mask is worked out again; chains are there since the pack was placed on the device.
        logp, _ = compute_token_logps(net, replace(layout))
        (logp * advantage).sum().backward()


def clear(net: Any) -> None:
    """Gradients to zero, in place: they take the same memory for all."""
    net.zero_grad(set_to_none=False)


def gradient(net: Any, update: Update) -> torch.Tensor:
    """The gradient of all weights as one vector, in float32."""
    net.zero_grad()
    train(net, update)
    whole = torch.cat([weight.grad.float().flatten() for weight in net.parameters() if weight.grad is not None])
    net.zero_grad()
    return whole


def apart(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Relative distance of two gradients."""
    return float((actual - expected).norm() / expected.norm())


def processor_seconds(work: Callable[[], object]) -> float:
    """Processor time with one thread, which other work does not change; wall time with more."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    work()
    return clock() - start


def device_seconds(work: Callable[[], object]) -> float:
    """Seconds between two events on the GPU, all that came before finished."""
    before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    before.record()
    work()
    after.record()
    torch.cuda.synchronize()
    return before.elapsed_time(after) / 1e3


def seconds_on(device: str) -> Callable[[Callable[[], object]], float]:
    return device_seconds if device == "cuda" else processor_seconds


def by_turns(
    works: dict[Any, Callable[[], object]],
    *,
    device: str,
    repeats: int,
    allowance: float = float("inf"),
    once: Collection[Any] = (),
) -> dict[Any, list[float]]:
    """Seconds of each work, round by round; no new round once the rounds so far took the allowance.

    Each round begins with another one, so that no place in it favours any. Those named in `once` are timed in the first
    round only.
    """
    seconds, times = seconds_on(device), {name: list[float]() for name in works}
    begin = time.perf_counter()
    for number in range(repeats):
        if number and time.perf_counter() - begin > allowance:
            break
        names = list(works)
        turn = number % len(names)
        for name in [*names[turn:], *names[:turn]]:
            if not number or name not in once:
                times[name].append(seconds(works[name]))
    return times


def median_of(work: Callable[[], object], *, device: str, repeats: int) -> float:
    """Median seconds of a work, after a first time that is not counted."""
    work()
    return statistics.median(by_turns({"it": work}, device=device, repeats=repeats)["it"])


def peak_bytes(work: Callable[[], object]) -> int:
    """Most memory on the GPU during a work."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


def updates(samples: Sequence[Sample], names: Sequence[str], *, budget: int, device: str) -> dict[str, Update]:
    """The same samples in several layouts, at one token budget."""
    return {name: Update.of(LAYOUTS[name](samples, budget), samples, device) for name in names}
