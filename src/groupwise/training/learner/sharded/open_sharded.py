"""Opening a sharded learner: the processes join, the model is divided, and whoever is not rank 0 follows it."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from groupwise.core.errors import ConfigError
from groupwise.core.parts.slots import Loss
from groupwise.core.started_rank import read_started_rank
from groupwise.models.device import read_memory_size
from groupwise.training.learner.sharded.config import ShardedLearnerConfig
from groupwise.training.learner.sharded.division import share_outline
from groupwise.training.learner.sharded.led_learner import LedLearner
from groupwise.training.learner.sharded.rank_learner import MAX_SHARE, RankLearner
from groupwise.training.learner.sharded.ranks import Ranks


def open_sharded_learner(
    model: PreTrainedModel,
    loss: Loss,
    config: ShardedLearnerConfig,
    *,
    temperature: float,
    device: torch.device | None = None,
) -> LedLearner:
    """Open the learner on rank 0, of a model that may lie on the CPU until it is divided.

    Args:
        model: whole; its weights are taken out of it.
        loss: what is learnt.
        config: how.
        temperature: that of the sampler.
        device: what the shares lie on; None = where the model is.
    """
    if read_started_rank().rank:
        raise ConfigError(
            f"rank {read_started_rank().rank} leads no run; let it follow rank 0, as groupwise train does"
        )
    device = next(model.parameters()).device if device is None else device
    return LedLearner(open_rank(model, loss, config, temperature=temperature, device=device))


def open_rank(
    model: PreTrainedModel | None,
    loss: Loss,
    config: ShardedLearnerConfig,
    *,
    temperature: float,
    device: torch.device,
) -> RankLearner:
    """Join the other ranks and take this one's share of the model, which rank 0 has and the others do not."""
    check_gpus(device)
    ranks = Ranks(device, timeout=config.timeout)
    try:
        outline = share_outline(model, ranks)
        keeps_whole = _choose_gathering(outline.model, config, ranks)
        return RankLearner(outline, loss, config, ranks, temperature=temperature, keeps_whole=keeps_whole)
    except BaseException as error:
        ranks.leave(error)
        raise


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


def _choose_gathering(model: PreTrainedModel, config: ShardedLearnerConfig, ranks: Ranks) -> bool:
    """Whether weights stay whole during an optimiser step; the same on every rank."""
    if config.gather != "auto":
        return config.gather == "once_a_step"
    if ranks.world == 1:
        return False  # nobody is waited for
    weights = sum(value.nbytes for value in model.parameters())
    gradients = sum(value.nbytes for value in model.parameters() if value.requires_grad)
    # Of all memory there is, not of what is free now: a run that is resumed must choose the same.
    fits = (weights + gradients) * ranks.on_device <= MAX_SHARE * read_memory_size(ranks.device)
    return all(ranks.gather(fits))
