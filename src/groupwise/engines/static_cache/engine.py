"""The engine for a GPU: responses decode in slots that never move, many tokens between two looks of the host.

Each response has a slot with its own length, so nothing is padded while decoding. A step (model, sampling, stopping) is
one CUDA graph for each of a bounded set of shapes; the host looks every few steps which rows have finished, and reads
the next prompts into their slots, so that the batch stays full. The same request gives the same tokens as the
`TransformersEngine` does, up to rounding.

Axes: S slots, N steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from transformers import DynamicCache, PreTrainedModel

from groupwise.core.errors import EngineFault
from groupwise.core.parts.engine_slot import GIFTS
from groupwise.engines.engine import Generation, Request, VersionSpan
from groupwise.engines.static_cache.cache import HeadShape, SlotCache
from groupwise.engines.static_cache.lanes import Row, SlotTable
from groupwise.engines.static_cache.prefill import LIGHT, MOST_LIGHT, Prefill
from groupwise.engines.static_cache.rows import SlotRows
from groupwise.engines.static_cache.step import DecodingStep
from groupwise.engines.token_draws import uniforms
from groupwise.engines.transformers.engine import TransformersEngine, positions_of

LOOK_EVERY = 8
"""Steps between two looks of the host: each look waits for the device."""
LOOK_SOON = 4
"""Steps between them once most responses have ended: the others are likely about to."""
REFILL = 0.25
"""Share of the slots that must be free before waiting prompts are read into them, in one go."""
LEAST_ROWS, LEAST_WIDTH, LEAST_TOKENS, LEAST_STOPS = 16, 128, 64, 4
"""Smallest storage, and smallest shapes that are captured."""


@dataclass(frozen=True, kw_only=True)
class Room:
    """How much storage there is."""

    slots: int
    """Responses at a time."""
    width: int
    """Tokens of one, its prompt included."""
    tokens: int
    """Tokens sampled for one."""
    stops: int
    """Stop tokens of one."""


class SlotEngine:
    """Samples from and scores with a Hugging Face causal language model, with a static cache."""

    gives: ClassVar[frozenset[str]] = frozenset(GIFTS)
    """All that there is."""

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        use_graphs: bool,
        use_kernel: bool = False,
        rows: int = 256,
        memory: float = 2**30,
        batch_tokens: int = 32768,
        version: int = 0,
    ) -> None:
        """Rows at a time, and bytes that their keys and values may take; `batch_tokens` bounds a prefill.

        Graphs and the kernel of attention need a GPU; without them the same is computed one operation at a time.
        """
        # It answers what does not fit in slots, scores, and takes weights over: in place, so graphs stay as they are.
        self._plain = TransformersEngine(model, version=version, batch_tokens=batch_tokens)
        self._model = bare(model)
        self._limit = _shortest_window(self._model)
        self._heads, self._dtype = _head_shapes(self._model)
        self._num_weights = sum(weight.numel() for weight in self._model.parameters())
        self._use_graphs, self._use_kernel = use_graphs, use_kernel
        self._rows, self._memory, self._batch_tokens = rows, memory, batch_tokens
        self._room = Room(slots=0, width=0, tokens=0, stops=0)
        self._table = SlotTable(0)
        self._step: DecodingStep | None = None
        self._earlier_captures = 0

    @property
    def version(self) -> int:
        """Version of the weights in use."""
        return self._plain.version

    @property
    def context(self) -> int | None:
        """Positions that the model has; None = it does not say."""
        return positions_of(self._model)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self._plain.device

    @property
    def dtype(self) -> torch.dtype:
        """What keys and values are kept in."""
        return self._dtype

    @property
    def heads(self) -> frozenset[HeadShape]:
        """The kinds of heads that its layers have."""
        return frozenset(self._heads)

    @property
    def room(self) -> Room:
        """The storage as it stands; it grows with what is asked for."""
        return self._room

    @property
    def num_captures(self) -> int:
        """CUDA graphs that have been captured."""
        return self._earlier_captures + (self._step.num_captures if self._step else 0)

    def load(self, weights: Mapping[str, torch.Tensor], *, version: int) -> None:
        """Copy weights by name into the model; forget everything computed with the old ones."""
        self._plain.load(weights, version=version)
        self._table.clear()

    def score(
        self, sequences: Sequence[tuple[Sequence[int], Sequence[int]]], *, temperature: float = 1.0
    ) -> list[tuple[float, ...]]:
        """Log-probability of each response token given its prompt."""
        return self._plain.score(sequences, temperature=temperature)

    @torch.no_grad()
    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """Answer requests, in their order."""
        if any(not request.prompt_ids for request in requests):
            raise EngineFault("a request has an empty prompt; begin prompts with a start token")
        fits = [_need(request) <= self._limit for request in requests]
        answers = self._answers([(i, request) for i, request in enumerate(requests) if fits[i]])
        overlong = [i for i, is_fit in enumerate(fits) if not is_fit]
        if overlong:
            answers |= dict(zip(overlong, self._plain.generate([requests[i] for i in overlong]), strict=True))
        return [answers[number] for number in range(len(requests))]

    def _answers(self, numbered: Sequence[tuple[int, Request]]) -> dict[int, Generation]:
        answers: dict[int, Generation] = {}
        if not numbered:
            return answers
        requests = [request for _, request in numbered]
        self._table.running.clear()  # a call that failed may have left rows behind
        step = self._prepared(requests)
        step.rows.is_done.fill_(True)
        self._table.keep_only(requests)
        waiting, most = self._queue(numbered), 0
        while waiting or self._table.running:
            self._admit(waiting, step)
            num = len(self._table.running)
            most = max(most, num)
            self._decode(step, LOOK_EVERY if 2 * num > most else LOOK_SOON)
            answers |= {row.number: answer for row, answer in self._finished(step)}
        return answers

    def _queue(self, numbered: Sequence[tuple[int, Request]]) -> list[Row]:
        """Rows in the order in which they start, last first.

        Those that go on where a slot left off come before any other takes that slot; then the longest, so that none of
        them is left alone at the end.
        """
        rows = [Row(number, request) for number, request in numbered]
        taken: set[int] = set()
        for row in rows:
            slot, known = self._table.known(row.request)
            if known and slot not in taken:  # of two requests of one session the first goes on in its slot
                row.slot, row.known = slot, known
                taken.add(slot)
        return sorted(rows, key=lambda row: (row.known > 0, _need(row.request), row.request.prompt_ids))

    def _admit(self, waiting: list[Row], step: DecodingStep) -> None:
        """Start waiting rows where enough slots are free."""
        if not waiting:
            return
        free = self._table.free()
        if self._table.running and len(free) < min(len(waiting), REFILL * self._table.num):
            return
        going_on = [row for row in waiting if row.known]
        for row in going_on:
            self._table.seat(row, row.slot)
        taken = {row.slot for row in going_on}
        free = [slot for slot in free if slot not in taken]
        del waiting[len(waiting) - len(going_on) :]
        new = [waiting.pop() for _ in range(min(len(free), len(waiting)))]
        for row, slot in zip(new, free, strict=False):
            self._table.seat(row, slot)
        started = [*going_on, *new]
        body, light = self._model.base_model, min(LIGHT / (2 * self._num_weights), MOST_LIGHT)
        Prefill(body, step.cache, batch_tokens=self._batch_tokens, light_tokens=light).read(started)
        step.rows.start([row.slot for row in started], [row.request for row in started])

    def _decode(self, step: DecodingStep, most_steps: int) -> None:
        """Make some steps with all that runs, in the smallest shape that holds it."""
        running = self._table.running
        num = min(_stair(len(running), LEAST_ROWS), self._room.slots)
        self._close_up(num, step)
        steps = min(most_steps, max(row.left for row in running.values()))
        width = min(_half_stair(max(row.reach(steps) for row in running.values())), self._room.width)
        slots = list(running)
        seeds = np.array([running[slot].request.seed for slot in slots], dtype=np.uint64)
        sampled = np.array([running[slot].sampled for slot in slots], dtype=np.int64)
        draws_NS = np.zeros((steps, self._room.slots))
        draws_NS[:, slots] = uniforms(seeds, sampled + np.arange(steps)[:, None])
        step.rows.lay_out(draws_NS)
        step.run(num, width, steps=steps)
        for row in running.values():
            row.sampled += steps

    def _close_up(self, num: int, step: DecodingStep) -> None:
        """Bring what runs into the first slots, where it is not there already."""
        order = self._table.closed_up(num)
        targets = [slot for slot, source in enumerate(order) if slot != source]
        if targets:
            where = torch.tensor(targets, device=self.device)
            origin = torch.tensor([order[slot] for slot in targets], device=self.device)
            step.cache.move(origin, where)
            step.rows.move(origin, where)

    def _finished(self, step: DecodingStep) -> list[tuple[Row, Generation]]:
        """Take out the rows that are done."""
        is_done = step.rows.is_done.tolist()
        slots = [slot for slot in self._table.running if is_done[slot]]
        if not slots:
            return []
        found = []
        for slot, (ids, logp, entropy) in zip(slots, step.rows.said(slots), strict=True):
            prompt = self._table.running[slot].request.prompt_ids
            row = self._table.leave(slot, (*prompt, *ids[:-1]))
            stopped = ids[-1] in row.request.stop_ids
            spans = (VersionSpan(self._plain.version, len(ids)),)
            answer = Generation(response_ids=ids, logp=logp, entropy=entropy, stopped=stopped, versions=spans)
            found.append((row, answer))
        return found

    def _prepared(self, requests: Sequence[Request]) -> DecodingStep:
        """The step over storage that is large enough; what sessions hold stays."""
        room = self._wanted(requests)
        if self._step is not None and room == self._room:
            return self._step
        cache = self._storage(room)
        rows = SlotRows.empty(
            slots=room.slots, stops=room.stops, tokens=room.tokens, steps=LOOK_EVERY, device=self.device
        )
        self._table.shrink(room.slots)
        self._room = room
        self._step = DecodingStep(self._model, cache, rows, self._use_graphs, self._use_kernel)
        return self._step

    def _storage(self, room: Room) -> SlotCache:
        """Storage for keys and values; what it held before, as far as there is room for it."""
        step, self._step = self._step, None
        try:
            if step is not None:
                self._earlier_captures += step.num_captures
                return step.cache.resized(slots=room.slots, width=room.width)
            self._table.clear()
            device, dtype = self.device, self._dtype
            return SlotCache.empty(self._heads, slots=room.slots, width=room.width, dtype=dtype, device=device)
        except torch.OutOfMemoryError:
            raise EngineFault(
                f"the keys and values of {room.slots} responses of up to {room.width} tokens do not fit in the "
                "device's memory beside what is there; lower engine.memory or engine.rows"
            ) from None

    def _wanted(self, requests: Sequence[Request]) -> Room:
        """The storage that requests need, no smaller than it is; fewer slots where they would not fit in memory."""
        longest, now = max(_need(request) for request in requests), self._room
        width = max(now.width, _stair(longest, LEAST_WIDTH))
        column = sum(num * (key + value) for num, key, value in self._heads) * self._dtype.itemsize
        if int(self._memory // (column * width)) < 1:
            width = max(now.width, longest)
        most = int(self._memory // (column * width))
        if most < 1:
            raise EngineFault(
                f"the keys and values of one response of up to {longest} tokens take {column * width:,} bytes, but the "
                f"engine may use {int(self._memory):,}; raise engine.memory, or shorten prompts and responses"
            )
        return Room(
            slots=min(most, self._rows, max(now.slots, _stair(len(requests), LEAST_ROWS))),
            width=width,
            tokens=max(now.tokens, _stair(max(request.max_tokens for request in requests), LEAST_TOKENS)),
            stops=max(now.stops, _stair(max(len(request.stop_ids) for request in requests), LEAST_STOPS)),
        )


def _need(request: Request) -> int:
    return len(request.prompt_ids) + request.max_tokens


def _stair(number: int, least: int) -> int:
    """The least power of two, times `least`, that is no smaller."""
    return int(least * 2 ** max(0, (max(1, -(-number // least)) - 1).bit_length()))


def _half_stair(width: int) -> int:
    """The least width that is captured and no smaller: powers of two and half-way between them."""
    whole = _stair(width, LEAST_WIDTH)
    return whole * 3 // 4 if whole > LEAST_WIDTH and width <= whole * 3 // 4 else whole


def _shortest_window(model: PreTrainedModel) -> float:
    """Tokens up to which every layer sees everything before it: a sliding window that nothing slides out of is none."""
    config = model.config.get_text_config()
    kinds = getattr(config, "layer_types", None)
    strange = sorted(set(kinds or ()) - {"full_attention", "sliding_attention"})
    if strange:
        raise EngineFault(
            f"the model has layers of kind {', '.join(strange)}, which slots do not know; set engine.decoding = 'eager'"
        )
    window = getattr(config, "sliding_window", None)
    slides = "sliding_attention" in kinds if kinds else bool(window)
    return float(window) if slides and window else float("inf")


@torch.no_grad()
def _head_shapes(model: PreTrainedModel) -> tuple[list[HeadShape], torch.dtype]:
    """What each layer keeps, seen by reading one token."""
    cache = DynamicCache(config=model.config)
    model.base_model(input_ids=torch.zeros(1, 1, dtype=torch.long, device=model.device), past_key_values=cache)
    layers: list[Any] = list(cache.layers)
    strange = next((layer for layer in layers if not isinstance(getattr(layer, "keys", None), torch.Tensor)), None)
    if strange is not None:
        raise EngineFault(
            f"the model keeps something else than keys and values ({type(strange).__name__}), which slots do not hold; "
            "set engine.decoding = 'eager'"
        )
    pairs = [(layer.keys, layer.values) for layer in layers]
    return [(keys.shape[1], keys.shape[3], values.shape[3]) for keys, values in pairs], pairs[0][0].dtype


def bare(model: PreTrainedModel) -> PreTrainedModel:
    """The model itself; where an adapter is wrapped around it, with the adapter in its layers."""
    inner: Callable[[], PreTrainedModel] | None = getattr(model, "get_base_model", None)
    return model if inner is None else inner()
