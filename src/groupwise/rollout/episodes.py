"""Who plays attempts: an engine that answers, a host that environments run in, and how prompts and actions are made."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Self

from groupwise.data.records import Origin, Step, StopReason, Task, Trajectory
from groupwise.data.seeds import seed_of
from groupwise.engines.engine import Engine, Generation, Request, SubmittingEngine, VersionSpan
from groupwise.envs.environment import Observation, Outcome
from groupwise.rollout.actions import Action, ActionRule
from groupwise.rollout.environment_runner import ConcurrentHost, EnvTiming, Fault, Host
from groupwise.rollout.prompts import Exchange, Prompter
from groupwise.system.errors import EngineFault, EnvironmentFault, GroupwiseError
from groupwise.system.quoted_errors import quote_error_with_place
from groupwise.system.secrets import redact
from groupwise.system.text import describe_value, quote_line


@dataclass(frozen=True, kw_only=True)
class Player:
    """A policy at play, in training and in evaluation alike."""

    engine: Engine
    """Samples the responses."""
    host: Host
    """Where the environments run."""
    prompter: Prompter
    """Makes prompts of observations."""
    action_rule: ActionRule
    """How actions are read out of responses."""
    max_tokens: int
    """Most tokens of a response."""
    stop: StopSignal | None = None
    """Heard between steps, where another thread may end the attempts; None = nobody does."""

    def play(
        self, attempts: Sequence[Attempt], *, temperature: float, waiting: EnvTiming | None = None
    ) -> list[Trajectory]:
        """Play attempts to their ends; `waiting` is told what environments took."""
        return play_attempts(
            attempts,
            host=self.host,
            engine=self.engine,
            prompter=self.prompter,
            rule=self.action_rule,
            sampling=Sampling(max_tokens=self.max_tokens, temperature=temperature),
            waiting=waiting,
            stop=self.stop,
        )


# The episode loop: many attempts at once, each an environment, a dialogue and a record.

Move = tuple[Generation, Action]
"""What an attempt does: the engine's answer, and the action that was read out of it."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """An attempt to make."""

    task: Task
    """The task to try."""
    number: int
    """Its number within the task's group."""
    seed: int
    """The attempt's place in the tree of seeds."""
    origin: Origin = Origin.FRESH
    """Where the attempt comes from."""
    guidance_text: str = ""
    """Guidance that its prompts begin with; nothing = the task alone."""
    forced: tuple[int, ...] = ()
    """Token ids that its first response begins with; the others are sampled after them."""
    trains_forced: bool = False
    """Whether the forced tokens train like sampled ones."""
    temperature: float | None = None
    """Divides the logits of this attempt; None = as `Sampling` says."""
    parent: str | None = None
    """The trajectory that the guidance was made of."""

    def tokens_to_force(self, step: int) -> tuple[int, ...]:
        """The tokens that the response of a step begins with."""
        return () if step else self.forced


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How responses are sampled."""

    max_tokens: int = 16
    """Most tokens a response may have."""
    temperature: float = 1.0
    """Divides the logits."""


@dataclass
class LiveAttempt:
    """An attempt under way."""

    attempt: Attempt
    observation: Observation
    opening: tuple[int, ...]
    unguided_opening: tuple[int, ...] = ()
    prompt: tuple[int, ...] = ()
    """What the engine is asked with."""
    past: list[Exchange] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    versions: list[tuple[VersionSpan, ...]] = field(default_factory=list)
    """Which weights sampled each step."""
    stop: StopReason | None = None
    success: bool | None = None
    error: str | None = None


def play_attempts(
    attempts: Sequence[Attempt],
    *,
    host: Host,
    engine: Engine,
    prompter: Prompter,
    rule: ActionRule,
    sampling: Sampling,
    waiting: EnvTiming | None = None,
    stop: StopSignal | None = None,
) -> list[Trajectory]:
    """Play all attempts to their end; finished ones cost nothing.

    They are played in step with one another, unless the engine takes requests as they come (`SubmittingEngine`): then
    each attempt goes on as soon as its own answer, or its own environment, is there. A request is the same either way,
    its seed included, so that the same tokens come of it.

    A fault of an environment ends its attempt with an error on its trajectory; the others go on. Attempts at one task
    must see the same first observation. `waiting` is told what environments took. Where `stop` is given, they end with
    `PlayStopped` before their next step.
    """
    waiting, stop = waiting or EnvTiming(), stop or StopSignal()
    with waiting.during():
        first = host.open({number: attempt.task for number, attempt in enumerate(attempts)})
    _check_same_start(attempts, first)
    live = {number: _start_attempt(attempt, first[number], prompter) for number, attempt in enumerate(attempts)}
    return play_to_end(LiveEpisodes(live, host, engine, prompter, rule, sampling, waiting, stop))


def play_to_end(game: LiveEpisodes) -> list[Trajectory]:
    """Play attempts that are under way to their end; their records, in the order of the attempts."""
    active = [number for number, state in game.live.items() if state.stop is None]
    if isinstance(game.engine, SubmittingEngine):
        play_as_answered(game, active, game.engine)
    else:
        _play_in_step(game, active)
    return [_make_trajectory(state) for state in game.live.values()]


def _play_in_step(game: LiveEpisodes, active: list[int]) -> None:
    """Play attempts to their end: all ask, all are answered, all act."""
    while requests := game.ask(active):
        answers = game.engine.generate(list(requests.values()))
        check_number(game.engine, "generate", answers, len(requests))
        active = game.act(dict(zip(requests, answers, strict=True)))


@dataclass(frozen=True)
class LiveEpisodes:
    """Attempts under way, by number, and all that they are played with: engine, host, prompts, the action rule."""

    live: Mapping[int, LiveAttempt]
    host: Host
    engine: Engine
    prompter: Prompter
    rule: ActionRule
    sampling: Sampling
    waiting: EnvTiming
    stop: StopSignal

    def ask(self, active: Sequence[int]) -> dict[int, Request]:
        """What attempts ask the engine next; those whose prompts have outgrown the model end here."""
        self.stop.check()
        live, prompter = self.live, self.prompter
        prompts = {n: prompter.prompt(live[n].opening, live[n].past, live[n].observation) for n in active}
        self.host.close(_end_too_long(live, prompts, self.engine.context, self.sampling.max_tokens))
        requests: dict[int, Request] = {}
        for n, prompt in prompts.items():
            state = live[n]
            if state.stop is None:
                state.prompt = prompt
                requests[n] = _make_request(state.attempt, len(state.steps), prompt, prompter, self.sampling)
        return requests

    def act(self, answers: Mapping[int, Generation]) -> list[int]:
        """Act as the engine's answers say, and write the steps down; which attempts go on."""
        moves = self.read(answers)
        with self.waiting.during(len(moves)):
            outcomes = self.host.act({n: action.text for n, (_, action) in moves.items()})
        return self.record(moves, outcomes)

    def read(self, answers: Mapping[int, Generation]) -> dict[int, Move]:
        """What attempts do, as the engine's answers say."""
        moves: dict[int, Move] = {}
        for n, sampled in answers.items():
            check_generation(self.engine, sampled)
            answer = _prepend_forced(self.live[n], sampled)
            text = self.prompter.text(answer.response_ids)
            seen = self.live[n].observation
            moves[n] = answer, self.rule.read(text, stopped=answer.stopped, admissible=seen.admissible)
        return moves

    def record(self, moves: Mapping[int, Move], outcomes: Mapping[int, Outcome | Fault]) -> list[int]:
        """Write down what came of moves, and close what has ended; which attempts go on."""
        live, prompter = self.live, self.prompter
        for n, (answer, action) in moves.items():
            _record_step(live[n], live[n].prompt, answer, action.text, action.well_formed, outcomes[n], prompter)
        self.host.close([n for n in moves if live[n].stop is not None])
        return [n for n in moves if live[n].stop is None]


def _end_too_long(
    live: Mapping[int, LiveAttempt], prompts: Mapping[int, tuple[int, ...]], context: int | None, max_tokens: int
) -> list[int]:
    """End the attempts whose prompts have outgrown the model, as a limit on steps would have; which they are."""
    too_long = [n for n, prompt in prompts.items() if context is not None and len(prompt) + max_tokens > context]
    for n in too_long:
        reason = (
            f"a prompt of {len(prompts[n])} tokens and {max_tokens} to sample do not fit into the model's {context}; "
            "shorten rollout.memory, or load a model with a longer context"
        )
        if not live[n].steps:
            raise EngineFault(f"task {live[n].attempt.task.id!r}: {reason}")
        live[n].stop, live[n].success, live[n].error = StopReason.TRUNCATED, False, reason
    return too_long


def _start_attempt(attempt: Attempt, shown: Observation | Fault, prompter: Prompter) -> LiveAttempt:
    if isinstance(shown, Fault):
        nothing = Observation(text="")
        return LiveAttempt(attempt, nothing, (), stop=shown.reason, error=shown.message)
    prompter = prompter.for_task(attempt.task)
    opening = prompter.encode_opening(shown.goal, attempt.guidance_text)
    return LiveAttempt(attempt, shown, opening, unguided_opening=prompter.encode_opening(shown.goal))


def _make_request(
    attempt: Attempt, step: int, prompt: tuple[int, ...], prompter: Prompter, sampling: Sampling
) -> Request:
    forced = attempt.tokens_to_force(step)
    return Request(
        prompt_ids=prompt + forced,
        seed=seed_of(attempt.seed, "step", step),
        max_tokens=sampling.max_tokens - len(forced),
        temperature=sampling.temperature if attempt.temperature is None else attempt.temperature,
        stop_ids=(prompter.frame.end_id,),
        session=str(attempt.seed),  # not the task: an evaluation may have just played the same one
    )


def _prepend_forced(live: LiveAttempt, answer: Generation) -> Generation:
    """Put the tokens that a response was made to begin with before it; nobody drew them, they are scored later."""
    forced = live.attempt.tokens_to_force(len(live.steps))
    if not forced:
        return answer
    zeros = (0.0,) * len(forced)
    spans = answer.versions
    if spans:
        spans = (VersionSpan(spans[0].version, spans[0].tokens + len(forced)), *spans[1:])
    return replace(
        answer,
        response_ids=forced + answer.response_ids,
        logp=zeros + answer.logp,
        entropy=zeros + answer.entropy if answer.entropy else (),
        versions=spans,
    )


def _record_step(
    live: LiveAttempt,
    prompt: tuple[int, ...],
    answer: Generation,
    action: str,
    well_formed: bool,
    outcome: Outcome | Fault,
    prompter: Prompter,
) -> None:
    """Write down a step and move on to what the environment shows next."""
    nothing: tuple[float, bool, Mapping[str, Any]] = (0.0, True, {})
    reward, accepted, facts = (
        nothing if isinstance(outcome, Fault) else (outcome.reward, outcome.accepted, dict(outcome.facts))
    )
    attempt, index = live.attempt, len(live.steps)
    unguided = prompter.prompt(live.unguided_opening, live.past, live.observation) if attempt.guidance_text else ()
    live.steps.append(
        Step(
            index=index,
            reward=reward,
            state_key=live.observation.state_key,
            observation=live.observation.text,
            action=action,
            well_formed=well_formed,
            accepted=accepted,
            cut=not answer.stopped,
            prompt_ids=prompt,
            unguided_prompt_ids=unguided,
            response_ids=answer.response_ids,
            forced=0 if attempt.trains_forced else len(attempt.tokens_to_force(index)),
            logp_behaviour=answer.logp,
            entropy=answer.entropy,
            facts=facts,
        )
    )
    live.versions.append(answer.versions)
    if isinstance(outcome, Fault):
        live.stop, live.error = outcome.reason, outcome.message
        return
    if outcome.ended:  # nobody reads what is shown now
        live.stop = StopReason.TERMINATED if outcome.terminated else StopReason.TRUNCATED
        live.success, live.error = outcome.success, outcome.note or None
        return
    live.past.append(prompter.make_exchange(live.observation, answer.response_ids, action))
    live.observation = outcome.observation


def _make_trajectory(live: LiveAttempt) -> Trajectory:
    assert live.stop is not None, "an attempt is recorded once it has ended"
    attempt = live.attempt
    versions = sorted({span.version for spans in live.versions for span in spans})
    if len(versions) > 1:
        live.steps = [replace(step, versions=spans) for step, spans in zip(live.steps, live.versions, strict=True)]
    scores = {"return": sum(step.reward for step in live.steps)}
    if live.success is not None:
        scores["success"] = float(live.success)
    return Trajectory(
        id=f"{attempt.task.id}/{attempt.number}",
        task=attempt.task,
        attempt=attempt.number,
        steps=tuple(live.steps),
        scores=scores,
        stop=live.stop,
        versions=tuple(versions),
        origin=attempt.origin,
        parent=attempt.parent,
        error=None if live.error is None else redact(live.error),  # it goes into the journal, and from there anywhere
    )


def _check_same_start(attempts: Sequence[Attempt], first: dict[int, Observation | Fault]) -> None:
    """Refuse attempts at one task that start from different observations: they would not be one group."""
    seen: dict[str, tuple[int, Observation]] = {}
    for number, attempt in enumerate(attempts):
        shown = first[number]
        if isinstance(shown, Fault):
            continue
        other, before = seen.setdefault(attempt.task.id, (attempt.number, shown))
        if (before.text, before.state_key) != (shown.text, shown.state_key):
            raise EnvironmentFault(
                f"task {attempt.task.id!r}: attempts {other} and {attempt.number} start from different observations "
                f"({_quote_start(before)} and {_quote_start(shown)}); open the environment from the task alone, "
                "without global random numbers"
            )


def _quote_start(shown: Observation) -> str:
    return repr(quote_line(shown.text, limit=100))


# What a live engine answers, checked as it comes: an engine of a user's own may answer anything.

ADVICE = "`groupwise check engine` with the run file says which rules the engine breaks"


def check_number(engine: object, method: str, answers: Any, num: int) -> None:
    """Refuse answers that are no list, or not one for each request."""
    where = f"the engine {type(engine).__name__}: {method}"
    if not isinstance(answers, Sequence):
        raise EngineFault(f"{where} gave {describe_value(answers)} for {num} requests, but a list is needed; {ADVICE}")
    if len(answers) != num:
        raise EngineFault(f"{where} was given {num} requests and returned {len(answers)}; {ADVICE}")


def check_futures(engine: object, futures: Any, num: int) -> None:
    """Refuse what `submit` gave if it is not a future for each request."""
    check_number(engine, "submit", futures, num)
    for future in futures:
        if not isinstance(future, Future):
            raise EngineFault(
                f"the engine {type(engine).__name__}: submit gave {describe_value(future)} among its futures, but a "
                f"concurrent.futures.Future for each request is needed; {ADVICE}"
            )


def check_generation(engine: object, answer: Any) -> None:
    """Refuse an answer that is no generation."""
    if not isinstance(answer, Generation):
        raise EngineFault(
            f"the engine {type(engine).__name__} answered a request with {describe_value(answer)}, but a Generation is "
            f"needed; {ADVICE}"
        )


def read_future(engine: object, future: Future[Generation]) -> Generation:
    """What a future holds; what an engine raised that says nothing of where it came from is said with its name."""
    try:
        return future.result()
    except GroupwiseError:
        raise
    except Exception as error:
        reason = quote_error_with_place(error, type(engine).__module__)
        raise EngineFault(f"the engine {type(engine).__name__}: a future raised {reason}; {ADVICE}") from error


# Attempts that go on by themselves, where an engine takes requests as they come.
#
# Each acts as soon as its answer is there, and asks again as soon as its environment has acted, while the others wait
# for theirs. The loop runs in one thread; whoever answers in another rings a bell.


def play_as_answered(episodes: LiveEpisodes, active: Sequence[int], engine: SubmittingEngine) -> None:
    """Play attempts to their end, each at its own pace."""
    pending: dict[Future[Generation], int] = {}
    moves: dict[int, Move] = {}
    try:
        with _WakeupSocket() as bell:
            while active or pending or moves:
                pending |= _submit(engine, episodes.ask(active), bell)
                if pending and not moves:
                    waits_for: list[Future[Any]] = [*pending, episodes.stop.given]
                    wait(waits_for, return_when=FIRST_COMPLETED)
                answered = {future: pending[future] for future in pending if future.done()}
                pending = {future: number for future, number in pending.items() if future not in answered}
                new = episodes.read({number: read_future(engine, future) for future, number in answered.items()})
                moves |= new
                outcomes = _act(episodes, new, moves, bell)
                active = episodes.record({number: moves.pop(number) for number in outcomes}, outcomes)
    finally:
        for future in pending:  # somebody failed: nobody waits for these any more
            future.cancel()


def _submit(
    engine: SubmittingEngine, requests: Mapping[int, Request], bell: _WakeupSocket
) -> dict[Future[Generation], int]:
    """Hand requests to the engine; which attempt waits for which answer."""
    if not requests:
        return {}
    futures = engine.submit(list(requests.values()))
    check_futures(engine, futures, len(requests))
    for future in futures:
        future.add_done_callback(bell.ring)
    return dict(zip(futures, requests, strict=True))


def _act(
    episodes: LiveEpisodes, new: Mapping[int, Move], moves: Mapping[int, Move], bell: _WakeupSocket
) -> Mapping[int, Outcome | Fault]:
    """Make the new moves; what came of some of all that are under way, or nothing where the bell rang first."""
    texts = {number: action.text for number, (_, action) in new.items()}
    if not moves:
        return {}
    with episodes.waiting.during(len(new)):
        if not isinstance(episodes.host, ConcurrentHost):
            return episodes.host.act(texts)
        episodes.host.begin(texts)
        outcomes = episodes.host.finish(bell.ear)
    bell.hush()
    return outcomes


class _WakeupSocket:
    """Rung from any thread; whoever listens to sockets hears it among them."""

    def __init__(self) -> None:
        self.ear, self._clapper = socket.socketpair()
        self.ear.setblocking(False)
        self._clapper.setblocking(False)

    def ring(self, _: object) -> None:
        """Ring, in whatever thread an answer came."""
        with suppress(OSError):  # it is full of ringing, or nobody listens any more
            self._clapper.send(b".")

    def hush(self) -> None:
        """Forget that it rang: who has answered is looked up."""
        with suppress(BlockingIOError):
            self.ear.recv(2**16)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.ear.close()
        self._clapper.close()


# A signal that attempts are to stop playing, given by one thread and heard by another.


class PlayStopped(Exception):
    """Attempts were told to stop before they had ended."""


class StopSignal:
    """Given once; whoever plays checks it between steps, and whoever waits for answers waits for it too."""

    def __init__(self) -> None:
        self.given: Future[None] = Future()
        """Done once the signal is given, so that it can be waited for among the futures of an engine."""

    def give(self) -> None:
        """Tell whoever plays to stop; once is enough."""
        if not self.given.done():
            self.given.set_result(None)

    def check(self) -> None:
        """Raise `PlayStopped` where the signal was given."""
        if self.given.done():
            raise PlayStopped
