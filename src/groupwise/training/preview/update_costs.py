"""What an update takes, from the prompts of a few attempts: tokens, memory, and the time of its arithmetic alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

import torch

from groupwise.core.records import Trajectory
from groupwise.envs.environment import EnvironmentPart
from groupwise.envs.mixture import Mixture, find_environment
from groupwise.envs.part_queries import ask_max_steps
from groupwise.models.device import choose_device
from groupwise.training.doctor.sizes import estimate_sizes
from groupwise.training.notices import count_steps_shown
from groupwise.training.run_config import RunConfig

OPERATIONS_OF_TOKEN = 2 + 6
"""Operations for each weight and token: 2 where a token is read or sampled, 6 where it is learnt (Kaplan et al. 2020,
arXiv:2001.08361, section 2.1: forward 2, backward 4)."""
MEASURED_SECONDS = 0.1
"""How long a measurement of this machine lasts."""
MATRIX, BUFFER = 512, 1 << 24
"""Rows of the matrices that are multiplied, and numbers of the buffer that is copied, to see how fast a machine is."""


@dataclass(frozen=True, kw_only=True)
class UpdateCosts:
    """What an update takes, about."""

    attempts: int
    """Attempts of an update."""
    max_steps: int
    """Most steps that one of them may have; each is taken to have all that it may."""
    sampled_tokens: int
    """Most tokens sampled in an update: every attempt as long as the limits allow."""
    distinct_tokens: int
    """Tokens of prompts and responses of such an update, what an attempt's prompts share counted once."""
    longest_prompt: int
    """Tokens of the longest prompt of an attempt that takes all its steps."""
    context: int | None
    """Positions of the model; None = it does not say."""
    parameters: int
    """Weights of the model."""
    trained: int
    """Weights that train."""
    memory: float
    """Bytes of memory."""
    seconds: float
    """Seconds of the arithmetic alone of an update of such attempts, on this machine."""
    updates: int
    """Updates of the run."""


def estimate_costs(config: RunConfig, attempts: Sequence[Trajectory], *, context: int | None) -> UpdateCosts:
    """Estimate what an update takes, as if all attempts were like these and took all their steps."""
    sizes = estimate_sizes(config)
    played = [attempt for attempt in attempts if attempt.steps]
    steps = [ask_max_steps(find_environment(config.env, attempt.task)) for attempt in played]
    sizes_of = [_count_distinct(attempt, num, config) for attempt, num in zip(played, steps, strict=True)]
    distinct = round(sizes.attempts * _mean_by_share(config.env, played, sizes_of))
    return UpdateCosts(
        attempts=sizes.attempts,
        max_steps=ask_max_steps(config.env),
        sampled_tokens=sizes.tokens,
        distinct_tokens=distinct,
        longest_prompt=max(_project_longest(attempt, num, config) for attempt, num in zip(played, steps, strict=True)),
        context=context,
        parameters=sizes.parameters,
        trained=sizes.trained,
        memory=sizes.memory.peak,
        seconds=_estimate_seconds(config, sizes.parameters, distinct, ask_max_steps(config.env)),
        updates=config.training.updates,
    )


def _mean_by_share(env: EnvironmentPart, attempts: Sequence[Trajectory], values: Sequence[float]) -> float:
    """The mean of a value of attempts; where environments are mixed, each counts by its weight."""
    if not isinstance(env, Mixture):
        return fmean(values)
    names = [env.name_of(attempt.task) for attempt in attempts]
    return fmean(values, weights=[env.weights[name] / names.count(name) for name in names])


def _count_distinct(attempt: Trajectory, max_steps: int, config: RunConfig) -> float:
    """Tokens of an attempt with all its steps: its first prompt, and what each further step adds to what was read."""
    added = [
        len(after.prompt_ids) - _count_shared((*before.prompt_ids, *before.response_ids), after.prompt_ids)
        for before, after in pairwise(attempt.steps)
    ]
    later = (max_steps - 1) * fmean(added) if added else 0.0
    return len(attempt.steps[0].prompt_ids) + later + max_steps * config.rollout.max_tokens


def _count_shared(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens two sequences begin with alike."""
    return next(
        (place for place, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), len(first)
    )


def _project_longest(attempt: Trajectory, max_steps: int, config: RunConfig) -> int:
    """The longest prompt of an attempt with all its steps, by what a past step adds to a prompt here."""
    lengths, memory = [len(step.prompt_ids) for step in attempt.steps], config.rollout.memory
    _, largest = count_steps_shown(memory)
    shown_now = len(lengths) - 1 - memory.first_shown(len(lengths) - 1)
    if not shown_now:
        return max(lengths)
    shown_at_most = max_steps - 1 if largest is None else min(largest, max_steps - 1)
    return max(*lengths, lengths[0] + round((lengths[-1] - lengths[0]) / shown_now * shown_at_most))


def _estimate_seconds(config: RunConfig, parameters: int, distinct: int, max_steps: int) -> float:
    """The arithmetic of an update, and reading all weights for each token that is sampled after another."""
    device = choose_device(config.device)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    operations, bytes_read = _measure_speed(device, dtype)
    calls = max_steps * config.rollout.max_tokens
    return OPERATIONS_OF_TOKEN * parameters * distinct / operations + calls * parameters * dtype.itemsize / bytes_read


def _measure_speed(device: torch.device, dtype: torch.dtype) -> tuple[float, float]:
    """Operations a second of a multiplication on this machine, and bytes a second that it reads."""
    matrix = torch.ones(MATRIX, MATRIX, device=device, dtype=dtype)
    buffer = torch.ones(BUFFER, device=device, dtype=dtype)
    products = _count_per_second(lambda: matrix @ matrix, device)
    copies = _count_per_second(buffer.clone, device)
    return products * 2 * MATRIX**3, copies * buffer.nbytes


def _count_per_second(work: Callable[[], object], device: torch.device) -> float:
    work()  # the first one pays for what is set up
    done, began = 0, time.monotonic()
    while time.monotonic() - began < MEASURED_SECONDS:
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        done += 1
    return done / (time.monotonic() - began)
