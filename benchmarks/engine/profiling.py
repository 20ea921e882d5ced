"""Our engine's agent load taken apart: kernels by group, the GPU's idle time, and the host's time by phase.

A load is timed as it is, then a second one with the host's phases timed, of which some turns are recorded by torch's
profiler. Kernels of a replayed graph appear one by one; *idle* is what lies between the first and the last kernel of
the recorded turns and is covered by none: gaps between kernels of a graph, and the host's turns of work.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from benchmarks.engine import loads, sides
from benchmarks.engine.shapes import make_model
from groupwise.engines.static_cache.engine import StaticCacheEngine
from groupwise.engines.static_cache.passes import FlatPrefill, Prefill

RECORDED = range(4, 7)
"""Turns that the profiler records; a rollout has 540 to 700 tokens in them."""
GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("decode attention", ("_attend_part", "_combine")),
    ("prefill attention", ("_attend_rows", "flash", "fmha", "attention", "cudnn_generated")),
    ("norms, rotary and feed-forward of our own", ("_add_and_norm", "_rotate_and_store", "_gate")),
    ("sampling", ("_sample", "softmax", "argmax", "cumsum", "scan", "searchsorted", "entr", "reduce_kernel<512")),
    ("matrix products", ("gemm", "cutlass", "cublas", "nvjet", "splitk", "sm90_xmma", "gemv")),
    ("copies and indexing", ("memcpy", "memset", "copy", "step", "scatter", "gather", "cat", "fill")),
    ("compiled parts", ("triton_",)),
    ("elementwise and reductions", ("elementwise", "reduce", "vectorized", "triton")),
)
"""Groups by what their kernels' names contain, the first that fits; *other* holds the rest."""
MAX_NAMED = 30
"""Kernels that are named, those that take longest."""


class Kernel(NamedTuple):
    """One run of a kernel, in seconds."""

    name: str
    start: float
    end: float


def profile_agents(shape: str, side: str, *, device: str) -> dict[str, Any]:
    """The parts of our engine's agent load, and how long it takes untouched."""
    model = make_model(shape, device)
    began = time.perf_counter()
    engine = sides.open_side(side, model)
    opened = time.perf_counter() - began
    rollouts = loads.ROLLOUTS if device == "cuda" else loads.GROUP
    vocabulary = int(model.config.vocab_size)
    del model

    def play(number: int, on_turn: Callable[[int], None] | None = None) -> float:
        return loads.time_agents(engine.generate, vocabulary, number=number, rollouts=rollouts, on_turn=on_turn)

    first = play(0)
    seconds = [play(number) for number in (1, 2, 3)]
    result: dict[str, Any] = {
        "open_seconds": opened,
        "first_seconds": first,
        "seconds": seconds,
        "responses_per_second": rollouts * loads.TURNS / sorted(seconds)[1],
        "captures": getattr(engine, "num_captures", 0),
    }
    print(f"{shape}, {side}: opened in {opened:.1f} s, first {first:.2f} s, then {seconds}", flush=True)
    with time_phases() as phases:
        result["seconds_with_phases"] = play(4)
    result["host_seconds"] = dict(phases)
    result["recorded"] = describe_kernels(record_turns(play))
    return result


@contextmanager
def time_phases() -> Iterator[dict[str, float]]:
    """Add up what the host spends in phases of the engine; those that begin within another are taken off it."""
    phases: dict[str, float] = defaultdict(float)
    inside: list[float] = []

    def watch(owner: type, method: str, name: str) -> Callable[[], None]:
        run = getattr(owner, method)

        def run_timed(self: Any, *args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            inside.append(0.0)
            try:
                return run(self, *args, **kwargs)
            finally:
                took = time.perf_counter() - began
                phases[name] += took - inside.pop()
                if inside:
                    inside[-1] += took

        setattr(owner, method, run_timed)
        return lambda: setattr(owner, method, run)

    undo = [
        watch(StaticCacheEngine, "generate", "rest of generate"),
        watch(StaticCacheEngine, "_queue", "queue"),
        watch(StaticCacheEngine, "_admit", "seat and start"),
        watch(Prefill, "read", "launch prefill"),
        watch(FlatPrefill, "read", "launch prefill"),
        watch(StaticCacheEngine, "_decode", "draw and launch steps"),
        watch(StaticCacheEngine, "_take_finished", "wait for the device and read responses"),
    ]
    try:
        yield phases
    finally:
        for put_back in undo:
            put_back()


def record_turns(play: Callable[[int, Callable[[int], None]], float]) -> list[Kernel]:
    """Kernels of the recorded turns of a load."""
    activity = torch.profiler.ProfilerActivity
    watched = activity.CUDA if torch.cuda.is_available() else activity.CPU
    profiler = torch.profiler.profile(activities=[watched])

    def on_turn(turn: int) -> None:
        if turn == RECORDED.start:
            loads.synchronise()
            profiler.start()
        if turn == RECORDED.stop:
            loads.synchronise()
            profiler.stop()

    play(5, on_turn)
    assert profiler.profiler is not None
    events = profiler.profiler.kineto_results.events()
    on_device = torch.cuda.is_available()
    return [
        Kernel(event.name(), event.start_ns() / 1e9, (event.start_ns() + event.duration_ns()) / 1e9)
        for event in events
        if (event.device_type() != torch.autograd.DeviceType.CPU) == on_device
    ]


def describe_kernels(kernels: Sequence[Kernel]) -> dict[str, Any]:
    """Seconds by group of kernels, and those in which no kernel ran."""
    by_group: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    by_name: dict[str, list[float]] = defaultdict(list)
    for kernel in kernels:
        group = choose_group(kernel.name)
        by_group[group] += kernel.end - kernel.start
        counts[group] += 1
        by_name[kernel.name].append(kernel.end - kernel.start)
    busy, gaps = measure_busy(kernels)
    longest = sorted(by_name.items(), key=lambda entry: -sum(entry[1]))[:MAX_NAMED]
    return {
        "turns": len(RECORDED),
        "kernels": len(kernels),
        "seconds": max(kernel.end for kernel in kernels) - min(kernel.start for kernel in kernels),
        "busy_seconds": busy,
        "idle_seconds": {
            "below 10 us": sum(gap for gap in gaps if gap < 1e-5),
            "10 to 100 us": sum(gap for gap in gaps if 1e-5 <= gap < 1e-4),
            "100 us to 1 ms": sum(gap for gap in gaps if 1e-4 <= gap < 1e-3),
            "above 1 ms": sum(gap for gap in gaps if gap >= 1e-3),
        },
        "seconds_by_group": dict(sorted(by_group.items(), key=lambda entry: -entry[1])),
        "kernels_by_group": dict(counts),
        "longest": [
            {"name": name[:160], "group": choose_group(name), "count": len(took), "seconds": sum(took)}
            for name, took in longest
        ],
    }


def choose_group(name: str) -> str:
    """The group of a kernel."""
    lower = name.lower()
    return next((group for group, parts in GROUPS if any(part in lower for part in parts)), "other")


def measure_busy(kernels: Iterable[Kernel]) -> tuple[float, list[float]]:
    """Seconds in which some kernel ran, and the gaps between."""
    busy, gaps, reached = 0.0, [], 0.0
    for kernel in sorted(kernels, key=lambda kernel: kernel.start):
        if reached and kernel.start > reached:
            gaps.append(kernel.start - reached)
        if kernel.end > reached:
            busy += kernel.end - max(kernel.start, reached)
            reached = kernel.end
    return busy, gaps
