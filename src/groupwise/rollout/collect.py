"""The episode loop: many attempts at once, each an environment, a dialogue and a record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from groupwise.core.errors import EngineFault, EnvironmentFault
from groupwise.core.records import Origin, Step, StopReason, Task, Trajectory
from groupwise.core.safe_text import quote_line
from groupwise.core.secrets import redact
from groupwise.core.seeds import seed_of
from groupwise.engines.engine import Engine, Generation, Request
from groupwise.envs.environment import Observation, Outcome
from groupwise.rollout.actions import Action, ActionRule
from groupwise.rollout.hosts import Fault, Host
from groupwise.rollout.prompts import Exchange, Prompter
from groupwise.rollout.waiting import Waiting


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

    def forced_at(self, step: int) -> tuple[int, ...]:
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
class _Live:
    """An attempt under way."""

    attempt: Attempt
    observation: Observation
    opening: tuple[int, ...]
    unguided_opening: tuple[int, ...] = ()
    past: list[Exchange] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    versions: set[int] = field(default_factory=set)
    stop: StopReason | None = None
    success: bool | None = None
    error: str | None = None


def collect(
    attempts: Sequence[Attempt],
    *,
    host: Host,
    engine: Engine,
    prompter: Prompter,
    rule: ActionRule,
    sampling: Sampling,
    waiting: Waiting | None = None,
) -> list[Trajectory]:
    """Play all attempts to their end, in step with one another; finished ones cost nothing.

    A fault of an environment ends its attempt with an error on its trajectory; the others go on. Attempts at one task
    must see the same first observation. `waiting` is told what environments took.
    """
    waiting = waiting or Waiting()
    with waiting.during():
        first = host.open({number: attempt.task for number, attempt in enumerate(attempts)})
    _check_same_start(attempts, first)
    live = {number: _start(attempt, first[number], prompter) for number, attempt in enumerate(attempts)}
    active = [number for number, state in live.items() if state.stop is None]
    while active:
        prompts = {n: prompter.prompt(live[n].opening, live[n].past, live[n].observation) for n in active}
        host.close(_cut_off(live, prompts, engine.context, sampling.max_tokens))
        active = [n for n in active if live[n].stop is None]
        if not active:
            break
        requests = [_request(live[n].attempt, len(live[n].steps), prompts[n], prompter, sampling) for n in active]
        said = {n: _begin(live[n], answer) for n, answer in zip(active, engine.generate(requests), strict=True)}
        actions = {n: _read(rule, prompter.text(said[n].response_ids), said[n], live[n].observation) for n in active}
        with waiting.during(len(active)):
            outcomes = host.act({n: actions[n].text for n in active})
        for n in active:
            _record(live[n], prompts[n], said[n], actions[n].text, actions[n].well_formed, outcomes[n], prompter)
        host.close([n for n in active if live[n].stop is not None])
        active = [n for n in active if live[n].stop is None]
    return [_trajectory(live[number]) for number in range(len(attempts))]


def _cut_off(
    live: Mapping[int, _Live], prompts: Mapping[int, tuple[int, ...]], context: int | None, max_tokens: int
) -> list[int]:
    """End the attempts whose prompts have outgrown the model, as a limit on steps would have; which they are."""
    found = [n for n, prompt in prompts.items() if context is not None and len(prompt) + max_tokens > context]
    for n in found:
        told = (
            f"a prompt of {len(prompts[n])} tokens and {max_tokens} to sample do not fit into the model's {context}; "
            "shorten rollout.memory, or load a model with a longer context"
        )
        if not live[n].steps:
            raise EngineFault(f"task {live[n].attempt.task.id!r}: {told}")
        live[n].stop, live[n].success, live[n].error = StopReason.TRUNCATED, False, told
    return found


def _start(attempt: Attempt, shown: Observation | Fault, prompter: Prompter) -> _Live:
    if isinstance(shown, Fault):
        nothing = Observation(text="")
        return _Live(attempt, nothing, (), stop=shown.reason, error=shown.message)
    opening = prompter.opening_ids(shown.goal, attempt.guidance_text)
    return _Live(attempt, shown, opening, unguided_opening=prompter.opening_ids(shown.goal))


def _request(attempt: Attempt, step: int, prompt: tuple[int, ...], prompter: Prompter, sampling: Sampling) -> Request:
    forced = attempt.forced_at(step)
    return Request(
        prompt_ids=prompt + forced,
        seed=seed_of(attempt.seed, "step", step),
        max_tokens=sampling.max_tokens - len(forced),
        temperature=sampling.temperature if attempt.temperature is None else attempt.temperature,
        stop_ids=(prompter.frame.end_id,),
        session=str(attempt.seed),  # not the task: an evaluation may have just played the same one
    )


def _begin(live: _Live, answer: Generation) -> Generation:
    """A response with the tokens it was made to begin with; nobody drew them, and what they cost is scored later."""
    forced = live.attempt.forced_at(len(live.steps))
    if not forced:
        return answer
    zeros = (0.0,) * len(forced)
    return replace(
        answer,
        response_ids=forced + answer.response_ids,
        logp=zeros + answer.logp,
        entropy=zeros + answer.entropy if answer.entropy else (),
    )


def _read(rule: ActionRule, text: str, said: Generation, seen: Observation) -> Action:
    return rule.read(text, stopped=said.stopped, admissible=seen.admissible)


def _record(
    live: _Live,
    prompt: tuple[int, ...],
    said: Generation,
    action: str,
    well_formed: bool,
    outcome: Outcome | Fault,
    prompter: Prompter,
) -> None:
    """Write down a step and move on to what the environment shows next."""
    reward, accepted = (0.0, True) if isinstance(outcome, Fault) else (outcome.reward, outcome.accepted)
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
            cut=not said.stopped,
            prompt_ids=prompt,
            unguided_prompt_ids=unguided,
            response_ids=said.response_ids,
            forced=0 if attempt.trains_forced else len(attempt.forced_at(index)),
            logp_behaviour=said.logp,
            entropy=said.entropy,
        )
    )
    live.versions.add(said.version)
    if isinstance(outcome, Fault):
        live.stop, live.error = outcome.reason, outcome.message
        return
    if outcome.ended:  # nobody reads what is shown now
        live.stop = StopReason.TERMINATED if outcome.terminated else StopReason.TRUNCATED
        live.success, live.error = outcome.success, outcome.note or None
        return
    live.past.append(prompter.past(live.observation, said.response_ids, action))
    live.observation = outcome.observation


def _trajectory(live: _Live) -> Trajectory:
    assert live.stop is not None, "an attempt is recorded once it has ended"
    attempt = live.attempt
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
        versions=tuple(sorted(live.versions)),
        origin=attempt.origin,
        parent=attempt.parent,
        error=None if live.error is None else redact(live.error),  # it goes into the journal, and from there anywhere
    )


def _check_same_start(attempts: Sequence[Attempt], first: dict[int, Observation | Fault]) -> None:
    """Attempts of a group are attempts at one task only if they start from the same observation."""
    seen: dict[str, tuple[int, Observation]] = {}
    for number, attempt in enumerate(attempts):
        shown = first[number]
        if isinstance(shown, Fault):
            continue
        other, before = seen.setdefault(attempt.task.id, (attempt.number, shown))
        if (before.text, before.state_key) != (shown.text, shown.state_key):
            raise EnvironmentFault(
                f"task {attempt.task.id!r}: attempts {other} and {attempt.number} start from different observations "
                f"({_in_short(before)} and {_in_short(shown)}); open the environment from the task alone, without "
                "global random numbers"
            )


def _in_short(shown: Observation) -> str:
    return repr(quote_line(shown.text, limit=100))
