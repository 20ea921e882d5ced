"""Recorded attempts as samples to imitate: from a rollouts file, with its tokens or from its text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set

from groupwise.core.errors import RecordError
from groupwise.core.sample import Sample
from groupwise.core.text.safe_text import quote_line
from groupwise.envs.environment import Observation
from groupwise.envs.kit.panel import SPLITS
from groupwise.envs.part_queries import ask_panel
from groupwise.recordings.row import Row
from groupwise.rollout.hosts.host import Fault
from groupwise.rollout.prompts.prompter import Exchange
from groupwise.training.imitation.warm_start import MAX_AT_ONCE, ReportFaults
from groupwise.training.run import Run


def make_recorded_samples(
    run: Run, rows: Iterable[Row], *, min_earned: float | None = None, report_faults: ReportFaults | None = None
) -> list[Sample]:
    """Make a sample of each recorded step, attempt by attempt; only of attempts that earned enough.

    Where rows hold `prompt_ids` and `response_ids`, these are used as they are: they must come from this model's
    tokenizer. Elsewhere prompts are put together from `observation` and `action`, as a rollout of this run would put
    them; the goal is the environment's, where it knows the task by its id. Attempts at a task whose environment fails
    to say its goal are left out.

    Args:
        run: whose tokenizer, template and memory put the prompts together.
        rows: the rows of a rollouts file, in any order; all of them are held in memory.
        min_earned: what an attempt must have earned (its outcome, or the sum of its rewards); None = more than 0.
        report_faults: called where attempts were left out for a fault: how many by cause, and how many there were.
    """
    attempts: dict[tuple[object, object], list[Row]] = {}
    for row in rows:
        attempts.setdefault((row.get("group", row["task"]), row["attempt"]), []).append(row)
    good = [steps for steps in attempts.values() if _has_earned_enough(steps, min_earned)]
    if not good:
        bound = "more than 0" if min_earned is None else f"{min_earned:g} or more"
        raise RecordError(
            f"none of {len(attempts)} recorded attempts earned {bound}; lower the bound with --min-earned"
        )
    openings = _ask_openings(run, {str(steps[0]["task"]) for steps in good if not _has_tokens(steps)})
    samples: list[Sample] = []
    causes: Counter[str] = Counter()
    for number, steps in enumerate(good):
        ordered = sorted(steps, key=lambda row: (row["index"], row.get("segment", 0)))
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
            f"no goal of {len(good)} recorded attempts can be had ({count} x {cause}); mend the environment"
        )
    if causes and report_faults is not None:
        report_faults(causes, len(good))
    return samples


def _has_earned_enough(steps: Sequence[Row], min_earned: float | None) -> bool:
    earned = steps[0]["outcome"] if "outcome" in steps[0] else sum(row["reward"] for row in steps)
    return earned > 0 if min_earned is None else earned >= min_earned


def _has_tokens(steps: Sequence[Row]) -> bool:
    return all(row.get("prompt_ids") and row.get("response_ids") for row in steps)


def _make_from_tokens(run: Run, steps: Sequence[Row], number: int) -> list[Sample]:
    size = run.learner.vocabulary_size
    for row in steps:
        ids = (*row["prompt_ids"], *row["response_ids"])
        strange = next((number for number in (max(ids), min(ids)) if not 0 <= number < size), None)
        if strange is not None:
            raise RecordError(
                f"{_place_of(row)}: token id {strange} is not among the model's {size}; the ids come from another "
                "tokenizer. Leave `prompt_ids` out of the file, and the prompts are put together from its text"
            )
    return [_make_sample(row["prompt_ids"], row["response_ids"], number, row) for row in steps]


def _make_from_text(run: Run, steps: Sequence[Row], number: int, opening: tuple[int, ...]) -> list[Sample]:
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
                "record the one or the other"
            )
        seen = Observation(text=observation)
        response = (*prompter.encode(run.config.rollout.action_rule.say(action)), prompter.frame.end_id)
        samples.append(_make_sample(prompter.prompt(opening, past, seen), response, number, row))
        past.append(prompter.make_exchange(seen, response, action))
    return samples


def _make_sample(prompt: Sequence[int], response: Sequence[int], number: int, row: Row) -> Sample:
    return Sample(
        prompt_ids=tuple(prompt),
        response_ids=tuple(response),
        advantage=1.0,
        trajectory=number,
        step=row["index"],
        group=number,
    )


def _ask_openings(run: Run, wanted: Set[str]) -> dict[str, tuple[int, ...] | Fault]:
    """What prompts of tasks begin with, by id, where the environment knows them: it says what they ask for."""
    panels = [ask_panel(run.config.env, split) for split in SPLITS] if wanted else []
    known = list({task.id: task for panel in panels for task in panel if task.id in wanted}.values())
    openings: dict[str, tuple[int, ...] | Fault] = {}
    for first in range(0, len(known), MAX_AT_ONCE):
        tasks = dict(enumerate(known[first : first + MAX_AT_ONCE]))
        for number, shown in run.host.open(tasks).items():
            task, prompter = tasks[number], run.prompter.for_task(tasks[number])
            openings[task.id] = shown if isinstance(shown, Fault) else prompter.encode_opening(shown.goal)
        run.host.close(list(tasks))
    return openings


def _place_of(row: Row) -> str:
    return quote_line(f"task {row['task']!r}, attempt {row['attempt']!r}, step {row['index']}")
