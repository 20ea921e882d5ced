"""How likely responses are under the policy that the run started from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from groupwise.core.parts.part import Part
from groupwise.core.parts.slots import Draw
from groupwise.core.records import Step, Trajectory
from groupwise.rollout.measures.tools import Tools


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
        """The log-probability of each step's response."""
        steps = [step for group in groups for trajectory in group for step in trajectory.steps if step.response_ids]
        scored = iter(tools.score([(step.prompt_ids, step.response_ids) for step in steps], weights="reference"))
        return [[[self._tell(step, scored) for step in trajectory.steps] for trajectory in group] for group in groups]

    def _tell(self, step: Step, scored: Iterator[tuple[float, ...]]) -> dict[str, Any]:
        logps = next(scored) if step.response_ids else ()
        facts: dict[str, Any] = {"reference_logp": math.fsum(logps)}
        return {**facts, "reference_token_logps": list(logps[step.forced :])} if self.by_token else facts
