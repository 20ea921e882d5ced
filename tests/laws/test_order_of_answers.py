"""Tokens follow from a request alone: rollouts come out the same in whatever order the engine answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

from groupwise import Trajectory
from groupwise.envs import Gridworld
from groupwise.models.tiny import make_word_tokenizer
from groupwise.rollout import Full, WholeResponse, Window
from groupwise.rollout.environment_runner import EnvTiming, InProcess
from groupwise.rollout.episodes import Player, Rollout
from groupwise.rollout.prompts import Prompter, PromptTemplate
from tests.unit.rollout.answering import Answering, Gambling, by_lot

ENV = Gridworld(size=3, num_holes=1, max_steps=4)
TOKENIZER = make_word_tokenizer((*ENV.vocabulary(), "goal", ":", ">", "."))


def play(
    num_tasks: int, num_rollouts: int, seed: int, *, whole: bool, max_tokens: int, order: int | None
) -> tuple[list[Trajectory], int]:
    """Rollouts by a gambler, and how many steps environments took; with an order, as it answers in that order."""
    prompter = Prompter(TOKENIZER, template=PromptTemplate(), history=Full() if whole else Window(), instruction="")
    words = [token for name in ("up", "down", "left", "right") for token in prompter.encode(name)]
    gambling = Gambling(words, prompter.frame.end_id)
    engine = gambling if order is None else Answering(gambling, by_lot(order))
    waiting = EnvTiming()
    try:
        player = Player(
            engine=engine,
            host=InProcess(ENV),
            prompter=prompter,
            action_parser=WholeResponse(),
            max_tokens=max_tokens,
        )
        rollouts = [
            Rollout(task=task, number=number, seed=seed + 100 * place + number)
            for place, task in enumerate(ENV.task_set("train")[:num_tasks])
            for number in range(num_rollouts)
        ]
        played = player.play(rollouts, temperature=1.0, waiting=waiting)
    finally:
        if isinstance(engine, Answering):
            engine.close()
    return played, waiting.steps


@given(
    num_tasks=st.integers(1, 3),
    num_rollouts=st.integers(1, 5),
    seed=st.integers(0, 2**32),
    whole=st.booleans(),
    max_tokens=st.integers(1, 4),
    order=st.integers(0, 2**32),
)
def test_the_order_of_answers_changes_no_rollout(
    num_tasks: int, num_rollouts: int, seed: int, whole: bool, max_tokens: int, order: int
) -> None:
    settings = {"whole": whole, "max_tokens": max_tokens}
    in_step = play(num_tasks, num_rollouts, seed, order=None, **settings)
    as_answered = play(num_tasks, num_rollouts, seed, order=order, **settings)
    assert as_answered == in_step
    assert len(in_step[0]) == num_tasks * num_rollouts
    assert in_step[1] == sum(len(trajectory.steps) for trajectory in in_step[0]) > 0
