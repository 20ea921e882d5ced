"""The episode loop: it runs many rollouts at once."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from groupwise.data.records import Origin, Step, StopReason, Task, Trajectory
from groupwise.data.seeds import seeds_of
from groupwise.engines.engine import Engine, Generation, Request, SubmittingEngine, VersionSpan, check_generations
from groupwise.envs.environment import Observation, Outcome
from groupwise.rollout.actions import Action, ActionParser
from groupwise.rollout.environment_runner import ConcurrentHost, EnvTiming, Fault, Host, PromptingHost
from groupwise.rollout.prompts import NO_OPENING, Exchange, Opening, Prompter
from groupwise.system.errors import EngineFault, EnvironmentFault, GroupwiseError
from groupwise.system.quoted_errors import quote_error_with_place
from groupwise.system.secrets import redact
from groupwise.system.text import describe_value, quote_line


class PlayStopped(Exception):
    """Rollouts were stopped before they had ended."""


@dataclass(frozen=True, eq=False)
class StopSignal:
    """A signal to stop, given once. The episode loop checks it between steps and while it waits for answers."""

    given: Future[None] = field(default_factory=Future)
    """Done once the signal is given; it can be waited for together with the futures of an engine."""

    def give(self) -> None:
        if not self.given.done():
            self.given.set_result(None)


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """A rollout to run."""

    task: Task
    number: int
    """Its number within the task's group."""
    seed: int
    origin: Origin = Origin.FRESH
    hint_text: str = ""
    """Hint that its prompts begin with; empty = no hint."""
    forced: tuple[int, ...] = ()
    """Token ids that its first response begins with; the rest is sampled after them."""
    trains_forced: bool = False
    temperature: float | None = None
    """Temperature of this rollout; None = that of the call."""
    parent: str | None = None
    """The trajectory that the hint was made of."""


@dataclass
class LiveRollout:
    """A running rollout."""

    rollout: Rollout
    observation: Observation
    opening: Opening = NO_OPENING
    unhinted_opening: Opening = NO_OPENING
    prompt: tuple[int, ...] = ()
    prompt_cut: int = 0
    past: list[Exchange] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    versions: list[tuple[VersionSpan, ...]] = field(default_factory=list)
    """Policy versions that sampled each step."""
    stop: StopReason | None = None
    success: bool | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Player:
    """Runs rollouts with a policy, in training and in evaluation."""

    engine: Engine
    host: Host
    prompter: Prompter
    action_parser: ActionParser
    max_tokens: int
    """Most tokens of a response."""
    top_p: float = 1.0
    """Sum of probabilities beyond which tokens are left out; in evaluations only."""
    top_k: int = 0
    """Number of most likely tokens that are kept, 0 = all; in evaluations only."""
    stop: StopSignal = field(default_factory=StopSignal)
    """Another thread may give it; then the rollouts end before their next step, with `PlayStopped`."""

    def play(
        self, rollouts: Sequence[Rollout], *, temperature: float, waiting: EnvTiming | None = None
    ) -> list[Trajectory]:
        """Run all rollouts to their end.

        All take one step at a time together. With a `SubmittingEngine`, each rollout continues as soon as its own
        answer or environment is ready. The requests and their seeds are the same both ways, so the tokens are too.

        A fault of an environment ends its own rollout, with an error on the trajectory. Rollouts of one task must have
        the same first observation, unless agents write it. `waiting` counts steps and seconds of environments.
        """
        waiting = waiting or EnvTiming()
        agents = self.host if isinstance(self.host, PromptingHost) else None
        if agents is not None:
            context = self.engine.context
            limits = (self.prompter.max_tokens, None if context is None else context - self.max_tokens)
            agents.use(self.prompter, max_prompt=min((n for n in limits if n is not None), default=None))
        with waiting.during():
            first = self.host.open({number: rollout.task for number, rollout in enumerate(rollouts)})
        seen: dict[str, tuple[int, Observation]] = {}
        openings: dict[tuple[str, str, str], Opening] = {}
        live: dict[int, LiveRollout] = {}
        for number, rollout in enumerate(rollouts):
            shown, task, hint = first[number], rollout.task, rollout.hint_text
            if isinstance(shown, Fault):
                nothing = Observation(text="")
                live[number] = LiveRollout(rollout, nothing, stop=shown.reason, error=shown.message)
                continue
            other, before = seen.setdefault(task.id, (rollout.number, shown))
            if agents is None and (before.text != shown.text or before.state_key != shown.state_key):
                starts = [repr(quote_line(text, limit=100)) for text in (before.text, shown.text)]
                raise EnvironmentFault(
                    f"task {task.id!r}: rollouts {other} and {rollout.number} start from different observations "
                    f"({starts[0]} and {starts[1]}); open the environment from the task alone, without global random "
                    "numbers"
                )
            for text in (hint, ""):
                if (task.id, shown.goal, text) not in openings:
                    opening = self.prompter.for_task(task).encode_opening(shown.goal, text)
                    openings[task.id, shown.goal, text] = opening
            live[number] = LiveRollout(
                rollout, shown, openings[task.id, shown.goal, hint], unhinted_opening=openings[task.id, shown.goal, ""]
            )
        return LiveEpisodes(self, live, temperature, waiting, agents).play_to_end()


Move = tuple[Generation, Action]
"""The engine's answer, and the action that was read from it."""


@dataclass(frozen=True)
class LiveEpisodes:
    """Running rollouts, by number.

    Every step of every rollout runs through this code, so values that are the same for all are read once per round.
    """

    player: Player
    live: Mapping[int, LiveRollout]
    temperature: float
    waiting: EnvTiming
    agents: PromptingHost | None = None
    """The runner, if agents write their own prompts."""

    def play_to_end(self) -> list[Trajectory]:
        """Run until all have ended; their trajectories, in the order of the rollouts."""
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
        trajectories = []
        for state in self.live.values():
            assert state.stop is not None, "a rollout is recorded once it has ended"
            rollout, steps, sampled_by = state.rollout, state.steps, set[int]()
            total: float = 0
            for step, spans in zip(steps, state.versions, strict=True):
                total += step.reward
                for span in spans:
                    sampled_by.add(span.version)
            if len(sampled_by) > 1:
                steps = [replace(step, versions=spans) for step, spans in zip(steps, state.versions, strict=True)]
            scores = {"return": total}
            if state.success is not None:
                scores["success"] = float(state.success)
            trajectories.append(
                Trajectory(
                    id=f"{rollout.task.id}/{rollout.number}",
                    task=rollout.task,
                    rollout=rollout.number,
                    steps=tuple(steps),
                    scores=scores,
                    stop=state.stop,
                    versions=tuple(sorted(sampled_by)),
                    origin=rollout.origin,
                    parent=rollout.parent,
                    error=None if state.error is None else redact(state.error),  # the journal keeps it
                )
            )
        return trajectories

    def ask(self, active: Sequence[int]) -> dict[int, Request]:
        """The next requests to the engine; rollouts whose prompts no longer fit into the model's context end here."""
        player, live, limit = self.player, self.live, self.player.prompter.max_tokens
        if player.stop.given.done():
            raise PlayStopped
        context, max_tokens, stop_ids = player.engine.context, player.max_tokens, (player.prompter.frame.end_id,)
        shown, paths = list[Any](), list[tuple[str | int, ...]]()
        for n in active:
            state = live[n]
            shown.append((state.opening, state.past, state.observation))
            paths.append((state.rollout.seed, "step", len(state.steps)))
        prompts, seeds = player.prompter.make_prompts(shown), seeds_of(paths)
        requests, too_long = dict[int, Request](), list[int]()
        for n, prompt, seed in zip(active, prompts, seeds, strict=True):
            state = live[n]
            rollout, step, length = state.rollout, len(state.steps), len(prompt.ids)
            reason = ""
            if limit is not None and length > limit:
                reason = (
                    f"a prompt of {length} tokens is longer than rollout.max_prompt_tokens, {limit}; raise it, shorten "
                    'rollout.history, or set rollout.over_limit = "cut_left"'
                )
            elif context is not None and length + max_tokens > context:
                reason = (
                    f"a prompt of {length} tokens and {max_tokens} to sample do not fit into the model's "
                    f"{context}; shorten rollout.history, or load a model with a longer context"
                )
            if reason:
                if not step and self.agents is None:
                    raise EngineFault(f"task {rollout.task.id!r}: {reason}")
                state.stop, state.success, state.error = StopReason.TRUNCATED, False, reason
                too_long.append(n)
                continue
            forced = () if step else rollout.forced
            state.prompt, state.prompt_cut = prompt.ids, prompt.cut
            requests[n] = Request(
                prompt_ids=prompt.ids + forced,
                seed=seed,
                max_tokens=max_tokens - len(forced),
                temperature=self.temperature if rollout.temperature is None else rollout.temperature,
                top_p=player.top_p,
                top_k=player.top_k,
                stop_ids=stop_ids,
                session=str(rollout.seed),  # not the task, which an evaluation may just have run too
            )
        player.host.close(too_long)
        return requests

    def read(self, answers: Mapping[int, Generation]) -> dict[int, Move]:
        """Check the engine's answers, and read the actions."""
        for answer in answers.values():
            if not isinstance(answer, Generation):
                raise EngineFault(
                    f"the engine {type(self.player.engine).__name__} answered a request with {describe_value(answer)}, "
                    f"but a Generation is needed; {ADVICE}"
                )
        check_generations([*answers.values()])
        whole, responses = dict[int, Generation](), list[Sequence[int]]()
        for n, answer in answers.items():
            state = self.live[n]
            whole[n] = _prepend_forced(state.rollout, answer) if state.rollout.forced and not state.steps else answer
            responses.append(whole[n].response_ids)
        texts = self.player.prompter.read_texts(responses)
        read, moves = self.player.action_parser.read, dict[int, Move]()
        for (n, answer), text in zip(whole.items(), texts, strict=True):
            moves[n] = answer, read(text, stopped=answer.stopped, admissible=self.live[n].observation.admissible)
        if self.agents is not None:
            self.agents.note(whole)
        return moves

    def record(self, moves: Mapping[int, Move], outcomes: Mapping[int, Outcome | Fault]) -> list[int]:
        """Record the outcomes, and close environments whose rollouts have ended; returns the rollouts that continue."""
        prompter, goes_on, has_ended, past = self.player.prompter, list[int](), list[int](), list[Any]()
        for n, (answer, action) in moves.items():
            state, outcome = self.live[n], outcomes[n]
            rollout, seen, index = state.rollout, state.observation, len(state.steps)
            reward, accepted, info = 0.0, True, dict[str, Any]()
            if not isinstance(outcome, Fault):
                reward, accepted, info = outcome.reward, outcome.accepted, dict(outcome.info)
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
                    prompt_cut=state.prompt_cut,
                    unhinted_prompt_ids=(
                        prompter.prompt(state.unhinted_opening, state.past, seen) if rollout.hint_text else ()
                    ),
                    response_ids=answer.response_ids,
                    forced=0 if index or rollout.trains_forced else len(rollout.forced),
                    logp_behaviour=answer.logp,
                    entropy=answer.entropy,
                    info=info,
                )
            )
            state.versions.append(answer.versions)
            if isinstance(outcome, Fault):
                state.stop, state.error = outcome.reason, outcome.message
                has_ended.append(n)
            elif outcome.terminated or outcome.truncated:  # the last observation is not used
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
        """Run rollouts to their end, each at its own pace.

        Each acts as soon as its answer is ready, and asks again as soon as its environment has acted. The loop runs in
        one thread; the engine's threads wake it with a socket.
        """
        host, pending, moves = self.player.host, dict[Future[Generation], int](), dict[int, Move]()
        try:
            with closing(WakeupSocket()) as bell:
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
                                outcomes = host.finish(bell.ear)  # empty if the bell rang first
                                bell.hush()
                            else:
                                outcomes = host.act(texts)
                    active = self.record({n: moves.pop(n) for n in outcomes}, outcomes)
        finally:
            for future in pending:  # after an error, these are not needed
                future.cancel()


def _prepend_forced(rollout: Rollout, answer: Generation) -> Generation:
    """Put the forced tokens before the sampled ones; they were not sampled, and are scored later."""
    zeros = (0.0,) * len(rollout.forced)
    spans = answer.versions
    if spans:
        spans = (VersionSpan(spans[0].version, spans[0].tokens + len(rollout.forced)), *spans[1:])
    return replace(
        answer,
        response_ids=rollout.forced + answer.response_ids,
        logp=zeros + answer.logp,
        entropy=zeros + answer.entropy if answer.entropy else (),
        versions=spans,
    )


# Answers of engines are checked as they come, because an engine of a user's own may return anything.

ADVICE = "`groupwise check engine` with the run file says which rules the engine breaks"


def check_number(engine: object, method: str, answers: Any, num: int) -> None:
    where = f"the engine {type(engine).__name__}: {method}"
    if not isinstance(answers, Sequence):
        raise EngineFault(f"{where} gave {describe_value(answers)} for {num} requests, but a list is needed; {ADVICE}")
    if len(answers) != num:
        raise EngineFault(f"{where} was given {num} requests and returned {len(answers)}; {ADVICE}")


def _read_future(engine: object, future: Future[Generation]) -> Generation:
    """The result of a future; other errors than those of groupwise are raised with the engine's name."""
    try:
        return future.result()
    except GroupwiseError:
        raise
    except Exception as error:
        reason = quote_error_with_place(error, type(engine).__module__)
        raise EngineFault(f"the engine {type(engine).__name__}: a future raised {reason}; {ADVICE}") from error


class WakeupSocket:
    """Any thread can ring it; code that waits for sockets can wait for it too."""

    def __init__(self) -> None:
        self.ear, self._clapper = socket.socketpair()
        self.ear.setblocking(False)
        self._clapper.setblocking(False)

    def ring(self, _: object) -> None:
        with suppress(OSError):  # full, or closed
            self._clapper.send(b".")

    def hush(self) -> None:
        """Forget that it rang."""
        with suppress(BlockingIOError):
            self.ear.recv(2**16)

    def close(self) -> None:
        self.ear.close()
        self._clapper.close()
