"""Keys and values of rows that begin with one of a few prompts: each prompt is held once, however many rows read it.

The attempts of a group decode from one prompt. Copied for every row, its keys fill the memory that a decoding step on a
CPU spends its time reading; held once, all rows of a prompt are multiplied with it together:

    softmax(q [K_prompt, K_own]) [V_prompt, V_own] = p_prompt V_prompt + p_own V_own

`SharedStates` brings this to a model that knows nothing of it: a tensor of keys or values in which the prompts are not
repeated. Where torch's own `scaled_dot_product_attention` meets it, it is computed so; any other operation gets the
entries.

Axes: B rows, G prompts, N most rows of a prompt, A attention heads, K heads of keys and values, P columns of a prompt,
R columns of a row's own, W = P + R, D width of a head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional


@dataclass(frozen=True, eq=False)
class Places:
    """Which prompt each row reads.

    Worked example: where rows 0 and 1 read prompt 0 and row 2 reads prompt 1, `rows` is [[0, 1], [2, 2]], in which the
    last is a filler, and `back` is [0, 1, 2]: row 2 stands in place 2 of the four.
    """

    prompt: torch.Tensor
    """Number of each row's prompt (B)."""
    rows: torch.Tensor
    """The rows of each prompt, filled up with one of them (G, N)."""
    back: torch.Tensor
    """Where each row stands in that table, read row by row (B)."""
    is_in_order: bool
    """Whether that table is the rows as they come, so that nothing has to be moved."""

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


class SharedStates(torch.Tensor):
    """Keys or values of rows (B, K, W, D), of which the first columns are those of a prompt that rows share."""

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
        """The states as an ordinary tensor."""
        return torch.cat((self.prompts[self.places.prompt], self.own), dim=2)

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is functional.scaled_dot_product_attention and _is_plain(*args, **kwargs):
            return attend_to_shared_prompts(*args, mask=kwargs.get("attn_mask"), scale=kwargs.get("scale"))
        if func in _ABOUT_SHAPE:
            return super().__torch_function__(func, types, args, kwargs)  # type: ignore[no-untyped-call]
        return func(*_write_out(args), **{name: _write_out(value) for name, value in kwargs.items()})


def attend_to_shared_prompts(
    query: torch.Tensor, key: SharedStates, value: SharedStates, *, mask: torch.Tensor | None, scale: float | None
) -> torch.Tensor:
    """Attention of one query a row (B, A, 1, D) to its prompt and its own columns."""
    num_rows, num_heads, _, width = query.shape
    num_kept = key.own.shape[1]
    repeats, length = num_heads // num_kept, key.prompts.shape[2]
    scaled = query * (width**-0.5 if scale is None else scale)
    query_BKMD = scaled.reshape(num_rows, num_kept, repeats, width)
    places = key.places
    to_prompt = places.scatter(places.gather(query_BKMD) @ key.prompts.mT, repeats)
    scores = torch.cat((to_prompt, query_BKMD @ key.own.mT), dim=-1)
    if mask is not None:
        scores = scores.masked_fill_(~mask, -torch.inf) if mask.dtype == torch.bool else scores.add_(mask)
    shares = scores.softmax(-1)
    from_prompt = places.scatter(places.gather(shares[..., :length]) @ value.prompts, repeats)
    attended = from_prompt + shares[..., length:] @ value.own
    return attended.reshape(num_rows, num_heads, 1, value.own.shape[-1])


_PROPERTIES = ("shape", "device", "dtype", "ndim", "requires_grad")
_ABOUT_SHAPE = {torch.Tensor.dim, torch.Tensor.size, torch.Tensor.numel} | {
    getattr(torch.Tensor, name).__get__ for name in _PROPERTIES
}
"""What keys and values are asked before they are used; none of it reads an entry."""


def _is_plain(*tensors: Any, **settings: Any) -> bool:
    """Whether a call is one query a row, without dropout, with a mask that is the same for all heads or none."""
    if (
        len(tensors) != 3
        or tensors[0].shape[2] != 1
        or not all(isinstance(states, SharedStates) for states in tensors[1:])
    ):
        return False
    mask = settings.get("attn_mask")
    is_row_mask = mask is None or (mask.ndim == 4 and mask.shape[1:3] == (1, 1))
    return is_row_mask and not settings.get("dropout_p") and not settings.get("is_causal")


def _write_out(value: Any) -> Any:
    """The value with all keys and values of ours in it written out."""
    if isinstance(value, tuple | list):
        return type(value)(_write_out(item) for item in value)
    return value.write_out() if isinstance(value, SharedStates) else value
