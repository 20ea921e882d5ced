"""Samples with everything that could tell layouts apart."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from groupwise.data.samples import Sample

VOCABULARY = 29


def make_tangled_samples(seed: int = 0) -> list[Sample]:
    """Two tasks of step-wise rollouts: shared prompts and histories, repeated samples, lone ones, idle ones.

    Behaviour log-probs lie around the true ones of a random model (ln 1/29 = -3.4), so that some ratios are clipped
    and some are not.
    """
    rng = random.Random(seed)

    def words(length: int) -> tuple[int, ...]:
        return tuple(rng.randrange(VOCABULARY) for _ in range(length))

    prompts: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    preamble = words(4)
    for _ in range(2):
        task = preamble + words(5)
        opening = words(2)  # rollouts agree on the first sampled tokens
        for rollout in range(3):
            first = opening + words(rollout)  # the first rollout samples the opening alone
            later = task + first + words(3)
            prompts += [(task, first), (later, words(3)), (later[:-1] + words(1), words(1))]
    repeated = prompts[4]
    prompts += [repeated, repeated, (repeated[0], repeated[1][:-1] + words(1))]
    prompts += [(words(1), words(1)), (words(12), words(4)), (preamble, words(1))]
    samples = [_sample(rng, number, prompt, response) for number, (prompt, response) in enumerate(prompts)]
    idle = [_sample(rng, len(samples), words(3), ()), _sample(rng, len(samples) + 1, words(3), words(2), trains=False)]
    samples += idle
    rng.shuffle(samples)
    return samples


def _sample(
    rng: random.Random, number: int, prompt: tuple[int, ...], response: tuple[int, ...], trains: bool = True
) -> Sample:
    per_token = tuple(rng.gauss(0.0, 1.0) for _ in response)
    return Sample(
        prompt_ids=prompt,
        response_ids=response,
        advantage=per_token if number % 3 == 0 else rng.gauss(0.0, 1.0),
        logp_behaviour=tuple(rng.uniform(-4.5, -2.0) for _ in response),
        trajectory=number // 3,
        step=number % 3,
        group=number // 9,
        trains=trains,
    )


def make_stepwise_samples(*, rollouts: int = 4, steps: int = 6, window: int | None = None) -> list[Sample]:
    """Rollouts of one task whose prompts hold the steps before, all of them or the last `window`."""
    rng = random.Random(1)

    def words(length: int) -> tuple[int, ...]:
        return tuple(rng.randrange(VOCABULARY) for _ in range(length))

    task, samples = words(20), []
    for rollout in range(rollouts):
        history: list[tuple[int, ...]] = []
        for step in range(steps):
            shown = history if window is None else history[-window:]
            observation, response = words(rng.randint(8, 24)), words(rng.randint(2, 9))
            prompt = sum(shown, task) + observation
            samples.append(_sample(rng, rollout * steps + step, prompt, response))
            history.append(observation + response)
    return samples


def with_token_credit(samples: Sequence[Sample]) -> list[Sample]:
    """The same samples, their tokens with credit of their own; of some every third token does not train, or none."""
    with_credit = []
    for number, sample in enumerate(samples):
        num = len(sample.response_ids)
        own = sample.advantage if isinstance(sample.advantage, float) else 1.0
        advantage = tuple(own * (1 + 0.25 * place) for place in range(num))
        trained = tuple((place + number) % 3 > 0 for place in range(num)) if number % 4 else None
        with_credit.append(replace(sample, advantage=advantage, trained=trained))
    return with_credit
