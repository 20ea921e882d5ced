"""Recipes whose loss holds the policy to something beside its credit: EPO, GARDO."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from groupwise.advantages import ColumnMean, DistinctCredit, DoubtGate
from groupwise.core.algorithm import Algorithm
from groupwise.losses import Clip, EntropyCorridor, GatedKl, Kl, PolicyLoss, SequenceMean
from groupwise.recipes.episode import dr_grpo, grpo
from groupwise.recipes.recipe import Finite, Share, recipe
from groupwise.rollout.measures import ResponseEmbedding


@recipe
def epo(
    *,
    weight: Finite = 0.001,
    smoothing: Finite = 1.0,
    low: Finite = 0.0,
    high: Finite = 2.0,
    outside: Finite = 0.1,
    updates: Annotated[int, Field(gt=0)] = 150,
    form: Literal["hinge", "constant"] = "hinge",
) -> Algorithm:
    """EPO (Xu et al. 2025, arXiv:2509.22576; its gradient is ours): GRPO with a bonus for entropy near its own past.

    loss = GRPO - weight * (H - smoothing * w(e) * P);   P > 0 where H is outside (low, high) x the usual entropy

    Choices: what is usual is the mean of the updates before, by the index of a step; w fades over `updates`, which
    should be those of the run. P grows with the distance from the corridor; `form="constant"` is the release's 0.1 for
    all outside it, which moves nothing. The release names (0, 2), (0.5, 1.5) and (0.8, 1.2) for (low, high), and 0.05
    for `outside` in ScienceWorld. What is remembered is kept in checkpoints and in the journal. See `entropy_corridor`.
    """
    corridor = EntropyCorridor(
        weight=weight, smoothing=smoothing, low=low, high=high, outside=outside, updates=updates, form=form
    )
    return Algorithm(
        advantage=grpo().advantage,
        loss=PolicyLoss(surrogate=Clip(), aggregate=SequenceMean(), penalties=(Kl(weight=0.001), corridor)),
    )


@recipe
def gardo(
    *,
    auxiliary: tuple[str, ...] = (),
    weight: Finite = 0.04,
    share: Share = 0.1,
    max_kl: Annotated[float, Field(gt=0)] = 0.05,
    every: Annotated[int, Field(gt=0)] | None = 15,
    diversity: bool = True,
) -> Algorithm:
    """GARDO (2025, arXiv:2512.24138, from its release for diffusion; for language models ours): KL where it is needed.

    A_i = d_i * (R_i - mean(R)) where that is not negative, else R_i - mean(R);   loss = clipped + weight * k3, gated

    Choices: the gate is open for the share of attempts whose return stands out most against the columns `auxiliary`
    (numbers, or lists whose mean counts), which are not trained on; without any it is open for all. The share follows
    how doubtful attempts are. The policy becomes the reference once it is `max_kl` nats a token away, or after `every`
    updates. d, the distance to the nearest other attempt, is of the policy's own hidden states, where the source has an
    image model; `diversity=False` leaves it out. See `gated_kl`, `doubt_gate` and `distinct_credit`. Clip 0.2.
    """
    credit = dr_grpo().advantage
    signals = tuple(ColumnMean(name=name) for name in auxiliary)
    gate = DoubtGate(auxiliary=signals, first=share, lowest=min(share, 0.02), highest=max(share, 0.2))
    return Algorithm(
        advantage=DistinctCredit(of=credit) if diversity else credit,
        measures=(ResponseEmbedding(),) if diversity else None,
        channels={"kl_gate": gate} if weight else None,
        loss=PolicyLoss(
            surrogate=Clip(),
            aggregate=SequenceMean(),
            penalties=(GatedKl(weight=weight, max_kl=max_kl, every=every),),
        ),
    )
