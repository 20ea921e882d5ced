"""The GPU's part: models of two real shapes on recorded rollouts, in bfloat16, each layout at one token budget.

Speed is that of whole updates, from packs on the device: where chains begin and which state predicts what was found
when they were placed there, which `masks` times by itself; block masks are built anew every time. Utilisation counts
the operations on the tokens really computed, over the rate of a large matrix product measured in the same run.
`--device cpu` with the shape *tiny* runs the same code where there is no GPU, for the sake of the code.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.prefix.gate import little_shared
from benchmarks.prefix.layouts import LAYOUTS, pack_forced, pairs
from benchmarks.prefix.measure import (
    Update,
    apart,
    by_turns,
    clear,
    gradient,
    median_of,
    peak_bytes,
    train,
    updates,
)
from benchmarks.prefix.on_cpu import forest_times
from benchmarks.prefix.recordings import distinct, num_tokens, open_recording
from benchmarks.prefix.shapes import as_trained, qwen, work
from groupwise.data.samples import Sample
from groupwise.models import attention_gpu as flash_chains
from groupwise.models.attention_gpu import fill_last_block, find_tree_keys
from groupwise.models.forest import merge_sequences
from groupwise.models.pack import Chains, pack, to_device

PACKS = ("shared", "packed", "prompts shared")
SLOW = ("padded",)
"""Timed once a case: it takes longer than all others together."""
GRADIENT_LAYERS, GRADIENT_TOKENS = 2, 12_000
ATTENTION_TOKENS = 65_536
MANY = 20
"""Products timed at a time, so that the clock of a busy chip is what is measured."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """Rollouts to train on, and the layouts to compare on them."""

    source: str
    history: str
    rollouts: int = 8
    layouts: Sequence[str] = PACKS
    checkpointed: bool = False
    compiled: bool = True
    """Whether layers are, if at all: every width of padded rows would be compiled for itself."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How much is measured."""

    data: Path
    device: str
    budget: int
    raw_tokens: int
    repeats: int
    seconds: float
    """Seconds of a shape after which no new case begins."""
    checkpointed: str
    """Whether layers are checkpointed: `no`, `yes`, or `some`: in two cases that are measured once more."""
    compiled: bool
    quick: bool
    allowance: float = 10.0
    """Seconds of a case after which no new round begins."""


def cases(settings: Settings) -> list[Case]:
    """What is measured, the most telling first."""
    window, full = Case(source="alfworld", history="window 2"), Case(source="dialogue", history="full", rollouts=16)
    chosen = [window, full]
    if not settings.quick:
        others = (("alfworld", "anchored"), ("household", "full"), ("alfworld", "window 4"), ("alfworld", "full"))
        chosen += [replace(window, layouts=tuple(LAYOUTS), compiled=False)]
        chosen += [Case(source=source, history=history) for source, history in others]
    if settings.checkpointed == "some":
        chosen += [replace(case, layouts=PACKS[:2], checkpointed=True) for case in (window, full)]
    if not settings.quick:
        chosen += [Case(source="published", history="window 2"), Case(source="dialogue", history="anchored")]
        chosen += [replace(window, rollouts=rollouts) for rollouts in (4, 16)]
        chosen += [Case(source="alfworld", history="full", rollouts=16, layouts=PACKS[:2])]
    if settings.quick:
        chosen = [replace(case, layouts=PACKS[:2]) for case in chosen]
    return [replace(case, checkpointed=True) for case in chosen] if settings.checkpointed == "yes" else chosen


class Bench:
    """One shape: its model, and what is measured on it."""

    def __init__(self, shape: str, settings: Settings) -> None:
        self.shape, self.settings = shape, settings
        self.begin = time.perf_counter()
        self.rate = 0.0
        self._nets: dict[tuple[bool, bool], Any] = {}

    def sections(self) -> dict[str, Callable[[], Any]]:
        """What is measured, by name."""
        measurements: dict[str, Callable[[], Any]] = {
            "matrix product": self.matrix_product,
            "gradients": self.gradients,
        }
        for case in cases(self.settings):
            name = f"{case.source}, {case.history}, {case.rollouts} rollouts"
            name += ", checkpointed" if case.checkpointed else ""
            name += "" if case.compiled or not self.settings.compiled else ", not compiled"
            measurements[name] = lambda case=case: self.speed(case)
        measurements["attention"] = self.attention
        measurements["little shared"] = self.little_shared
        measurements["nothing shared"] = self.nothing_shared
        measurements["memory"] = self.memory
        return measurements

    def net(self, *, checkpointed: bool, compiled: bool = True) -> Any:
        """The model, made when it is first asked for; only one at a time."""
        key = checkpointed, compiled and self.settings.compiled
        if key not in self._nets:
            self._nets.clear()
            dtype = torch.bfloat16 if self.settings.device == "cuda" else torch.float32
            net = qwen(self.shape, device=self.settings.device, dtype=dtype)
            self._nets[key] = as_trained(net, checkpointed=key[0], compiled=key[1])
        return self._nets[key]

    def matrix_product(self) -> dict[str, float]:
        """Operations a second of a large product, the yardstick of utilisation."""
        size = 8192 if self.settings.device == "cuda" else 512
        one = torch.randn(size, size, device=self.settings.device, dtype=torch.bfloat16)

        def products() -> None:
            for _ in range(MANY):
                one @ one

        self.rate = MANY * 2 * size**3 / median_of(products, device=self.settings.device, repeats=10)
        return {"size": size, "teraflops": self.rate / 1e12}

    def gradients(self) -> dict[str, Any]:
        """How far gradients lie from those of padded rows, with two layers of the shape.

        In float32 from one another; in bfloat16 from the float32 gradient of padded rows, for each layout alike.
        """
        settings = self.settings
        torch.set_float32_matmul_precision("highest")
        samples = open_recording(settings.data, "alfworld", "window 2").groups(rollouts=4, raw_tokens=GRADIENT_TOKENS)
        laid = updates(samples, ("padded, sorted", *PACKS), budget=settings.budget, device=settings.device)
        halved = updates(samples, ("padded, sorted",), budget=settings.budget // 2, device=settings.device)
        net, narrow = (
            qwen(self.shape, device=settings.device, dtype=dtype, layers=GRADIENT_LAYERS)
            for dtype in (torch.float32, torch.bfloat16)
        )
        net.load_state_dict(narrow.state_dict())  # the same weights: only the arithmetic differs
        expected = gradient(net, laid["padded, sorted"])
        distances: dict[str, Any] = {
            "raw_tokens": num_tokens(samples),
            "float32": {name: apart(gradient(net, laid[name]), expected) for name in PACKS},
        }
        laid["padded, sorted, other micro-batches"] = halved["padded, sorted"]
        distances["bfloat16"] = {name: apart(gradient(narrow, update), expected) for name, update in laid.items()}
        return distances

    def speed(self, case: Case) -> dict[str, Any]:
        """Seconds, memory and utilisation of each layout."""
        settings = self.settings
        if time.perf_counter() - self.begin > settings.seconds:
            return {"left_out": f"{settings.seconds:.0f} seconds were over"}
        recording = open_recording(settings.data, case.source, case.history)
        samples = recording.groups(rollouts=case.rollouts, raw_tokens=settings.raw_tokens * case.rollouts // 8)
        net = self.net(checkpointed=case.checkpointed, compiled=case.compiled)
        laid = updates(samples, case.layouts, budget=settings.budget, device=settings.device)
        timed = self._time_layouts(net, laid)
        rows = {name: self._row(net, laid[name], samples, case, times) for name, times in timed.items()}
        return {
            **{key: value for key, value in vars(case).items() if key != "layouts"},
            "compiled": case.compiled and settings.compiled,
            "made_up": recording.made_up,
            "tasks": len({sample.group for sample in samples}),
            "samples": len(samples),
            "raw_tokens": num_tokens(samples),
            "token_ratio": merge_sequences([sample.token_ids for sample in samples]).token_ratio,
            "by_layout": rows,
            **compare_rows(rows),
        }

    def _time_layouts(self, net: Any, laid: dict[str, Update], *, repeats: int | None = None) -> dict[str, list[float]]:
        settings = self.settings
        for update in laid.values():
            train(net, update)
        return by_turns(
            {name: lambda update=update: (train(net, update), clear(net)) for name, update in laid.items()},
            device=settings.device,
            repeats=repeats or settings.repeats,
            allowance=settings.allowance,
            once=SLOW,
        )

    def _row(
        self, net: Any, update: Update, samples: Sequence[Sample], case: Case, times: Sequence[float]
    ) -> dict[str, Any]:
        taken, raw = statistics.median(times), num_tokens(samples)
        asked = work(net.config, update.layouts, checkpointed=case.checkpointed)
        row = {
            "seconds": taken,
            "times": list(times),
            "tokens": update.tokens,
            "keys_per_token": pairs(update.layouts) / update.tokens,
            "micro_batches": len(update.layouts),
            "raw_tokens_per_second": raw / taken,
            "tokens_per_second": update.tokens / taken,
            "utilisation": asked.useful / taken / self.rate if self.rate else None,
            "hardware_utilisation": asked.done / taken / self.rate if self.rate else None,
        }
        if self.settings.device == "cuda":
            largest = max(range(len(update.layouts)), key=lambda number: len(update.layouts[number]))
            alone = Update(layouts=[update.layouts[largest]], advantages=[update.advantages[largest]])
            row["peak_gigabytes"] = peak_bytes(lambda: train(net, alone)) / 1e9
        return row

    def attention(self) -> dict[str, Any]:
        """The same packs by block masks instead of over chains, layers not compiled; how far gradients lie apart."""
        settings = self.settings
        if settings.device != "cuda":
            return {"left_out": "there is no GPU"}
        net, results = self.net(checkpointed=False, compiled=False), {}
        for source, history in (("alfworld", "window 2"), ("dialogue", "full")):
            samples = open_recording(settings.data, source, history).groups(rollouts=8, raw_tokens=ATTENTION_TOKENS)
            update = updates(samples, ("shared",), budget=settings.budget, device=settings.device)["shared"]
            chains = median_of(lambda update=update: train(net, update), device=settings.device, repeats=3)
            expected = gradient(net, update)
            with by_blocks():
                blocks = median_of(lambda update=update: train(net, update), device=settings.device, repeats=3)
                error = apart(gradient(net, update), expected)
            results[f"{source}, {history}"] = {
                "chains_seconds": chains,
                "blocks_seconds": blocks,
                "gradients_apart": error,
            }
        return results

    def nothing_shared(self) -> dict[str, Any]:
        """Samples that share their first token alone: the gate leaves them as rows; `forced` is without it."""
        settings = self.settings
        recorded = open_recording(settings.data, "alfworld", "window 2")
        some = recorded.groups(rollouts=8, raw_tokens=settings.raw_tokens)
        samples = distinct(some, vocabulary=50_000)
        net = self.net(checkpointed=settings.checkpointed == "yes")
        laid = updates(samples, ("shared", "packed"), budget=settings.budget, device=settings.device)
        laid["forced"] = Update.of(pack_forced(samples, settings.budget), samples, settings.device)
        times = {name: statistics.median(each) for name, each in self._time_layouts(net, laid, repeats=3).items()}
        return {
            "raw_tokens": num_tokens(samples),
            "seconds": times,
            "times_as_fast_as_packed": {name: times["packed"] / times[name] for name in ("shared", "forced")},
        }

    def little_shared(self) -> dict[str, Any]:
        """Where sharing begins to pay."""
        settings, net = self.settings, self.net(checkpointed=self.settings.checkpointed == "yes")
        return little_shared(net, settings.data, budget=settings.budget, device=settings.device, repeats=5)

    def memory(self) -> dict[str, Any]:
        """Peak of one micro-batch that fills the budget: ours against rows side by side."""
        if self.settings.device != "cuda":
            return {"left_out": "there is no GPU"}
        samples = open_recording(self.settings.data, "alfworld", "full").groups(rollouts=16)
        net = self.net(checkpointed=self.settings.checkpointed == "yes")
        clear(net)
        torch.cuda.empty_cache()
        peaks: dict[str, Any] = {"before_gigabytes": torch.cuda.memory_allocated() / 1e9}
        for name in ("shared", "packed"):
            fullest = max(LAYOUTS[name](samples, self.settings.budget), key=len)
            update = Update.of([fullest], samples, "cuda")
            train(net, update)
            peaks[name] = {
                "tokens": len(fullest),
                "trained_tokens": len(fullest.sample),
                "peak_gigabytes": peak_bytes(lambda update=update: train(net, update)) / 1e9,
            }
        return peaks


def compare_rows(rows: dict[str, Any]) -> dict[str, Any]:
    """How much faster ours is than each other layout, and the share of the fewer tokens that becomes speed."""
    ours = rows["shared"]
    faster = {name: row["seconds"] / ours["seconds"] for name, row in rows.items() if name != "shared"}
    ratio = rows["packed"]["tokens"] / ours["tokens"]
    return {"times_faster_than": faster, "fewer_tokens": ratio, "share_of_ratio": faster["packed"] / ratio}


def general_sections(settings: Settings) -> dict[str, Callable[[], Any]]:
    """What does not depend on the shape."""
    return {"forest": lambda: forest_times(3), "masks": lambda: mask_times(settings)}


def mask_times(settings: Settings) -> dict[str, Any]:
    """Milliseconds to find the chains of a pack and to build its block mask, by budget."""
    samples = open_recording(settings.data, "alfworld", "full").groups(rollouts=16)
    times_by_length = {}
    for budget in (8_192, 32_768):
        packed = max(pack(samples, token_budget=budget, gate=0.0), key=len)
        depth, end = packed.position_ids[0].numpy(), packed.end.to(settings.device)
        ways: dict[str, Callable[[], object]] = {
            "chains": lambda depth=depth: to_device(Chains.of(depth), settings.device),
            "blocks": lambda end=end: find_tree_keys(fill_last_block(end)),
        }
        times_by_length[f"{len(packed)} tokens"] = {
            name: median_of(way, device=settings.device, repeats=20) * 1e3 for name, way in ways.items()
        }
    return times_by_length


@contextmanager
def by_blocks() -> Iterator[None]:
    """Attend to packs by block masks for a while, as where torch has no flash attention over rows."""
    before, flash_chains.IN_TORCH = flash_chains.IN_TORCH, False
    try:
        yield
    finally:
        flash_chains.IN_TORCH = before


def machine() -> str:
    """What it ran on."""
    if not torch.cuda.is_available():
        return "no GPU"
    properties = torch.cuda.get_device_properties(0)
    return f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB, CUDA {torch.version.cuda}"
