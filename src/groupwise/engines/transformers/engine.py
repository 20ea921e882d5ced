"""An engine over any Hugging Face causal language model, on CPU or GPU.

Equal prompts are prefilled once. Prompts of similar length run in one batch, and finished rows leave the batch. If a
rollout's next prompt begins like its previous one, the keys and values of the common prefix are reused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from transformers import Cache, PreTrainedModel

from groupwise.data.samples import PromptAndResponse
from groupwise.engines.engine import Generation, Request, VersionSpan
from groupwise.engines.sampling import draw_tokens, draw_uniforms
from groupwise.engines.transformers.kv_cache import KvSessions, share_prompts
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
        self._batch_tokens = batch_tokens
        self._sessions = KvSessions(max_tokens=session_tokens)
        self.version = version
        self.context: int | None = getattr(model.config.get_text_config(), "max_position_embeddings", None)

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return torch.device(next(self._model.parameters()).device)

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
        """Answer requests, in their order."""
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
        position = 0
        while True:
            draws = torch.as_tensor(draw_uniforms(seeds, position), device=device)
            tokens, logps, entropies = draw_tokens(logits, temperature, is_greedy if has_greedy else None, draws)
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
        """Log-probability of each response token given its prompt."""
        scores: dict[int, tuple[float, ...]] = {}
        requests = [
            Request(prompt_ids=(*prompt, *response), seed=0, max_tokens=0, temperature=temperature)
            for prompt, response in sequences
        ]
        for batch in self._cut_batches(requests):
            ids, mask, positions = _pad_left([requests[i].prompt_ids for i in batch], [0] * len(batch), self.device)
            longest = max(len(sequences[number][1]) for number in batch)
            logits = self._model(
                input_ids=ids, attention_mask=mask, position_ids=positions, logits_to_keep=longest + 1
            ).logits
            for row, number in enumerate(batch):
                response = torch.tensor(list(sequences[number][1]), device=self.device, dtype=torch.long)
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
