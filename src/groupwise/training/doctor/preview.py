"""Preview a run: prompts of a few rollouts with sample responses, the origin of every token, and costs."""

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
from groupwise.rollout.actions import ActionParser, continue_thought
from groupwise.rollout.environment_runner import Advice, Fault, Host
from groupwise.rollout.episodes import Player, Rollout
from groupwise.rollout.origins import AttributedIds, attribute_prompt
from groupwise.rollout.prompts import Exchange, Prompter
from groupwise.system.errors import ConfigError
from groupwise.system.text import cut_text, quote_line
from groupwise.training.config.checks import (
    check_algorithm,
    check_task_sets,
    check_tasks,
    check_words,
    count_steps_shown,
    describe_unread_rewards,
)
from groupwise.training.config.run_config import RunConfig
from groupwise.training.doctor.doctor import estimate_sizes
from groupwise.training.open_run import open_prompter, open_run_host, start_curriculum

NUM_TASKS, NUM_STEPS = 2, 3
"""Default number of tasks, and of steps per task."""


@dataclass(frozen=True, kw_only=True)
class PreviewedStep:
    """A prompt, and a sample response to it."""

    prompt: AttributedIds
    """The ids that a model would read, with their origins."""
    prompt_cut: int
    """How many ids `rollout.max_prompt_tokens` removed."""
    prompt_texts: tuple[str, ...]
    response_ids: tuple[int, ...]
    """The sample response; empty if there is none."""
    response_texts: tuple[str, ...]
    said_by: str
    """The source of the response: given, expert, possible action, or why there is none."""
    action: str
    well_formed: bool
    accepted: bool
    is_cut: bool
    """Whether it is longer than `rollout.max_tokens`."""


@dataclass(frozen=True, kw_only=True)
class PreviewedRollout:
    """The first steps of a rollout."""

    task: str
    goal: str
    """The task's goal; empty if only the observation tells it."""
    steps: tuple[PreviewedStep, ...]
    error: str


@dataclass(frozen=True, kw_only=True)
class RunPreview:
    """The preview of a run."""

    rollouts: tuple[PreviewedRollout, ...]
    """One rollout per task: the first tasks of the first update, or the requested ones."""
    readings: tuple[Reading, ...]
    """What the action parser reads from sample responses to the first prompt."""
    costs: UpdateCosts
    notes: tuple[str, ...]
    """Warnings, one sentence each."""


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
        num_tasks: number of tasks, if `task_ids` is empty.
        num_steps: number of steps per task.
        task_ids: training tasks by id, or by the beginning of an id.
        responses: responses of the first steps, instead of the expert's or a possible action.
    """
    if config.agent is not None:
        raise ConfigError("agent: only a running agent writes prompts, and a preview runs none; preview an environment")
    check_algorithm(config)
    check_words(config)
    with open_run_host(config) as host:
        task_set = check_tasks(config, host)["train"]
        check_task_sets(config)
        tokenizer, context = _open_tokenizer(config)
        prompter = open_prompter(config, tokenizer)
        tasks = _choose_tasks(config, task_set, num_tasks, task_ids)
        rule = continue_thought(config.rollout.action_parser, prompter.frame.thought)
        watched = WatchedHost(host, steps=max(num_steps, NUM_STEPS))  # fewer would not show how prompts grow
        samples = SampleResponses(watched, prompter, rule, given=responses)
        trajectories = _play(config, tasks, watched, samples, prompter, rule, context)
        readings = read_samples(
            host,
            tasks[0],
            prompter=prompter,
            rule=rule,
            max_tokens=config.rollout.max_tokens,
            given=responses,
        )
    rollouts = tuple(
        _describe_rollout(trajectory, watched.shown[number], samples.sayers.get(number, []), prompter, num_steps)
        for number, trajectory in enumerate(trajectories)
    )
    costs = estimate_costs(config, trajectories, context=context)
    notes = _list_notes(config, rollouts, costs, tokenizer.unk_token_id)
    return RunPreview(rollouts=rollouts, readings=tuple(readings), costs=costs, notes=tuple(notes))


def _open_tokenizer(config: RunConfig) -> tuple[Any, int | None]:
    """The tokenizer of the run's model, and the largest length of prompt and response together."""
    open_tokenizer = getattr(config.model, "open_tokenizer", None)
    if open_tokenizer is None:
        raise ConfigError(
            f"model: {name_of(config.model)} has no open_tokenizer(*, words), which a preview needs; add one that "
            "returns the tokenizer and the number of positions"
        )
    tokenizer, positions = open_tokenizer(words=config.words())
    limits = [limit for limit in (positions, getattr(config.engine, "context", None)) if isinstance(limit, int)]
    return tokenizer, min(limits, default=None)


def _choose_tasks(config: RunConfig, task_set: Sequence[Task], num: int, task_ids: Sequence[str]) -> list[Task]:
    """The requested tasks; else the first tasks of the first update."""
    chosen = []
    for asked in task_ids:
        matching = match_tasks((task.id for task in task_set), asked)
        if not matching:
            raise ConfigError(
                f"no training task begins with {quote_line(asked)!r}; `groupwise tasks` lists them, such as "
                f"{task_set[0].id!r}"
            )
        chosen.append(next(task for task in task_set if task.id == matching[0]))
    if chosen:
        return chosen
    first = start_curriculum(config, task_set).next(config.training.tasks)
    distinct = list({task.id: task for task in first}.values())
    of_each = choose_first_tasks(config.env, [*distinct, *task_set]).values()
    if len(of_each) > 1:  # mixed environments: at least one task of each
        distinct = list({task.id: task for task in (*of_each, *distinct)}.values())
    return distinct[: max(num, len(of_each))]


def _play(
    config: RunConfig,
    tasks: Sequence[Task],
    host: Host,
    samples: SampleResponses,
    prompter: Prompter,
    rule: ActionParser,
    context: int | None,
) -> list[Trajectory]:
    """Run one rollout per task, as in training, with an engine that gives the sample responses."""
    rollout = config.rollout
    engine = ScriptedEngine(samples.answer, context=context)
    player = Player(engine=engine, host=host, prompter=prompter, action_parser=rule, max_tokens=rollout.max_tokens)
    rollouts = [Rollout(task=task, number=0, seed=number) for number, task in enumerate(tasks)]
    trajectories = player.play(rollouts, temperature=rollout.temperature)
    for trajectory in trajectories:
        if not trajectory.steps:
            raise ConfigError(
                f"env: task {trajectory.task.id!r} cannot be opened ({trajectory.error}); fix the environment"
            )
    return trajectories


def _describe_rollout(
    trajectory: Trajectory, shown: Sequence[Observation], sayers: Sequence[str], prompter: Prompter, num_steps: int
) -> PreviewedRollout:
    past: list[Exchange] = []
    steps: list[PreviewedStep] = []
    prompter = prompter.for_task(trajectory.task)
    for step, seen, said_by in zip(trajectory.steps, shown[: len(trajectory.steps)], sayers, strict=True):
        prompt = attribute_prompt(prompter, goal=shown[0].goal, past=past, seen=seen)
        assert prompt.ids == step.prompt_ids, "an attributed prompt is the prompt"
        steps.append(_describe_step(step, prompt, said_by, prompter))
        past.append(prompter.make_exchange(seen, step.response_ids, step.action or ""))
    return PreviewedRollout(
        task=trajectory.task.id, goal=shown[0].goal, steps=tuple(steps[:num_steps]), error=trajectory.error or ""
    )


def _describe_step(step: Step, prompt: AttributedIds, said_by: str, prompter: Prompter) -> PreviewedStep:
    is_said = step.response_ids != (prompter.frame.end_id,) or said_by in ("given", "expert", "possible action")
    response = step.response_ids if is_said else ()
    return PreviewedStep(
        prompt=prompt,
        prompt_cut=step.prompt_cut,
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
    config: RunConfig, rollouts: Sequence[PreviewedRollout], costs: UpdateCosts, unknown_id: int | None
) -> list[str]:
    steps = [step for rollout in rollouts for step in rollout.steps]
    notes = [unread] if (unread := describe_unread_rewards(config)) else []
    num_unknown = sum(token == unknown_id for step in steps for token in (*step.prompt.ids, *step.response_ids))
    if num_unknown:
        notes.append(
            f"the tokenizer does not know {num_unknown} tokens of these prompts and responses; the model sees one and "
            "the same token for them"
        )
    limit, num_cut = config.rollout.max_prompt_tokens, sum(step.prompt_cut > 0 for step in steps)
    if num_cut:
        notes.append(
            f"{num_cut} of these {len(steps)} prompts are longer than rollout.max_prompt_tokens, {limit}, and are "
            "shortened; shorten rollout.history, or raise the limit"
        )
    if limit is not None and costs.longest_prompt > limit:
        notes.append(
            f"the last prompts of a long rollout have about {costs.longest_prompt} tokens and exceed "
            f"rollout.max_prompt_tokens, {limit}, so the rollout ends; raise it, shorten rollout.history, or set "
            'rollout.over_limit = "cut_left"'
        )
    if any(not step.response_ids for step in steps):
        notes.append(
            "the environment has no expert and lists no possible actions; give responses with --response to see "
            "further steps"
        )
    if any(step.is_cut for step in steps):
        notes.append(f"sample responses are longer than rollout.max_tokens, {config.rollout.max_tokens}; raise it")
    room = None if costs.context is None else costs.context - config.rollout.max_tokens
    if room is not None and costs.longest_prompt > room:
        notes.append(
            f"the last prompts of a long rollout have about {costs.longest_prompt} tokens and do not fit into the "
            f"model's {costs.context} with {config.rollout.max_tokens} to sample, so the rollout ends; shorten "
            "rollout.history, or use a model with a longer context"
        )
    return notes


IMPOSSIBLE = "fly to the moon"
"""An action that hardly any environment knows."""
CUT_OFF = "cut off at max_tokens"
FIRST_NUMBER = 1_000_000
"""The first number of environments for samples, above those of rollouts."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A sample response to the first prompt of a task, and its result."""

    sample: str
    response: str
    action: str
    """The parsed action, which is sent to the environment."""
    verdict: Literal["valid", "malformed", "invalid", "error"]
    """Malformed: it does not have the required format; invalid: the environment rejects the action."""
    fault: str = ""
    is_cut: bool = False
    """Whether it was cut off at `rollout.max_tokens`."""


def read_samples(
    host: Host,
    task: Task,
    *,
    prompter: Prompter,
    rule: ActionParser,
    max_tokens: int,
    given: Sequence[str] = (),
) -> list[Reading]:
    """Parse sample responses to the first prompt of a task, and try each in an environment of its own."""
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
    samples += [("an action that is not offered", rule.say(IMPOSSIBLE, admissible=seen.admissible)), ("nothing", "")]
    readings = []
    for number, (name, text) in enumerate(samples, FIRST_NUMBER + 1):
        ids = prompter.encode(text)  # through the tokenizer, like a response; its end is a token too
        is_cut = name == CUT_OFF or len(ids) >= max_tokens
        describe = partial(Reading, sample=name, response=prompter.text(ids[:max_tokens]), is_cut=is_cut)
        readings.append(_read(host, task, number, rule, describe))
    return readings


def _read(host: Host, task: Task, number: int, rule: ActionParser, describe: partial[Reading]) -> Reading:
    """Send the parsed action of a response to a new environment."""
    seen = host.open({number: task})[number]
    if isinstance(seen, Fault):
        return describe(action="", verdict="error", fault=seen.message)
    response, is_cut = describe.keywords["response"], describe.keywords["is_cut"]
    action = rule.read(response, stopped=not is_cut, admissible=seen.admissible)
    outcome = host.act({number: action.text})[number]
    host.close([number])
    if isinstance(outcome, Fault):
        return describe(action=action.text, verdict="error", fault=outcome.message)
    accepted = "valid" if outcome.accepted else "invalid"
    return describe(action=action.text, verdict=accepted if action.well_formed else "malformed")


# Responses without a model: those of the user, the expert's action, or a possible action. Training's own code runs the
# rollouts, with an engine that gives these responses and a runner that ends rollouts early.


class WatchedHost:
    """An environment runner that keeps observations, and truncates rollouts after `steps` steps."""

    def __init__(self, host: Host, *, steps: int) -> None:
        self.shown: dict[int, list[Observation]] = {}
        """The observations of each environment."""
        self._host, self._steps = host, steps
        self._ends_now: set[int] = set()

    def end(self, number: int) -> None:
        """End the rollout at its next action, without sending it."""
        self._ends_now.add(number)

    def open(self, tasks: Mapping[int, Task]) -> dict[int, Observation | Fault]:
        """Open an environment per task, and return the first observations."""
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
    """Answers the requests of rollouts; a rollout's number is its seed and its session."""

    def __init__(self, host: WatchedHost, prompter: Prompter, rule: ActionParser, *, given: Sequence[str] = ()) -> None:
        self.sayers: dict[int, list[str]] = {}
        """The source of each response, by rollout."""
        self._host, self._prompter, self._rule, self._given = host, prompter, rule, given

    def answer(self, request: Request) -> tuple[int, ...]:
        """The ids of a response with its end token; only the end token if there is no response."""
        assert request.session is not None, "a rollout names its session"
        number, end_id = int(request.session), self._prompter.frame.end_id
        text, said_by = self._choose(number)
        self.sayers.setdefault(number, []).append(said_by)
        if text is None:
            self._host.end(number)
            return (end_id,)
        return (*self._prompter.encode(text), end_id)

    def _choose(self, number: int) -> tuple[str | None, str]:
        """The next response, and its source."""
        seen, step = self._host.shown[number][-1], len(self.sayers.get(number, ()))
        if step < len(self._given):
            return self._given[step], "given"
        action, said_by = find_action(self._host, number, seen, step=step)
        return (None if action is None else self._rule.say(action, admissible=seen.admissible)), said_by


def find_action(host: Host, number: int, seen: Observation, *, step: int = 0) -> tuple[str | None, str]:
    """An action and its source: the expert, or the possible actions; None if there is none."""
    advice = host.ask_experts([number])[number]
    if isinstance(advice, str):
        return advice, "expert"
    if isinstance(advice, Fault):
        return None, f"the expert failed: {advice.message}"
    if seen.admissible:
        return seen.admissible[step % len(seen.admissible)], "possible action"
    return None, "nobody"


OPERATIONS_OF_TOKEN = 2 + 6
"""Operations per parameter and token: 2 for reading or sampling, 6 for learning (Kaplan et al. 2020, arXiv:2001.08361,
section 2.1: forward 2, backward 4)."""
MEASURED_SECONDS = 0.1
"""Seconds of a speed test of this machine."""
MATRIX, BUFFER = 512, 1 << 24
"""Size of the matrices and of the buffer of the speed test."""


@dataclass(frozen=True, kw_only=True)
class UpdateCosts:
    """Estimated costs of an update."""

    rollouts: int
    max_steps: int
    """Largest number of steps; every rollout is assumed to take them."""
    sampled_tokens: int
    """Largest number of tokens sampled per update."""
    distinct_tokens: int
    """Tokens of prompts and responses per update, with shared prefixes of a rollout counted once."""
    longest_prompt: int
    """Tokens of the longest prompt of a rollout with all steps."""
    context: int | None
    """Positions of the model; None = it does not say."""
    parameters: int
    trained: int
    memory: float
    seconds: float
    """Seconds of an update's arithmetic alone, on this machine."""
    updates: int


def estimate_costs(config: RunConfig, rollouts: Sequence[Trajectory], *, context: int | None) -> UpdateCosts:
    """Estimate the costs of an update, as if all rollouts were like these and took all steps."""
    sizes = estimate_sizes(config)
    played = [rollout for rollout in rollouts if rollout.steps]
    steps = [ask_max_steps(find_environment(config.env, rollout.task)) for rollout in played]
    sizes_of = [_count_distinct(rollout, num, config) for rollout, num in zip(played, steps, strict=True)]
    distinct = round(sizes.rollouts * _mean_by_share(config.env, played, sizes_of))
    return UpdateCosts(
        rollouts=sizes.rollouts,
        max_steps=ask_max_steps(config.env),
        sampled_tokens=sizes.tokens,
        distinct_tokens=distinct,
        longest_prompt=max(_project_longest(rollout, num, config) for rollout, num in zip(played, steps, strict=True)),
        context=context,
        parameters=sizes.parameters,
        trained=sizes.trained,
        memory=sizes.memory.peak,
        seconds=_estimate_seconds(config, sizes.parameters, distinct, ask_max_steps(config.env)),
        updates=config.training.updates,
    )


def _mean_by_share(env: EnvironmentPart, rollouts: Sequence[Trajectory], values: Sequence[float]) -> float:
    """The mean of a value over rollouts; mixed environments count by their weights."""
    if not isinstance(env, Mixture):
        return fmean(values)
    names = [env.name_of(rollout.task) for rollout in rollouts]
    return fmean(values, weights=[env.weights[name] / names.count(name) for name in names])


def _count_distinct(rollout: Trajectory, max_steps: int, config: RunConfig) -> float:
    """Tokens of a rollout with all steps: the first prompt, and what each further step adds."""
    added = [
        len(after.prompt_ids) - _count_shared((*before.prompt_ids, *before.response_ids), after.prompt_ids)
        for before, after in pairwise(rollout.steps)
    ]
    later = (max_steps - 1) * fmean(added) if added else 0.0
    return len(rollout.steps[0].prompt_ids) + later + max_steps * config.rollout.max_tokens


def _count_shared(first: Sequence[int], second: Sequence[int]) -> int:
    return next(
        (place for place, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), len(first)
    )


def _project_longest(rollout: Trajectory, max_steps: int, config: RunConfig) -> int:
    """The longest prompt of a rollout with all steps, from the growth per past step."""
    lengths, memory = [len(step.prompt_ids) + step.prompt_cut for step in rollout.steps], config.rollout.history
    _, largest = count_steps_shown(memory)
    shown_now = len(lengths) - 1 - memory.first_shown(len(lengths) - 1)
    longest = max(lengths)
    if shown_now:
        shown_at_most = max_steps - 1 if largest is None else min(largest, max_steps - 1)
        longest = max(longest, lengths[0] + round((lengths[-1] - lengths[0]) / shown_now * shown_at_most))
    limit = config.rollout.max_prompt_tokens
    return longest if limit is None or config.rollout.over_limit == "refuse" else min(longest, limit)


def _estimate_seconds(config: RunConfig, parameters: int, distinct: int, max_steps: int) -> float:
    """Seconds of an update's arithmetic, and of reading all weights per sampled token."""
    device = choose_device(config.device)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    # Operations and bytes read per second on this machine.
    matrix = torch.ones(MATRIX, MATRIX, device=device, dtype=dtype)
    buffer = torch.ones(BUFFER, device=device, dtype=dtype)
    operations = _count_per_second(lambda: matrix @ matrix, device) * 2 * MATRIX**3
    bytes_read = _count_per_second(buffer.clone, device) * buffer.nbytes
    calls = max_steps * config.rollout.max_tokens
    return OPERATIONS_OF_TOKEN * parameters * distinct / operations + calls * parameters * dtype.itemsize / bytes_read


def _count_per_second(work: Callable[[], object], device: torch.device) -> float:
    work()  # the first call includes set-up time
    done, began = 0, time.monotonic()
    while time.monotonic() - began < MEASURED_SECONDS:
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        done += 1
    return done / (time.monotonic() - began)
