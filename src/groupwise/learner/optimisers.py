"""Which optimiser the settings of a learner ask for, and what it keeps of each weight."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import nn
from torch.optim.adamw import adamw

from groupwise.data.seeds import seed_of
from groupwise.learner.config import LearnerConfig
from groupwise.learner.eight_bit import plan_moments, step_weight


def open_optimiser(
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
    if config.optimiser == "adamw" and not is_narrow:
        # One pass over the weights instead of one an operation: a fifth of the time on a CPU.
        return torch.optim.AdamW(weights.values(), **numbers, fused=True)
    return LeanAdamW(
        weights,
        **numbers,
        moments="8_bit" if config.optimiser == "adamw_8bit" else "float32",
        keeps_masters=config.bfloat16_weights == "float32_masters",
    )


def plan_state(optimiser: torch.optim.Optimizer | None, value: torch.Tensor) -> Plan:
    """Shape and type of what an optimiser keeps of a weight once it has stepped; None = torch's AdamW."""
    if isinstance(optimiser, LeanAdamW):
        return optimiser.plan_state(value)
    return {
        "step": (torch.Size([]), torch.float32),
        "exp_avg": (value.shape, value.dtype),
        "exp_avg_sq": (value.shape, value.dtype),
    }


# AdamW with less memory: moments of 8 bits, weights in bfloat16 that are rounded by chance or have float32 masters.

Plan = dict[str, tuple[torch.Size, torch.dtype]]
"""Shape and type of what an optimiser keeps of a weight, by name."""


class LeanAdamW(torch.optim.Optimizer):
    """AdamW over weights by name, each stepped by itself.

    All that it remembers is plain tensors, so that a checkpoint holds it without pickle. What a bfloat16 weight is
    rounded to depends on its name and on how many steps it made, not on the order of weights or on what ran before.
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
        if self._moments == "8_bit":
            return plan | plan_moments(value)
        return plan | dict.fromkeys(("exp_avg", "exp_avg_sq"), (value.shape, torch.float32))

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for value in group["params"]:
                if value.grad is not None:
                    self._move(value, group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave, in the types in which it was kept."""
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
                [state["step"] - 1],  # it counts by itself
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
        """Where an entry lies: torchao wants the number of steps in the host's memory."""
        return torch.device("cpu") if name == "step" and self._moments == "8_bit" else value.device
