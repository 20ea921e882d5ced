"""Recorded attempts as samples to imitate: from a rollouts file, with its tokens or from its text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from groupwise.core.errors import RecordError
from groupwise.core.records import Task
from groupwise.core.rollouts.row import Row
from groupwise.core.safe_text import quote_line
from groupwise.core.sample import Sample
from groupwise.envs.environment import Observation
from groupwise.envs.panel import SPLITS
from groupwise.rollout.prompts import Exchange
from groupwise.training.run import Run


def recorded_samples(run: Run, rows: Iterable[Row], *, least: float | None = None) -> list[Sample]:
    """One sample a recorded step, attempt by attempt; only attempts that earned enough.

    Where rows hold `prompt_ids` and `response_ids`, these are used as they are: they must come from this model's
    tokenizer. Elsewhere prompts are put together from `observation` and `action`, as a rollout of this run would put
    them; the goal is the environment's, where it knows the task by its id.

    Args:
        run: whose tokenizer, template and memory put the prompts together.
        rows: the rows of a rollouts file, in any order; all of them are held in memory.
        least: what an attempt must have earned (its outcome, or the sum of its rewards); None = more than 0.
    """
    attempts: dict[tuple[object, object], list[Row]] = {}
    for row in rows:
        attempts.setdefault((row.get("group", row["task"]), row["attempt"]), []).append(row)
    good = [steps for steps in attempts.values() if _is_good(_earned(steps), least)]
    if not good:
        bound = "more than 0" if least is None else f"{least:g} or more"
        raise RecordError(f"none of {len(attempts)} recorded attempts earned {bound}; lower the bound with --least")
    known = _known_tasks(run)
    found: list[Sample] = []
    for number, steps in enumerate(good):
        ordered = sorted(steps, key=lambda row: (row["index"], row.get("segment", 0)))
        found += _from_tokens(run, ordered, number) if _has_tokens(ordered) else _from_text(run, ordered, number, known)
    return found


def _earned(steps: Sequence[Row]) -> float:
    return steps[0]["outcome"] if "outcome" in steps[0] else sum(row["reward"] for row in steps)


def _is_good(earned: float, least: float | None) -> bool:
    return earned > 0 if least is None else earned >= least


def _has_tokens(steps: Sequence[Row]) -> bool:
    return all(row.get("prompt_ids") and row.get("response_ids") for row in steps)


def _from_tokens(run: Run, steps: Sequence[Row], number: int) -> list[Sample]:
    size = run.learner.model.get_input_embeddings().num_embeddings
    for row in steps:
        ids = (*row["prompt_ids"], *row["response_ids"])
        strange = next((number for number in (max(ids), min(ids)) if not 0 <= number < size), None)
        if strange is not None:
            raise RecordError(
                f"{_place(row)}: token id {strange} is not among the model's {size}; the ids come from another "
                "tokenizer. Leave `prompt_ids` out of the file, and the prompts are put together from its text"
            )
    return [_sample(row["prompt_ids"], row["response_ids"], number, row) for row in steps]


def _from_text(run: Run, steps: Sequence[Row], number: int, known: dict[str, Task]) -> list[Sample]:
    prompter = run.prompter
    if getattr(run.config.rollout.template, "show_admissible", "always") != "no":
        raise RecordError(
            f"{_place(steps[0])}: recorded text has no list of possible actions, which this run's prompts show; record "
            'prompt_ids and response_ids, or take the prompt_template with show_admissible = "no"'
        )
    task = known.get(str(steps[0]["task"]))
    goal = run.config.env.open(task).observe().goal if task else ""
    opening, past, found = prompter.opening_ids(goal), list[Exchange](), list[Sample]()
    for row in steps:
        observation, action = row.get("observation"), row.get("action")
        if observation is None or not action:
            raise RecordError(
                f"{_place(row)}: it has neither prompt_ids and response_ids nor an observation and an action; record "
                "the one or the other"
            )
        seen = Observation(text=observation)
        said = (*prompter.encode(run.config.rollout.action_rule.say(action)), prompter.frame.end_id)
        found.append(_sample(prompter.prompt(opening, past, seen), said, number, row))
        past.append(prompter.past(seen, said, action))
    return found


def _sample(prompt: Sequence[int], response: Sequence[int], number: int, row: Row) -> Sample:
    return Sample(
        prompt_ids=tuple(prompt),
        response_ids=tuple(response),
        advantage=1.0,
        trajectory=number,
        step=row["index"],
        group=number,
    )


def _known_tasks(run: Run) -> dict[str, Task]:
    return {task.id: task for split in SPLITS for task in run.config.env.panel(split)}


def _place(row: Row) -> str:
    return quote_line(f"task {row['task']!r}, attempt {row['attempt']!r}, step {row['index']}")
