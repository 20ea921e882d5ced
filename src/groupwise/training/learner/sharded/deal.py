"""Which rank computes which samples."""

from __future__ import annotations

from collections.abc import Sequence

from groupwise.core.sample import Sample


def deal_to_ranks(samples: Sequence[Sample], world: int) -> list[list[Sample]]:
    """Deal samples out: whole groups, whose members share their prefixes, the largest first, to whoever has least.

    Where there are fewer groups than ranks, whole trajectories. Every rank deals alike, and keeps the samples' order.

    >>> from groupwise.core.sample import Sample
    >>> fields = {"prompt_ids": (1,), "advantage": 1.0, "step": 0}
    >>> samples = [
    ...     Sample(**fields, response_ids=(2,) * length, trajectory=group, group=group)
    ...     for group, length in enumerate([2, 9, 3, 3])
    ... ]
    >>> [[sample.group for sample in share] for share in deal_to_ranks(samples, 2)]
    [[1], [0, 2, 3]]
    """
    by_group = len({sample.group for sample in samples}) >= world
    labels = [sample.group if by_group else sample.trajectory for sample in samples]
    sizes: dict[int, int] = {}
    for label, sample in zip(labels, samples, strict=True):
        sizes[label] = sizes.get(label, 0) + len(sample.token_ids)
    loads, place = [0] * world, dict[int, int]()
    for label in sorted(sizes, key=lambda name: (-sizes[name], name)):
        place[label] = loads.index(min(loads))
        loads[place[label]] += sizes[label]
    shares: list[list[Sample]] = [[] for _ in range(world)]
    for label, sample in zip(labels, samples, strict=True):
        shares[place[label]].append(sample)
    return shares
