"""Answers of a policy whose slips are known, and the tools that measures ask, answered by the same policy.

Everything a method may read is exact: log-probs, entropies and tempered log-probs follow from the chances of each
number; all other tokens are certain.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.line_credit.slipping_policy import SlippingPolicy
from groupwise.data.records import Step, Task, Trajectory
from groupwise.engines.engine import Generation, Request
from groupwise.envs import WorkedSums
from groupwise.envs.kit.words import split_words
from groupwise.envs.small.worked_sums import write_answer
from groupwise.rollout.scorers import Continuation

RESULT = re.compile(r"= (\d+)")
ANSWER = re.compile(r"answer (\d+)")


class ScriptedSums:
    """Rollouts at sums by a slipping policy, and `Tools` for measures of them; a task's prompt is one token."""

    temperature = 1.0

    def __init__(self, part: WorkedSums, policy: SlippingPolicy, tasks: Sequence[Task]) -> None:
        self._part, self._policy = part, policy
        self._words = ["</s>", *part.vocabulary()]
        self._ids = {word: number for number, word in enumerate(self._words)}
        self._prompts = {task.id: len(self._words) + number for number, task in enumerate(tasks)}
        self._tasks = list(tasks)
        self.stop_ids = (0,)
        self._sampled = 0

    def rollout(self, task: Task, number: int, rng: np.random.Generator) -> Trajectory:
        """A rollout, as a run would record it."""
        return self._finish(task, number, (), rng)

    def line_values(self, trajectory: Trajectory) -> list[float]:
        """What each line of a rollout was worth, exactly."""
        text = self.text(trajectory.steps[0].response_ids)
        results, total = _read_numbers(text)
        assert total is not None, "this policy always says an answer"
        return self._policy.line_values(trajectory.task.payload["terms"], results, total)

    def play(self, continuations: Sequence[Continuation], *, extra_tokens: int = 0) -> list[Trajectory]:
        """Go on from given beginnings."""
        played = [
            self._finish(begun.task, number, begun.forced, np.random.default_rng(begun.seed))
            for number, begun in enumerate(continuations)
        ]
        self._sampled += sum(len(step.response_ids) - step.forced for trajectory in played for step in trajectory.steps)
        return played

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        """Say the answer after a stub, at the temperature that is asked for."""
        generations = []
        for request in requests:
            chances = _temper(self._answer_chances(request.prompt_ids), request.temperature)
            said = int(np.random.default_rng(request.seed).choice(list(chances), p=list(chances.values())))
            generations.append(
                Generation(
                    response_ids=(self._ids[str(said)], 0),
                    logp=(math.log(chances[said]), 0.0),
                    entropy=(_entropy(chances), 0.0),
                    stopped=True,
                    versions=(),
                )
            )
        self._sampled += 2 * len(requests)
        return generations

    def score(
        self,
        pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
        *,
        temperature: float | None = None,
        weights: str = "current",
    ) -> list[tuple[float, ...]]:
        """Log-probs of tokens that follow a prompt and a beginning."""
        return [
            tuple(
                math.log(_temper(chances, temperature or 1.0).get(number, 1e-12)) if chances else 0.0
                for chances, number in self._walk(tuple(prompt), tuple(response))
            )
            for prompt, response in pairs
        ]

    def cost(self) -> dict[str, float]:
        """What measures had sampled so far, as a metric."""
        return {"scorers/sampled_tokens": float(self._sampled)}

    def text(self, ids: Sequence[int]) -> str:
        """What ids say."""
        return " ".join(self._words[token] for token in ids if token)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """What each id says."""
        return [self._words[token] if token else "" for token in ids]

    def encode(self, text: str) -> tuple[int, ...]:
        """The ids of a text."""
        return tuple(self._ids[word] for word in split_words(text))

    def _finish(self, task: Task, number: int, forced: tuple[int, ...], rng: np.random.Generator) -> Trajectory:
        terms, begun = task.payload["terms"], self.text(forced)
        results, total = _read_numbers(begun)
        if total is None:
            if begun.endswith("answer"):
                chances = self._policy.answer_chances(terms, results)
                total = int(rng.choice(list(chances), p=list(chances.values())))
            else:
                results, total = self._policy.work(terms, results, rng)
        answer = write_answer(terms, results, total)
        ids = (*self.encode(answer), 0)
        prompt = (self._prompts[task.id],)
        walked = self._walk(prompt, ids)
        outcome = self._part.open(task).act(answer)
        step = Step(
            index=0,
            reward=outcome.reward,
            prompt_ids=prompt,
            response_ids=ids,
            forced=min(len(forced), len(ids)),
            logp_behaviour=tuple(math.log(chances[said]) if chances else 0.0 for chances, said in walked),
            entropy=tuple(_entropy(chances) for chances, _ in walked),
            info=dict(outcome.info),
        )
        return Trajectory(
            id=f"{task.id}/{number}",
            task=task,
            rollout=number,
            steps=(step,),
            scores={"success": float(bool(outcome.success)), "return": outcome.reward},
        )

    def _walk(self, prompt: tuple[int, ...], response: tuple[int, ...]) -> list[tuple[Mapping[int, float], int]]:
        """For each token of a response the chances of the number that it is; nothing for a token that is certain."""
        terms = self._tasks[prompt[0] - len(self._words)].payload["terms"]
        said = [self._words[token] for token in prompt[1:]]
        walked: list[tuple[Mapping[int, float], int]] = []
        for token in response:
            word, results = self._words[token], _read_numbers(" ".join(said))[0]
            chances: Mapping[int, float] = {}
            if said and said[-1] == "=":
                before = results[-1] if results else terms[0]
                chances = self._policy.result_chances(before, terms[len(results) + 1])
            elif said and said[-1] == "answer":
                chances = self._policy.answer_chances(terms, results)
            walked.append((chances, int(word) if chances else 0))
            said.append(word)
        return walked

    def _answer_chances(self, prompt: Sequence[int]) -> Mapping[int, float]:
        terms = self._tasks[prompt[0] - len(self._words)].payload["terms"]
        return self._policy.answer_chances(terms, _read_numbers(self.text(prompt[1:]))[0])


def _read_numbers(text: str) -> tuple[tuple[int, ...], int | None]:
    """The results of the lines of an answer so far, and the answer where it is said."""
    said = ANSWER.search(text)
    return tuple(int(digits) for digits in RESULT.findall(text)), int(said[1]) if said else None


def _temper(chances: Mapping[int, float], temperature: float) -> dict[int, float]:
    raised = {value: chance ** (1.0 / temperature) for value, chance in chances.items() if chance > 0}
    total = math.fsum(raised.values())
    return {value: chance / total for value, chance in raised.items()}


def _entropy(chances: Mapping[int, float]) -> float:
    return -math.fsum(chance * math.log(chance) for chance in chances.values() if chance > 0)
