"""What an algorithm gets where older weights sample than those that learn: a correction, and a bound on their age.

Both are parts of the algorithm like any other: the run's own settings show them, and reading these again adds nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import product

from groupwise.core.algorithm import Algorithm
from groupwise.core.errors import ConfigError
from groupwise.core.parts.part import name_of
from groupwise.groups.filters import Staleness
from groupwise.losses.corrections import Truncate
from groupwise.losses.policy_loss import PolicyLoss
from groupwise.losses.token_columns import OLD_LOGP


def correct_lag(algorithm: Algorithm, *, max_age: int, knows_versions: bool) -> Algorithm:
    """The algorithm with truncated importance weights and a filter on staleness, where it has nothing of the kind.

    The weights go into a loss whose ratio is taken against the learner: one that is taken against the engine holds the
    gap already. The filter goes where the engine says which version sampled what, and where nothing is recalled: it
    would drop every past attempt, for which replay has a bound of its own.
    """
    changes: dict[str, object] = {}
    loss = algorithm.loss
    if isinstance(loss, PolicyLoss) and lacks_correction(algorithm):
        changes["loss"] = loss.model_copy(update={"corrections": (*loss.corrections, Truncate())})
    has_filter = any(isinstance(part, Staleness) for part in algorithm.filters)
    if knows_versions and not has_filter and algorithm.replay is None:
        changes["filters"] = (*algorithm.filters, Staleness(max_age=max_age))
    return algorithm.model_copy(update=changes) if changes else algorithm


def undo_correction(algorithm: Algorithm, *, max_ages: Collection[int]) -> Algorithm:
    """The algorithm that `correct_lag` was given with one of these ages, if it was; what others wrote stays."""
    loss, filters = algorithm.loss, algorithm.filters
    losses = [loss]
    if isinstance(loss, PolicyLoss):
        losses.insert(0, loss.model_copy(update={"corrections": loss.corrections[:-1]}))
    for lesser, fewer in product(losses, (filters[:-1], filters)):
        before = algorithm.model_copy(update={"loss": lesser, "filters": fewer})
        for max_age, knows_versions in product(max_ages, (True, False)):
            if correct_lag(before, max_age=max_age, knows_versions=knows_versions) == algorithm:
                return before
    return algorithm


def check_staleness(algorithm: Algorithm, *, max_age: int) -> None:
    """Refuse a filter on staleness that would drop what a run at a lag asks for: what was asked for is trained."""
    for part in algorithm.filters:
        if isinstance(part, Staleness) and part.max_age < max_age:
            raise ConfigError(
                f"algorithm.filters: {name_of(part)} drops attempts that weights more than {part.max_age} versions "
                f"back have sampled, and rollout.lag plays up to {max_age} ahead, so that slow tasks would be trained "
                "less than they are asked for; raise the one, lower rollout.max_age, or set rollout.lag to 0"
            )


def lacks_correction(algorithm: Algorithm) -> bool:
    """Whether the loss takes its ratio against the learner and leaves the gap to the weights that sampled alone."""
    loss = algorithm.loss
    return isinstance(loss, PolicyLoss) and loss.old == "learner" and not _reads_old_logps(loss)


def _reads_old_logps(loss: PolicyLoss) -> bool:
    return any(OLD_LOGP in getattr(correction, "needs", frozenset()) for correction in loss.corrections)
