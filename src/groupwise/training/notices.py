"""Warnings about a run file: settings that are no error and still go against the method they are for."""

from __future__ import annotations

from groupwise.core.algorithm import Algorithm
from groupwise.core.parts.part import name_of
from groupwise.core.parts.trust import WITHOUT_TRUST, may_run
from groupwise.envs.mixture import list_environments
from groupwise.groups import ByHistory
from groupwise.rewards.function import FunctionReward
from groupwise.rollout.prompts.memory import Memory
from groupwise.training.run_config import RunConfig

LONG = 1000
"""Steps of an attempt that is longer than any bounded memory."""


def list_notices(config: RunConfig) -> list[str]:
    """List what is worth a look before the run begins, a line each."""
    return [*_describe_free_lag(config), *_describe_history(config), *_describe_mixed_scales(config)]


def describe_unread_rewards(config: RunConfig) -> str:
    """Say that reward functions were not looked at, where this process only reads run files; else nothing."""
    places = [part.function for part in config.rewards if isinstance(part, FunctionReward)]
    if may_run() or not places:
        return ""
    return f"rewards: {', '.join(places)} {WITHOUT_TRUST}, so that nobody has seen whether it can be called"


def _describe_free_lag(config: RunConfig) -> list[str]:
    if config.rollout.lag != "free":
        return []
    return [
        'rollout.lag = "free": which weights sample what depends on the clock, so that neither a second run nor a '
        "resumed one comes to the same numbers; rollout.lag = 1 repeats itself to the bit"
    ]


def _describe_history(config: RunConfig) -> list[str]:
    depth, shown = find_deepest_history(config.algorithm), count_steps_shown(config.rollout.memory)
    if depth is None or shown == (depth, depth):
        return []
    return [
        f"steps are compared by up to {depth} earlier states, while prompts show {_in_words(shown)}; the published "
        "method takes the same number for both (algorithm.depth, rollout.memory)"
    ]


def _describe_mixed_scales(config: RunConfig) -> list[str]:
    names = list(list_environments(config.env))
    mixing = next((part for part in config.algorithm.parts() if part.mixes_tasks), None)
    if len(names) == 1 or mixing is None:
        return []
    return [
        f"{name_of(mixing)} compares across tasks, and so across the environments {', '.join(names)}: what they pay "
        "should be on one scale"
    ]


def find_deepest_history(algorithm: Algorithm) -> int | None:
    """Find how many earlier states steps must share at most to be compared; None where nothing goes by history."""
    return max((part.depth for part in algorithm.parts() if isinstance(part, ByHistory)), default=None)


def count_steps_shown(memory: Memory) -> tuple[int, int | None]:
    """Count the past steps that prompts of a long attempt show: the smallest and the largest number, None = all.

    >>> from groupwise.rollout.prompts.memory import AnchoredWindow, Full, Window
    >>> count_steps_shown(Window(steps=2)), count_steps_shown(AnchoredWindow(low=2, high=6)), count_steps_shown(Full())
    ((2, 2), (3, 6), (1000, None))
    """
    shown = [past - memory.first_shown(past) for past in range(LONG, 2 * LONG)]
    return min(shown), None if max(shown) >= LONG else max(shown)


def _in_words(shown: tuple[int, int | None]) -> str:
    smallest, largest = shown
    if largest is None:
        return "all past steps"
    return f"{smallest} past steps" if smallest == largest else f"{smallest} to {largest} past steps"
