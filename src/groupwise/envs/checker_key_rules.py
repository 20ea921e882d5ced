"""The environment checker's rules for state keys, which decide what steps are compared with."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Hashable

from groupwise.envs.checker_play import BrokenRuleError, NotApplicableError, Subject, observations, shown

FEWEST_REVISITS = 5
"""How often a situation must have come again before the key is judged by it."""
FEWEST_COUNTED = 5
"""How long an attempt must be before a number that grows with it counts as a counter."""
STAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")


def state_key_is_hashable(subject: Subject) -> str:
    """Steps are grouped by their key, so it must work in a dictionary."""
    keys = 0
    for attempt, seen in observations(subject):
        try:
            hash(seen.state_key)
        except TypeError as error:
            raise BrokenRuleError(
                f"task {attempt.task.id}: {error}; use text or a tuple of texts and numbers"
            ) from None
        keys += seen.state_key is not None
    if not keys:
        raise NotApplicableError("every state_key is None: steps are compared by task alone")
    return f"{keys} keys"


def state_key_is_equal_for_equal_situations(subject: Subject) -> str:
    """Step-level credit compares steps with equal keys. A key with an address, a random number or a time in it is
    never equal, and the method silently falls back to comparing whole attempts.
    """
    subject.require_repeatable()
    for attempt in subject.attempts:
        again = subject.replay(attempt.task, attempt.actions)
        pairs = zip(attempt.keys, again.keys, strict=True)
        for step, (one, other) in enumerate(pairs):
            if one != other:
                raise BrokenRuleError(
                    f"task {attempt.task.id}: after the same {step} actions the keys are {one!r} and {other!r}"
                )
    return f"{sum(len(attempt.keys) for attempt in subject.attempts)} keys met twice"


def state_key_has_no_counter_or_clock(subject: Subject) -> str:
    """A step number or a time makes every visit of a situation a new one, so nothing is ever compared."""
    revisits, agreements = 0, 0
    for attempt in subject.attempts:
        keys_of: dict[object, list[Hashable]] = defaultdict(list)
        for seen, key in zip(attempt.observations, attempt.keys, strict=True):
            keys_of[shown(seen)].append(key)
            if STAMP.search(str(key)) or any(_is_now(int(run)) for run in re.findall(r"\d{10,20}", str(key))):
                raise BrokenRuleError(f"task {attempt.task.id}: the key {key!r} contains a time")
        for keys in keys_of.values():
            revisits += len(keys) - 1
            agreements += len(keys) - len(set(keys))
    if revisits >= FEWEST_REVISITS and not agreements:
        raise BrokenRuleError(f"the same text and actions came again {revisits} times, each time with a new key")
    long = [attempt.keys for attempt in subject.attempts if len(attempt.keys) >= FEWEST_COUNTED]
    if len(long) >= 2 and all(_counts(keys) for keys in long):
        raise BrokenRuleError(f"a number in the key counts the steps: {', '.join(map(repr, long[0][:3]))}")
    return f"{revisits} situations came again, {agreements} of them with a key seen before"


def _is_now(number: int) -> bool:
    seconds = number / 10.0 ** max(0, len(str(number)) - 10)
    return abs(seconds - time.time()) < 86_400 * 2


def _counts(keys: list[Hashable]) -> bool:
    """Whether some number in the keys goes up, or down, by one at every step."""
    runs = [[int(run) for run in re.findall(r"\d+", str(key))] for key in keys]
    width = min(map(len, runs))
    return any(
        all(run[place] - runs[0][place] == sign * step for step, run in enumerate(runs))
        for place in range(width)
        for sign in (1, -1)
    )
