"""Samples for tests: by hand, and drawn so that prompts and responses share prefixes of every length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import hypothesis.strategies as st

from groupwise.data.samples import Sample

if TYPE_CHECKING:
    from groupwise.models.pack import Pack


def sample(prompt: Sequence[int], response: Sequence[int], advantage: float = 1.0, **changes: object) -> Sample:
    """A sample of trajectory 0, step 0, group 0, unless told otherwise."""
    fields = {"trajectory": 0, "step": 0, "group": 0} | changes
    return Sample(prompt_ids=tuple(prompt), response_ids=tuple(response), advantage=advantage, **fields)  # type: ignore[arg-type]


TOKEN = st.integers(0, 3)
"""Few tokens, so that prefixes are shared and sequences repeat."""

SEQUENCES = st.lists(st.lists(TOKEN, max_size=7), max_size=12)


@st.composite
def samples(draw: st.DrawFn, *, idle: bool = True) -> list[Sample]:
    """Samples that continue earlier ones, repeat them, or start anew; with `idle`, some that train on nothing."""
    drawn: list[Sample] = []
    for number in range(draw(st.integers(1, 10))):
        start = draw(st.sampled_from(drawn)).token_ids if drawn and draw(st.booleans()) else ()
        kept = draw(st.integers(0, len(start)))
        prompt = start[:kept] + tuple(draw(st.lists(TOKEN, min_size=0 if kept else 1, max_size=5)))
        response = tuple(draw(st.lists(TOKEN, min_size=0 if idle else 1, max_size=4)))
        trains = not idle or draw(st.integers(0, 4)) > 0
        drawn.append(sample(prompt, response, trajectory=number // 2, step=number % 2, trains=trains))
    return drawn


def unpack(pack: Pack) -> dict[int, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Prompt, and response up to its last token that trains, of each sample in a pack, read from the tensors alone."""
    import torch

    parts = {}
    node = torch.arange(len(pack), device=pack.end.device)
    for number in pack.members:
        mine = pack.sample == number
        last, target, position = pack.predictor[mine][-1], int(pack.target[mine][-1]), int(pack.position[mine][-1])
        tokens = [*pack.input_ids[0][(node <= last) & (last < pack.end)].tolist(), target]
        cut = len(tokens) - position - 1  # where the response begins
        parts[number] = tuple(tokens[:cut]), tuple(tokens[cut:])
    return parts
