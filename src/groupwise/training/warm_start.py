"""The warm start of a run: supervised fine-tuning on the actions of an environment's expert.

The expert may know more than the agent sees. What the prompt does not tell averages out into a search over the possible
actions, which training then improves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from random import Random

from groupwise.data.records import Task
from groupwise.data.samples import Sample
from groupwise.data.seeds import seed_of
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.kit.task_set import SPLITS
from groupwise.envs.part_queries import ask_max_steps, ask_task_set
from groupwise.learner.protocol import ReportEpoch
from groupwise.rollout.environment_runner import Advice, Fault, NoExpert
from groupwise.rollout.prompts import Exchange, Opening
from groupwise.store.rollout_rows import RolloutRow
from groupwise.system.errors import ConfigError, RecordError, TrainingError
from groupwise.system.text import quote_line
from groupwise.training.config.checks import NO_EXPERT
from groupwise.training.config.run_config import WarmStartConfig
from groupwise.training.run import Run

ReportFaults = Callable[[Mapping[str, int], int], None]
"""Called with the number of rollouts that an error ended, by cause, and with the number of all rollouts."""
MAX_AT_ONCE = 64
"""Expert rollouts that run at the same time."""


def warm_start(
    run: Run,
    config: WarmStartConfig,
    *,
    report_epoch: ReportEpoch | None = None,
    report_faults: ReportFaults | None = None,
) -> list[float]:
    """Let the learner imitate expert rollouts, sync the weights, and return the mean loss of each epoch."""
    samples = make_expert_samples(run, run.tasks[: config.tasks], config, report_faults=report_faults)
    return imitate_samples(run, samples, config, report_epoch=report_epoch)


def imitate_samples(
    run: Run, samples: Sequence[Sample], config: WarmStartConfig, *, report_epoch: ReportEpoch | None = None
) -> list[float]:
    """Let the learner imitate samples, with tokens weighted by `advantage`; returns the mean loss of each epoch."""
    losses = run.learner.imitate(samples, config, seed=run.config.seed, report=report_epoch)
    run.sync(0)
    return losses


def make_expert_samples(
    run: Run, tasks: Sequence[Task], config: WarmStartConfig, *, report_faults: ReportFaults | None = None
) -> list[Sample]:
    """The expert's actions at every step, in the format of rollouts.

    If an environment raises, hangs or dies, its rollout is not used. Too few rollouts without an error stop the run.
    """
    lessons = [_Lesson(run, task, number, config) for number, task in enumerate(tasks)]
    for first in range(0, len(lessons), MAX_AT_ONCE):
        _play_lessons(run, lessons[first : first + MAX_AT_ONCE])
    causes = Counter(lesson.fault.message for lesson in lessons if lesson.fault is not None)
    survivors = len(lessons) - causes.total()
    if survivors < max(run.config.training.min_survivors * len(lessons), 1):
        listed = "; ".join(f"{count} x {cause}" for cause, count in causes.most_common(3))
        raise TrainingError(
            f"warm start: only {survivors} of {len(lessons)} expert rollouts survived ({listed}); fix the environment"
        )
    if causes and report_faults is not None:
        report_faults(causes, len(lessons))
    samples = [sample for lesson in lessons if lesson.fault is None for sample in lesson.samples]
    if not samples:
        raise ConfigError(f"the expert gives no action at any of {len(lessons)} tasks; leave out [warm_start]")
    return samples


def _play_lessons(run: Run, lessons: Sequence[_Lesson]) -> None:
    shown = run.host.open({number: lesson.task for number, lesson in enumerate(lessons)})
    for number, lesson in enumerate(lessons):
        lesson.begin(shown[number])
    active = [number for number, lesson in enumerate(lessons) if not lesson.has_ended]
    for _ in range(ask_max_steps(run.config.env)):
        advice = run.host.ask_experts(active)
        actions = {number: action for number in active if (action := lessons[number].teach(advice[number])) is not None}
        run.host.close([number for number in active if number not in actions])
        outcomes = run.host.act(actions)
        for number, outcome in outcomes.items():
            lessons[number].take(outcome)
        run.host.close([number for number in actions if lessons[number].has_ended])
        active = [number for number in actions if not lessons[number].has_ended]
        if not active:
            break
    run.host.close(active)


class _Lesson:
    """A rollout of the expert, with noise and expert noise; each step is a sample."""

    def __init__(self, run: Run, task: Task, number: int, config: WarmStartConfig) -> None:
        self.task, self.samples = task, list[Sample]()
        self.has_ended = False
        self.fault: Fault | None = None
        self._run, self._number, self._config = run, number, config
        self._draws = Random(seed_of(run.config.seed, "warm start", task.id))
        self._offered: dict[str, None] = {}  # actions in the order they were offered
        self._past = list[Exchange]()

    def begin(self, shown: Observation | Fault) -> None:
        if isinstance(shown, Fault):
            self.has_ended, self.fault = True, shown
            return
        self._seen = shown
        self._opening = self._run.prompter.for_task(self.task).encode_opening(shown.goal)

    def teach(self, advice: Advice) -> str | None:
        """Make a sample of the next action, and return the action; None if the rollout is over."""
        if isinstance(advice, NoExpert):
            raise ConfigError(NO_EXPERT)
        if isinstance(advice, Fault) or advice is None:
            self.has_ended, self.fault = True, advice
            return None
        seen, config, prompter = self._seen, self._config, self._run.prompter
        action, strays = self._choose(advice)
        observation_ids = prompter.encode_observation(seen)
        response_text = self._run.action_parser.say(action, admissible=seen.admissible)
        self._response = (*prompter.encode(response_text), prompter.frame.end_id)
        self._action = action
        prompt = prompter.prompt(self._opening, self._past, seen)
        # In a single message, the observation has no separate place.
        shown = len(prompt) - len(observation_ids) - len(prompter.frame.before_response) if observation_ids else 0
        # With a weight on observations, the last observation is trained too.
        cut = shown if config.observation_weight and shown > 0 else len(prompt)
        weight, num_said = 0.0 if strays else 1.0, len(prompt) - cut
        self.samples.append(
            Sample(
                prompt_ids=prompt[:cut],
                response_ids=(*prompt[cut:], *self._response),
                advantage=(*[config.observation_weight] * num_said, *[weight] * len(self._response)),
                trajectory=self._number,
                step=len(self.samples),
                group=self._number,
                trains=bool(weight or num_said),
            )
        )
        return action

    def take(self, outcome: Outcome | Fault) -> None:
        if isinstance(outcome, Fault):
            self.has_ended, self.fault = True, outcome
        elif outcome.ended:
            self.has_ended = True
        else:
            self._past.append(self._run.prompter.make_exchange(self._seen, self._response, self._action))
            self._seen = outcome.observation

    def _choose(self, advice: str) -> tuple[str, bool]:
        """The action, and whether it is noise that is not trained."""
        seen, draws = self._seen, self._draws
        self._offered |= dict.fromkeys(seen.admissible or ())
        if self._offered and draws.random() < self._config.noise:
            return draws.choice(list(self._offered)), True
        if seen.admissible and draws.random() < self._config.expert_noise:
            return draws.choice(seen.admissible), False
        return advice, False


# Recorded rollouts as samples to imitate.


def make_recorded_samples(
    run: Run, rows: Iterable[RolloutRow], *, min_return: float | None = None, report_faults: ReportFaults | None = None
) -> list[Sample]:
    """Make one sample per recorded step, of the rollouts with a high enough return.

    If rows have `prompt_ids` and `response_ids`, these are used; they must come from this model's tokenizer. Otherwise
    prompts are made from `observation` and `action`, as in a rollout of this run, with the environment's goal if it
    knows the task's id. Rollouts of tasks whose environment fails to give its goal are left out.

    Args:
        run: makes the prompts.
        rows: the rows of a rollouts file, in any order; all are held in memory.
        min_return: lowest final score, or sum of rewards, of a rollout; None = more than 0.
        report_faults: called if rollouts were left out because of errors.
    """
    rollouts: dict[tuple[object, object], list[RolloutRow]] = {}
    for row in rows:
        rollouts.setdefault((row.get("group", row["task"]), row["rollout"]), []).append(row)
    good = [steps for steps in rollouts.values() if _is_good(steps, min_return)]
    if not good:
        bound = "more than 0" if min_return is None else f"{min_return:g} or more"
        raise RecordError(
            f"none of {len(rollouts)} recorded rollouts has a return of {bound}; lower the bound with --min-return"
        )
    openings = _ask_openings(run, {str(steps[0]["task"]) for steps in good if not _has_tokens(steps)})
    samples: list[Sample] = []
    causes: Counter[str] = Counter()
    for number, steps in enumerate(good):
        ordered = sorted(steps, key=lambda row: (row["step"], row.get("segment", 0)))
        if _has_tokens(ordered):
            samples += _make_from_tokens(run, ordered, number)
            continue
        opening = openings.get(str(ordered[0]["task"]), run.prompter.encode_opening(""))
        if isinstance(opening, Fault):
            causes[opening.message] += 1
        else:
            samples += _make_from_text(run, ordered, number, opening)
    if not samples:
        cause, count = causes.most_common(1)[0]
        raise RecordError(
            f"the environment gives no goal for {len(good)} recorded rollouts ({count} x {cause}); fix the environment"
        )
    if causes and report_faults is not None:
        report_faults(causes, len(good))
    return samples


def _is_good(steps: Sequence[RolloutRow], min_return: float | None) -> bool:
    returned: float = steps[0]["outcome"] if "outcome" in steps[0] else sum(row["reward"] for row in steps)
    return returned > 0 if min_return is None else returned >= min_return


def _has_tokens(steps: Sequence[RolloutRow]) -> bool:
    return all(row.get("prompt_ids") and row.get("response_ids") for row in steps)


def _make_from_tokens(run: Run, steps: Sequence[RolloutRow], number: int) -> list[Sample]:
    size = run.learner.vocabulary_size
    for row in steps:
        ids = (*row["prompt_ids"], *row["response_ids"])
        strange = next((number for number in (max(ids), min(ids)) if not 0 <= number < size), None)
        if strange is not None:
            raise RecordError(
                f"{_place_of(row)}: token id {strange} is not among the model's {size}; the ids come from another "
                "tokenizer. Remove `prompt_ids` from the file; the prompts are then made from its text"
            )
    return [_make_recorded_sample(row["prompt_ids"], row["response_ids"], number, row) for row in steps]


def _make_from_text(run: Run, steps: Sequence[RolloutRow], number: int, opening: Opening) -> list[Sample]:
    prompter = run.prompter
    if getattr(run.config.rollout.template, "show_admissible", "always") != "no":
        raise RecordError(
            f"{_place_of(steps[0])}: recorded text has no list of possible actions, which this run's prompts show; "
            'record prompt_ids and response_ids, or take the prompt_template with show_admissible = "no"'
        )
    past, samples = list[Exchange](), list[Sample]()
    for row in steps:
        observation, action = row.get("observation"), row.get("action")
        if observation is None or not action:
            raise RecordError(
                f"{_place_of(row)}: it has neither prompt_ids and response_ids nor an observation and an action; "
                "record one of the two pairs"
            )
        seen = Observation(text=observation)
        response = (*prompter.encode(run.action_parser.say(action)), prompter.frame.end_id)
        samples.append(_make_recorded_sample(prompter.prompt(opening, past, seen), response, number, row))
        past.append(prompter.make_exchange(seen, response, action))
    return samples


def _make_recorded_sample(prompt: Sequence[int], response: Sequence[int], number: int, row: RolloutRow) -> Sample:
    return Sample(
        prompt_ids=tuple(prompt),
        response_ids=tuple(response),
        advantage=1.0,
        trajectory=number,
        step=row["step"],
        group=number,
    )


def _ask_openings(run: Run, wanted: Set[str]) -> dict[str, Opening | Fault]:
    """The beginnings of the prompts of tasks, by id, if the environment knows the tasks."""
    task_sets = [ask_task_set(run.config.env, split) for split in SPLITS] if wanted else []
    known = list({task.id: task for task_set in task_sets for task in task_set if task.id in wanted}.values())
    openings: dict[str, Opening | Fault] = {}
    for first in range(0, len(known), MAX_AT_ONCE):
        tasks = dict(enumerate(known[first : first + MAX_AT_ONCE]))
        for number, shown in run.host.open(tasks).items():
            task, prompter = tasks[number], run.prompter.for_task(tasks[number])
            openings[task.id] = shown if isinstance(shown, Fault) else prompter.encode_opening(shown.goal)
        run.host.close(list(tasks))
    return openings


def _place_of(row: RolloutRow) -> str:
    return quote_line(f"task {row['task']!r}, rollout {row['rollout']!r}, step {row['step']}")
