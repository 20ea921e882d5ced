"""What a decoding step reads and writes beside keys and values, all of it on the device, in tensors that never move.

Axes: S slots, X stop tokens, N steps between two looks of the host, M most tokens of a response and one to spare.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
import torch

from groupwise.engines.engine import Request

NOTHING = -1
"""No token: fills the places of stop tokens that a request does not have."""
Said = tuple[tuple[int, ...], tuple[float, ...], tuple[float, ...]]
"""Tokens of a response, their log-probs and the entropies."""


@dataclass(frozen=True, eq=False, kw_only=True)
class SlotRows:
    """The rows' state: a row a slot."""

    token: torch.Tensor
    """The token that is read next (S, 1)."""
    length: torch.Tensor
    """Columns written so far: where the next token goes, and its position (S)."""
    count: torch.Tensor
    """Tokens sampled (S)."""
    most: torch.Tensor
    """Most tokens to sample (S)."""
    is_done: torch.Tensor
    """Whether nothing is sampled any more (S); a row that is not in use is done."""
    heat: torch.Tensor
    """What divides the logits (S, 1); 1 for a greedy row."""
    is_greedy: torch.Tensor
    """Whether the likeliest token is taken (S)."""
    stops: torch.Tensor
    """Tokens that end the response (S, X)."""
    ids: torch.Tensor
    """The tokens sampled (S, M)."""
    logp: torch.Tensor
    """Their log-probs (S, M)."""
    entropy: torch.Tensor
    """The entropies where they were sampled (S, M)."""
    draws: torch.Tensor
    """Random numbers of the steps to come (N, S)."""
    tick: torch.Tensor
    """Which of them is next (1)."""

    @classmethod
    def empty(cls, *, slots: int, stops: int, tokens: int, steps: int, device: torch.device) -> SlotRows:
        """Rows of which none is in use."""

        def zeros(*shape: int, dtype: torch.dtype = torch.long) -> torch.Tensor:
            return torch.zeros(*shape, dtype=dtype, device=device)

        return cls(
            token=zeros(slots, 1),
            length=zeros(slots),
            count=zeros(slots),
            most=zeros(slots),
            is_done=zeros(slots, dtype=torch.bool).fill_(True),
            heat=zeros(slots, 1, dtype=torch.float32).fill_(1.0),
            is_greedy=zeros(slots, dtype=torch.bool),
            stops=zeros(slots, stops).fill_(NOTHING),
            ids=zeros(slots, tokens + 1),
            logp=zeros(slots, tokens + 1, dtype=torch.float32),
            entropy=zeros(slots, tokens + 1, dtype=torch.float32),
            draws=zeros(steps, slots, dtype=torch.float64),
            tick=zeros(1),
        )

    def start(self, slots: Sequence[int], requests: Sequence[Request]) -> None:
        """Begin responses in some slots: the last token of each prompt is the first that is read."""
        device, most = self.token.device, self.stops.shape[1]
        where = torch.tensor(slots, device=device)
        heat = torch.tensor([request.temperature for request in requests], device=device)
        stops = [[*request.stop_ids, *[NOTHING] * (most - len(request.stop_ids))] for request in requests]
        self.token[where] = torch.tensor([[request.prompt_ids[-1]] for request in requests], device=device)
        self.length[where] = torch.tensor([len(request.prompt_ids) - 1 for request in requests], device=device)
        self.count[where] = 0
        self.most[where] = torch.tensor([request.max_tokens for request in requests], device=device)
        self.is_greedy[where] = heat == 0
        self.heat[where] = torch.where(heat == 0, 1.0, heat)[:, None]
        self.stops[where] = torch.tensor(stops, device=device, dtype=torch.long)
        self.is_done[where] = False

    def lay_out(self, draws_NS: npt.NDArray[np.float64]) -> None:
        """Put the random numbers of the next steps where they are read."""
        self.draws[: len(draws_NS)] = torch.from_numpy(draws_NS).to(self.draws.device)
        self.tick.zero_()

    def record(self, num: int, token_B1: torch.Tensor, logp_B: torch.Tensor, entropy_B: torch.Tensor) -> None:
        """Write down what the first rows sampled and move on; rows that were done stay as they are.

        A row that is done has something written behind its last token, which nobody reads.
        """
        count_B, is_done_B = self.count[:num], self.is_done[:num]
        is_alive_B = ~is_done_B
        self.ids[:num].scatter_(1, count_B[:, None], token_B1)
        self.logp[:num].scatter_(1, count_B[:, None], logp_B[:, None])
        self.entropy[:num].scatter_(1, count_B[:, None], entropy_B[:, None])
        self.token[:num] = torch.where(is_alive_B[:, None], token_B1, self.token[:num])
        count_B += is_alive_B
        self.length[:num] += is_alive_B
        is_done_B |= (token_B1 == self.stops[:num]).any(1) | (count_B >= self.most[:num])
        self.tick.add_(1)

    def said(self, slots: Sequence[int]) -> list[Said]:
        """The responses in some slots, so far."""
        where = torch.tensor(slots, device=self.token.device)
        counts = self.count[where].tolist()
        longest = max(counts)
        columns = [column[where, :longest].tolist() for column in (self.ids, self.logp, self.entropy)]
        return [
            (tuple(ids[:count]), tuple(logp[:count]), tuple(entropy[:count]))
            for count, ids, logp, entropy in zip(counts, *columns, strict=True)
        ]

    def move(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Put the rows of some slots into others; sources are read before anything is written."""
        for field in fields(self):
            if field.name not in ("draws", "tick"):
                column = getattr(self, field.name)
                column[targets] = column[sources]
