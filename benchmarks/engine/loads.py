"""What the engines are asked: batches of prompts, and rollouts of agents that go on turn after turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

from groupwise.engines.engine import Generation, Request

ROLLOUTS, GROUP = 128, 8
"""Rollouts of the agent load, and how many of them share an opening."""
TURNS, OPENING, SAMPLED, NEW = 10, 300, 20, 40
"""Turns of a rollout, tokens of its opening, tokens sampled a turn, and tokens that the environment adds after it."""
BATCH_TOKENS = 64
"""Tokens sampled for a prompt of a batch."""
Generate = Callable[[Sequence[Request]], list[Generation]]


def synchronise() -> None:
    """Wait for the GPU, where there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def time_agents(
    generate: Generate,
    vocabulary: int,
    *,
    number: int,
    rollouts: int = ROLLOUTS,
    on_turn: Callable[[int], None] | None = None,
) -> float:
    """Seconds that the rollouts take from first to last turn; every `number` has openings of its own.

    Sessions go on: a prompt is the one before it, what was sampled for it, and what the environment said.
    """
    draw = np.random.default_rng(number)
    openings = [draw_ids(draw, OPENING, vocabulary) for _ in range(rollouts // GROUP)]
    said = [[draw_ids(draw, NEW, vocabulary) for _ in range(rollouts)] for _ in range(TURNS)]
    prompts = [openings[rollout // GROUP] for rollout in range(rollouts)]
    synchronise()
    began = time.perf_counter()
    for turn in range(TURNS):
        if on_turn is not None:
            on_turn(turn)
        requests = [
            Request(
                prompt_ids=prompt,
                seed=(number * TURNS + turn) * rollouts + rollout,
                max_tokens=SAMPLED,
                session=f"rollout {number} {rollout}",
            )
            for rollout, prompt in enumerate(prompts)
        ]
        answers = generate(requests)
        assert {len(answer.logp) for answer in answers} == {SAMPLED}
        prompts = [
            (*prompt, *answer.response_ids, *new)
            for prompt, answer, new in zip(prompts, answers, said[turn], strict=True)
        ]
    synchronise()
    return time.perf_counter() - began


def time_batch(generate: Generate, vocabulary: int, *, number: int, rows: int, mean: int) -> float:
    """Seconds that a batch of different prompts takes, between half and one and a half of the mean length."""
    draw = np.random.default_rng(number)
    lengths = draw.integers(mean // 2, mean * 3 // 2 + 1, size=rows)
    requests = [
        Request(prompt_ids=draw_ids(draw, int(length), vocabulary), seed=row, max_tokens=BATCH_TOKENS)
        for row, length in enumerate(lengths)
    ]
    synchronise()
    began = time.perf_counter()
    answers = generate(requests)
    synchronise()
    took = time.perf_counter() - began
    assert {len(answer.logp) for answer in answers} == {BATCH_TOKENS}
    return took


def draw_ids(draw: np.random.Generator, length: int, vocabulary: int) -> tuple[int, ...]:
    """Ids of ordinary tokens."""
    return tuple(draw.integers(3, vocabulary, size=length).tolist())
