"""The episode loop in this process with an engine whose answers are written down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from groupwise import Task
from groupwise.engines.engine import Request
from groupwise.engines.scripted import ScriptedEngine
from groupwise.envs import Identity
from groupwise.envs.environment import Observation, Outcome
from groupwise.models.tiny import make_word_tokenizer
from groupwise.rollout import Full, WholeResponse
from groupwise.rollout.environment_runner import EnvTiming, InProcess
from groupwise.rollout.episodes import Player, Rollout
from groupwise.rollout.prompts import Prompter, PromptTemplate

ENV = Identity(num_words=4, length=2)


class Sized(ScriptedEngine):
    """An engine whose model has so many positions; None = as many as are asked for."""

    context: int | None = None  # type: ignore[assignment]


def play(
    env: Any,
    tasks: Sequence[Task],
    answers: dict[str, list[str]] | None = None,
    waiting: EnvTiming | None = None,
    *,
    vocabulary: Sequence[str] = ENV.vocabulary(),
    context: int | None = None,
) -> list[Any]:
    """Play one rollout a task; `answers` maps a session to what it says, step by step; else it repeats the word.

    `vocabulary` holds the words that the tokenizer knows, `context` how many positions the model has.
    """
    tokenizer = make_word_tokenizer((*vocabulary, "goal", ":", ">", "."))
    prompter = Prompter(tokenizer, template=PromptTemplate(), history=Full(), instruction="")
    said: dict[str, int] = {}

    def answer(request: Request) -> list[int]:
        session = request.session or ""
        step = said[session] = said.get(session, -1) + 1
        words = (answers or {}).get(session)
        shown = str(tokenizer.decode(request.prompt_ids)).split()[-3]
        return [*prompter.encode(words[step] if words else shown), prompter.frame.end_id]

    engine = Sized(answer, version=3)
    engine.context = context
    rollouts = [Rollout(task=task, number=i, seed=i) for i, task in enumerate(tasks)]
    player = Player(engine=engine, host=InProcess(env), prompter=prompter, action_parser=WholeResponse(), max_tokens=4)
    return player.play(rollouts, temperature=1.0, waiting=waiting)


class Breaking:
    """Raises at the second step of its second rollout."""

    opened = 0

    def open(self, task: Task) -> Any:
        Breaking.opened += 1
        return self.Instance(ENV.open(task), Breaking.opened == 2)

    class Instance:
        def __init__(self, inner: Any, breaks: bool) -> None:
            self.inner, self.breaks, self.steps = inner, breaks, 0

        def observe(self) -> Observation:
            return self.inner.observe()

        def act(self, action: str) -> Outcome:
            self.steps += 1
            if self.breaks and self.steps == 2:
                raise RuntimeError("the roof fell in\nand more")
            return self.inner.act(action)
