"""A supervised start: the model learns to say what an expert would have done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import torch

from groupwise.batching import pack, token_logps
from groupwise.core.errors import ConfigError
from groupwise.core.records import Task
from groupwise.core.sample import Sample
from groupwise.core.seeds import seed_of
from groupwise.envs.environment import Expert
from groupwise.rollout.prompts import Exchange
from groupwise.training.run import Run
from groupwise.training.run_config import WarmStartConfig


def expert_samples(run: Run, tasks: Sequence[Task]) -> list[Sample]:
    """What the expert says at every step of its attempts, put exactly as a rollout would put it."""
    found: list[Sample] = []
    for number, task in enumerate(tasks):
        found += _attempt(run, task, number)
    return found


def warm_start(run: Run, config: WarmStartConfig) -> list[float]:
    """Train the learner's model on expert steps; mean loss of each epoch. The engine takes the weights over."""
    samples = expert_samples(run, run.tasks[: config.tasks])
    model = run.learner.model
    optimiser = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, weight_decay=0.0)
    losses: list[float] = []
    packs = [batch.to(next(model.parameters()).device) for batch in pack(samples, token_budget=config.batch_tokens)]
    for epoch in range(config.epochs):
        total, tokens = 0.0, 0
        order = list(range(len(packs)))
        Random(seed_of(run.config.seed, "warm start", epoch)).shuffle(order)
        for number in order:
            logp_T, _ = token_logps(model, packs[number])
            loss = -logp_T.mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            total, tokens = total - float(logp_T.detach().sum()), tokens + len(logp_T)
        losses.append(total / tokens)
    run.engine.load(run.learner.weights(), version=0)
    return losses


def _attempt(run: Run, task: Task, number: int) -> Iterator[Sample]:
    environment, prompter = run.config.env.open(task), run.prompter
    if not isinstance(environment, Expert):
        raise ConfigError("the environment has no expert to start from; leave out [warm_start]")
    seen = environment.observe()
    opening, past = prompter.opening_ids(seen.goal), list[Exchange]()
    for index in range(run.config.env.max_steps):
        action = environment.expert()
        if action is None:
            return
        observation_ids = prompter.observation_ids(seen)
        response = (*prompter.encode(action), prompter.frame.end_id)
        yield Sample(
            prompt_ids=prompter.prompt(opening, past, observation_ids),
            response_ids=response,
            advantage=1.0,
            trajectory=number,
            step=index,
            group=number,
        )
        outcome = environment.act(action)
        if outcome.ended:
            return
        past.append(Exchange(observation_ids=observation_ids, response_ids=response))
        seen = outcome.observation
