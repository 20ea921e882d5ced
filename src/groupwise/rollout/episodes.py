"""The episode loop: many attempts at once, each an environment, a dialogue and a record."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from groupwise.data.records import Origin, Step, StopReason, Task, Trajectory
from groupwise.data.seeds import seeds_of
from groupwise.engines.engine import (
    Engine,
    Generation,
    Request,
    SubmittingEngine,
    VersionSpan,
    check_generations,
)
from groupwise.envs.environment import Observation, Outcome
from groupwise.rollout.actions import Action, ActionRule
from groupwise.rollout.environment_runner import ConcurrentHost, EnvTiming, Fault, Host
from groupwise.rollout.prompts import Exchange, Prompter
from groupwise.system.errors import EngineFault, EnvironmentFault, GroupwiseError
from groupwise.system.quoted_errors import quote_error_with_place
from groupwise.system.secrets import redact
from groupwise.system.text import describe_value, quote_line


class PlayStopped(Exception):
    """Attempts were told to stop before they had ended."""


class StopSignal:
    """Given once; whoever plays checks it between steps, and whoever waits for answers waits for it too."""

    def __init__(self) -> None:
        self.given: Future[None] = Future()
        """Done once the signal is given, so that it can be waited for among the futures of an engine."""

    def give(self) -> None:
        if not self.given.done():
            self.given.set_result(None)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An attempt to make."""

    task: Task
    number: int
    """Its number within the task's group."""
    seed: int
    origin: Origin = Origin.FRESH
    guidance_text: str = ""
    """Guidance that its prompts begin with; nothing = the task alone."""
    forced: tuple[int, ...] = ()
    """Token ids that its first response begins with; the others are sampled after them."""
    trains_forced: bool = False
    temperature: float | None = None
    """Divides the logits of this attempt; None = as all are played."""
    parent: str | None = None
    """The trajectory that the guidance was made of."""


@dataclass
class LiveAttempt:
    """An attempt under way."""

    attempt: Attempt
    observation: Observation
    opening: tuple[int, ...]
    unguided_opening: tuple[int, ...] = ()
    prompt: tuple[int, ...] = ()
    past: list[Exchange] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    versions: list[tuple[VersionSpan, ...]] = field(default_factory=list)
    """Which weights sampled each step."""
    stop: StopReason | None = None
    success: bool | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Player:
    """A policy at play, in training and in evaluation alike."""

    engine: Engine
    host: Host
    prompter: Prompter
    action_rule: ActionRule
    max_tokens: int
    """Most tokens of a response."""
    stop: StopSignal = field(default_factory=StopSignal)
    """Heard between steps: another thread may end the attempts, with `PlayStopped`, before their next step."""

    def play(
        self, attempts: Sequence[Attempt], *, temperature: float, waiting: EnvTiming | None = None
    ) -> list[Trajectory]:
        """Play all attempts to their end; finished ones cost nothing.

        They are played in step with one another, unless the engine takes requests as they come (`SubmittingEngine`):
        then each attempt goes on as soon as its own answer, or its own environment, is there. A request is the same
        either way, its seed included, so that the same tokens come of it.

        A fault of an environment ends its attempt with an error on its trajectory; the others go on. Attempts at one
        task must see the same first observation. `waiting` is told what environments took.
        """
        waiting = waiting or EnvTiming()
        with waiting.during():
            first = self.host.open({number: attempt.task for number, attempt in enumerate(attempts)})
        seen: dict[str, tuple[int, Observation]] = {}
        openings: dict[tuple[str, str, str], tuple[int, ...]] = {}
        live: dict[int, LiveAttempt] = {}
        for number, attempt in enumerate(attempts):
            shown, task, guidance = first[number], attempt.task, attempt.guidance_text
            if isinstance(shown, Fault):
                nothing = Observation(text="")
                live[number] = LiveAttempt(attempt, nothing, (), stop=shown.reason, error=shown.message)
                continue
            other, before = seen.setdefault(task.id, (attempt.number, shown))
            if before.text != shown.text or before.state_key != shown.state_key:
                starts = [repr(quote_line(text, limit=100)) for text in (before.text, shown.text)]
                raise EnvironmentFault(
                    f"task {task.id!r}: attempts {other} and {attempt.number} start from different observations "
                    f"({starts[0]} and {starts[1]}); open the environment from the task alone, without global random "
                    "numbers"
                )
            for text in (guidance, ""):
                if (task.id, shown.goal, text) not in openings:
                    opening = self.prompter.for_task(task).encode_opening(shown.goal, text)
                    openings[task.id, shown.goal, text] = opening
            live[number] = LiveAttempt(
                attempt,
                shown,
                openings[task.id, shown.goal, guidance],
                unguided_opening=openings[task.id, shown.goal, ""],
            )
        return LiveEpisodes(self, live, temperature, waiting).play_to_end()


Move = tuple[Generation, Action]
"""What an attempt does: the engine's answer, and the action that was read out of it."""


@dataclass(frozen=True)
class LiveEpisodes:
    """Attempts under way, by number, and what they are played with.

    Every step of every attempt passes here: what is the same for all of them is looked up once a round.
    """

    player: Player
    live: Mapping[int, LiveAttempt]
    temperature: float
    waiting: EnvTiming

    def play_to_end(self) -> list[Trajectory]:
        """Play on until all have ended; their records, in the order of the attempts."""
        engine = self.player.engine
        active = [number for number, state in self.live.items() if state.stop is None]
        if isinstance(engine, SubmittingEngine):
            self._play_as_answered(active, engine)
        else:
            while requests := self.ask(active):
                answers = engine.generate(list(requests.values()))
                check_number(engine, "generate", answers, len(requests))
                moves = self.read(dict(zip(requests, answers, strict=True)))
                with self.waiting.during(len(moves)):
                    outcomes = self.player.host.act({n: action.text for n, (_, action) in moves.items()})
                active = self.record(moves, outcomes)
        return [_make_trajectory(state) for state in self.live.values()]

    def ask(self, active: Sequence[int]) -> dict[int, Request]:
        """What attempts ask the engine next; those whose prompts have outgrown the model end here."""
        player, live = self.player, self.live
        if player.stop.given.done():
            raise PlayStopped
        context, max_tokens, stop_ids = player.engine.context, player.max_tokens, (player.prompter.frame.end_id,)
        states = [live[n] for n in active]
        prompts = player.prompter.make_prompts([(state.opening, state.past, state.observation) for state in states])
        seeds = seeds_of([(state.attempt.seed, "step", len(state.steps)) for state in states])
        requests, too_long = dict[int, Request](), list[int]()
        for n, state, prompt, seed in zip(active, states, prompts, seeds, strict=True):
            attempt, step = state.attempt, len(state.steps)
            if context is not None and len(prompt) + max_tokens > context:
                reason = (
                    f"a prompt of {len(prompt)} tokens and {max_tokens} to sample do not fit into the model's "
                    f"{context}; shorten rollout.memory, or load a model with a longer context"
                )
                if not step:
                    raise EngineFault(f"task {attempt.task.id!r}: {reason}")
                state.stop, state.success, state.error = StopReason.TRUNCATED, False, reason
                too_long.append(n)
                continue
            forced = () if step else attempt.forced
            state.prompt = prompt
            requests[n] = Request(
                prompt_ids=prompt + forced,
                seed=seed,
                max_tokens=max_tokens - len(forced),
                temperature=self.temperature if attempt.temperature is None else attempt.temperature,
                stop_ids=stop_ids,
                session=str(attempt.seed),  # not the task: an evaluation may have just played the same one
            )
        player.host.close(too_long)
        return requests

    def read(self, answers: Mapping[int, Generation]) -> dict[int, Move]:
        """What attempts do, as the engine's answers say."""
        odd = [answer for answer in answers.values() if not isinstance(answer, Generation)]
        if odd:
            raise EngineFault(
                f"the engine {type(self.player.engine).__name__} answered a request with {describe_value(odd[0])}, "
                f"but a Generation is needed; {ADVICE}"
            )
        check_generations([*answers.values()])
        whole: dict[int, Generation] = {}
        for n, answer in answers.items():
            state = self.live[n]
            whole[n] = _prepend_forced(state.attempt, answer) if state.attempt.forced and not state.steps else answer
        texts = self.player.prompter.read_texts([answer.response_ids for answer in whole.values()])
        read, moves = self.player.action_rule.read, dict[int, Move]()
        for (n, answer), text in zip(whole.items(), texts, strict=True):
            moves[n] = answer, read(text, stopped=answer.stopped, admissible=self.live[n].observation.admissible)
        return moves

    def record(self, moves: Mapping[int, Move], outcomes: Mapping[int, Outcome | Fault]) -> list[int]:
        """Write down what came of moves, and close what has ended; which attempts go on."""
        prompter, goes_on, has_ended, past = self.player.prompter, list[int](), list[int](), list[Any]()
        for n, (answer, action) in moves.items():
            state, outcome = self.live[n], outcomes[n]
            attempt, seen, index = state.attempt, state.observation, len(state.steps)
            reward, accepted, facts = 0.0, True, dict[str, Any]()
            if not isinstance(outcome, Fault):
                reward, accepted, facts = outcome.reward, outcome.accepted, dict(outcome.facts)
            state.steps.append(
                Step(
                    index=index,
                    reward=reward,
                    state_key=seen.state_key,
                    observation=seen.text,
                    action=action.text,
                    well_formed=action.well_formed,
                    accepted=accepted,
                    cut=not answer.stopped,
                    prompt_ids=state.prompt,
                    unguided_prompt_ids=(
                        prompter.prompt(state.unguided_opening, state.past, seen) if attempt.guidance_text else ()
                    ),
                    response_ids=answer.response_ids,
                    forced=0 if index or attempt.trains_forced else len(attempt.forced),
                    logp_behaviour=answer.logp,
                    entropy=answer.entropy,
                    facts=facts,
                )
            )
            state.versions.append(answer.versions)
            if isinstance(outcome, Fault):
                state.stop, state.error = outcome.reason, outcome.message
                has_ended.append(n)
            elif outcome.terminated or outcome.truncated:  # nobody reads what is shown now
                state.stop = StopReason.TERMINATED if outcome.terminated else StopReason.TRUNCATED
                state.success, state.error = outcome.success, outcome.note or None
                has_ended.append(n)
            else:
                past.append((seen, answer.response_ids, action.text))
                state.observation = outcome.observation
                goes_on.append(n)
        self.player.host.close(has_ended)
        for n, exchange in zip(goes_on, prompter.make_exchanges(past), strict=True):
            self.live[n].past.append(exchange)
        return goes_on

    def _play_as_answered(self, active: Sequence[int], engine: SubmittingEngine) -> None:
        """Play attempts to their end, each at its own pace.

        Each acts as soon as its answer is there, and asks again as soon as its environment has acted, while the others
        wait for theirs. The loop runs in one thread; whoever answers in another rings a bell.
        """
        host, pending, moves = self.player.host, dict[Future[Generation], int](), dict[int, Move]()
        try:
            with closing(_WakeupSocket()) as bell:
                while active or pending or moves:
                    if requests := self.ask(active):
                        futures = engine.submit(list(requests.values()))
                        check_number(engine, "submit", futures, len(requests))
                        for future in futures:
                            if not isinstance(future, Future):
                                raise EngineFault(
                                    f"the engine {type(engine).__name__}: submit gave {describe_value(future)} among "
                                    "its futures, but a concurrent.futures.Future for each request is needed; "
                                    f"{ADVICE}"
                                )
                            future.add_done_callback(bell.ring)
                        pending |= zip(futures, requests, strict=True)
                    if pending and not moves:
                        waits_for: list[Future[Any]] = [*pending, self.player.stop.given]
                        wait(waits_for, return_when=FIRST_COMPLETED)
                    answered = {future: n for future, n in pending.items() if future.done()}
                    pending = {future: n for future, n in pending.items() if future not in answered}
                    new = self.read({n: _read_future(engine, future) for future, n in answered.items()})
                    moves |= new
                    outcomes: Mapping[int, Outcome | Fault] = {}
                    if moves:
                        texts = {n: action.text for n, (_, action) in new.items()}
                        with self.waiting.during(len(new)):
                            if isinstance(host, ConcurrentHost):
                                host.begin(texts)
                                outcomes = host.finish(bell.ear)  # nothing where the bell rang first
                                bell.hush()
                            else:
                                outcomes = host.act(texts)
                    active = self.record({n: moves.pop(n) for n in outcomes}, outcomes)
        finally:
            for future in pending:  # somebody failed: nobody waits for these any more
                future.cancel()


def _prepend_forced(attempt: Attempt, answer: Generation) -> Generation:
    """Put the tokens that a response was made to begin with before it; nobody drew them, they are scored later."""
    zeros = (0.0,) * len(attempt.forced)
    spans = answer.versions
    if spans:
        spans = (VersionSpan(spans[0].version, spans[0].tokens + len(attempt.forced)), *spans[1:])
    return replace(
        answer,
        response_ids=attempt.forced + answer.response_ids,
        logp=zeros + answer.logp,
        entropy=zeros + answer.entropy if answer.entropy else (),
        versions=spans,
    )


def _make_trajectory(live: LiveAttempt) -> Trajectory:
    assert live.stop is not None, "an attempt is recorded once it has ended"
    attempt, steps, sampled_by = live.attempt, live.steps, set[int]()
    total: float = 0
    for step, spans in zip(steps, live.versions, strict=True):
        total += step.reward
        for span in spans:
            sampled_by.add(span.version)
    if len(sampled_by) > 1:
        steps = [replace(step, versions=spans) for step, spans in zip(steps, live.versions, strict=True)]
    scores = {"return": total}
    if live.success is not None:
        scores["success"] = float(live.success)
    return Trajectory(
        id=f"{attempt.task.id}/{attempt.number}",
        task=attempt.task,
        attempt=attempt.number,
        steps=tuple(steps),
        scores=scores,
        stop=live.stop,
        versions=tuple(sorted(sampled_by)),
        origin=attempt.origin,
        parent=attempt.parent,
        error=None if live.error is None else redact(live.error),  # it goes into the journal, and from there anywhere
    )


# What a live engine answers is checked as it comes: an engine of a user's own may answer anything.

ADVICE = "`groupwise check engine` with the run file says which rules the engine breaks"


def check_number(engine: object, method: str, answers: Any, num: int) -> None:
    where = f"the engine {type(engine).__name__}: {method}"
    if not isinstance(answers, Sequence):
        raise EngineFault(f"{where} gave {describe_value(answers)} for {num} requests, but a list is needed; {ADVICE}")
    if len(answers) != num:
        raise EngineFault(f"{where} was given {num} requests and returned {len(answers)}; {ADVICE}")


def _read_future(engine: object, future: Future[Generation]) -> Generation:
    """What a future holds; what an engine raised that says nothing of where it came from is said with its name."""
    try:
        return future.result()
    except GroupwiseError:
        raise
    except Exception as error:
        reason = quote_error_with_place(error, type(engine).__module__)
        raise EngineFault(f"the engine {type(engine).__name__}: a future raised {reason}; {ADVICE}") from error


class _WakeupSocket:
    """Rung from any thread; whoever listens to sockets hears it among them."""

    def __init__(self) -> None:
        self.ear, self._clapper = socket.socketpair()
        self.ear.setblocking(False)
        self._clapper.setblocking(False)

    def ring(self, _: object) -> None:
        with suppress(OSError):  # it is full of ringing, or nobody listens any more
            self._clapper.send(b".")

    def hush(self) -> None:
        """Forget that it rang: who has answered is looked up."""
        with suppress(BlockingIOError):
            self.ear.recv(2**16)

    def close(self) -> None:
        self.ear.close()
        self._clapper.close()
