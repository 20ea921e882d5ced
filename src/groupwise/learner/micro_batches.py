"""Micro-batches: samples laid out for the model, with the columns of their tokens that are known before it runs.

Axes: T trained tokens of a micro-batch, R trajectories of the update.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch

from groupwise.data.samples import Sample, keep_trained
from groupwise.losses.token_columns import TokenColumns
from groupwise.models.pack import Pack, PaddedRows, spread_over_tokens
from groupwise.parts.part import name_of
from groupwise.system.errors import ConfigError, RecordError

Number = TypeVar("Number", float, float | tuple[float, ...])


@dataclass(frozen=True, eq=False, kw_only=True)
class MicroBatch:
    """One forward and backward pass: tokens for the model, columns for the loss."""

    layout: Pack | PaddedRows
    logp_behaviour: torch.Tensor
    advantage: torch.Tensor
    step: torch.Tensor
    trajectory: torch.Tensor
    group: torch.Tensor
    named: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Named numbers of each trained token's sample (T each)."""
    channels: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Further credit of each trained token, by name (T each)."""
    span: torch.Tensor | None = None
    """Span of its response that each trained token belongs to (T); None = unknown."""
    off_policy: torch.Tensor | None = None
    """Whether another policy sampled each trained token (T); None = no token of the update."""
    logp_old: torch.Tensor | None = None
    """Log-prob under the weights at the start of the update (T), once it was scored."""
    logp_ref: torch.Tensor | None = None
    """Log-prob under the reference policy (T), once it was scored."""

    def columns(self, logp_T: torch.Tensor, entropy_T: torch.Tensor | None) -> TokenColumns:
        """The columns of a loss, with log-probs and entropies under the current weights."""
        known = {"logp": logp_T, "entropy": entropy_T, **vars(self)}
        known["sample"] = known.pop("layout").sample
        known["mask"] = torch.ones_like(self.trajectory, dtype=torch.bool)
        if self.logp_old is None:  # a single optimizer step: the current weights are the old ones
            known["logp_old"] = logp_T.detach()
        return TokenColumns(**known)


def make_micro_batches(samples: Sequence[Sample], layouts: Sequence[Pack | PaddedRows]) -> list[MicroBatch]:
    device = layouts[0].sample.device
    behaviour = keep_trained(samples, [sample.logp_behaviour for sample in samples])
    advantage = keep_trained(samples, [sample.advantage for sample in samples])
    numbers = torch.tensor([(sample.step, sample.trajectory, sample.group) for sample in samples], device=device)
    step, trajectory, group = numbers.unbind(1)
    named = _list_by_name("column", [sample.columns for sample in samples])
    credit = _list_by_name("channel", [sample.channels for sample in samples])
    channels = {name: keep_trained(samples, values) for name, values in credit.items()}
    of_samples, spans = [sample.spans for sample in samples], None
    if of_samples.count(None) < len(samples):
        for number, sample in enumerate(samples):
            if sample.spans is None and sample.num_trained:
                raise RecordError(
                    f"{sample.name}: its tokens have no spans, but those of other samples do; give spans to all "
                    "samples or to none",
                    row=number,
                )
        spans = keep_trained(samples, [some or () for some in of_samples])
    is_off_policy = [sample.off_policy for sample in samples]
    off_policy = torch.tensor(is_off_policy, device=device) if any(is_off_policy) else None
    return [
        MicroBatch(
            layout=layout,
            logp_behaviour=spread_over_tokens(layout, behaviour),
            advantage=spread_over_tokens(layout, advantage),
            step=step[layout.sample],
            trajectory=trajectory[layout.sample],
            group=group[layout.sample],
            named={name: spread_over_tokens(layout, values) for name, values in named.items()},
            channels={name: spread_over_tokens(layout, values) for name, values in channels.items()},
            span=None if spans is None else spread_over_tokens(layout, spans).long(),
            off_policy=None if off_policy is None else off_policy[layout.sample],
        )
        for layout in layouts
    ]


def split_into_stages(loss: Any, samples: Sequence[Sample]) -> list[list[Sample]]:
    """The samples of each stage, in learning order, for a loss that learns turns one after the other.

    Such a loss returns which turns are learned together (`order_turns`). After each stage, `carry` returns the log of a
    factor on the advantages of the later stages.
    """
    num_turns = max(sample.step for sample in samples) + 1
    order = [list(turns) for turns in loss.order_turns(num_turns)]
    if sorted(turn for turns in order for turn in turns) != list(range(num_turns)):
        raise ConfigError(
            f"algorithm.loss: {name_of(loss)} orders {num_turns} turns as {order}; return each turn from 0 to "
            f"{num_turns - 1} once"
        )
    stages = [[sample for sample in samples if sample.step in turns] for turns in order]
    return [stage for stage in stages if stage]


def scale_credit(micro: MicroBatch, log_factor_R: torch.Tensor) -> MicroBatch:
    return replace(micro, advantage=micro.advantage * log_factor_R.to(micro.advantage).exp()[micro.trajectory])


def _list_by_name(what: str, by_sample: Sequence[Mapping[str, Number]]) -> dict[str, list[Number]]:
    """Named values as lists with one entry per sample; fail if the samples have different names."""
    names = by_sample[0].keys()
    for number, entries in enumerate(by_sample):
        if entries.keys() != names:
            odd = min(entries.keys() ^ names)
            raise RecordError(
                f"sample {number}: only some samples have the {what} {odd!r}; give it to all or to none", row=number
            )
    return {name: [entries[name] for entries in by_sample] for name in names}
