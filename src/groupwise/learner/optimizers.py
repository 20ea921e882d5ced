"""AdamW as the settings of a learner ask for it, and what it keeps of each weight.

Optimizer state of 8 bits comes from torchao: numbers in blocks of 256, each block with its own scale.
Source: Dettmers et al. 2022 (arXiv:2110.02861) for the blocks and their code; torchao computes the step in float32.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any, Literal

import torch
from torch import nn
from torch._dynamo.exc import TorchDynamoException
from torch.optim.adamw import adamw

from groupwise.data.seeds import seed_of
from groupwise.learner.config import LearnerConfig
from groupwise.system.errors import ConfigError

Plan = dict[str, tuple[torch.Size, torch.dtype]]
"""Shape and type of the state that an optimizer keeps per weight, by name."""


def check_packages(settings: object) -> None:
    """Fail before a model loads if the settings need torchao and it is not installed."""
    if isinstance(settings, LearnerConfig) and settings.optimizer == "adamw_8bit" and find_spec("torchao") is None:
        raise ConfigError(
            "training.learner.optimizer: 'adamw_8bit' needs torchao, which is not installed; run pip install "
            "'groupwise[lean]'"
        )


def open_optimizer(
    weights: Mapping[str, nn.Parameter],
    config: LearnerConfig,
    *,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
) -> torch.optim.Optimizer:
    """AdamW in the form that a learner's settings ask for, over weights by name."""
    numbers: Any = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
    is_narrow = any(value.dtype.itemsize < 4 for value in weights.values())
    if config.optimizer == "adamw" and not is_narrow:
        # The fused form passes over the weights once, not once per operation: a fifth of the time on a CPU.
        return torch.optim.AdamW(weights.values(), **numbers, fused=True)
    return LeanAdamW(
        weights,
        **numbers,
        moments="8_bit" if config.optimizer == "adamw_8bit" else "float32",
        keeps_masters=config.bfloat16_weights == "float32_masters",
    )


def plan_state(optimizer: torch.optim.Optimizer | None, value: torch.Tensor) -> Plan:
    """The state that an optimizer keeps per weight once it has stepped; None = torch's AdamW."""
    if isinstance(optimizer, LeanAdamW):
        return optimizer.plan_state(value)
    return {
        "step": (torch.Size([]), torch.float32),
        "exp_avg": (value.shape, value.dtype),
        "exp_avg_sq": (value.shape, value.dtype),
    }


def find_norm(weights: Iterable[nn.Parameter]) -> torch.Tensor:
    """The norm of the whole gradient."""
    gradients = [value.grad for value in weights if value.grad is not None]
    if min([gradient.dtype.itemsize for gradient in gradients]) >= 4:
        return nn.utils.get_total_norm(gradients)
    return measure_length(torch.stack([measure_length(gradient) for gradient in gradients]))


def measure_length(gradient: torch.Tensor) -> torch.Tensor:
    """The norm of a gradient, in float32 or better."""
    length: torch.Tensor = torch.linalg.vector_norm(gradient, dtype=torch.promote_types(gradient.dtype, torch.float32))
    return length


class LeanAdamW(torch.optim.Optimizer):
    """AdamW with less memory, over weights by name, each stepped by itself.

    Its state is 8-bit or float32. Bfloat16 weights are rounded stochastically, or have float32 master copies. The state
    is plain tensors, so a checkpoint holds it without pickle. How a bfloat16 weight is rounded depends on its name and
    its number of steps, not on the order of weights or on earlier random numbers.
    """

    def __init__(
        self,
        weights: Mapping[str, nn.Parameter],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        moments: Literal["8_bit", "float32"],
        keeps_masters: bool,
    ) -> None:
        super().__init__(weights.values(), {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self._names = {value: name for name, value in weights.items()}
        self._moments, self._keeps_masters = moments, keeps_masters

    def plan_state(self, value: torch.Tensor) -> Plan:
        plan: Plan = {"step": (torch.Size([]), torch.float32)}
        if self._keeps_masters and value.dtype != torch.float32:
            plan["master"] = (value.shape, torch.float32)
        is_coded = self._moments == "8_bit" and value.numel() >= MIN_CODED and value.numel() % BLOCK == 0
        for moment in ("exp_avg", "exp_avg_sq"):
            if is_coded:
                plan[f"{moment}_{CODES}"] = (value.shape, torch.uint8)
                plan[f"{moment}_{SCALE}"] = (torch.Size([value.numel() // BLOCK]), torch.float32)
            else:
                plan[moment] = (value.shape, torch.float32)
        return plan

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for value in group["params"]:
                if value.grad is not None:
                    self._move(value, group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        values = [value for group in self.param_groups for value in group["params"]]
        self.state.clear()
        for number, entries in state_dict["state"].items():
            self.state[values[number]] = {
                name: entry.to(self._place(name, values[number])).clone() for name, entry in entries.items()
            }

    def _move(self, value: nn.Parameter, group: dict[str, Any]) -> None:
        state = self.state[value]
        if not state:  # made before the first step: until then the weight may have been loaded or warm-started
            for name, (shape, dtype) in self.plan_state(value).items():
                state[name] = torch.zeros(shape, dtype=dtype, device=self._place(name, value))
            if "master" in state:
                state["master"].copy_(value)
        state["step"] += 1
        assert value.grad is not None
        target = state.get("master", value)
        if self._moments == "8_bit":
            rounds = target.dtype == torch.bfloat16
            seed = seed_of("rounding", self._names[value], int(state["step"])) if rounds else None
            step_weight(target, value.grad, state, group, seed=seed)
        else:
            adamw(
                [target],
                [value.grad.to(target.dtype)],
                [state["exp_avg"]],
                [state["exp_avg_sq"]],
                [],
                [state["step"] - 1],  # adamw counts up by itself
                fused=True,
                amsgrad=False,
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                maximize=False,
            )
        if target is not value:
            value.copy_(target)

    def _place(self, name: str, value: torch.Tensor) -> torch.device:
        """The device of an entry: torchao wants the number of steps in host memory."""
        return torch.device("cpu") if name == "step" and self._moments == "8_bit" else value.device


# The step with optimizer state of 8 bits.

BLOCK = 256
"""Numbers that share a scale."""
MIN_CODED = 4096
"""Weights with fewer numbers keep float32 state: norms and biases, which need little memory."""
CHUNK = 2**24
"""Numbers at a time if the step is not compiled, which keeps intermediate results small."""
CODES, SCALE = "codes", "scale"


def step_weight(
    weight: torch.Tensor,
    gradient: torch.Tensor,
    state: Mapping[str, torch.Tensor],
    group: Mapping[str, Any],
    *,
    seed: int | None,
) -> None:
    """Make one step of AdamW in place; `seed` = of stochastic rounding, None = no such rounding."""
    flat, slope, rounds = weight.detach().view(-1), gradient.reshape(-1), seed is not None
    with _seed_rounding(weight.device, seed):
        if weight.device.type == "cuda" and _Compiler.works:
            try:
                return _advance(_Compiler.get_step(), flat, slope, state, group, slice(None), rounds)
            except TorchDynamoException as error:  # before any kernel ran: nothing has changed
                _Compiler.works = False
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                warnings.warn(f"the optimizer's step was not compiled ({reason}); it takes longer", stacklevel=2)
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
    """A moment in the form of torchao, which writes through it into the state."""
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
    """The 256 numbers that codes stand for: between -1 and 1 if signed, else between 0 and 1."""
    from torchao.optim.subclass_8bit import OptimState8bit

    numbers: torch.Tensor = OptimState8bit.zeros((BLOCK,), signed, BLOCK, device).qmap
    return numbers


@cache
def _import_step() -> Any:
    from torchao.optim.adam import single_param_adam

    return single_param_adam


class _Compiler:
    """The compiled step of this process, the same for weights of any length."""

    works = True

    @staticmethod
    @cache
    def get_step() -> Any:
        return torch.compile(_import_step(), fullgraph=True, dynamic=True)


@contextmanager
def _seed_rounding(device: torch.device, seed: int | None) -> Iterator[None]:
    """Seed torch's random numbers for a while; afterwards they continue as before."""
    if seed is None:
        yield
        return
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
