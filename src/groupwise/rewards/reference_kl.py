"""The KL to the reference policy, taken off the reward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from groupwise.core.errors import RecordError
from groupwise.core.parts.part import Part
from groupwise.core.records import Step, Trajectory

REFERENCE_LOGP = "reference_logp"
"""The fact that holds a response's log-probability under the reference policy."""


class ReferenceKl(Part, slot="shaper"):
    """Take off each step's reward how much likelier its response has become than under the reference policy.

        r_t <- r_t - weight * sum over its tokens of (ln pi(token) - ln pi_ref(token))

    Source: the KL of RLOO (Ahmadian et al. 2024, arXiv:2402.14740) and P3O (Wu et al. 2023, arXiv:2310.00212), which
    both stand in the reward of an answer; the estimator is k1, and pi the policy that sampled. REINFORCE++ takes it off
    the reward of each token: `kl` of the token credit `token_return`. Choices: summed over a
    response, as TRL's RLOO does, and put on its step; a method that discounts passes it back to the steps before. It
    reads the fact `reference_logp`, which the measure `reference_score` writes down before. Off-policy attempts
    (sampled with guidance, a forced beginning or at another temperature, and trained as if without) are left as they
    are: the log-probs recorded of them are no log-probs of pi.
    """

    weight: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """What a nat of divergence costs."""

    @property
    def needs_entropy(self) -> bool:
        """Whether the entropies of sampled tokens must be recorded: no, log-probs are enough."""
        return False

    def __call__(self, group: Sequence[Trajectory]) -> list[tuple[float, ...]]:
        return [
            (0.0,) * len(trajectory.steps)
            if trajectory.off_policy
            else tuple(-self.weight * self._measure_divergence(trajectory, step) for step in trajectory.steps)
            for trajectory in group
        ]

    def _measure_divergence(self, trajectory: Trajectory, step: Step) -> float:
        where = f"task {trajectory.task.id!r}, attempt {trajectory.attempt}, step {step.index}"
        if REFERENCE_LOGP not in step.facts:
            raise RecordError(
                f"{where}: it has no fact {REFERENCE_LOGP!r}, which the shaper reference_kl reads; add "
                'measures = ["reference_score"] to [algorithm]'
            )
        if len(step.logp_behaviour) != len(step.response_ids):
            raise RecordError(
                f"{where}: the log-probs of its sampled tokens were not recorded, which the shaper reference_kl reads; "
                "use an engine that reports them"
            )
        return math.fsum(step.logp_behaviour) - float(step.facts[REFERENCE_LOGP])
