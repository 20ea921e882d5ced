"""Ways to lay the same samples out under one token budget: ours, rows side by side, rows with padding, shared prompts.

- *shared*: each distinct prefix once (`pack`), or rows side by side where that does not pay;
- *packed*: rows side by side without padding (`pack(share=False)`), as verl's remove-padding;
- *prompts shared*: a prompt that several samples have is there once, whole, with their responses after it; nothing
  deeper, and no two prompts share anything, as PrefixGrouper and verl's `use_prefix_grouper`;
- *padded, sorted*: rows of similar length together, as many to a micro-batch as the budget holds: the least padding
  there can be;
- *padded*: rows in a random order, all as wide as the longest prompt and the longest response together, as TRL pads a
  batch before it cuts it into micro-batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import torch

from groupwise.data.samples import Sample
from groupwise.models.pack import Pack, PaddedRows, Predictions, pack, pad_rows, pad_within_budget

Layouts = Sequence[Pack | PaddedRows]


def pack_shared(samples: Sequence[Sample], budget: int) -> Layouts:
    return pack(samples, token_budget=budget)


def pack_forced(samples: Sequence[Sample], budget: int) -> Layouts:
    """Shared even where nothing is: what the gate saves."""
    return pack(samples, token_budget=budget, gate=0.0)


def pack_plain(samples: Sequence[Sample], budget: int) -> Layouts:
    return pack(samples, token_budget=budget, share=False)


def pad_sorted(samples: Sequence[Sample], budget: int) -> Layouts:
    return pad_within_budget(samples, token_budget=budget)


def pad_shuffled(samples: Sequence[Sample], budget: int) -> Layouts:
    order = list(range(len(samples)))
    Random(0).shuffle(order)
    width = max(len(one.prompt_ids) for one in samples) + max(len(one.response_ids) for one in samples)
    num_rows = max(1, budget // width)
    layouts: list[PaddedRows] = []
    for low in range(0, len(order), num_rows):
        mine = set(order[low : low + num_rows])
        # The others keep their numbers and are in no row.
        some = [one if number in mine else replace(one, trains=False) for number, one in enumerate(samples)]
        layouts += pad_rows(some, width=width)
    return layouts


def pack_shared_prompts(samples: Sequence[Sample], budget: int) -> Layouts:
    """Each distinct prompt once, with the responses to it after it.

    Packed in disguise: a first token of its own for each distinct prompt and for each response leaves `pack` nothing to
    share but whole prompts; the tokens are put back afterwards.
    """
    outside = 1 + max(max(sample.token_ids) for sample in samples)
    real: list[int] = []
    names: dict[tuple[int, ...], int] = {}

    def disguise(token: int) -> int:
        real.append(token)
        return outside + len(real) - 1

    disguised = []
    for sample in samples:
        if not sample.response_ids:
            disguised.append(sample)
            continue
        if sample.prompt_ids not in names:
            names[sample.prompt_ids] = disguise(sample.prompt_ids[0])
        prompt = (names[sample.prompt_ids], *sample.prompt_ids[1:])
        response = (disguise(sample.response_ids[0]), *sample.response_ids[1:])
        disguised.append(replace(sample, prompt_ids=prompt, response_ids=response))
    lookup = torch.cat((torch.arange(outside), torch.tensor(real)))
    return [_undo_disguise(layout, lookup) for layout in pack(disguised, token_budget=budget, gate=0.0)]


def _undo_disguise(layout: Pack, lookup: torch.Tensor) -> Pack:
    input_ids, target = lookup[layout.input_ids], lookup[layout.target]
    return replace(
        layout,
        input_ids=input_ids,
        predictions=Predictions.of(layout.predictor.numpy(), target.numpy()),
        largest_id=int(max(input_ids.max(), target.max())),
    )


def pairs(layouts: Layouts) -> int:
    """How many keys all tokens see together: one at position p sees p + 1, in whatever layout."""
    return sum(int((layout.position_ids + 1).sum()) for layout in layouts)


LAYOUTS: dict[str, Callable[[Sequence[Sample], int], Layouts]] = {
    "shared": pack_shared,
    "packed": pack_plain,
    "prompts shared": pack_shared_prompts,
    "padded, sorted": pad_sorted,
    "padded": pad_shuffled,
}
