"""The engine that a run file names, opened for the run's model and put to the rules."""

from __future__ import annotations

import torch

from groupwise.data.seeds import seed_of
from groupwise.engines.conformance import check_engine
from groupwise.engines.engine import ClosingEngine
from groupwise.learner.weight_check import choose_tolerance
from groupwise.models.causal_lm import choose_device
from groupwise.system.quoted_errors import RuleResult
from groupwise.training.config.engine_config import LocalEngine
from groupwise.training.config.engine_needs import check_engine_gives
from groupwise.training.config.run_config import RunConfig
from groupwise.training.open_run import open_model, open_run_engine

NUDGE = 0.02
"""By how much of its size each weight is moved for the hand-over; one of nothing, as in a new adapter, by so much."""


def check_run_engine(config: RunConfig) -> list[RuleResult]:
    """Check the engine of a run against every rule, with prompts of the run's own tokens."""
    device = choose_device(config.device)
    check_engine_gives(config, device=device.type)
    model, tokenizer = open_model(config, device, learns=False)
    engine = open_run_engine(_with_own_weights(config), model.to(device), tokenizer)
    special = set(tokenizer.all_special_ids)
    token_ids = [token for token in range(len(tokenizer)) if token not in special]
    try:
        return check_engine(
            engine,
            token_ids=token_ids,
            weights=_nudge_weights(model, seed_of(config.seed, "engine check")),
            max_gap=choose_tolerance(config.engine.precision, model).gap,
        )
    finally:
        if isinstance(engine, ClosingEngine):
            engine.close()


def _with_own_weights(config: RunConfig) -> RunConfig:
    """The run with an engine that has a copy of the weights: the rules hand over others than the learner's."""
    if not isinstance(config.engine, LocalEngine):
        return config
    return config.model_copy(update={"engine": config.engine.model_copy(update={"share_weights": False})})


def _nudge_weights(model: torch.nn.Module, seed: int) -> dict[str, torch.Tensor]:
    """Make what a learner would hand over after learning a little: the trained weights, each moved by some noise."""
    draw = torch.Generator().manual_seed(seed % 2**63)
    return {
        name: value.detach()
        + NUDGE * torch.randn(value.shape, generator=draw).to(value) * torch.where(value == 0, 1, value.detach())
        for name, value in model.named_parameters()
        if value.requires_grad
    }
