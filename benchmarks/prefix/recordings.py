"""Rollouts as token ids: files of them, groups of a chosen size, and made-up ones of the same shape."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from groupwise.data.samples import Sample
from groupwise.rollout.prompts import AnchoredWindow, Full, History, Window

DATA = Path(__file__).parent / "data"

HISTORIES: dict[str, History] = {
    "window 2": Window(steps=2),
    "window 4": Window(steps=4),
    "anchored": AnchoredWindow(),
    "full": Full(),
}
"""What prompts show of the past; `anchored` grows to six steps and is cut back to two."""


@dataclass(frozen=True, kw_only=True)
class Recording:
    """Step-wise samples of several groups, each an equal number of rollouts at one task."""

    source: str
    """Where they were played."""
    history: str
    """What their prompts show of the past."""
    samples: tuple[Sample, ...]
    """One a step, in the order of tasks, rollouts and steps."""
    made_up: bool = False
    """Whether the tokens are random instead of recorded."""

    def groups(self, *, rollouts: int, tasks: int | None = None, raw_tokens: int | None = None) -> tuple[Sample, ...]:
        """The first rollouts at each of the first `tasks` tasks, or of as many as have `raw_tokens` in all."""
        chosen: list[Sample] = []
        for group in sorted({sample.group for sample in self.samples})[:tasks]:
            mine = [sample for sample in self.samples if sample.group == group]
            first = min(sample.trajectory for sample in mine)
            mine = [sample for sample in mine if sample.trajectory < first + rollouts]
            if chosen and raw_tokens is not None and num_tokens(chosen) + num_tokens(mine) > raw_tokens:
                break
            chosen += mine
        return tuple(chosen)

    def save(self, folder: Path) -> Path:
        """Write the ids one after the other, with what says where they belong."""
        vocabulary = max(max(sample.token_ids) for sample in self.samples)
        path = folder / file_name(self.source, self.history)
        np.savez_compressed(
            path,
            ids=np.concatenate([sample.token_ids for sample in self.samples]).astype(
                np.uint16 if vocabulary < 2**16 else np.uint32
            ),
            length=np.array([len(sample.token_ids) for sample in self.samples], dtype=np.uint16),
            response=np.array([len(sample.response_ids) for sample in self.samples], dtype=np.uint16),
            group=np.array([sample.group for sample in self.samples], dtype=np.uint16),
            trajectory=np.array([sample.trajectory for sample in self.samples], dtype=np.uint16),
            step=np.array([sample.step for sample in self.samples], dtype=np.uint16),
        )
        return path

    @classmethod
    def load(cls, folder: Path, source: str, history: str) -> Recording:
        """Read a file back; advantages are drawn, since recordings have none."""
        with np.load(folder / file_name(source, history)) as file:
            columns = {name: file[name].astype(np.int64) for name in file.files}
        ids = columns["ids"].tolist()
        bounds = [0, *np.cumsum(columns["length"]).tolist()]
        names = ("response", "group", "trajectory", "step")
        rows = zip(pairwise(bounds), *(columns[name].tolist() for name in names), strict=True)
        samples = [
            Sample(
                prompt_ids=tuple(ids[low : high - response]),
                response_ids=tuple(ids[high - response : high]),
                advantage=0.0,
                trajectory=trajectory,
                step=step,
                group=group,
            )
            for (low, high), response, group, trajectory, step in rows
        ]
        return cls(source=source, history=history, samples=with_advantages(samples))


def file_name(source: str, history: str) -> str:
    return f"{source}_{history}.npz".replace(" ", "_")


def open_recording(folder: Path, source: str, history: str) -> Recording:
    """The recorded samples, or made-up ones of the same shape where the file is missing."""
    if (folder / file_name(source, history)).exists():
        return Recording.load(folder, source, history)
    return make_up(source, history, num_tasks=4, rollouts=16)


def num_tokens(samples: Iterable[Sample]) -> int:
    return sum(len(sample.token_ids) for sample in samples)


def with_advantages(samples: Sequence[Sample], *, seed: int = 0) -> tuple[Sample, ...]:
    """The samples with an advantage drawn for each."""
    draws = np.random.default_rng(seed).normal(size=len(samples)).tolist()
    return tuple(replace(sample, advantage=draw) for sample, draw in zip(samples, draws, strict=True))


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Mean numbers of tokens of the pieces of a prompt; each piece has half to one and a half times as many."""

    instruction: int
    """The head that all prompts of a task share."""
    observation: int
    """What is seen at a step."""
    listed: int
    """What only the newest observation has, such as the possible actions."""
    response: int
    """What is sampled."""
    steps: int
    """Steps of a rollout."""
    vocabulary: int
    """Tokens are drawn from so many."""


LENGTHS = {
    "small": Lengths(instruction=60, observation=30, listed=0, response=12, steps=12, vocabulary=2_000),
    "household": Lengths(instruction=30, observation=22, listed=0, response=6, steps=10, vocabulary=100),
    "alfworld": Lengths(instruction=130, observation=40, listed=180, response=10, steps=14, vocabulary=40_000),
    "dialogue": Lengths(instruction=130, observation=40, listed=0, response=10, steps=14, vocabulary=40_000),
    "published": Lengths(instruction=30, observation=40, listed=250, response=60, steps=14, vocabulary=40_000),
}
"""By source; *small* suits a processor."""


def make_up(source: str, history: str, *, num_tasks: int, rollouts: int, seed: int = 0) -> Recording:
    """Random tokens in the shape of step-wise rollouts; the first observation of a task is the same for all."""
    draw, shape = np.random.default_rng(seed), LENGTHS[source]

    def words(mean: int) -> tuple[int, ...]:
        size = int(draw.integers(mean // 2, mean * 3 // 2 + 1))
        return tuple(draw.integers(0, shape.vocabulary, size=size).tolist())

    samples = []
    for task in range(num_tasks):
        instruction, first, first_list = words(shape.instruction), words(shape.observation), words(shape.listed)
        for rollout in range(rollouts):
            past: list[tuple[int, ...]] = []
            for step in range(shape.steps):
                seen, listed = (words(shape.observation), words(shape.listed)) if step else (first, first_list)
                shown = past[HISTORIES[history].first_shown(len(past)) :]
                response = words(shape.response)
                samples.append(
                    Sample(
                        prompt_ids=sum(shown, instruction) + seen + listed,
                        response_ids=response,
                        advantage=0.0,
                        trajectory=task * rollouts + rollout,
                        step=step,
                        group=task,
                    )
                )
                past.append(seen + response)
    return Recording(source=source, history=history, samples=with_advantages(samples, seed=seed), made_up=True)


def distinct(samples: Sequence[Sample], *, vocabulary: int, seed: int = 0) -> tuple[Sample, ...]:
    """Samples of the same lengths that share their first token, as all prompts do, and nothing else."""
    draw = np.random.default_rng(seed)
    assert len(samples) <= vocabulary, "the second token of each sample is its own"
    changed = []
    for number, sample in enumerate(samples):
        ids = (0, number, *draw.integers(0, vocabulary, size=len(sample.token_ids) - 2).tolist())
        cut = len(sample.prompt_ids)
        changed.append(replace(sample, prompt_ids=ids[:cut], response_ids=ids[cut:]))
    return tuple(changed)
