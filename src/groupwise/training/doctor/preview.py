"""A run's prompts before it is run: a few attempts, played with sample responses, and where every token comes from."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from statistics import fmean
from typing import Any, Literal, Self

import torch

from groupwise.data.records import Step, Task, Trajectory
from groupwise.data.task_ids import match_tasks
from groupwise.engines.engine import Request
from groupwise.engines.scripted import ScriptedEngine
from groupwise.envs.environment import EnvironmentPart, Observation, Outcome
from groupwise.envs.mixture import Mixture, choose_first_tasks, find_environment
from groupwise.envs.part_queries import ask_max_steps
from groupwise.models.causal_lm import choose_device
from groupwise.parts.part import name_of
from groupwise.rollout.actions import ActionRule
from groupwise.rollout.environment_runner import Advice, Fault, Host
from groupwise.rollout.episodes import Attempt, Player
from groupwise.rollout.origins import AttributedIds, attribute_prompt
from groupwise.rollout.prompts import Exchange, Prompter
from groupwise.system.errors import ConfigError
from groupwise.system.text import cut_text, quote_line
from groupwise.training.config.checks import (
    check_algorithm,
    check_panels,
    check_tasks,
    check_words,
    count_steps_shown,
    describe_unread_rewards,
)
from groupwise.training.config.run_config import RunConfig
from groupwise.training.doctor.doctor import estimate_sizes
from groupwise.training.open_run import open_prompter, open_run_host, start_curriculum

NUM_TASKS, NUM_STEPS = 2, 3
"""Tasks that are shown, and steps of each, unless somebody asks for others."""


@dataclass(frozen=True, kw_only=True)
class PreviewedStep:
    """A prompt, and a sample response to it."""

    prompt: AttributedIds
    """The ids that a model would read, each with where it comes from."""
    prompt_texts: tuple[str, ...]
    response_ids: tuple[int, ...]
    """The sample response; nothing where nobody knows what to say."""
    response_texts: tuple[str, ...]
    said_by: str
    """Who says so: given, expert, possible action, or why nobody does."""
    action: str
    well_formed: bool
    accepted: bool
    is_cut: bool
    """Whether it is longer than `rollout.max_tokens`."""


@dataclass(frozen=True, kw_only=True)
class PreviewedAttempt:
    """The first steps of an attempt at a task."""

    task: str
    goal: str
    """What it asks for; empty where the observation says it all."""
    steps: tuple[PreviewedStep, ...]
    error: str


@dataclass(frozen=True, kw_only=True)
class RunPreview:
    """A run before it is run."""

    attempts: tuple[PreviewedAttempt, ...]
    """An attempt at each of a few tasks: those that the first update begins with, or those that were asked for."""
    readings: tuple[Reading, ...]
    """What the action rule reads out of sample responses to the first prompt."""
    costs: UpdateCosts
    notes: tuple[str, ...]
    """What is worth a look, a sentence each."""


def preview_run(
    config: RunConfig,
    *,
    num_tasks: int = NUM_TASKS,
    num_steps: int = NUM_STEPS,
    task_ids: Sequence[str] = (),
    responses: Sequence[str] = (),
) -> RunPreview:
    """Preview a run: its tokenizer is loaded, its model is not.

    Args:
        config: the run.
        num_tasks: how many tasks are shown, where none is named.
        num_steps: how many steps of each.
        task_ids: tasks of the training panel by id, or by the beginning of one.
        responses: what is said at the first steps, in place of the expert or a possible action.
    """
    check_algorithm(config)
    check_words(config)
    with open_run_host(config) as host:
        panel = check_tasks(config, host)["train"]
        check_panels(config)
        tokenizer, context = _open_tokenizer(config)
        prompter = open_prompter(config, tokenizer)
        tasks = _choose_tasks(config, panel, num_tasks, task_ids)
        watched = WatchedHost(host, steps=max(num_steps, NUM_STEPS))  # fewer would not show how prompts grow
        samples = SampleResponses(watched, prompter, config.rollout.action_rule, given=responses)
        trajectories = _play(config, tasks, watched, samples, prompter, context)
        readings = read_samples(
            host,
            tasks[0],
            prompter=prompter,
            rule=config.rollout.action_rule,
            max_tokens=config.rollout.max_tokens,
            given=responses,
        )
    attempts = tuple(
        _describe_attempt(trajectory, watched.shown[number], samples.sayers.get(number, []), prompter, num_steps)
        for number, trajectory in enumerate(trajectories)
    )
    costs = estimate_costs(config, trajectories, context=context)
    notes = _list_notes(config, attempts, costs, tokenizer.unk_token_id)
    return RunPreview(attempts=attempts, readings=tuple(readings), costs=costs, notes=tuple(notes))


def _open_tokenizer(config: RunConfig) -> tuple[Any, int | None]:
    """The tokenizer of the run's model, and how many tokens a prompt and its response may have together."""
    open_tokenizer = getattr(config.model, "open_tokenizer", None)
    if open_tokenizer is None:
        raise ConfigError(
            f"model: {name_of(config.model)} has no open_tokenizer(*, words), so that its prompts cannot be shown "
            "without its weights; give it one that returns the tokenizer and the number of positions"
        )
    tokenizer, positions = open_tokenizer(words=config.words())
    limits = [limit for limit in (positions, getattr(config.engine, "context", None)) if isinstance(limit, int)]
    return tokenizer, min(limits, default=None)


def _choose_tasks(config: RunConfig, panel: Sequence[Task], num: int, task_ids: Sequence[str]) -> list[Task]:
    """The tasks that were asked for; else those that the first update begins with."""
    chosen = []
    for asked in task_ids:
        matching = match_tasks((task.id for task in panel), asked)
        if not matching:
            raise ConfigError(
                f"no training task begins with {quote_line(asked)!r}; `groupwise panel` lists them, such as "
                f"{panel[0].id!r}"
            )
        chosen.append(next(task for task in panel if task.id == matching[0]))
    if chosen:
        return chosen
    first = start_curriculum(config, panel).next(config.training.tasks)
    distinct = list({task.id: task for task in first}.values())
    of_each = choose_first_tasks(config.env, [*distinct, *panel]).values()
    if len(of_each) > 1:  # environments are mixed: one of each at least
        distinct = list({task.id: task for task in (*of_each, *distinct)}.values())
    return distinct[: max(num, len(of_each))]


def _play(
    config: RunConfig,
    tasks: Sequence[Task],
    host: Host,
    samples: SampleResponses,
    prompter: Prompter,
    context: int | None,
) -> list[Trajectory]:
    """Play an attempt at each task, as training would with an engine that says these responses."""
    rollout = config.rollout
    engine, rule = ScriptedEngine(samples.answer, context=context), rollout.action_rule
    player = Player(engine=engine, host=host, prompter=prompter, action_rule=rule, max_tokens=rollout.max_tokens)
    attempts = [Attempt(task=task, number=0, seed=number) for number, task in enumerate(tasks)]
    trajectories = player.play(attempts, temperature=rollout.temperature)
    for trajectory in trajectories:
        if not trajectory.steps:
            raise ConfigError(
                f"env: task {trajectory.task.id!r} cannot be opened ({trajectory.error}); mend the environment"
            )
    return trajectories


def _describe_attempt(
    trajectory: Trajectory, shown: Sequence[Observation], sayers: Sequence[str], prompter: Prompter, num_steps: int
) -> PreviewedAttempt:
    past: list[Exchange] = []
    steps: list[PreviewedStep] = []
    prompter = prompter.for_task(trajectory.task)
    for step, seen, said_by in zip(trajectory.steps, shown[: len(trajectory.steps)], sayers, strict=True):
        prompt = attribute_prompt(prompter, goal=shown[0].goal, past=past, seen=seen)
        assert prompt.ids == step.prompt_ids, "an attributed prompt is the prompt"
        steps.append(_describe_step(step, prompt, said_by, prompter))
        past.append(prompter.make_exchange(seen, step.response_ids, step.action or ""))
    return PreviewedAttempt(
        task=trajectory.task.id, goal=shown[0].goal, steps=tuple(steps[:num_steps]), error=trajectory.error or ""
    )


def _describe_step(step: Step, prompt: AttributedIds, said_by: str, prompter: Prompter) -> PreviewedStep:
    is_said = step.response_ids != (prompter.frame.end_id,) or said_by in ("given", "expert", "possible action")
    response = step.response_ids if is_said else ()
    return PreviewedStep(
        prompt=prompt,
        prompt_texts=tuple(_cut(prompter, prompt.ids)),
        response_ids=response,
        response_texts=tuple(_cut(prompter, response)),
        said_by=said_by,
        action=step.action or "",
        well_formed=bool(step.well_formed),
        accepted=bool(step.accepted),
        is_cut=bool(step.cut),
    )


def _cut(prompter: Prompter, ids: Sequence[int]) -> list[str]:
    return cut_text(ids, lambda some: str(prompter.tokenizer.decode(list(some), skip_special_tokens=False)))


def _list_notes(
    config: RunConfig, attempts: Sequence[PreviewedAttempt], costs: UpdateCosts, unknown_id: int | None
) -> list[str]:
    steps = [step for attempt in attempts for step in attempt.steps]
    notes = [unread] if (unread := describe_unread_rewards(config)) else []
    num_unknown = sum(token == unknown_id for step in steps for token in (*step.prompt.ids, *step.response_ids))
    if num_unknown:
        notes.append(
            f"the tokenizer does not know {num_unknown} of the tokens of these prompts and responses; a model cannot "
            "tell them apart"
        )
    if any(not step.response_ids for step in steps):
        notes.append(
            "the environment has no expert and lists no possible actions, so that nobody knows what to say; give "
            "responses with --response to see further steps"
        )
    if any(step.is_cut for step in steps):
        notes.append(f"sample responses are longer than rollout.max_tokens, {config.rollout.max_tokens}; raise it")
    room = None if costs.context is None else costs.context - config.rollout.max_tokens
    if room is not None and costs.longest_prompt > room:
        notes.append(
            f"an attempt that takes all its steps comes to prompts of about {costs.longest_prompt} tokens, which do "
            f"not fit into the model's {costs.context} with {config.rollout.max_tokens} to sample: it ends there; "
            "shorten rollout.memory, or take a model with a longer context"
        )
    return notes


# What an action rule reads out of sample responses, and what the environment makes of it.

IMPOSSIBLE = "fly to the moon"
"""An action that hardly any world knows."""
CUT_OFF = "cut off at max_tokens"
FIRST_NUMBER = 1_000_000
"""Numbers of the environments that samples are tried in, beyond those of attempts."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A response, and what came of it at the first step of a task."""

    sample: str
    response: str
    action: str
    """What the rule read, which is sent to the environment."""
    verdict: Literal["valid", "malformed", "refused", "fault"]
    """Malformed: it has not the form that was asked for; refused: it has, and the environment did not accept it."""
    fault: str = ""
    is_cut: bool = False
    """Whether it was cut off at the most tokens that a response may have."""


def read_samples(
    host: Host,
    task: Task,
    *,
    prompter: Prompter,
    rule: ActionRule,
    max_tokens: int,
    given: Sequence[str] = (),
) -> list[Reading]:
    """Read sample responses to the first prompt of a task, each tried in an environment of its own."""
    seen = host.open({FIRST_NUMBER: task})[FIRST_NUMBER]
    if isinstance(seen, Fault):
        return []
    action, _ = find_action(host, FIRST_NUMBER, seen)
    host.close([FIRST_NUMBER])
    samples = [("given", text) for text in given]
    if action is not None:
        said = rule.say(action, admissible=seen.admissible)
        samples += [
            ("as it is asked for", said),
            (CUT_OFF, said[: max(len(said) // 2, 1)]),
            ("in other words", f"I think that I should {action} now."),
        ]
    samples += [("an action that nobody offered", rule.say(IMPOSSIBLE, admissible=seen.admissible)), ("nothing", "")]
    readings = []
    for number, (name, text) in enumerate(samples, FIRST_NUMBER + 1):
        ids = prompter.encode(text)  # through the tokenizer, as a response goes; its end is a token too
        is_cut = name == CUT_OFF or len(ids) >= max_tokens
        describe = partial(Reading, sample=name, response=prompter.text(ids[:max_tokens]), is_cut=is_cut)
        readings.append(_read(host, task, number, rule, describe))
    return readings


def _read(host: Host, task: Task, number: int, rule: ActionRule, describe: partial[Reading]) -> Reading:
    """Send what the rule reads out of a response to a fresh environment."""
    seen = host.open({number: task})[number]
    if isinstance(seen, Fault):
        return describe(action="", verdict="fault", fault=seen.message)
    response, is_cut = describe.keywords["response"], describe.keywords["is_cut"]
    action = rule.read(response, stopped=not is_cut, admissible=seen.admissible)
    outcome = host.act({number: action.text})[number]
    host.close([number])
    if isinstance(outcome, Fault):
        return describe(action=action.text, verdict="fault", fault=outcome.message)
    accepted = "valid" if outcome.accepted else "refused"
    return describe(action=action.text, verdict=accepted if action.well_formed else "malformed")


# Responses without a model: what the user gives, what the environment's expert would do, or a possible action.
#
# Attempts are played by the same loop as in training, with an engine that answers from these and a host that ends
# attempts early; so their prompts are those of training.


class WatchedHost:
    """A host that remembers what its environments showed, and truncates attempts after so many steps."""

    def __init__(self, host: Host, *, steps: int) -> None:
        self.shown: dict[int, list[Observation]] = {}
        """What each environment showed, step by step."""
        self._host, self._steps = host, steps
        self._ends_now: set[int] = set()

    def end(self, number: int) -> None:
        """Let the next action of an environment end its attempt, without being sent."""
        self._ends_now.add(number)

    def open(self, tasks: Mapping[int, Task]) -> dict[int, Observation | Fault]:
        """Open an environment for each task and return what each shows first."""
        answers = self._host.open(tasks)
        self.shown |= {number: [seen] for number, seen in answers.items() if isinstance(seen, Observation)}
        return answers

    def act(self, actions: Mapping[int, str]) -> dict[int, Outcome | Fault]:
        sent = {number: action for number, action in actions.items() if number not in self._ends_now}
        outcomes = {
            number: Outcome(observation=self.shown[number][-1], truncated=True)
            for number in actions
            if number in self._ends_now
        } | self._host.act(sent)
        return {number: self._note(number, outcomes[number]) for number in actions}

    def ask_experts(self, numbers: Sequence[int]) -> dict[int, Advice]:
        return self._host.ask_experts(numbers)

    def fork(self, source: int, into: Sequence[int]) -> dict[int, Observation | Fault]:
        answers = self._host.fork(source, into)
        self.shown |= {number: list(self.shown[source]) for number in answers}
        return answers

    def close(self, numbers: Sequence[int]) -> None:
        self._host.close(numbers)

    def shutdown(self) -> None:
        self._host.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.shutdown()

    def _note(self, number: int, outcome: Outcome | Fault) -> Outcome | Fault:
        if isinstance(outcome, Fault) or outcome.ended:
            return outcome
        if len(self.shown[number]) == self._steps:
            return replace(outcome, truncated=True)
        self.shown[number].append(outcome.observation)
        return outcome


class SampleResponses:
    """Answers the requests of attempts, whose numbers are their seeds and so the names of their sessions."""

    def __init__(self, host: WatchedHost, prompter: Prompter, rule: ActionRule, *, given: Sequence[str] = ()) -> None:
        self.sayers: dict[int, list[str]] = {}
        """Who says the response of each step, by attempt."""
        self._host, self._prompter, self._rule, self._given = host, prompter, rule, given

    def answer(self, request: Request) -> tuple[int, ...]:
        """The ids of a response, with its end token; the end token alone where nobody knows what to say."""
        assert request.session is not None, "an attempt names its session"
        number, end_id = int(request.session), self._prompter.frame.end_id
        text, said_by = self._choose(number)
        self.sayers.setdefault(number, []).append(said_by)
        if text is None:
            self._host.end(number)
            return (end_id,)
        return (*self._prompter.encode(text), end_id)

    def _choose(self, number: int) -> tuple[str | None, str]:
        """What is said next, and who says so."""
        seen, step = self._host.shown[number][-1], len(self.sayers.get(number, ()))
        if step < len(self._given):
            return self._given[step], "given"
        action, said_by = find_action(self._host, number, seen, step=step)
        return (None if action is None else self._rule.say(action, admissible=seen.admissible)), said_by


def find_action(host: Host, number: int, seen: Observation, *, step: int = 0) -> tuple[str | None, str]:
    """An action that fits, and whose it is: the expert's, or a possible one; None where nobody knows."""
    advice = host.ask_experts([number])[number]
    if isinstance(advice, str):
        return advice, "expert"
    if isinstance(advice, Fault):
        return None, f"the expert failed: {advice.message}"
    if seen.admissible:
        return seen.admissible[step % len(seen.admissible)], "possible action"
    return None, "nobody"


# What an update takes, from the prompts of a few attempts: tokens, memory, and the time of its arithmetic alone.

OPERATIONS_OF_TOKEN = 2 + 6
"""Operations for each weight and token: 2 where a token is read or sampled, 6 where it is learnt (Kaplan et al. 2020,
arXiv:2001.08361, section 2.1: forward 2, backward 4)."""
MEASURED_SECONDS = 0.1
"""How long a measurement of this machine lasts."""
MATRIX, BUFFER = 512, 1 << 24
"""Rows of the matrices that are multiplied, and numbers of the buffer that is copied, to see how fast a machine is."""


@dataclass(frozen=True, kw_only=True)
class UpdateCosts:
    """What an update takes, about."""

    attempts: int
    max_steps: int
    """Most steps that one of them may have; each is taken to have all that it may."""
    sampled_tokens: int
    """Most tokens sampled in an update: every attempt as long as the limits allow."""
    distinct_tokens: int
    """Tokens of prompts and responses of such an update, what an attempt's prompts share counted once."""
    longest_prompt: int
    """Tokens of the longest prompt of an attempt that takes all its steps."""
    context: int | None
    """Positions of the model; None = it does not say."""
    parameters: int
    trained: int
    memory: float
    seconds: float
    """Seconds of the arithmetic alone of an update of such attempts, on this machine."""
    updates: int


def estimate_costs(config: RunConfig, attempts: Sequence[Trajectory], *, context: int | None) -> UpdateCosts:
    """Estimate what an update takes, as if all attempts were like these and took all their steps."""
    sizes = estimate_sizes(config)
    played = [attempt for attempt in attempts if attempt.steps]
    steps = [ask_max_steps(find_environment(config.env, attempt.task)) for attempt in played]
    sizes_of = [_count_distinct(attempt, num, config) for attempt, num in zip(played, steps, strict=True)]
    distinct = round(sizes.attempts * _mean_by_share(config.env, played, sizes_of))
    return UpdateCosts(
        attempts=sizes.attempts,
        max_steps=ask_max_steps(config.env),
        sampled_tokens=sizes.tokens,
        distinct_tokens=distinct,
        longest_prompt=max(_project_longest(attempt, num, config) for attempt, num in zip(played, steps, strict=True)),
        context=context,
        parameters=sizes.parameters,
        trained=sizes.trained,
        memory=sizes.memory.peak,
        seconds=_estimate_seconds(config, sizes.parameters, distinct, ask_max_steps(config.env)),
        updates=config.training.updates,
    )


def _mean_by_share(env: EnvironmentPart, attempts: Sequence[Trajectory], values: Sequence[float]) -> float:
    """The mean of a value of attempts; where environments are mixed, each counts by its weight."""
    if not isinstance(env, Mixture):
        return fmean(values)
    names = [env.name_of(attempt.task) for attempt in attempts]
    return fmean(values, weights=[env.weights[name] / names.count(name) for name in names])


def _count_distinct(attempt: Trajectory, max_steps: int, config: RunConfig) -> float:
    """Tokens of an attempt with all its steps: its first prompt, and what each further step adds to what was read."""
    added = [
        len(after.prompt_ids) - _count_shared((*before.prompt_ids, *before.response_ids), after.prompt_ids)
        for before, after in pairwise(attempt.steps)
    ]
    later = (max_steps - 1) * fmean(added) if added else 0.0
    return len(attempt.steps[0].prompt_ids) + later + max_steps * config.rollout.max_tokens


def _count_shared(first: Sequence[int], second: Sequence[int]) -> int:
    return next(
        (place for place, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), len(first)
    )


def _project_longest(attempt: Trajectory, max_steps: int, config: RunConfig) -> int:
    """The longest prompt of an attempt with all its steps, by what a past step adds to a prompt here."""
    lengths, memory = [len(step.prompt_ids) for step in attempt.steps], config.rollout.memory
    _, largest = count_steps_shown(memory)
    shown_now = len(lengths) - 1 - memory.first_shown(len(lengths) - 1)
    if not shown_now:
        return max(lengths)
    shown_at_most = max_steps - 1 if largest is None else min(largest, max_steps - 1)
    return max(*lengths, lengths[0] + round((lengths[-1] - lengths[0]) / shown_now * shown_at_most))


def _estimate_seconds(config: RunConfig, parameters: int, distinct: int, max_steps: int) -> float:
    """The arithmetic of an update, and reading all weights for each token that is sampled after another."""
    device = choose_device(config.device)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    # Operations a second of a multiplication on this machine, and bytes a second that it reads.
    matrix = torch.ones(MATRIX, MATRIX, device=device, dtype=dtype)
    buffer = torch.ones(BUFFER, device=device, dtype=dtype)
    operations = _count_per_second(lambda: matrix @ matrix, device) * 2 * MATRIX**3
    bytes_read = _count_per_second(buffer.clone, device) * buffer.nbytes
    calls = max_steps * config.rollout.max_tokens
    return OPERATIONS_OF_TOKEN * parameters * distinct / operations + calls * parameters * dtype.itemsize / bytes_read


def _count_per_second(work: Callable[[], object], device: torch.device) -> float:
    work()  # the first one pays for what is set up
    done, began = 0, time.monotonic()
    while time.monotonic() - began < MEASURED_SECONDS:
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        done += 1
    return done / (time.monotonic() - began)
