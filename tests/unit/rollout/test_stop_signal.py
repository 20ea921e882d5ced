"""Rollouts that play in another thread end when they are told to, also where an engine never answers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import pytest

pytest.importorskip("torch")

from groupwise.engines.engine import Generation, Request
from groupwise.engines.scripted import ScriptedEngine
from groupwise.envs import Identity
from groupwise.models.tiny import make_word_tokenizer
from groupwise.rollout import Full, WholeResponse
from groupwise.rollout.environment_runner import InProcess
from groupwise.rollout.episodes import Player, PlayStopped, Rollout, StopSignal
from groupwise.rollout.prompts import Prompter, PromptTemplate

ENV = Identity(num_words=4, length=3)
PROMPTER = Prompter(
    make_word_tokenizer((*ENV.vocabulary(), "goal", ":", ">", ".")),
    template=PromptTemplate(),
    history=Full(),
    instruction="",
)
SECONDS = 20.0


def play(engine: Any, stop: StopSignal) -> None:
    player = Player(
        engine=engine,
        host=InProcess(ENV),
        prompter=PROMPTER,
        action_parser=WholeResponse(),
        max_tokens=2,
        stop=stop,
    )
    player.play([Rollout(task=ENV.task_set("train")[0], number=0, seed=0)], temperature=1.0)


def test_rollouts_in_step_end_before_their_next_step() -> None:
    stop, asked = StopSignal(), list[Request]()

    def answer(request: Request) -> Sequence[int]:
        asked.append(request)
        stop.give()
        stop.give()  # twice is once
        return PROMPTER.encode("alpha")

    with pytest.raises(PlayStopped):
        play(ScriptedEngine(answer), stop)
    assert len(asked) == 1


class Silent(ScriptedEngine):
    """Takes requests and never answers."""

    def __init__(self) -> None:
        super().__init__(lambda request: ())
        self.has_been_asked, self.futures = threading.Event(), list[Future[Generation]]()

    def submit(self, requests: Sequence[Request]) -> list[Future[Generation]]:
        self.futures = [Future() for _ in requests]
        self.has_been_asked.set()
        return self.futures


def test_rollouts_that_wait_for_answers_end_at_once() -> None:
    stop, engine, raised = StopSignal(), Silent(), list[BaseException]()

    def play_and_note() -> None:
        try:
            play(engine, stop)
        except PlayStopped as error:
            raised.append(error)

    thread = threading.Thread(target=play_and_note, daemon=True)
    thread.start()
    assert engine.has_been_asked.wait(SECONDS)
    stop.give()
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert len(raised) == 1
    assert all(future.cancelled() for future in engine.futures)
