"""Micro-batches: samples laid out for the model, with what is known of their tokens before it runs.

Axes: T trained tokens of a micro-batch, R trajectories of the update.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch

from groupwise.data.samples import Sample, keep_trained
from groupwise.losses.token_columns import TokenColumns
from groupwise.models.pack import Pack, spread_over_tokens
from groupwise.models.padded_rows import PaddedRows
from groupwise.parts.part import name_of
from groupwise.parts.slots import Loss
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
    """Span of its response that each trained token belongs to (T); None = not told."""
    off_policy: torch.Tensor | None = None
    """Whether another policy sampled each trained token (T); None = none of the update's."""
    logp_old: torch.Tensor | None = None
    """Log-prob under the weights at the start of the update (T), once it was scored."""
    logp_ref: torch.Tensor | None = None
    """Log-prob under the reference policy (T), once it was scored."""

    def columns(self, logp_T: torch.Tensor, entropy_T: torch.Tensor | None) -> TokenColumns:
        return TokenColumns(
            logp=logp_T,
            entropy=entropy_T,
            logp_behaviour=self.logp_behaviour,
            logp_old=self.logp_old,
            logp_ref=self.logp_ref,
            advantage=self.advantage,
            mask=torch.ones_like(self.trajectory, dtype=torch.bool),
            sample=self.layout.sample,
            step=self.step,
            trajectory=self.trajectory,
            group=self.group,
            named=self.named,
            channels=self.channels,
            off_policy=self.off_policy,
            span=self.span,
        )


def check_logps(samples: Sequence[Sample]) -> None:
    """Refuse samples whose log-probs were not recorded."""
    for number, sample in enumerate(samples):
        if not sample.logp_behaviour and sample.num_trained:
            raise RecordError(
                f"{sample.name}: the log-probs of its sampled tokens were not recorded; record what the engine reports",
                row=number,
            )


def make_micro_batches(samples: Sequence[Sample], layouts: Sequence[Pack | PaddedRows]) -> list[MicroBatch]:
    device = layouts[0].sample.device
    behaviour = keep_trained(samples, [sample.logp_behaviour for sample in samples])
    advantage = keep_trained(samples, [sample.advantage for sample in samples])
    step = torch.tensor([sample.step for sample in samples], device=device)
    trajectory = torch.tensor([sample.trajectory for sample in samples], device=device)
    group = torch.tensor([sample.group for sample in samples], device=device)
    named = _list_by_name("column", [sample.columns for sample in samples])
    credit = _list_by_name("channel", [sample.channels for sample in samples])
    channels = {name: keep_trained(samples, values) for name, values in credit.items()}
    spans = _list_spans(samples)
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


def _list_spans(samples: Sequence[Sample]) -> list[float | Sequence[float]] | None:
    """The spans of the tokens that train, an entry for each sample; None where no sample tells any."""
    spans = [sample.spans for sample in samples]
    if spans.count(None) == len(spans):
        return None
    for number, sample in enumerate(samples):
        if sample.spans is None and sample.num_trained:
            raise RecordError(
                f"{sample.name}: its tokens have no spans, and those of other samples do; give them to all or to none",
                row=number,
            )
    return keep_trained(samples, [sample.spans or () for sample in samples])


def split_into_stages(loss: Loss, samples: Sequence[Sample]) -> list[list[Sample]]:
    """The samples of each stage, in the order in which they are learnt; one stage, unless the loss orders turns.

    Some losses learn the turns of attempts one after the other, each in the light of those before. Such a loss says
    which turns are learnt together (`order_turns`), and after each stage what became of them (`carry`), as the log of a
    factor on the credit of what is still to come.
    """
    if not hasattr(loss, "order_turns") or not samples:
        return [list(samples)]
    num_turns = max(sample.step for sample in samples) + 1
    order = [list(turns) for turns in loss.order_turns(num_turns)]
    if sorted(turn for turns in order for turn in turns) != list(range(num_turns)):
        raise ConfigError(
            f"algorithm.loss: {name_of(loss)} orders {num_turns} turns as {order}; give each turn from 0 to "
            f"{num_turns - 1} once"
        )
    stages = [[sample for sample in samples if sample.step in turns] for turns in order]
    return [stage for stage in stages if stage]


def scale_credit(micro: MicroBatch, log_factor_R: torch.Tensor) -> MicroBatch:
    """The micro-batch with the credit of each token times the factor of its trajectory."""
    return replace(micro, advantage=micro.advantage * log_factor_R.to(micro.advantage).exp()[micro.trajectory])


def _list_by_name(what: str, by_sample: Sequence[Mapping[str, Number]]) -> dict[str, list[Number]]:
    """List what samples carry by name, an entry for each sample; all carry the same names."""
    names = by_sample[0].keys()
    for number, entries in enumerate(by_sample):
        if entries.keys() != names:
            odd = min(entries.keys() ^ names)
            raise RecordError(
                f"sample {number}: the {what} {odd!r} stands on some samples and not on others; give it to all or to "
                "none",
                row=number,
            )
    return {name: [entries[name] for entries in by_sample] for name in names}
