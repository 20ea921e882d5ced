"""What a run file asks for that goes against what it is made of, and that is no error."""

from __future__ import annotations

from groupwise.core.algorithm import Algorithm
from groupwise.groups import ByHistory
from groupwise.rollout.prompts.memory import Memory
from groupwise.training.run_config import RunConfig

LONG = 1000
"""Steps of an attempt that is longer than any bounded memory."""


def notices(config: RunConfig) -> list[str]:
    """What is worth a look before the run begins, a line each."""
    depth, shown = deepest_history(config.algorithm), steps_shown(config.rollout.memory)
    if depth is None or shown == (depth, depth):
        return []
    return [
        f"steps are compared by up to {depth} earlier states, while prompts show {_words(shown)}; the published method "
        "takes the same number for both (algorithm.depth, rollout.memory)"
    ]


def deepest_history(algorithm: Algorithm) -> int | None:
    """Most earlier states that steps must share to be compared; None where nothing goes by history."""
    return max((part.depth for part in algorithm.parts() if isinstance(part, ByHistory)), default=None)


def steps_shown(memory: Memory) -> tuple[int, int | None]:
    """Fewest and most past steps that the prompts of a long attempt show; most is None where all are shown.

    >>> from groupwise.rollout.prompts.memory import AnchoredWindow, Full, Window
    >>> steps_shown(Window(steps=2)), steps_shown(AnchoredWindow(low=2, high=6)), steps_shown(Full())
    ((2, 2), (3, 6), (1000, None))
    """
    shown = [past - memory.first_shown(past) for past in range(LONG, 2 * LONG)]
    return min(shown), None if max(shown) >= LONG else max(shown)


def _words(shown: tuple[int, int | None]) -> str:
    fewest, most = shown
    if most is None:
        return "all past steps"
    return f"{fewest} past steps" if fewest == most else f"{fewest} to {most} past steps"
