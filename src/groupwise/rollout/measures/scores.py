"""Measures that ask the judge or a model: scores of steps and segments, the reference's log-probs, hidden states."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from groupwise.data.records import Step, Trajectory
from groupwise.data.segments import FloatArray
from groupwise.parts.part import Part
from groupwise.parts.slots import Draw
from groupwise.rollout.judges.protocol import JudgeQuestion
from groupwise.rollout.measures.segment_cuts import cut_after_separators, take_sampled
from groupwise.rollout.measures.tools import Tools


class JudgeScore(Part, slot="measure"):
    """Ask the algorithm's judge about every step, and write its number down as a fact.

    A signal or an estimator reads it as a column of that name: `{ kind = "column", name = "judge_score" }`. All steps
    of an update are asked about at once.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"judge"})
    fact: str = "judge_score"
    """What the fact is called."""
    about: Literal["response", "action"] = "response"
    """What is judged: everything that was said, or the action that was read out of it."""

    @property
    def writes(self) -> frozenset[str]:
        return frozenset({self.fact})

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        questions = [
            JudgeQuestion(
                task=trajectory.task,
                context=step.observation or "",
                answer=self._answer(step, tools),
                facts=step.facts,
            )
            for group in groups
            for trajectory in group
            for step in trajectory.steps
        ]
        scores = iter(tools.judge(questions))
        return [
            [[{self.fact: float(next(scores))} for _ in trajectory.steps] for trajectory in group] for group in groups
        ]

    def _answer(self, step: Step, tools: Tools) -> str:
        return (step.action or "") if self.about == "action" else tools.text(step.response_ids)


class ReferenceScore(Part, slot="measure"):
    """Write down the log-probability of each response under the reference policy, as the fact `reference_logp`.

        reference_logp = sum over the response's tokens of ln pi_ref(token)

    With it a KL to the reference can stand in the reward of steps (the shaper `reference_kl`), as RLOO and P3O publish
    it; `by_token` also writes `reference_token_logps`, for the reward of tokens (the token credit `token_return`), as
    REINFORCE++ has it. Choices: the reference is the policy that the run started from, after a warm start; log-probs
    are taken at `rollout.temperature` and given the prompt that the step trains with, so that they can be compared with
    the recorded ones, but for attempts with guidance, a forced beginning or a temperature of their own. A step without
    tokens has 0.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reference"})
    writes: ClassVar[frozenset[str]] = frozenset({"reference_logp", "reference_token_logps"})
    by_token: bool = False
    """Whether the log-prob of each sampled token is written down too."""

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        steps = [step for group in groups for trajectory in group for step in trajectory.steps if step.response_ids]
        scored = iter(tools.score([(step.prompt_ids, step.response_ids) for step in steps], weights="reference"))
        return [[[self._tell(step, scored) for step in trajectory.steps] for trajectory in group] for group in groups]

    def _tell(self, step: Step, scored: Iterator[tuple[float, ...]]) -> dict[str, Any]:
        logps = next(scored) if step.response_ids else ()
        facts: dict[str, Any] = {"reference_logp": math.fsum(logps)}
        return {**facts, "reference_token_logps": list(logps[step.forced :])} if self.by_token else facts


class JudgedSegments(Part, slot="measure"):
    """Cut each response into segments, and write down what the algorithm's judge says of each.

    It writes the facts `judged_ends` (sampled tokens up to the end of each segment) and `judged_scores` (a number a
    segment). The token credits `judged_credit` and `spared_segments` read them. A question has the observation as its
    context, the segment as its answer, and in `said` what the response said before it.

    Source: process reward models, which score an answer step by step; ProRAG (arXiv:2601.21912) and BCPG-NSA
    (arXiv:2505.14403) read such scores. **Choices.** The scorer is whatever `algorithm.judge` is: a rule, a function,
    or a model behind a server. Without separators a response is one segment, as where every search is a step by itself;
    with them a segment ends as a line of `forced_answers` does. Forced tokens are said before the first segment. A step
    without a sampled token has no segment, and nobody is asked about it.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"judge"})
    writes: ClassVar[frozenset[str]] = frozenset({"judged_ends", "judged_scores"})
    separators: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """What a segment ends with; none = the whole response is one."""
    min_tokens: Annotated[int, Field(ge=1)] = 1
    """Tokens that a segment has at least."""
    max_segments: Annotated[int, Field(ge=1)] = 64
    """Segments that a response has at most."""

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        questions, facts = list[JudgeQuestion](), list[list[list[dict[str, Any]]]]()
        for group in groups:
            facts.append([])
            for trajectory in group:
                facts[-1].append([{"judged_ends": self._cut(step, tools)} for step in trajectory.steps])
                for step, told in zip(trajectory.steps, facts[-1][-1], strict=True):
                    for begin, end in zip([0, *told["judged_ends"]], told["judged_ends"], strict=False):
                        question = JudgeQuestion(
                            task=trajectory.task,
                            context=step.observation or "",
                            answer=tools.text(step.response_ids[step.forced + begin : step.forced + end]),
                            said=tools.text(step.response_ids[: step.forced + begin]),
                            facts=step.facts,
                        )
                        questions.append(question)
        scores = iter(tools.judge(questions) if questions else [])
        for told in [told for group in facts for attempt in group for told in attempt]:
            told["judged_scores"] = [float(next(scores)) for _ in told["judged_ends"]]
        return facts

    def _cut(self, step: Step, tools: Tools) -> list[int]:
        sampled = take_sampled(step)
        if not sampled:
            return []
        return cut_after_separators(
            tools.pieces(sampled),
            separators=self.separators,
            min_tokens=self.min_tokens,
            max_segments=self.max_segments,
        )


def read_response_states(groups: Sequence[Sequence[Trajectory]], tools: Tools) -> Iterator[FloatArray]:
    """The hidden states of each step's sampled tokens, tokens by width, step after step; none where none was sampled.

    One response at a time: the states of all are too many to keep (8 MB for 1,000 tokens of width 1,000), so a measure
    makes its numbers of each before it takes the next.
    """
    for group in groups:
        for trajectory in group:
            for step in trajectory.steps:
                sampled = take_sampled(step)
                if sampled:
                    yield tools.hidden([(step.prompt_ids + step.response_ids[: step.forced], sampled)])[0]
                else:
                    yield np.zeros((0, 0))


class ResponseEmbedding(Part, slot="measure"):
    """Write down where each response lies among the policy's hidden states: the fact `embedding`, a list of numbers.

        embedding = mean over the sampled tokens of the last hidden state

    Parts that ask how alike answers are (by their cosine, say) read it; no other model is needed. **Choices.** Ours: a
    mean over tokens, of the state that has read the token. Numbers are kept as they are, not scaled to length 1. A step
    without a sampled token has no numbers. They are written with the step, so a journal grows by the model's width in
    numbers a step.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"hidden"})
    fact: Annotated[str, Field(min_length=1)] = "embedding"
    """What the fact is called."""

    @property
    def writes(self) -> frozenset[str]:
        return frozenset({self.fact})

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        points = (
            states.mean(axis=0).tolist() if len(states) else list[float]()
            for states in read_response_states(groups, tools)
        )
        return [[[{self.fact: next(points)} for _ in trajectory.steps] for trajectory in group] for group in groups]
