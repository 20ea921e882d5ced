from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat

from groupwise.credit import StepTrace, weigh_credit
from groupwise.data.credit import Credit, Derivation
from groupwise.data.samples import differ
from groupwise.data.segments import FloatArray, Segments
from groupwise.data.step_table import StepTable
from groupwise.losses import Clip, ClippedChannels, PolicyLoss, SequenceMean
from groupwise.methods.grpo import grpo
from groupwise.methods.method import method
from groupwise.parts import Algorithm, EstimatorPart, Finite, Part


@method
def copo(
    *,
    mode: Literal["soft_forced", "soft", "forced", "zero_only", "global_only", "off"] = "soft_forced",
    gain: Finite = 5.0,
    midpoint: Finite = 1.0,
    consistency: bool = True,
    answers: Annotated[str, Field(min_length=1)] = "answer",
    eps: Finite = 1e-6,
) -> Algorithm:
    """COPO (2025, arXiv:2508.04138, from its release): if the answers agree, tasks are compared, else rollouts.

    loss = w * L_clip(A) + (1 - w) * L_clip(A_global);   w = sigma(gain * (H - midpoint)), H the entropy of the answers

    Choices: a clipped loss is proportional to its advantage, so w is in the advantage: A is w times GRPO's. The channel
    `global` is (1 - w) times the task's R = mean(r) * (1 - lam * H), compared with the other tasks. `soft_forced`, with
    w = 0 where GRPO's advantage is 0, fits the abstract; the release does not say which mode it reports. Its mode
    `soft_zero` is not here. Answers are the step info `answers`, compared as texts. gain and midpoint are those of its
    script. Clip 0.2, dual clip 3, no KL. The plan `top_up` and filters that drop solved tasks are errors. See
    `global_share`.
    """
    local = grpo(eps=eps).advantage
    if mode == "off":
        return Algorithm(advantage=local, loss=PolicyLoss(surrogate=Clip(dual=3.0), aggregate=SequenceMean()))
    blend = AnswerBlend(mode=mode, gain=gain, midpoint=midpoint, answers=answers)
    return Algorithm(
        advantage=LocalShare(of=local, blend=blend),
        channels={"global": GlobalShare(of=local, blend=blend, consistency=consistency, eps=eps)},
        loss=PolicyLoss(surrogate=ClippedChannels(dual=3.0, weights={"global": 1.0}), aggregate=SequenceMean()),
    )


class AnswerBlend(Part):
    """The weight w of the comparison within a task, against that between tasks: larger if answers agree less.

    H = -sum over answers a of f_a log2 f_a,   f_a the share of the task's rollouts that answer a
    soft: w = sigma(gain * (H - midpoint));   soft_forced: 0 where the credit within the task is 0, else soft
    forced: 0 where that credit is 0, else 1;   zero_only: 0 where the return is 0, else 1;   global_only: 0
    """

    mode: Literal["soft_forced", "soft", "forced", "zero_only", "global_only"] = "soft_forced"
    """The rule."""
    gain: Finite = 5.0
    """How steeply w changes with H."""
    midpoint: Finite = 1.0
    """The entropy in bits at which both comparisons count the same."""
    answers: Annotated[str, Field(min_length=1)] = "answer"
    """The column with the answer; the last entry of a rollout counts."""

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({self.answers}) if self.mode.startswith("soft") else frozenset()

    def weigh(self, table: StepTable, local: FloatArray) -> FloatArray:
        """w of each step, given its advantage within the task (S)."""
        if self.mode == "global_only":
            return np.zeros(len(table))
        if self.mode in ("forced", "zero_only"):
            counted: FloatArray = local if self.mode == "forced" else table.episode_return
            return np.where(counted != 0, 1.0, 0.0)
        soft = 0.5 * (1 + np.tanh(self.gain * (self.measure_entropy(table)[table.task] - self.midpoint) / 2))
        return np.where(local == 0, 0.0, soft) if self.mode == "soft_forced" else soft

    def measure_entropy(self, table: StepTable) -> FloatArray:
        """Entropy of the answers of each task in bits (M); rollouts without an answer share one label."""
        answers: list[str | None] = [None] * len(table.rollouts)
        for rollout, answer in zip(table.rollout.tolist(), table.column(self.answers), strict=True):
            answers[rollout] = answers[rollout] if answer in (None, "") else str(answer)
        task_A = table.task[table.rollouts.first].tolist()
        counts: dict[int, dict[str | None, int]] = {}
        for task, answer in zip(task_A, answers, strict=True):
            of_task = counts.setdefault(task, {})
            of_task[answer] = of_task.get(answer, 0) + 1
        entropies = []
        for task in range(len(counts)):
            num = np.array(sorted(counts[task].values()))
            share = num / num.sum()
            entropies.append(float(-(share * np.log2(share)).sum()) + 0.0)
        return np.array(entropies)


class LocalShare(Part, slot="estimator"):
    """Advantage within a task times its weight: w * A."""

    of: EstimatorPart
    """The advantage within a task."""
    blend: AnswerBlend = AnswerBlend()
    """Its weight."""

    def __call__(self, table: StepTable) -> Credit:
        inner = self.of(table).trace
        return weigh_credit(table, inner, self.blend.weigh(table, inner.values), self)


class GlobalShare(Part, slot="estimator"):
    """The rollouts of a task together, compared with other tasks, times the weight of this comparison.

        R = mean(r) * (1 - lam * H),   lam = (1 - 1/G) / log2(G) for G rollouts, 0 for one
        A = (1 - w) * (R - mean(R)) / (std(R) + eps),   over the tasks of the update

    Source: COPO (2025, arXiv:2508.04138) and its release. **Choices.** A single task, or tasks with equal R, get
    exactly 0. Rollouts without an answer share a label.
    """

    mixes_tasks: ClassVar[bool] = True
    needs_solved_groups: ClassVar[bool] = True
    of: EstimatorPart
    """The advantage within a task, which decides the weight."""
    blend: AnswerBlend = AnswerBlend()
    """The weight of the comparison within a task."""
    consistency: bool = True
    """Whether disagreement lowers R; else R = mean(r)."""
    eps: NonNegativeFloat = 1e-6
    """Added to the standard deviation."""

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({self.blend.answers} if self.consistency else ())

    def __call__(self, table: StepTable) -> Credit:
        weight, reward_M = self._weigh(table), self.reward_tasks(table)
        global_M = np.zeros(len(reward_M))
        if len(reward_M) and differ(reward_M.max(), reward_M.min()):
            centred_M = (reward_M - reward_M[0]) - (reward_M - reward_M[0]).mean()
            global_M = centred_M / (np.sqrt((centred_M**2).sum() / (len(reward_M) - 1)) + self.eps)
        compared = np.full(len(table), len(reward_M) > 1)
        return Credit.of(table, StepTrace(values=weight * global_M[table.task], compared=compared, part=self))

    def reward_tasks(self, table: StepTable) -> FloatArray:
        """R of each task (M)."""
        tasks = Segments.of(table.task[table.rollouts.first])
        mean_M = tasks.mean(table.rollouts.mean(table.episode_return))
        if not self.consistency:
            return mean_M
        size_M = tasks.size.astype(np.float64)
        lam_M = (1 - 1 / size_M) / np.log2(np.maximum(size_M, 2))
        return mean_M * (1 - lam_M * self.blend.measure_entropy(table))

    def _weigh(self, table: StepTable) -> FloatArray:
        """The weight of the comparison between tasks at each step (S)."""
        return 1 - self.blend.weigh(table, self.of(table).trace.values)

    def derive(self, table: StepTable, trace: StepTrace, step: int) -> Derivation:
        brought, first = self.reward_tasks(table).tolist(), table.tasks.first.tolist()
        own, mean = brought[int(table.task[step])], math.fsum(brought) / len(brought)
        deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in brought) / max(len(brought) - 1, 1))
        share = (own - mean) / (deviation + self.eps) if differ(max(brought), min(brought)) else 0.0
        weight = float(self._weigh(table)[step])
        formula = f"{weight:.6g} x ({own:.6g} - {mean:.6g}) / {deviation + self.eps:.6g} = {weight * share:.6g}"
        return Derivation(value=weight * share, formula=formula, members=tuple(zip(first, brought, strict=True)))
