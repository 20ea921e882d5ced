"""What every process of a sharded run does but the first: it holds its share of the weights, and follows rank 0."""

from __future__ import annotations

import torch

from groupwise.learner.config import ShardedLearnerConfig
from groupwise.learner.sharded import check_gpus, follow, open_rank
from groupwise.models.causal_lm import choose_device
from groupwise.parts.part import name_of
from groupwise.system.errors import ConfigError
from groupwise.system.processes import read_started_rank
from groupwise.training.config.checks import check_algorithm
from groupwise.training.config.run_config import RunConfig


def is_follower(config: RunConfig) -> bool:
    """Whether this process is one of several and not the first; another number than the learner wants is refused.

    Only where a run trains: whoever reads it needs one process, whatever it was made with.
    """
    started, part = read_started_rank(), config.training.learner
    if started.world > 1 and not isinstance(part, ShardedLearnerConfig):
        raise ConfigError(
            f"{started.world} processes were started, but the learner {name_of(part)} is in one; set "
            'training.learner.kind = "sharded", or start one process'
        )
    if isinstance(part, ShardedLearnerConfig) and part.ranks not in (None, started.world):
        raise ConfigError(
            f"training.learner.ranks is {part.ranks}, but {started.world} "
            f"{'process was' if started.world == 1 else 'processes were'} started; start the run with torchrun "
            f"--nproc-per-node {part.ranks} -m groupwise train, or change the setting"
        )
    if started.world > 1 and ":" in config.device:
        raise ConfigError(
            f"device: {config.device!r} would put every process on one GPU; say cuda, and each takes its own"
        )
    if started.world > 1 and (config.device == "cuda" or (config.device == "auto" and torch.cuda.is_available())):
        check_gpus(torch.device("cuda"))  # on every rank of the machine, and before rank 0 opens what takes minutes
    return started.rank > 0


def follow_run(config: RunConfig) -> None:
    """Take this rank's share of the model that rank 0 opens, and do what rank 0 asks for until the run ends."""
    part = config.training.learner
    assert isinstance(part, ShardedLearnerConfig), "is_follower has refused others"
    if config.device in ("auto", "cuda") and torch.cuda.is_available():
        check_gpus(torch.device("cuda"))
        torch.cuda.set_device(read_started_rank().local_rank)  # what is put on a GPU before goes to the first
    loss, device = check_algorithm(config), choose_device(config.device)
    if config.threads:
        torch.set_num_threads(config.threads)
    follow(open_rank(None, loss, part, temperature=config.rollout.temperature, device=device))
