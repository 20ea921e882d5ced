"""Reflection: a task that keeps failing is attempted again with a failed attempt in the prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Annotated

from pydantic import Field, field_validator

from groupwise.core.errors import ConfigError, nearest
from groupwise.core.journal.attempt_index import PastAttempts
from groupwise.core.parts.part import Part
from groupwise.core.parts.path_settings import make_absolute, resolve_by
from groupwise.core.parts.slots import Draw
from groupwise.core.parts.trust import WITHOUT_TRUST, may_run
from groupwise.core.past_attempts import PastAttempt
from groupwise.core.records import Origin, Trajectory, score_of
from groupwise.core.text.files import read_text_file
from groupwise.core.text.safe_text import quote_line

PROMPTS = ("answer", "attempt", "terse")
"""The prompts that come with groupwise: files of `rollout/plans/reflection_prompts`."""
GAP = " ... "
"""What stands for the middle of an attempt that is too long to show."""


PromptText = Annotated[
    str, resolve_by(lambda prompt: prompt if "$attempt" in prompt or prompt in PROMPTS else make_absolute(prompt))
]
"""A field that holds a prompt: its name, itself, or the path of its file."""


class Reflection(Part, slot="guidance"):
    """Attempt tasks of little success once more, with a failed attempt in the prompt and a request to do better.

        mean(past scores of the task) < tau  ->  a further group, whose prompt holds a failed attempt at the task

    Source: R^3 (2026, arXiv:2601.19620), in-context self-reflection. Choices, where the paper is silent: tau 0.25; the
    failed attempt is drawn evenly from the newest `ring`; the guidance stands at the head of the prompt, before the
    first observation, so that no memory forgets it; of a long attempt the beginning and the end are shown. The further
    group is compared within itself and trains with the guidance in its prompt; it never counts for the task's record.
    `to_unguided_prompt` (ours) also lets its successes join the task's own group, as if they had been sampled without
    guidance; their ratio is taken against the policy that had it.
    """

    tau: Annotated[float, Field(ge=0)] = 0.25
    """Mean past score below which a task gets guidance."""
    prompt: PromptText = "answer"
    """What is said: `answer` (a single response), `attempt` (steps), `terse`, or the path of a file with `$attempt`;
    its text takes the path's place, so that a run keeps what it said, whatever becomes of the file."""
    to_unguided_prompt: bool = False
    """Whether successes with guidance also train without it, in the group of the task itself."""
    max_tasks: Annotated[int, Field(ge=0)] = 0
    """Most tasks of an update that get guidance, those of lowest success first; 0 = all that fall below tau."""
    ring: Annotated[int, Field(ge=1)] = 64
    """Newest attempts at a task that are looked at."""
    first_words: Annotated[int, Field(ge=0)] = 512
    """Words of the attempt that are shown from its beginning, where it is too long."""
    last_words: Annotated[int, Field(ge=0)] = 1024
    """Words of the attempt that are shown from its end, where it is too long."""
    solved_at: float = 0.5
    """Score from which on an attempt counts as right."""

    @field_validator("prompt")
    @classmethod
    def _check_prompt(cls, value: str) -> str:
        if "$attempt" not in value and value not in PROMPTS and not may_run():
            raise ConfigError(f"the reflection prompt {quote_line(value)!r} is a file, {WITHOUT_TRUST}")
        text = value if "$attempt" in value else _read_prompt(value)
        template = Template(text)
        if not template.is_valid() or template.get_identifiers() != ["attempt"]:
            raise ConfigError(
                f"the prompt {value!r} does not say `$attempt`, or says more with a dollar sign; put `$attempt` where "
                "the attempt is to stand, and write `$$` for a dollar"
            )
        return value if value in PROMPTS else text

    def words(self) -> tuple[str, ...]:
        """The words of the prompt, for a tokenizer made from scratch."""
        from groupwise.envs.kit.words import vocabulary_of  # with it all environments, which credit alone does without

        return vocabulary_of((Template(self._prompt_text).substitute(attempt=GAP), ">"))

    def choose(self, tasks: Sequence[str], past_attempts: PastAttempts, *, draw: Draw) -> list[PastAttempt]:
        """A failed attempt for each task of little success."""
        low = {
            task: mean for task in dict.fromkeys(tasks) if (mean := self._mean_score(task, past_attempts)) < self.tau
        }
        hardest = sorted(low, key=lambda task: low[task])[: self.max_tasks] if self.max_tasks else list(low)
        chosen = []
        for task in (task for task in low if task in hardest):
            failed = [
                past
                for past in past_attempts.recent(task, max_attempts=self.ring)
                if past.score < self.solved_at and past.origin == Origin.FRESH
            ]
            if failed:
                chosen.append(failed[int(draw("reflection", task).integers(len(failed)))])
        return chosen

    def text(self, past: Trajectory, say: Callable[[Sequence[int]], str]) -> str:
        """What the prompt says of a failed attempt: what was answered, or what was seen and done at each step."""
        if len(past.steps) == 1:
            attempt = say(past.steps[0].response_ids)
        else:
            attempt = " ".join(f"{step.observation or ''} > {step.action or ''}" for step in past.steps)
        return Template(self._prompt_text).substitute(attempt=self._cut(attempt)).strip()

    def joins_unguided_group(self, trajectory: Trajectory) -> bool:
        """Whether a guided attempt also trains without guidance: a success, where that is asked for."""
        return self.to_unguided_prompt and score_of(trajectory) >= self.solved_at

    @property
    def _prompt_text(self) -> str:
        return _read_prompt(self.prompt) if self.prompt in PROMPTS else self.prompt

    def _mean_score(self, task: str, past_attempts: PastAttempts) -> float:
        mean = past_attempts.mean_score(task, max_attempts=self.ring)
        return float("inf") if mean is None else mean  # a task without a past gets none

    def _cut(self, text: str) -> str:
        words = text.split(" ")
        if len(words) <= self.first_words + self.last_words:
            return text
        last = words[len(words) - self.last_words :]
        return " ".join(words[: self.first_words]) + GAP + " ".join(last)


@lru_cache(maxsize=64)
def _read_prompt(name: str) -> str:
    if name in PROMPTS:
        return (
            (files("groupwise.rollout.plans") / "reflection_prompts" / f"{name}.txt")
            .read_text(encoding="utf-8")
            .strip()
        )
    try:
        return read_text_file(Path(name)).strip()
    except (OSError, ValueError) as error:
        reason = error.strerror or "" if isinstance(error, OSError) else str(error)
        raise ConfigError(
            f"the reflection prompt {quote_line(repr(name))} cannot be read ({quote_line(reason)}); give the path "
            f"of a text file with `$attempt` in it, or a prompt that there is: {nearest(Path(name).name, PROMPTS)}"
        ) from None
