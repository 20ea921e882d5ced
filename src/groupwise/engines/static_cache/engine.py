"""The engine for a GPU: responses decode in the lanes (KV-cache slots) of a static cache.

A lane holds the keys and values of one response, with its own length, so nothing is padded while decoding. A step
(model, sampling, stopping) is one CUDA graph per shape, from a bounded set of shapes. Every few steps the host reads
which rows have finished and prefills the next prompts into their lanes, which keeps the batch full. The same request
gives the same tokens as the `TransformersEngine` does, up to rounding.

Axes: L lanes, N steps.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from transformers import DynamicCache, PreTrainedModel

from groupwise.data.samples import PromptAndResponse
from groupwise.engines.engine import Generation, Request, VersionSpan
from groupwise.engines.sampling import draw_uniforms
from groupwise.engines.static_cache.cache import HeadShape, LaneCache, LaneState, LaneTable, Row, UnreadRow
from groupwise.engines.static_cache.own_layers import OwnLayers
from groupwise.engines.static_cache.passes import LIGHT_OPERATIONS, MAX_LIGHT_TOKENS, DecodingStep, FlatPrefill, Prefill
from groupwise.engines.transformers_engine import TransformersEngine
from groupwise.parts.slots import CAPABILITIES
from groupwise.system.errors import EngineFault

LOOK_EVERY = 8
"""Steps until the host reads which rows have finished: each time it waits for the device."""
LOOK_LATE = 64
"""Maximum of these steps, used if no response can end before its last token."""
LOOK_SOON = 4
"""These steps once most responses have ended: the others are likely about to end."""
REFILL = 0.25
"""Fraction of the lanes that must be free before waiting prompts are prefilled into them, together."""
MIN_ROWS, MIN_WIDTH, MIN_TOKENS, MIN_STOPS = 16, 128, 64, 4
"""Smallest storage, and smallest shapes that are captured."""


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """How much the storage of the engine holds."""

    lanes: int
    """Responses that decode at a time."""
    width: int
    """Tokens per response, its prompt included."""
    tokens: int
    """Sampled tokens per response."""
    stops: int
    """Stop tokens per response."""


class StaticCacheEngine:
    """Samples from and scores with a Hugging Face causal language model, with a static cache."""

    gives: ClassVar[frozenset[str]] = frozenset(CAPABILITIES)

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        use_graphs: bool,
        use_kernel: bool = False,
        layers: OwnLayers | None = None,
        rows: int = 256,
        memory: float = 2**30,
        batch_tokens: int = 32768,
        version: int = 0,
    ) -> None:
        """Decode up to `rows` responses at a time; their keys and values take up to `memory` bytes.

        `batch_tokens` limits a prefill. Graphs and the attention kernel need a GPU; without them the same operations
        run one by one. If `layers` are given, they compute instead of the model's code.
        """
        # Answers requests that do not fit in lanes, scores, and loads weights: in place, so graphs stay valid.
        self._plain = TransformersEngine(model, version=version, batch_tokens=batch_tokens)
        self._model = unwrap_adapter(model)
        self._limit = _find_shortest_window(self._model)
        self._heads, self.dtype = _find_head_shapes(self._model)
        self.heads = frozenset(self._heads)
        """The distinct head shapes of its layers."""
        self._num_weights = sum(weight.numel() for weight in self._model.parameters())
        self._use_graphs, self._use_kernel = use_graphs, use_kernel
        self._layers = layers
        self._rows, self._memory, self._batch_tokens = rows, memory, batch_tokens
        self.capacity = Capacity(lanes=0, width=0, tokens=0, stops=0)
        """The current storage; it grows with the requests."""
        self._table = LaneTable(0)
        self._step: DecodingStep | None = None
        self._prefill: Prefill | FlatPrefill | None = None
        self._earlier_captures = 0

    @property
    def version(self) -> int:
        return self._plain.version

    @property
    def context(self) -> int | None:
        return self._plain.context

    @property
    def device(self) -> torch.device:
        return self._plain.device

    @property
    def num_captures(self) -> int:
        reading = self._prefill.num_captures if isinstance(self._prefill, FlatPrefill) else 0
        return self._earlier_captures + reading + (self._step.num_captures if self._step else 0)

    def load(self, weights: Mapping[str, torch.Tensor], *, version: int) -> None:
        """Copy weights by name into the model; forget everything computed with the old ones."""
        self._plain.load(weights, version=version)
        self._table.clear()

    def score(self, sequences: Sequence[PromptAndResponse], *, temperature: float = 1.0) -> list[tuple[float, ...]]:
        return self._plain.score(sequences, temperature=temperature)

    def make_layers_trial(self) -> LayersTrial | None:
        if self._layers is None:
            return None
        return LayersTrial(self._model, self._layers, self._heads, self.dtype, self._limit)

    @torch.no_grad()
    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        if any(not request.prompt_ids for request in requests):
            raise EngineFault("a request has an empty prompt; begin prompts with a start token")
        fits = [_find_max_length(request) <= self._limit for request in requests]
        answers = self._answer([(i, request) for i, request in enumerate(requests) if fits[i]])
        overlong = [i for i, is_fit in enumerate(fits) if not is_fit]
        if overlong:
            answers |= dict(zip(overlong, self._plain.generate([requests[i] for i in overlong]), strict=True))
        return [answers[number] for number in range(len(requests))]

    def _answer(self, numbered: Sequence[tuple[int, Request]]) -> dict[int, Generation]:
        answers: dict[int, Generation] = {}
        if not numbered:
            return answers
        requests = [request for _, request in numbered]
        self._table.running.clear()  # a failed call may have left rows behind
        step = self._prepare_step(requests)
        step.state.is_done.fill_(True)
        self._table.keep_only(requests)
        waiting, peak = self._queue(numbered), 0
        while waiting or self._table.running:
            self._admit(waiting, step)
            running = self._table.running.values()
            peak = max(peak, len(running))
            if not any(row.request.stop_ids for row in running):
                num_steps = max(LOOK_EVERY, min(LOOK_LATE, *(row.tokens_left for row in running)))
            else:
                num_steps = LOOK_EVERY if 2 * len(running) > peak else LOOK_SOON
            self._decode(step, num_steps)
            answers |= {row.number: answer for row, answer in self._take_finished(step)}
        return answers

    def _queue(self, numbered: Sequence[tuple[int, Request]]) -> list[Row]:
        """Rows in the order in which they start, last first.

        Rows that continue in their session's lane start first, before other rows take that lane. Then come the longest
        rows: none of them should run alone at the end.
        """
        rows = [Row(number, request) for number, request in numbered]
        taken: set[int] = set()
        for row in rows:
            lane, num_known = self._table.find_known(row.request)
            if num_known and lane not in taken:  # of two requests of one session, the first continues in its lane
                row.lane, row.num_known = lane, num_known
                taken.add(lane)

        def rank(row: Row) -> tuple[bool, int, tuple[int, ...]]:
            # Equal prompts are adjacent; continued rows may come in any order.
            return row.num_known > 0, _find_max_length(row.request), () if row.num_known else row.request.prompt_ids

        return sorted(rows, key=rank)

    def _admit(self, waiting: list[Row], step: DecodingStep) -> None:
        """Start waiting rows if enough lanes are free."""
        if not waiting:
            return
        free = self._table.list_free()
        if self._table.running and len(free) < min(len(waiting), REFILL * self._table.num_lanes):
            return
        continued = [row for row in waiting if row.num_known]
        for row in continued:
            self._table.seat(row, row.lane)
        taken = {row.lane for row in continued}
        free = [lane for lane in free if lane not in taken]
        del waiting[len(waiting) - len(continued) :]
        new = [waiting.pop() for _ in range(min(len(free), len(waiting)))]
        for row, lane in zip(new, free, strict=False):
            self._table.seat(row, lane)
        started = [*continued, *new]
        # The state first: its transfer waits for the device, which has nothing to do yet.
        step.state.start([row.lane for row in started], [row.request for row in started])
        assert self._prefill is not None, "_prepare_step makes a prefill for each step"
        self._prefill.read(started)

    def _decode(self, step: DecodingStep, max_steps: int) -> None:
        """Run some steps with all running rows, in the smallest shape that holds them."""
        running = self._table.running
        num = min(_round_up(len(running), MIN_ROWS), self.capacity.lanes)
        order = self._table.close_up(num)
        targets = [lane for lane, source in enumerate(order) if lane != source]
        if targets:
            where = torch.tensor(targets, device=self.device)
            origin = torch.tensor([order[lane] for lane in targets], device=self.device)
            step.cache.move(origin, where)
            step.state.move(origin, where)
        steps = min(max_steps, max(row.tokens_left for row in running.values()))
        widest = max(row.columns_after(steps) for row in running.values())
        width = _round_up(widest, MIN_WIDTH)
        if width > MIN_WIDTH and widest <= width * 3 // 4:  # half-way between two powers of two is captured too
            width = width * 3 // 4
        lanes = list(running)
        seeds = np.array([running[lane].request.seed for lane in lanes], dtype=np.uint64)
        sampled = np.array([running[lane].num_sampled for lane in lanes], dtype=np.int64)
        draws_NL = np.zeros((steps, self.capacity.lanes))
        draws_NL[:, lanes] = draw_uniforms(seeds, sampled + np.arange(steps)[:, None])
        step.state.set_draws(draws_NL)
        is_truncated = any(row.request.is_truncated for row in running.values())
        step.run(num, min(width, self.capacity.width), steps=steps, is_truncated=is_truncated)
        for row in running.values():
            row.num_sampled += steps

    def _take_finished(self, step: DecodingStep) -> list[tuple[Row, Generation]]:
        is_done, counts = step.state.read_progress()
        lanes = [lane for lane in self._table.running if is_done[lane]]
        if not lanes:
            return []
        finished = []
        responses = step.state.read_responses(lanes, [counts[lane] for lane in lanes])
        for lane, (ids, logp, entropy) in zip(lanes, responses, strict=True):
            prompt = self._table.running[lane].request.prompt_ids
            row = self._table.release(lane, (*prompt, *ids[:-1]))
            stopped = ids[-1] in row.request.stop_ids
            spans = (VersionSpan(self._plain.version, len(ids)),)
            answer = Generation(response_ids=ids, logp=logp, entropy=entropy, stopped=stopped, versions=spans)
            finished.append((row, answer))
        return finished

    def _prepare_step(self, requests: Sequence[Request]) -> DecodingStep:
        """The decoding step over storage that is large enough for requests; sessions keep their columns."""
        capacity = self._choose_capacity(requests)
        if self._step is not None and capacity == self.capacity:
            return self._step
        cache = self._make_cache(capacity)
        state = LaneState.empty(
            lanes=capacity.lanes, stops=capacity.stops, tokens=capacity.tokens, steps=LOOK_LATE, device=self.device
        )
        self._table.resize(capacity.lanes)
        self.capacity = capacity
        step = DecodingStep(self._model, cache, state, self._use_graphs, self._use_kernel, self._layers)
        light = min(LIGHT_OPERATIONS / (2 * self._num_weights), MAX_LIGHT_TOKENS)
        if self._layers is None:
            self._prefill = Prefill(self._model.base_model, cache, batch_tokens=self._batch_tokens, light_tokens=light)
        else:
            pool = step.pool if self._use_graphs else None
            self._prefill = FlatPrefill(
                self._layers, cache, batch_tokens=self._batch_tokens, light_tokens=light, pool=pool
            )
        self._step = step
        return step

    def _make_cache(self, capacity: Capacity) -> LaneCache:
        """Storage for keys and values, with the earlier columns as far as there is room."""
        self._earlier_captures, step = self.num_captures, self._step
        self._step = self._prefill = None
        try:
            if step is not None:
                return step.cache.resize(lanes=capacity.lanes, width=capacity.width)
            self._table.clear()
            device, dtype = self.device, self.dtype
            return LaneCache.empty(self._heads, lanes=capacity.lanes, width=capacity.width, dtype=dtype, device=device)
        except torch.OutOfMemoryError:
            raise EngineFault(
                f"the keys and values of {capacity.lanes} responses of up to {capacity.width} tokens do not fit in the "
                "device's free memory; lower engine.memory or engine.rows"
            ) from None

    def _choose_capacity(self, requests: Sequence[Request]) -> Capacity:
        """The storage that requests need, at least the current one; fewer lanes if they would not fit in memory."""
        longest, now = max(_find_max_length(request) for request in requests), self.capacity
        width = max(now.width, _round_up(longest, MIN_WIDTH))
        column = sum(num * (key + value) for num, key, value in self._heads) * self.dtype.itemsize
        if int(self._memory // (column * width)) < 1:
            width = max(now.width, longest)
        max_lanes = int(self._memory // (column * width))
        if max_lanes < 1:
            raise EngineFault(
                f"the keys and values of one response of up to {longest} tokens take {column * width:,} bytes, but the "
                f"engine may use {int(self._memory):,}; raise engine.memory, or shorten prompts and responses"
            )
        return Capacity(
            lanes=min(max_lanes, self._rows, max(now.lanes, _round_up(len(requests), MIN_ROWS))),
            width=width,
            tokens=max(now.tokens, _round_up(max(request.max_tokens for request in requests), MIN_TOKENS)),
            stops=max(now.stops, _round_up(max(len(request.stop_ids) for request in requests), MIN_STOPS)),
        )


def _find_max_length(request: Request) -> int:
    return len(request.prompt_ids) + request.max_tokens


def _round_up(number: int, smallest: int) -> int:
    """Round up to a power of two times `smallest`: few sizes, so few captures."""
    return int(smallest * 2 ** max(0, (max(1, -(-number // smallest)) - 1).bit_length()))


def _find_shortest_window(model: PreTrainedModel) -> float:
    """Sequence length up to which every layer sees all earlier tokens: a sliding window does not matter before."""
    config = model.config.get_text_config()
    kinds = getattr(config, "layer_types", None)
    strange = sorted(set(kinds or ()) - {"full_attention", "sliding_attention"})
    if strange:
        raise EngineFault(
            f"the model has layers of kind {', '.join(strange)}, which KV-cache slots do not support; set "
            "engine.decoding = 'eager'"
        )
    window = getattr(config, "sliding_window", None)
    slides = "sliding_attention" in kinds if kinds else bool(window)
    return float(window) if slides and window else float("inf")


@torch.no_grad()
def _find_head_shapes(model: PreTrainedModel) -> tuple[list[HeadShape], torch.dtype]:
    """The head shape of each layer and the dtype of the cache, found by reading one token."""
    cache = DynamicCache(config=model.config)
    model.base_model(input_ids=torch.zeros(1, 1, dtype=torch.long, device=model.device), past_key_values=cache)
    layers: list[Any] = list(cache.layers)
    strange = next((layer for layer in layers if not isinstance(getattr(layer, "keys", None), torch.Tensor)), None)
    if strange is not None:
        raise EngineFault(
            f"the model keeps something else than keys and values ({type(strange).__name__}), which KV-cache slots do "
            "not support; set engine.decoding = 'eager'"
        )
    pairs = [(layer.keys, layer.values) for layer in layers]
    return [(keys.shape[1], keys.shape[3], values.shape[3]) for keys, values in pairs], pairs[0][0].dtype


def unwrap_adapter(model: PreTrainedModel) -> PreTrainedModel:
    """The model inside a PEFT wrapper; the adapter stays in its layers."""
    inner: Callable[[], PreTrainedModel] | None = getattr(model, "get_base_model", None)
    return model if inner is None else inner()


# Do our own layers compute the same as the model's? Both read the same sequences.
#
# In a narrow precision every layer rounds. In a deep model with fresh weights, the sum of the rounding can hide wrong
# layers. So the first layers are also compared with a float32 copy of them. Ours may be only a little farther from it
# than the model's own.

TRIAL_LENGTHS = (37, 5, 150, 1)
"""Tokens of the trial's sequences; each is read in two parts."""
FIRST_LAYERS = 2
"""Layers that are copied to float32: few, since their weights take twice the memory."""

TokenIds = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class LayersTrial:
    """Our own layers over a model, and the shape of their cache."""

    model: PreTrainedModel
    layers: OwnLayers
    heads: Sequence[HeadShape]
    """The head shape of each layer."""
    dtype: torch.dtype
    """Of keys and values."""
    window: float
    """Sequence length up to which every layer of the model sees all earlier tokens, as ours do."""

    @torch.no_grad()
    def measure_gap(self) -> float:
        sequences = self._draw_sequences()
        return _find_relative_gap(
            self._read_by_ours(sequences, len(self.heads)), self._read_by(self.model.base_model, sequences)
        )

    @torch.no_grad()
    def compare_rounding(self) -> float:
        """Distance of our first layers from float32, divided by that of the model's first layers."""
        sequences = self._draw_sequences()
        body: Any = self.model.base_model
        narrow = copy.copy(body)  # with its first layers only, which stay the same modules
        narrow._modules = {**body._modules, "layers": torch.nn.ModuleList(body.layers[:FIRST_LAYERS])}
        wide = copy.deepcopy(narrow, {id(narrow.embed_tokens): torch.nn.Identity()}).float()
        exact = self._read_by(wide, sequences, dtype=torch.float32)
        ours = _find_relative_gap(self._read_by_ours(sequences, len(narrow.layers)), exact)
        return ours / _find_relative_gap(self._read_by(narrow, sequences), exact)

    def _draw_sequences(self) -> list[TokenIds]:
        draw = torch.Generator().manual_seed(0)
        vocabulary = int(self.model.config.get_text_config().vocab_size)
        lengths = [int(min(length, self.window)) for length in TRIAL_LENGTHS]
        return [tuple(torch.randint(vocabulary, (length,), generator=draw).tolist()) for length in lengths]

    def _read_by_ours(self, sequences: Sequence[TokenIds], num: int) -> torch.Tensor:
        """The last hidden states of the second halves, by our first `num` layers."""
        device, heads = self.model.device, self.heads[:num]
        cache = LaneCache.empty(heads, lanes=len(sequences), width=256, dtype=self.dtype, device=device)
        layers = self.layers.take_first(num)
        first = [UnreadRow(ids[: len(ids) // 2], 0, (lane,)) for lane, ids in enumerate(sequences) if len(ids) > 1]
        rest = [UnreadRow(ids[len(ids) // 2 :], len(ids) // 2, (lane,)) for lane, ids in enumerate(sequences)]
        layers.read_rows(first, cache)
        return layers.read_rows(rest, cache, is_needed=True).double()

    def _read_by(self, body: Any, sequences: Sequence[TokenIds], dtype: torch.dtype | None = None) -> torch.Tensor:
        """The same by the body of a model, from the model's embeddings."""
        states, embed = list[torch.Tensor](), self.model.get_input_embeddings()
        for ids in sequences:
            embedded = embed(torch.tensor([ids], device=self.model.device))
            hidden = body(inputs_embeds=embedded.to(dtype or embedded.dtype)).last_hidden_state
            states.append(hidden[0, len(ids) // 2 :].double())
        return torch.cat(states)


def _find_relative_gap(states: torch.Tensor, expected: torch.Tensor) -> float:
    return float((states - expected).norm() / expected.norm())
