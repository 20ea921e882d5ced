"""A measure of a user's own: it has the engine answer each prompt again, before credit is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field

from groupwise.extend import Draw, Part, Request, Tools, Trajectory


class Repeated(Part, slot="scorer"):
    """How often the engine would say the first token again: the share of some further answers that begin with it."""

    needs: ClassVar[frozenset[str]] = frozenset({"generate"})
    answers: Annotated[int, Field(ge=1)] = 4
    """Further answers to each prompt."""

    def __call__(self, groups: Sequence[Sequence[Trajectory]], tools: Tools, *, draw: Draw) -> list[Any]:
        steps = [(t.task.id, t.rollout, step) for group in groups for t in group for step in t.steps]
        requests = [
            Request(
                prompt_ids=step.prompt_ids,
                seed=int(draw(task, rollout, step.index, answer).integers(2**63)),
                max_tokens=1,
                temperature=tools.temperature,
                stop_ids=tools.stop_ids,
            )
            for task, rollout, step in steps
            for answer in range(self.answers)
        ]
        said = [generation.response_ids[:1] for generation in tools.generate(requests)]
        counts = iter(
            sum(first == step.response_ids[:1] for first in said[n * self.answers : (n + 1) * self.answers])
            for n, (_, _, step) in enumerate(steps)
        )
        return [[[{"repeated": next(counts) / self.answers} for _ in t.steps] for t in group] for group in groups]
