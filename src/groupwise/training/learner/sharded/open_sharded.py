"""Opening a sharded learner: the processes join, the model is divided, and whoever is not rank 0 follows it."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from groupwise.core.errors import ConfigError
from groupwise.core.parts.slots import Loss
from groupwise.core.started_rank import read_started_rank
from groupwise.models.device import read_memory_size
from groupwise.training.learner.sharded.config import ShardedLearnerConfig
from groupwise.training.learner.sharded.led_learner import LedLearner
from groupwise.training.learner.sharded.rank_learner import RankLearner
from groupwise.training.learner.sharded.ranks import Ranks

MAX_SHARE = 1 / 3
"""Share of the memory that whole weights and gradients may take for them to stay together during a step."""


def open_sharded_learner(
    model: PreTrainedModel, loss: Loss, config: ShardedLearnerConfig, *, temperature: float
) -> LedLearner:
    """Open the learner on rank 0."""
    own = open_rank(model, loss, config, temperature=temperature)
    if not own.ranks.is_leader:
        raise ConfigError(f"rank {own.ranks.rank} leads no run; let it follow rank 0, as groupwise train does")
    return LedLearner(own)


def open_rank(model: PreTrainedModel, loss: Loss, config: ShardedLearnerConfig, *, temperature: float) -> RankLearner:
    """Join the other ranks and take this one's share of a model, which all of them have loaded."""
    device = next(model.parameters()).device
    check_gpus(device)
    if config.compile_layers:
        raise ConfigError("training.learner.compile_layers: layers in shares are not compiled; leave it out")
    ranks = Ranks(device, timeout=config.timeout)
    _check_same_model(model, ranks)
    return RankLearner(
        model, loss, config, ranks, temperature=temperature, keeps_whole=_choose_gathering(model, config, ranks)
    )


def check_gpus(device: torch.device) -> None:
    """Refuse more processes on a machine than it has GPUs."""
    started = read_started_rank()
    gpus = torch.cuda.device_count() if device.type == "cuda" else None
    if gpus is not None and started.local_world > gpus:
        raise ConfigError(
            f"rank {started.rank} is one of {started.local_world} on its machine, which shows {gpus} "
            f"GPU{'s' if gpus != 1 else ''}; start at most one process for each (torchrun --nproc-per-node), or ask "
            "for more GPUs"
        )


def _check_same_model(model: PreTrainedModel, ranks: Ranks) -> None:
    """Refuse to put shares of different models together."""
    sums = [  # as text, in which a NaN is itself
        (name, tuple(value.shape), repr(float(value.detach().sum(dtype=torch.float64))))
        for name, value in model.named_parameters()
    ]
    for rank, others in enumerate(ranks.gather(sums)):
        pairs = zip(sums, others, strict=False)
        odd = next((own[0] for own, other in pairs if own != other), None if len(others) == len(sums) else "the number")
        if odd is not None:
            raise ConfigError(
                f"rank {rank} loaded another model than rank {ranks.rank} ({odd} differs); give every rank the same "
                "folder, with the same files"
            )


def _choose_gathering(model: PreTrainedModel, config: ShardedLearnerConfig, ranks: Ranks) -> bool:
    """Whether weights stay whole during an optimiser step; the same on every rank."""
    if config.gather != "auto":
        return config.gather == "once_a_step"
    weights = sum(value.nbytes for value in model.parameters())
    gradients = sum(value.nbytes for value in model.parameters() if value.requires_grad)
    # Of all memory there is, not of what is free now: a run that is resumed must choose the same.
    fits = (weights + gradients) * ranks.on_device <= MAX_SHARE * read_memory_size(ranks.device)
    return all(ranks.gather(fits))
