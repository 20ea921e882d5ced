"""A question with a verifier: one response, one verdict, and the attempt is over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from groupwise.core.records import Task
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.kit.answers import Form, are_same_words, is_answer, read_answer, say_answer
from groupwise.envs.kit.progress import Progress
from groupwise.envs.verifier.verifier import Verdict

SENTENCES = "Right. Wrong. That is not an answer."
"""What is shown after a response."""
WITHOUT_VERDICT = "Answered."
"""What is shown where nobody here judges."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What an attempt at a question needs to know."""

    text: str
    """The question, as it is shown."""
    stored: str | None
    """The answer that came with it; None where there is none."""
    form: Form
    """Where a response says its answer."""
    judge: Callable[[str], Verdict] | None
    """The verifier; None = whoever asks pays by rewards of their own, and any response is an answer."""
    solved_at: float = 1.0
    """Score from which the question counts as solved."""
    allow_partial: bool = True
    """Whether a score below that is rewarded too."""
    match_words: bool = False
    """Whether an answer with the stored one's words counts as the stored one."""


def open_question(task: Task, question: Question, *, max_steps: int) -> QuestionEnvironment:
    """An environment for an attempt; it has an expert where an answer is stored."""
    kind = QuestionEnvironment if question.stored is None else AnsweredQuestionEnvironment
    return kind(question, Progress(task, max_steps=max_steps))


class QuestionEnvironment:
    """One attempt at a question.

    A verdict that did not come is a reward of 0, a failure, and a `note` that says why.
    """

    __slots__ = ("_observation", "_progress", "_question")

    def __init__(self, question: Question, progress: Progress) -> None:
        self._question, self._progress = question, progress
        self._observation = Observation(text=question.text, state_key=question.text)

    def observe(self) -> Observation:
        return self._observation

    def act(self, action: str) -> Outcome:
        self._progress.step()
        question = self._question
        if question.judge is None:
            return self._end_without_verdict(is_said=bool(action.strip()))
        answer = read_answer(action, question.form)
        if question.match_words and are_same_words(answer, question.stored):
            answer = question.stored or ""
        if not is_answer(answer, question.stored, question.form):
            return self._outcome("That is not an answer.", Verdict(score=0.0), accepted=False)
        verdict = question.judge(answer)
        return self._outcome("Right." if self._solves(verdict) else "Wrong.", verdict, accepted=True)

    def fork(self) -> QuestionEnvironment:
        twin = type(self)(self._question, self._progress.fork())
        twin._observation = self._observation
        return twin

    def _end_without_verdict(self, *, is_said: bool) -> Outcome:
        shown = WITHOUT_VERDICT if is_said else "That is not an answer."
        self._observation = Observation(text=shown, state_key=shown)
        return self._progress.outcome(self._observation, accepted=is_said, ended=True)

    def _solves(self, verdict: Verdict) -> bool:
        return not verdict.reason and verdict.score >= self._question.solved_at

    def _outcome(self, shown: str, verdict: Verdict, *, accepted: bool) -> Outcome:
        self._observation = Observation(text=shown, state_key=shown)
        solved = self._solves(verdict)
        reward = verdict.score if solved or self._question.allow_partial else 0.0
        return self._progress.outcome(
            self._observation, success=solved, reward=reward, accepted=accepted, note=verdict.reason
        )


class AnsweredQuestionEnvironment(QuestionEnvironment):
    """One attempt at a question whose answer is stored: the expert says it."""

    __slots__ = ()

    def expert(self) -> str | None:
        stored = self._question.stored
        return None if self._progress.ended or stored is None else say_answer(stored, self._question.form)
