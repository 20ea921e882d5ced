"""A run's prompts before it is run: a few attempts, played with sample responses, and where every token comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from groupwise.core.errors import ConfigError
from groupwise.core.parts.part import name_of
from groupwise.core.records import Step, Task, Trajectory
from groupwise.core.task_ids import match_tasks
from groupwise.core.text.safe_text import quote_line
from groupwise.core.text.token_texts import cut_text
from groupwise.engines.scripted import ScriptedEngine
from groupwise.envs.environment import Observation
from groupwise.envs.mixture import choose_first_tasks
from groupwise.rollout.episodes import Attempt, Sampling, play_attempts
from groupwise.rollout.hosts.host import Host
from groupwise.rollout.prompts.origins import AttributedIds, attribute_prompt
from groupwise.rollout.prompts.prompter import Exchange, Prompter
from groupwise.training.notices import describe_unread_rewards
from groupwise.training.open_run import open_prompter, open_run_host, start_curriculum
from groupwise.training.preview.readings import Reading, read_samples
from groupwise.training.preview.sample_responses import SampleResponses, WatchedHost
from groupwise.training.preview.update_costs import UpdateCosts, estimate_costs
from groupwise.training.run_checks import check_algorithm, check_panels, check_tasks, check_words
from groupwise.training.run_config import RunConfig

NUM_TASKS, NUM_STEPS = 2, 3
"""Tasks that are shown, and steps of each, unless somebody asks for others."""


@dataclass(frozen=True, kw_only=True)
class PreviewedStep:
    """A prompt, and a sample response to it."""

    prompt: AttributedIds
    """The ids that a model would read, each with where it comes from."""
    prompt_texts: tuple[str, ...]
    """What each of them says."""
    response_ids: tuple[int, ...]
    """The sample response; nothing where nobody knows what to say."""
    response_texts: tuple[str, ...]
    """What each of them says."""
    said_by: str
    """Who says so: given, expert, possible action, or why nobody does."""
    action: str
    """What the action rule read out of it."""
    well_formed: bool
    """Whether it has the form that was asked for."""
    accepted: bool
    """Whether the environment carried the action out."""
    is_cut: bool
    """Whether it is longer than `rollout.max_tokens`."""


@dataclass(frozen=True, kw_only=True)
class PreviewedAttempt:
    """The first steps of an attempt at a task."""

    task: str
    """The task's id."""
    goal: str
    """What it asks for; empty where the observation says it all."""
    steps: tuple[PreviewedStep, ...]
    """Its steps."""
    error: str
    """What went wrong in the environment; empty = nothing."""


@dataclass(frozen=True, kw_only=True)
class RunPreview:
    """A run before it is run."""

    attempts: tuple[PreviewedAttempt, ...]
    """An attempt at each of a few tasks: those that the first update begins with, or those that were asked for."""
    readings: tuple[Reading, ...]
    """What the action rule reads out of sample responses to the first prompt."""
    costs: UpdateCosts
    """What an update takes."""
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
        panel = check_tasks(config, host)
        check_panels(config)
        tokenizer, context = _open_tokenizer(config)
        prompter = open_prompter(config, tokenizer)
        tasks = _choose_tasks(config, panel, num_tasks, task_ids)
        watched = WatchedHost(host, steps=max(num_steps, NUM_STEPS))  # fewer would not show how prompts grow
        samples = SampleResponses(watched, prompter, config.rollout.action_rule, given=responses)
        trajectories = _play(config, tasks, watched, samples, prompter, context)
        readings = read_samples(
            WatchedHost(host, steps=2),
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
    trajectories = play_attempts(
        [Attempt(task=task, number=0, seed=number) for number, task in enumerate(tasks)],
        host=host,
        engine=ScriptedEngine(samples.answer, context=context),
        prompter=prompter,
        rule=rollout.action_rule,
        sampling=Sampling(max_tokens=rollout.max_tokens, temperature=rollout.temperature),
    )
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
