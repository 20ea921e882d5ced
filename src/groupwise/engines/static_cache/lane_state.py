"""The state of the lanes on the device: what a decoding step reads and writes beside keys and values.

All of it lies in tensors that never move, so that a captured step finds it again.

Axes: L lanes, X stop tokens, N steps between two looks of the host, M tokens of the longest response and one to spare.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import torch

from groupwise.engines.engine import Request
from groupwise.engines.static_cache.token_batch import send

NOTHING = -1
"""No token: fills the places of stop tokens that a request does not have."""
SampledResponse = tuple[tuple[int, ...], tuple[float, ...], tuple[float, ...]]
"""Tokens of a response, their log-probs and the entropies."""


@dataclass(frozen=True, eq=False, kw_only=True)
class LaneState:
    """What each lane has sampled and still may, for the responses that decode in them."""

    token: torch.Tensor
    """The token that is read next (L, 1)."""
    length: torch.Tensor
    """Columns written so far: where the next token goes, and its position (L)."""
    count: torch.Tensor
    """Tokens sampled (L)."""
    max_tokens: torch.Tensor
    """How many tokens may be sampled (L)."""
    is_done: torch.Tensor
    """Whether nothing is sampled any more (L); a lane that is not in use is done."""
    temperature: torch.Tensor
    """What divides the logits (L, 1); 1 where the likeliest token is taken."""
    is_greedy: torch.Tensor
    """Whether the likeliest token is taken (L)."""
    stops: torch.Tensor
    """Tokens that end the response (L, X)."""
    ids: torch.Tensor
    """The tokens sampled (L, M)."""
    logp: torch.Tensor
    """Their log-probs (L, M)."""
    entropy: torch.Tensor
    """The entropies where they were sampled (L, M)."""
    draws: torch.Tensor
    """Random numbers of the steps to come (N, L)."""
    next_draw: torch.Tensor
    """Which of the random numbers are next (1)."""

    @classmethod
    def empty(cls, *, lanes: int, stops: int, tokens: int, steps: int, device: torch.device) -> LaneState:
        """The state of lanes of which none is in use."""

        def zeros(*shape: int, dtype: torch.dtype = torch.long) -> torch.Tensor:
            return torch.zeros(*shape, dtype=dtype, device=device)

        return cls(
            token=zeros(lanes, 1),
            length=zeros(lanes),
            count=zeros(lanes),
            max_tokens=zeros(lanes),
            is_done=zeros(lanes, dtype=torch.bool).fill_(True),
            temperature=zeros(lanes, 1, dtype=torch.float32).fill_(1.0),
            is_greedy=zeros(lanes, dtype=torch.bool),
            stops=zeros(lanes, stops).fill_(NOTHING),
            ids=zeros(lanes, tokens + 1),
            logp=zeros(lanes, tokens + 1, dtype=torch.float32),
            entropy=zeros(lanes, tokens + 1, dtype=torch.float32),
            draws=zeros(steps, lanes, dtype=torch.float64),
            next_draw=zeros(1),
        )

    def start(self, lanes: Sequence[int], requests: Sequence[Request]) -> None:
        """Begin responses in some lanes: the last token of each prompt is the first that is read."""
        num_stops = self.stops.shape[1]
        table = np.full((len(lanes), 5 + num_stops), NOTHING, dtype=np.float64)
        for row, (lane, request) in enumerate(zip(lanes, requests, strict=True)):
            length = len(request.prompt_ids) - 1
            table[row, :5] = lane, request.prompt_ids[-1], length, request.max_tokens, request.temperature
            if request.stop_ids:
                table[row, 5 : 5 + len(request.stop_ids)] = request.stop_ids
        numbers = send(table, self.token.device)
        whole, temperature = numbers.long(), numbers[:, 4].float()
        where = whole[:, 0]
        self.token[where] = whole[:, 1:2]
        self.length[where] = whole[:, 2]
        self.count[where] = 0
        self.max_tokens[where] = whole[:, 3]
        self.is_greedy[where] = temperature == 0
        self.temperature[where] = torch.where(temperature == 0, 1.0, temperature)[:, None]
        self.stops[where] = whole[:, 5:]
        self.is_done[where] = False

    def set_draws(self, draws_NL: npt.NDArray[np.float64]) -> None:
        """Put the random numbers of the next steps where they are read."""
        self.draws[: len(draws_NL)] = send(draws_NL, self.draws.device)
        self.next_draw.zero_()

    def record(self, num: int, token_B1: torch.Tensor, logp_B: torch.Tensor, entropy_B: torch.Tensor) -> None:
        """Write down what the first lanes sampled and move on; lanes that were done stay as they are.

        A lane that is done has something written behind its last token, which nobody reads.
        """
        count_B, is_done_B = self.count[:num], self.is_done[:num]
        is_alive_B = ~is_done_B
        self.ids[:num].scatter_(1, count_B[:, None], token_B1)
        self.logp[:num].scatter_(1, count_B[:, None], logp_B[:, None])
        self.entropy[:num].scatter_(1, count_B[:, None], entropy_B[:, None])
        self.token[:num] = torch.where(is_alive_B[:, None], token_B1, self.token[:num])
        count_B += is_alive_B
        self.length[:num] += is_alive_B
        is_done_B |= (token_B1 == self.stops[:num]).any(1) | (count_B >= self.max_tokens[:num])
        self.next_draw.add_(1)

    def read_progress(self) -> tuple[list[int], list[int]]:
        """Whether each lane is done, and how many tokens it has sampled; the host waits for the device."""
        is_done, counts = torch.stack((self.is_done.long(), self.count)).tolist()
        return is_done, counts

    def read_responses(self, lanes: Sequence[int], counts: Sequence[int]) -> list[SampledResponse]:
        """The first tokens of the responses in some lanes."""
        where = send(np.array(lanes), self.token.device)
        sampled = [column[where, : max(counts)].double() for column in (self.ids, self.logp, self.entropy)]
        ids, logp, entropy = torch.stack(sampled).cpu().numpy()
        rows = zip(counts, ids.astype(np.int64).tolist(), logp.tolist(), entropy.tolist(), strict=True)
        return [(tuple(ids[:num]), tuple(logp[:num]), tuple(entropy[:num])) for num, ids, logp, entropy in rows]

    def move(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Put the state of some lanes into others; sources are read before anything is written."""
        for field in fields(self):
            if field.name not in ("draws", "next_draw"):
                column = getattr(self, field.name)
                column[targets] = column[sources]
