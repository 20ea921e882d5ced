"""A supervised start: the model learns to say what an expert would have done.

The expert may know more than the agent sees (where things are hidden); what cannot be known from the prompt averages
out into a search over what is possible, which is the exploration that the comparison of attempts then sharpens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from random import Random

import torch

from groupwise.batching import Pack, PaddedRows, column
from groupwise.core.errors import ConfigError
from groupwise.core.records import Task
from groupwise.core.sample import Sample
from groupwise.core.seeds import seed_of
from groupwise.envs.environment import Expert
from groupwise.rollout.prompts import Exchange
from groupwise.training.forward import Forward
from groupwise.training.run import Run
from groupwise.training.run_config import WarmStartConfig

Told = Callable[[Sequence[float], int], None]
WARM_UP_STEPS = 30
"""Optimiser steps over which the step size grows: without them AdamW's first steps throw a fresh model about."""


def warm_start(run: Run, config: WarmStartConfig, *, told: Told | None = None) -> list[float]:
    """Train the learner's model on expert attempts; mean loss of each epoch. The engine takes the weights over."""
    return imitate(run, expert_samples(run, run.tasks[: config.tasks], config), config, told=told)


def imitate(run: Run, samples: Sequence[Sample], config: WarmStartConfig, *, told: Told | None = None) -> list[float]:
    """Train the learner's model to say what samples say, tokens weighted by `advantage`; mean loss of each epoch.

    Args:
        run: Whose model.
        samples: What to say.
        config: Epochs and step sizes.
        told: Told the losses so far after each epoch, and how many epochs there will be.
    """
    model = run.learner.model
    trained = [value for value in model.parameters() if value.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=config.learning_rate, weight_decay=0.01, betas=(0.9, 0.98), fused=True)
    batches = run.learner.forward.lay_out(samples, token_budget=config.batch_tokens, unit="sample")
    weights = [sample.advantage for sample in samples]
    weighted = [(batch, column(batch, weights)) for batch in batches]
    losses: list[float] = []
    for epoch in range(config.epochs):
        Random(seed_of(run.config.seed, "warm start", epoch)).shuffle(weighted)
        losses.append(_epoch(run.learner.forward, optimiser, weighted, config, epoch))
        if told is not None:
            told(losses, config.epochs)
    run.engine.load(run.learner.weights(), version=0)
    return losses


def _epoch(
    forward: Forward,
    optimiser: torch.optim.Optimizer,
    weighted: Sequence[tuple[Pack | PaddedRows, torch.Tensor]],
    config: WarmStartConfig,
    epoch: int,
) -> float:
    total = weight = 0.0
    for number, (batch, weight_T) in enumerate(weighted):
        done = epoch * len(weighted) + number
        for group in optimiser.param_groups:
            group["lr"] = config.learning_rate * _step_size(done, config.epochs * len(weighted))
        logp_T, _ = forward(batch)
        loss = -(weight_T * logp_T).sum()
        (loss / weight_T.sum()).backward()
        torch.nn.utils.clip_grad_norm_(forward.model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        total, weight = total + float(loss.detach()), weight + float(weight_T.sum())
    return total / weight


def _step_size(done: int, steps: int) -> float:
    """Share of the full step size: up within a few steps, then down to a twentieth along a cosine."""
    fall = 0.05 + 0.95 * (1 + math.cos(math.pi * done / steps)) / 2
    return min(1.0, (done + 1) / WARM_UP_STEPS) * fall


def expert_samples(run: Run, tasks: Sequence[Task], config: WarmStartConfig) -> list[Sample]:
    """What the expert says at every step of its attempts, put exactly as a rollout would put it."""
    found: list[Sample] = []
    for number, task in enumerate(tasks):
        found += _attempt(run, task, number, config)
    return found


def _attempt(run: Run, task: Task, number: int, config: WarmStartConfig) -> Iterator[Sample]:
    """Play the teacher: the expert, or what noise and sloppiness put in its place; each step is a sample."""
    environment, prompter = run.config.env.open(task), run.prompter
    if not isinstance(environment, Expert):
        raise ConfigError("the environment has no expert to start from; leave out [warm_start]")
    draws = Random(seed_of(run.config.seed, "warm start", task.id))
    seen = environment.observe()
    opening, past = prompter.opening_ids(seen.goal), list[Exchange]()
    offered: dict[str, None] = {}  # actions in the order they came up
    for index in range(run.config.env.max_steps):
        action = environment.expert()
        if action is None:
            return
        offered |= dict.fromkeys(seen.admissible or ())
        strays = bool(offered) and draws.random() < config.noise
        if strays:
            action = draws.choice(list(offered))
        elif seen.admissible and draws.random() < config.sloppiness:
            action = draws.choice(seen.admissible)
        observation_ids = prompter.observation_ids(seen)
        said = run.config.rollout.action_rule.say(action, admissible=seen.admissible)
        response = (*prompter.encode(said), prompter.frame.end_id)
        prompt = prompter.prompt(opening, past, seen)
        # Within a single message the observation has no place of its own to be weighed at.
        shown = len(prompt) - len(observation_ids) - len(prompter.frame.before_response) if observation_ids else 0
        yield _sample(prompt, response, shown, 0.0 if strays else 1.0, config.observation_weight, number, index)
        outcome = environment.act(action)
        if outcome.ended:
            return
        past.append(prompter.past(seen, response, action))
        seen = outcome.observation


def _sample(
    prompt: tuple[int, ...],
    response: tuple[int, ...],
    shown: int,
    weight: float,
    observation_weight: float,
    trajectory: int,
    step: int,
) -> Sample:
    """A step to imitate; with a weight on observations, what the environment showed last is said too."""
    cut = shown if observation_weight and shown > 0 else len(prompt)
    return Sample(
        prompt_ids=prompt[:cut],
        response_ids=(*prompt[cut:], *response),
        advantage=(*[observation_weight] * (len(prompt) - cut), *[weight] * len(response)),
        trajectory=trajectory,
        step=step,
        group=trajectory,
        trains=bool(weight or cut < len(prompt)),
    )
