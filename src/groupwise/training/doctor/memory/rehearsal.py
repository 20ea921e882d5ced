"""A rehearsal of an update's attempts, without a model: how long prompts become, and how they pack.

Responses are as long as they may be, tokens drawn at random; where the environment lists what is possible, one of that
is done whatever the response says, so that observations are those of an agent that gets somewhere.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.batching.chains import Chains
from groupwise.batching.pack import pack
from groupwise.core.records import Task, Trajectory
from groupwise.core.sample import Sample
from groupwise.engines.engine import Request
from groupwise.engines.scripted import ScriptedEngine
from groupwise.envs.part_queries import ask_panel
from groupwise.rollout.actions import Action, ActionRule, Admissible
from groupwise.rollout.episodes import Attempt, Sampling, play_attempts
from groupwise.rollout.hosts.host import InProcess
from groupwise.training.doctor.memory.passes import MicroBatchShape
from groupwise.training.open_run import open_prompter
from groupwise.training.run_config import RunConfig

MAX_TASKS = 4
"""Tasks that are played; an update's others are taken to be like them."""


OTHER_TOKENS = 10_000_000
"""What is added to the tokens of a task to make another task of it: more than any vocabulary has."""


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """What attempts of an update come to."""

    longest: int
    """Tokens of the longest prompt with its response."""
    read: int
    """Most tokens that the engine reads before it samples on, over all attempts of an update."""
    micro_batch: MicroBatchShape
    """The largest micro-batch that they make."""
    num_micro_batches: int
    """How many they make."""
    is_played: bool = True
    """Whether attempts were played; otherwise prompts are taken to be as long as the model reads."""


def assume_longest(config: RunConfig, *, context: int, token_budget: int) -> Rehearsal:
    """What attempts come to at most, where none is played: an environment from elsewhere may cost money or hours."""
    attempts = config.training.tasks * config.rollout.plan.attempts
    return Rehearsal(
        longest=context,
        read=attempts * context,
        micro_batch=MicroBatchShape(tokens=token_budget, predicting=token_budget, keys=token_budget),
        num_micro_batches=2,
        is_played=False,
    )


def rehearse_attempts(config: RunConfig, tokenizer: Any, *, context: int | None, token_budget: int) -> Rehearsal:
    """Play the attempts of some of an update's tasks and pack what they would train on.

    Args:
        config: The run.
        tokenizer: Of its model.
        context: Positions of the model; None = it does not say.
        token_budget: Most tokens of a micro-batch.
    """
    tasks = ask_panel(config.env, "train")[: min(MAX_TASKS, config.training.tasks)]
    trajectories = _play(config, tokenizer, tasks, context)
    learner: Any = config.training.learner
    packs = pack(
        _make_samples(trajectories, tasks, config.training.tasks),
        token_budget=token_budget,
        share=getattr(learner, "share_prefixes", True),
    )
    largest = max(packs, key=len)
    prompts = [step.prompt_ids for trajectory in trajectories for step in trajectory.steps]
    return Rehearsal(
        longest=max(map(len, prompts)) + config.rollout.max_tokens,
        read=_count_read(trajectories) * config.training.tasks // len(tasks),
        micro_batch=MicroBatchShape(
            tokens=len(largest),
            predicting=len(largest.predictions.node),
            keys=len(Chains.of(largest.position_ids[0].numpy()).source),
        ),
        num_micro_batches=len(packs),
    )


def _make_samples(trajectories: Sequence[Trajectory], tasks: Sequence[Task], num_tasks: int) -> list[Sample]:
    """Samples of an update: those of the tasks that were played, and again with other tokens for the other tasks."""
    place = {task.id: number for number, task in enumerate(tasks)}
    samples = []
    for copied in range(-(-num_tasks // len(tasks))):
        for number, trajectory in enumerate(trajectories):
            group = copied * len(tasks) + place[trajectory.task.id]
            if group >= num_tasks:
                continue
            samples += [
                Sample(
                    prompt_ids=tuple(token + OTHER_TOKENS * copied for token in step.prompt_ids),
                    response_ids=step.response_ids,
                    advantage=1.0,
                    trajectory=copied * len(trajectories) + number,
                    step=step.index,
                    group=group,
                )
                for step in trajectory.steps
            ]
    return samples


def _count_read(trajectories: Sequence[Trajectory]) -> int:
    """Most tokens that attempts have the engine read at a step: of equal prompts one, and what it has not read yet."""
    unread: dict[int, dict[tuple[int, ...], int]] = {}
    for trajectory in trajectories:
        known: tuple[int, ...] = ()
        for step in trajectory.steps:
            prompt = step.prompt_ids
            num_known = len(known) if known and prompt[: len(known)] == known else 0
            unread.setdefault(step.index, {})[prompt] = len(prompt) - num_known
            known = (*prompt, *step.response_ids[:-1])
    return max(sum(prompts.values()) for prompts in unread.values())


def _play(config: RunConfig, tokenizer: Any, tasks: tuple[Task, ...], context: int | None) -> list[Trajectory]:
    rollout, special = config.rollout, set(tokenizer.all_special_ids)
    words = [token for token in range(len(tokenizer)) if token not in special]

    def answer(request: Request) -> list[int]:
        return random.Random(request.seed).choices(words, k=request.max_tokens)

    attempts = [
        Attempt(task=task, number=number, seed=len(tasks) * number + place)
        for place, task in enumerate(tasks)
        for number in range(rollout.plan.attempts)
    ]
    with InProcess(config.env) as host:
        return play_attempts(
            attempts,
            host=host,
            engine=_Reader(answer, context),
            prompter=open_prompter(config, tokenizer),
            rule=_DoWhatIsPossible(rollout.action_rule),
            sampling=Sampling(max_tokens=rollout.max_tokens, temperature=rollout.temperature),
        )


class _Reader(ScriptedEngine):
    """A script that reads prompts up to a length."""

    def __init__(self, answer: Any, context: int | None) -> None:
        super().__init__(answer)
        self._context = context

    @property
    def context(self) -> int | None:
        return self._context


@dataclass(frozen=True)
class _DoWhatIsPossible:
    """Does one of the actions that the environment lists; what it lists nothing, does what the response says."""

    rule: ActionRule

    def read(self, text: str, *, stopped: bool, admissible: Admissible = None) -> Action:
        if not admissible:
            return self.rule.read(text, stopped=stopped, admissible=admissible)
        return Action(text=random.Random(text).choice(list(admissible)), well_formed=True)

    def say(self, action: str, *, admissible: Admissible = None) -> str:
        return self.rule.say(action, admissible=admissible)
