"""AdamW's step with moments of 8 bits, by torchao: numbers in blocks of 256, each block with a scale of its own.

Source: Dettmers et al. 2022 (arXiv:2110.02861) for the blocks and their code; torchao computes the step in float32.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch._dynamo.exc import TorchDynamoException

from groupwise.learner.config import LearnerConfig
from groupwise.system.errors import ConfigError

BLOCK = 256
"""Numbers that share a scale."""
MIN_CODED = 4096
"""Weights with fewer numbers keep their moments in float32: norms and biases, which take next to nothing."""
CHUNK = 2**24
"""Numbers at a time where the step is not compiled, so that what it computes on the way stays small."""
CODES, SCALE = "codes", "scale"


def check_packages(settings: object) -> None:
    """Refuse settings of a learner that need torchao where it is not installed, before a model loads."""
    if isinstance(settings, LearnerConfig) and settings.optimiser == "adamw_8bit" and find_spec("torchao") is None:
        raise ConfigError(
            "training.learner.optimiser: 'adamw_8bit' needs torchao, which is not here; pip install 'groupwise[lean]'"
        )


def plan_moments(value: torch.Tensor) -> dict[str, tuple[torch.Size, torch.dtype]]:
    """Shape and type of what is kept of a weight's moments, by name."""
    plan: dict[str, tuple[torch.Size, torch.dtype]] = {}
    is_coded = value.numel() >= MIN_CODED and value.numel() % BLOCK == 0
    for moment in ("exp_avg", "exp_avg_sq"):
        if is_coded:
            plan[f"{moment}_{CODES}"] = (value.shape, torch.uint8)
            plan[f"{moment}_{SCALE}"] = (torch.Size([value.numel() // BLOCK]), torch.float32)
        else:
            plan[moment] = (value.shape, torch.float32)
    return plan


def step_weight(
    weight: torch.Tensor,
    gradient: torch.Tensor,
    state: Mapping[str, torch.Tensor],
    group: Mapping[str, Any],
    *,
    seed: int | None,
) -> None:
    """Move a weight by one step of AdamW, and its moments with it, all in place.

    `seed` is where the chance comes from by which a bfloat16 weight is rounded up or down; None = it is not rounded so.
    """
    flat, slope, rounds = weight.detach().view(-1), gradient.reshape(-1), seed is not None
    with _seed_rounding(weight.device, seed):
        if weight.device.type == "cuda" and _Compiler.works:
            try:
                return _advance(_Compiler.get_step(), flat, slope, state, group, slice(None), rounds)
            except TorchDynamoException as error:  # before any kernel ran: nothing has changed
                _Compiler.works = False
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                warnings.warn(f"the optimiser's step was not compiled ({reason}); it takes longer", stacklevel=2)
        for low in range(0, len(flat), CHUNK):
            _advance(_import_step(), flat, slope, state, group, slice(low, low + CHUNK), rounds)


def _advance(
    step: Any,
    flat: torch.Tensor,
    slope: torch.Tensor,
    state: Mapping[str, torch.Tensor],
    group: Mapping[str, Any],
    part: slice,
    rounds: bool,
) -> None:
    step(
        flat[part],
        slope[part],
        state["step"],
        _read_moment(state, "exp_avg", part, signed=True),
        _read_moment(state, "exp_avg_sq", part, signed=False),
        None,
        torch.tensor(group["lr"], dtype=torch.float32),
        *group["betas"],
        group["weight_decay"],
        group["eps"],
        True,  # decay is decoupled
        rounds,
    )


def _read_moment(state: Mapping[str, torch.Tensor], moment: str, part: slice, *, signed: bool) -> torch.Tensor:
    """A moment as torchao takes it, over the tensors of the state, which it changes."""
    if moment in state:
        return state[moment].view(-1)[part]
    from torchao.optim.subclass_8bit import OptimState8bit

    codes, scale = state[f"{moment}_{CODES}"].view(-1), state[f"{moment}_{SCALE}"]
    if part != slice(None):
        codes, scale = codes[part], scale[part.start // BLOCK : part.stop // BLOCK]
    coded: torch.Tensor = OptimState8bit(codes, scale, _make_code(codes.device, signed), signed, dtype=torch.float32)
    return coded


@cache
def _make_code(device: torch.device, signed: bool) -> torch.Tensor:
    """The 256 numbers that a code stands for, between -1 and 1, or 0 and 1."""
    from torchao.optim.subclass_8bit import OptimState8bit

    numbers: torch.Tensor = OptimState8bit.zeros((BLOCK,), signed, BLOCK, device).qmap
    return numbers


@cache
def _import_step() -> Any:
    from torchao.optim.adam import single_param_adam

    return single_param_adam


class _Compiler:
    """The compiled step of this process: one code for weights of any length."""

    works = True

    @staticmethod
    @cache
    def get_step() -> Any:
        return torch.compile(_import_step(), fullgraph=True, dynamic=True)


@contextmanager
def _seed_rounding(device: torch.device, seed: int | None) -> Iterator[None]:
    """Let torch's own random numbers begin at a seed for a while; afterwards they go on as if nothing had been."""
    if seed is None:
        yield
        return
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
