"""An engine over any Hugging Face causal language model, on CPU or GPU.

Equal prompts are prefilled once. Prompts of similar length run in one batch, and finished rows leave the batch. If a
rollout's next prompt begins like its previous one, the keys and values of the common prefix are reused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from transformers import Cache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from groupwise.data.samples import PromptAndResponse
from groupwise.engines.engine import Generation, Request, VersionSpan
from groupwise.engines.sampling import draw_tokens, draw_uniforms
from groupwise.models.attention import UnwrittenTensor
from groupwise.parts.slots import CAPABILITIES
from groupwise.system.errors import EngineFault

MAX_FINISHED = 0.5
"""Fraction of a batch's rows that may have finished before they leave it: leaving copies all keys and values."""


@dataclass
class _Row:
    """One response that is being sampled."""

    number: int
    request: Request
    ids: list[int] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)
    entropy: list[float] = field(default_factory=list)
    has_stopped: bool = False
    is_done: bool = False


class TransformersEngine:
    """Samples from and scores with a Hugging Face causal language model."""

    gives: ClassVar[frozenset[str]] = frozenset(CAPABILITIES)

    def __init__(
        self, model: PreTrainedModel, *, version: int = 0, batch_tokens: int = 32768, session_tokens: int = 262144
    ) -> None:
        self._model = model.eval()
        self.device = next(model.parameters()).device
        self._batch_tokens = batch_tokens
        self._sessions = KvSessions(max_tokens=session_tokens)
        self.version = version
        self.context: int | None = getattr(model.config.get_text_config(), "max_position_embeddings", None)

    def load(self, weights: Mapping[str, torch.Tensor], *, version: int) -> None:
        """Copy weights by name into the model, except those that it shares. Forget keys and values of the old ones."""
        own = dict(self._model.named_parameters())
        unknown = sorted(weights.keys() - own.keys())
        if unknown:
            raise EngineFault(f"the engine's model has no parameter {unknown[0]!r}; sync weights of the same model")
        with torch.no_grad():
            for name, value in weights.items():
                if own[name].data_ptr() != value.data_ptr():  # an engine that shares the learner's has them already
                    own[name].copy_(value)
        self._sessions.clear()
        self.version = version

    @torch.inference_mode()
    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        self._sessions.keep_only(requests)
        answers: dict[int, Generation] = {}
        for batch in self._cut_batches(requests):
            rows = [_Row(number, requests[number]) for number in batch]
            self._sample(rows)
            for row in rows:
                answers[row.number] = Generation(
                    response_ids=tuple(row.ids),
                    logp=tuple(row.logp),
                    entropy=tuple(row.entropy),
                    stopped=row.has_stopped,
                    versions=(VersionSpan(self.version, len(row.ids)),),
                )
        return [answers[number] for number in range(len(requests))]

    def _cut_batches(self, requests: Sequence[Request]) -> Iterator[list[int]]:
        """Requests of similar length together, as many as the token budget holds."""
        batch: list[int] = []
        lengths = [len(request.prompt_ids) for request in requests]
        for number in sorted(range(len(requests)), key=lengths.__getitem__):
            request = requests[number]
            if not request.prompt_ids:
                raise EngineFault("a request has an empty prompt; begin prompts with a start token")
            if batch and (len(batch) + 1) * (len(request.prompt_ids) + request.max_tokens) > self._batch_tokens:
                yield batch
                batch = []
            batch.append(number)
        if batch:
            yield batch

    def _sample(self, rows: list[_Row]) -> None:
        """Sample until all rows are done. The inner loop runs once per token and row, so it calls no function."""
        device = self.device
        logits, cache, mask, lengths = self._prefill(rows)
        seeds = np.array([row.request.seed for row in rows], dtype=np.uint64)
        temperature = torch.tensor([[row.request.temperature] for row in rows], device=device)
        is_greedy = temperature[:, 0] == 0
        has_greedy = bool(is_greedy.any())
        temperature = torch.where(temperature == 0, 1.0, temperature)
        top_p = torch.tensor([[row.request.top_p] for row in rows], device=device, dtype=torch.float64)
        top_k = torch.tensor([[row.request.top_k] for row in rows], device=device)
        is_truncated = any(row.request.is_truncated for row in rows)
        position = 0
        while True:
            limits = (top_p, top_k) if is_truncated else None
            draws = torch.as_tensor(draw_uniforms(seeds, position), device=device)
            tokens, logps, entropies = draw_tokens(
                logits, temperature, is_greedy if has_greedy else None, draws, limits
            )
            sampled = zip(rows, tokens[:, 0].tolist(), logps.tolist(), entropies.tolist(), strict=True)
            finished = []
            for i, (row, token, logp, entropy) in enumerate(sampled):
                if row.is_done:
                    continue
                row.ids.append(token)
                row.logp.append(logp)
                row.entropy.append(entropy)
                row.has_stopped = token in row.request.stop_ids
                row.is_done = row.has_stopped or len(row.ids) == row.request.max_tokens
                if row.is_done:
                    finished.append((i, row.request, row.ids))
            if finished:
                self._sessions.keep(finished, cache, mask)
            left = [i for i, row in enumerate(rows) if not row.is_done]
            if not left:
                return
            if len(left) <= MAX_FINISHED * len(rows):
                kept = torch.tensor(left, device=device)
                cache.batch_select_indices(kept)
                mask, lengths, temperature, is_greedy = mask[kept], lengths[kept], temperature[kept], is_greedy[kept]
                top_p, top_k = top_p[kept], top_k[kept]
                rows, seeds = [rows[i] for i in left], seeds[left]
            mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=1)
            out = self._model(
                input_ids=torch.tensor([[row.ids[-1]] for row in rows], device=device),
                attention_mask=mask,
                position_ids=(lengths + position)[:, None],
                past_key_values=cache,
                use_cache=True,
            )
            logits, position = out.logits[:, -1], position + 1

    def _prefill(self, rows: list[_Row]) -> tuple[torch.Tensor, Cache, torch.Tensor, torch.Tensor]:
        """Run each distinct prompt once: logits, cache, mask and prompt length of every row."""
        numbers: dict[tuple[int, ...], int] = {}
        owners: dict[tuple[int, ...], Request] = {}
        for row in rows:
            numbers.setdefault(row.request.prompt_ids, len(numbers))
            owners[row.request.prompt_ids] = row.request
        past = self._sessions.replay([*owners.values()], self.device)
        ids, new_mask, positions = _pad_left(
            [prompt[known:] for prompt, known in zip(numbers, past.lengths, strict=True)], past.lengths, self.device
        )
        mask = torch.cat([past.mask, new_mask], dim=1)
        out = self._model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=past.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        lengths = torch.tensor([len(prompt) for prompt in numbers], device=self.device)
        logits, cache = out.logits[:, -1], out.past_key_values
        if len(numbers) < len(rows):
            expand = torch.tensor([numbers[row.request.prompt_ids] for row in rows], device=self.device)
            # On a CPU, a decoding step spends most of its time reading keys.
            share_prompts(cache, expand) if self.device.type == "cpu" else cache.batch_select_indices(expand)
            logits, mask, lengths = logits[expand], mask[expand], lengths[expand]
        return logits, cache, mask, lengths

    @torch.inference_mode()
    def score(self, sequences: Sequence[PromptAndResponse], *, temperature: float = 1.0) -> list[tuple[float, ...]]:
        scores: dict[int, tuple[float, ...]] = {}
        requests = [
            Request(prompt_ids=(*prompt, *response), seed=0, max_tokens=0, temperature=temperature)
            for prompt, response in sequences
        ]
        for batch in self._cut_batches(requests):
            ids, mask, positions = _pad_left([requests[i].prompt_ids for i in batch], [0] * len(batch), self.device)
            responses = [list(sequences[number][1]) for number in batch]
            logits = self._model(
                input_ids=ids, attention_mask=mask, position_ids=positions, logits_to_keep=max(map(len, responses)) + 1
            ).logits
            for row, (number, ids_of_response) in enumerate(zip(batch, responses, strict=True)):
                response = torch.tensor(ids_of_response, device=self.device, dtype=torch.long)
                predicting = logits[row, logits.shape[1] - len(response) - 1 : logits.shape[1] - 1]
                logp = (predicting.float() / temperature).log_softmax(-1).gather(1, response[:, None])[:, 0]
                scores[number] = tuple(logp.tolist())
        return [scores[number] for number in range(len(sequences))]


def _pad_left(
    sequences: Sequence[Sequence[int]], starts: Sequence[int], device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids, mask and positions of left-padded sequences; each has its own first position."""
    width = max(map(len, sequences))
    ids = torch.zeros(len(sequences), width, dtype=torch.long)
    mask, positions = torch.zeros_like(ids), torch.zeros_like(ids)
    for row, (sequence, start) in enumerate(zip(sequences, starts, strict=True)):
        ids[row, width - len(sequence) :] = torch.tensor(list(sequence))
        mask[row, width - len(sequence) :] = 1
        positions[row, width - len(sequence) :] = torch.arange(start, start + len(sequence))
    return ids.to(device), mask.to(device), positions.to(device)


# A key-value cache with spare room: a decoding step writes its keys in place instead of copying all earlier ones.
#
# Rows that begin with the same prompt can share its columns (`share_prompts`). Each row has its own later columns.
#
# Axes: B rows, A attention heads, W columns, D width of a head.

GROWTH = 1.25
"""Factor by which a full layer grows: long responses copy rarely, and little memory is wasted."""
ROOM = 16
"""Columns that a full layer gets at least."""

KeysAndValues = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, eq=False)
class Prompts:
    """Columns that rows share."""

    states: KeysAndValues
    places: Places


@dataclass(frozen=True, eq=False)
class Stored:
    """Snapshot of a layer; later writes to the layer do not change it."""

    own: KeysAndValues
    """Keys and values of the rows, with room at the end."""
    prompts: Prompts | None
    """Earlier columns that rows share."""

    def select_rows(self, numbers: torch.Tensor) -> KeysAndValues:
        keys, values = self.own[0][numbers], self.own[1][numbers]
        if self.prompts is None:
            return keys, values
        prompt, (shared_keys, shared_values) = self.prompts.places.prompt[numbers], self.prompts.states
        return torch.cat((shared_keys[prompt], keys), dim=2), torch.cat((shared_values[prompt], values), dim=2)


class RoomyLayer(DynamicLayer):
    """One layer's keys and values: views of longer storage. Written columns never change."""

    stored: KeysAndValues
    length: int
    prompts: Prompts | None = None

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append new columns; return all columns so far."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.stored, self.length = (key_states[:, :, :0], value_states[:, :, :0]), 0
        start, end = self.length, self.length + key_states.shape[2]
        written: list[torch.Tensor] = []
        for stored, new in zip(self.stored, (key_states, value_states), strict=True):
            room = stored
            if end > stored.shape[2]:  # it is full
                room = new.new_zeros(*new.shape[:2], max(int(GROWTH * end), end + ROOM), new.shape[3])
                room[:, :, :start] = stored[:, :, :start]
            room[:, :, start:end] = new
            written.append(room)
        self.stored = written[0], written[1]
        return self.show(end)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Copy the rows with these numbers, some of them several times; drop the others."""
        keys, values = self.stored
        self.stored = keys[indices], values[indices]
        if self.prompts is not None:
            used, prompt = torch.unique(self.prompts.places.prompt[indices], return_inverse=True)
            keys, values = self.prompts.states
            self.prompts = Prompts((keys[used], values[used]), Places.of(prompt, len(used)))
        self.show(self.length)

    def show(self, length: int) -> KeysAndValues:
        """Set and return what attention reads: the shared prompts and the first `length` stored columns."""
        self.length = length
        self.keys, self.values = self.stored[0][:, :, :length], self.stored[1][:, :, :length]
        if self.prompts is not None:
            keys, values = self.prompts.states
            self.keys = SharedStates.of(keys, self.prompts.places, self.keys)
            self.values = SharedStates.of(values, self.prompts.places, self.values)
        return self.keys, self.values


def share_prompts(cache: Cache, prompt: torch.Tensor) -> None:
    """Turn the rows of a cache into prompts that new rows share; `prompt` is the prompt number of each new row (B).

    The new rows have no columns of their own yet.
    """
    places: Places | None = None
    for layer in cache.layers:
        if isinstance(layer, RoomyLayer):
            keys, values = layer.stored
            places = places or Places.of(prompt, len(keys))
            keys, values = keys[:, :, : layer.length].contiguous(), values[:, :, : layer.length].contiguous()
            layer.prompts = Prompts((keys, values), places)
            layer.stored = _make_storage(keys, len(prompt)), _make_storage(values, len(prompt))
            layer.show(0)


def _make_storage(like: torch.Tensor, rows: int, width: int = 0) -> torch.Tensor:
    return like.new_zeros(rows, like.shape[1], width + ROOM, like.shape[3])


# Keys and values kept from a rollout's last prompt, for the prefix that its next prompt repeats.
#
# With the full or anchored history, a step's prompt begins with the previous prompt and response. With a sliding
# window the common prefix is short and nothing is reused. A row is kept as a reference to its batch. Only reused rows
# are copied, one batch at a time.
#
# Axes: B rows, W columns.

WORTHWHILE = 0.3
"""Fraction of the prompts' tokens that must be known for reuse to be faster than a full prefill."""
DENSE = 0.6
"""Fraction of a batch's columns that must hold tokens; below it, the gaps between rows of unequal length are closed."""

Layers = tuple[KeysAndValues, ...]


@dataclass(frozen=True)
class Past:
    """What a batch of prompts starts from: a cache, its mask, and the number of tokens known of each prompt."""

    cache: Cache
    mask: torch.Tensor
    lengths: list[int]


@dataclass(frozen=True, eq=False)
class _Kept:
    """A row of a batch: where its keys and values are."""

    ids: tuple[int, ...]
    layers: tuple[Stored, ...]
    row: int
    mask: torch.Tensor
    """Columns that hold its tokens, in order (W)."""


class KvSessions:
    """The last prompt of each session that is running."""

    def __init__(self, *, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._kept: dict[str, _Kept] = {}
        self._tokens = 0

    def clear(self) -> None:
        self._kept.clear()
        self._tokens = 0

    def keep_only(self, requests: Sequence[Request]) -> None:
        """Forget the sessions that no request continues. Rollouts run synchronously, so these have ended."""
        continued = {request.session for request in requests}
        for session in [*self._kept]:
            if session not in continued:
                self._tokens -= len(self._kept.pop(session).ids)

    def keep(self, finished: Sequence[tuple[int, Request, Sequence[int]]], cache: Cache, mask: torch.Tensor) -> None:
        """Keep finished rows (number, request, response): the prompt and all sampled tokens but the last.

        The model has not read the last one.
        """
        layers = tuple([Stored(layer.stored, layer.prompts) for layer in cache.layers if isinstance(layer, RoomyLayer)])
        for row, request, response in finished:
            if request.session is None:
                continue
            before = self._kept.pop(request.session, None)
            self._tokens -= 0 if before is None else len(before.ids)
            ids = (*request.prompt_ids, *response[:-1])
            if self._tokens + len(ids) <= self._max_tokens:
                self._kept[request.session] = _Kept(ids=ids, layers=layers, row=row, mask=mask[row])
                self._tokens += len(ids)

    def replay(self, requests: Sequence[Request], device: torch.device) -> Past:
        """The longest known prefixes of prompts; an empty cache if too little is known to be worth the copy."""
        kept, lengths, asked = list[_Kept | None](), list[int](), 0
        for request in requests:
            entry, known, prompt = self._kept.get(request.session or ""), 0, request.prompt_ids
            if entry is not None:
                known = min(len(entry.ids), len(prompt) - 1)  # at least one is read to predict the next
                if entry.ids[:known] != prompt[:known]:
                    known = next(i for i in range(known) if entry.ids[i] != prompt[i])
            kept.append(entry)
            lengths.append(known)
            asked += len(prompt)
        cache = Cache(layer_class_to_replicate=RoomyLayer)  # grows by one layer per layer of the model
        if sum(lengths) < WORTHWHILE * asked:
            nothing = torch.zeros(len(requests), 0, dtype=torch.long, device=device)
            return Past(cache, nothing, [0] * len(requests))
        mask, layers = _close_gaps(*_gather(kept, lengths, device))
        for stored in layers:
            layer = RoomyLayer()  # type: ignore[no-untyped-call]
            layer.lazy_initialization(*stored)
            layer.stored = stored
            layer.show(mask.shape[1])
            cache.layers.append(layer)
        return Past(cache, mask, lengths)


def _gather(kept: Sequence[_Kept | None], lengths: Sequence[int], device: torch.device) -> tuple[torch.Tensor, Layers]:
    """Put the rows of several batches side by side, with their last columns aligned."""
    batches: dict[int, dict[int, _Kept]] = {}
    masks: dict[int, torch.Tensor] = {}
    for number, (entry, length) in enumerate(zip(kept, lengths, strict=True)):
        if entry is not None and length:
            batches.setdefault(id(entry.layers[0].own[0]), {})[number] = entry
            # Up to the column of the last known token.
            masks[number] = entry.mask[: int(torch.searchsorted(entry.mask.cumsum(0), length)) + 1]
    width = max(map(len, masks.values()))
    mask = torch.zeros(len(kept), width, dtype=torch.long, device=device)
    gathered: Layers = ()
    for entries in batches.values():
        numbers = [*entries]
        shown = max([len(masks[number]) for number in numbers])
        for number in numbers:
            mask[number, width - shown : width - shown + len(masks[number])] = masks[number]
        rows = torch.tensor([entry.row for entry in entries.values()], device=device)
        taken = tuple([layer.select_rows(rows) for layer in entries[numbers[0]].layers])
        if len(numbers) == len(kept):
            return mask, taken
        gathered = gathered or tuple(
            [(_make_storage(keys, len(kept), width), _make_storage(values, len(kept), width)) for keys, values in taken]
        )
        places = torch.tensor(numbers, device=device)
        for targets, pair in zip(gathered, taken, strict=True):
            for target, values in zip(targets, pair, strict=True):
                target[places, :, width - shown : width] = values[:, :, :shown]
    return mask, gathered


def _close_gaps(mask: torch.Tensor, layers: Layers) -> tuple[torch.Tensor, Layers]:
    """Close the gaps between a row's columns if they take up too much of the batch."""
    longest = int(mask.sum(1).max())
    if int(mask.sum()) >= DENSE * mask.numel():
        return mask, layers
    # A stable sort moves the columns that hold tokens to the right, in their order.
    order = torch.sort(mask, dim=1, stable=True).indices[:, mask.shape[1] - longest :]
    room = order.new_zeros(len(order), ROOM)  # any column: nothing has been written there yet
    index = torch.cat([order, room], dim=1)[:, None, :, None]
    closed = tuple(
        (
            keys.gather(2, index.expand(-1, keys.shape[1], -1, keys.shape[3])),
            values.gather(2, index.expand(-1, values.shape[1], -1, values.shape[3])),
        )
        for keys, values in layers
    )
    return mask.gather(1, order), closed


# Keys and values of rows that begin with one of a few prompts. Each prompt is held once, whatever its number of rows.
#
# The rollouts of a group decode from one prompt. On a CPU, a decoding step spends its time reading keys. If every row
# had a copy of the prompt's keys, they would be read once per row. Held once, they are multiplied with all rows:
#
#     softmax(q [K_prompt, K_own]) [V_prompt, V_own] = p_prompt V_prompt + p_own V_own
#
# A model sees `SharedStates`: a tensor of keys or values in which the prompts are not repeated.
#
# Axes: B rows, G prompts, N most rows of a prompt, A attention heads, K heads of keys and values, P columns of a
# prompt, R columns of a row's own, W = P + R, D width of a head.


@dataclass(frozen=True, eq=False)
class Places:
    """Which prompt each row reads.

    Worked example: rows 0 and 1 read prompt 0, and row 2 reads prompt 1. Then `rows` is [[0, 1], [2, 2]], where the
    last entry is a filler. `back` is [0, 1, 2]: row 2 is entry 2 of the four.
    """

    prompt: torch.Tensor
    """Number of each row's prompt (B)."""
    rows: torch.Tensor
    """The rows of each prompt, filled up with one of them (G, N)."""
    back: torch.Tensor
    """The place of each row in that table, read row by row (B)."""
    is_in_order: bool
    """Whether that table lists the rows in their order without fillers; then nothing has to be moved."""

    @classmethod
    def of(cls, prompt: torch.Tensor, num_prompts: int) -> Places:
        """The places of rows, from the number of each row's prompt; every prompt has a row."""
        order = torch.argsort(prompt, stable=True)
        counts = torch.bincount(prompt, minlength=num_prompts)
        first = counts.cumsum(0) - counts
        widest = int(counts.max())
        within = torch.minimum(torch.arange(widest)[None], counts[:, None] - 1)
        rows = order[first[:, None] + within]
        back = torch.empty_like(prompt)
        back[order] = torch.repeat_interleave(torch.arange(num_prompts) * widest - first, counts) + torch.arange(
            len(prompt)
        )
        is_in_order = rows.numel() == len(prompt) and bool((order == torch.arange(len(prompt))).all())
        return cls(prompt=prompt, rows=rows, back=back, is_in_order=is_in_order)

    def gather(self, values: torch.Tensor) -> torch.Tensor:
        """Values of rows (B, K, M, ...) by prompt (G, K, N x M, ...)."""
        placed = values if self.is_in_order else values[self.rows.flatten()]
        split: torch.Tensor = placed.unflatten(0, tuple(self.rows.shape)).transpose(1, 2)
        return split.flatten(2, 3)

    def scatter(self, values: torch.Tensor, width: int) -> torch.Tensor:
        """Values by prompt (G, K, N x M, ...) back by row (B, K, M, ...), where M is `width`."""
        placed: torch.Tensor = values.unflatten(2, (self.rows.shape[1], width)).transpose(1, 2).flatten(0, 1)
        return placed if self.is_in_order else placed[self.back]


class SharedStates(UnwrittenTensor):
    """Keys or values of rows (B, K, W, D); their first columns are those of a prompt that rows share."""

    prompts: torch.Tensor
    places: Places
    own: torch.Tensor

    @classmethod
    def of(cls, prompts: torch.Tensor, places: Places, own: torch.Tensor) -> SharedStates:
        """Rows with the columns of their prompts (G, K, P, D), then their own (B, K, R, D)."""
        shape = (*own.shape[:2], prompts.shape[2] + own.shape[2], own.shape[3])
        states = own.new_zeros(()).expand(shape).as_subclass(cls)
        states.prompts, states.places, states.own = prompts, places, own
        return states

    def write_out(self) -> torch.Tensor:
        return torch.cat((self.prompts[self.places.prompt], self.own), dim=2)

    @classmethod
    def attend(cls, *tensors: Any, **settings: Any) -> torch.Tensor | None:
        """Attention of one query per row (B, A, 1, D) to its prompt and its own columns.

        None for calls that it does not cover: other queries, dropout, or a mask that differs between heads.
        """
        if len(tensors) != 3 or tensors[0].shape[2] != 1 or settings.get("dropout_p") or settings.get("is_causal"):
            return None
        query, key, value = tensors
        mask, scale = settings.get("attn_mask"), settings.get("scale")
        is_row_mask = mask is None or (mask.ndim == 4 and mask.shape[1:3] == (1, 1))
        if not (is_row_mask and isinstance(key, SharedStates) and isinstance(value, SharedStates)):
            return None
        num_rows, num_heads, _, width = query.shape
        num_kept, length = key.own.shape[1], key.prompts.shape[2]
        repeats, places = num_heads // num_kept, key.places
        query_BKMD = (query * (width**-0.5 if scale is None else scale)).reshape(num_rows, num_kept, repeats, width)
        to_prompt = places.scatter(places.gather(query_BKMD) @ key.prompts.mT, repeats)
        scores = torch.cat((to_prompt, query_BKMD @ key.own.mT), dim=-1)
        if mask is not None:
            scores = scores.masked_fill_(~mask, -torch.inf) if mask.dtype == torch.bool else scores.add_(mask)
        weights = scores.softmax(-1)
        from_prompt = places.scatter(places.gather(weights[..., :length]) @ value.prompts, repeats)
        attended = from_prompt + weights[..., length:] @ value.own
        return attended.reshape(num_rows, num_heads, 1, value.own.shape[-1])
