"""Ordinary right-padded rows, one per sample: the reference that packs must equal.

Axes: B rows, W width, T trained tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from groupwise.data.samples import Sample, find_training, list_computed_responses
from groupwise.models.forest import Ragged, count_up
from groupwise.models.pack import Predictions, SampleLayout, find_trained_tokens, label_units


@dataclass(frozen=True, eq=False, kw_only=True)
class PaddedRows(SampleLayout):
    """Some samples of an update as rows of one width: `input_ids` (B, W) include the last trained token of each.

    Worked example: prompt (1, 2) with response (3,), prompt (4,) with response (5, 6), pad_id 0, are the rows
    [1, 2, 3] and [4, 5, 6]: predictor [1, 3, 4], target [3, 5, 6], sample [0, 1, 1], position [0, 0, 1].
    """

    attention_mask: torch.Tensor
    """1 for a token, 0 for padding (B, W)."""

    def __len__(self) -> int:
        return self.input_ids.numel()

    @property
    def inputs(self) -> dict[str, torch.Tensor]:
        return {
            "input_ids": self.input_ids,
            "position_ids": self.position_ids,
            "attention_mask": self.attention_mask,
        }


def pad_rows(
    samples: Sequence[Sample], *, num_rows: int | None = None, width: int | None = None, pad_id: int = 0
) -> list[PaddedRows]:
    """Lay samples out as rows in the given order; samples that do not train are left out.

    `num_rows` = rows per micro-batch, None = all; `width` = of every row, None = that of the longest sample.
    """
    trained = find_training(samples)
    step = num_rows or max(len(trained), 1)
    return [
        _make_rows(samples, trained[low : low + step], width=width, pad_id=pad_id)
        for low in range(0, len(trained), step)
    ]


def pad_within_budget(samples: Sequence[Sample], *, token_budget: int, unit: str = "sample") -> list[PaddedRows]:
    """Lay samples out as rows, with at most `token_budget` places per micro-batch; a larger unit goes alone.

    Units are sorted by the length of their longest sample, which saves padding.
    """
    trained = find_training(samples)
    units: dict[int, list[int]] = {}
    for number, label in zip(trained, label_units([samples[number] for number in trained], unit).tolist(), strict=True):
        units.setdefault(label, []).append(number)
    said = list_computed_responses(samples)
    width = {
        label: max(len(samples[number].prompt_ids) + len(said[number]) for number in members)
        for label, members in units.items()
    }
    batches: list[list[int]] = []
    for label in sorted(units, key=width.__getitem__):
        joined = [*(batches[-1] if batches else []), *units[label]]
        if batches and len(joined) * width[label] <= token_budget:
            batches[-1] = joined
        else:
            batches.append(units[label])
    return [_make_rows(samples, sorted(members), width=None, pad_id=0) for members in batches]


def _make_rows(samples: Sequence[Sample], members: list[int], *, width: int | None, pad_id: int) -> PaddedRows:
    chosen = [samples[number] for number in members]
    said = list_computed_responses(chosen)
    tokens = Ragged.of([sample.prompt_ids + response for sample, response in zip(chosen, said, strict=True)])
    targets = Ragged.of(said)
    responses, kept = targets.length, find_trained_tokens(chosen, targets)
    longest = int(tokens.length.max())
    width = width or longest
    row, column = np.repeat(np.arange(len(members)), tokens.length), count_up(tokens.length)
    input_ids = np.full((len(members), width), pad_id, dtype=np.int64)
    is_token = np.zeros((len(members), width), dtype=np.int64)
    input_ids[row, column] = tokens.flat
    is_token[row, column] = 1
    position = count_up(responses)
    first_predictor = np.arange(len(members)) * width + tokens.length - responses - 1
    predictor = np.repeat(first_predictor, responses) + position
    target, sample = targets.flat, np.repeat(np.array(members, dtype=np.int64), responses)
    if kept is not None:
        position, predictor, target, sample = position[kept], predictor[kept], target[kept], sample[kept]
    return PaddedRows(
        input_ids=torch.from_numpy(input_ids),
        attention_mask=torch.from_numpy(is_token),
        position_ids=torch.arange(width).expand(len(members), width),
        predictions=Predictions.of(predictor, target),
        sample=torch.from_numpy(sample),
        position=torch.from_numpy(position),
        members=tuple(members),
        longest=longest,
        largest_id=int(tokens.flat.max()),
        raw_tokens=len(tokens.flat),
    )
