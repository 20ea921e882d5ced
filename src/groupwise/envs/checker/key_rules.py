"""The conformance suite's rules for state keys, which decide what steps are compared with."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Hashable

from groupwise.core.errors import EnvironmentFault
from groupwise.core.rules import BrokenRuleError, NotTestedError
from groupwise.core.text.exceptions import quote_error
from groupwise.envs.checker.subject import NONSENSE, Subject, iterate_observations, to_comparable
from groupwise.envs.plain_records import to_plain_key

MIN_REVISITS = 5
"""How often a situation must have come again before the key is judged by it."""
MIN_COUNTED_STEPS = 5
"""How long an attempt must be before a number that grows with it counts as a counter."""
MAX_RETURNS_TRIED = 60
"""How many ways there and back are tried; each needs a replay of two steps."""
WASTED = " after a step that was wasted on an action that is not understood"
RETURNED = " by a way there and back"
STAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")


def state_key_is_hashable(subject: Subject) -> str:
    """Steps are grouped by their key, so it must work in a dictionary."""
    keys = 0
    for attempt, seen in iterate_observations(subject):
        try:
            hash(seen.state_key)
        except Exception as error:  # a __hash__ of somebody else's may raise anything
            raise BrokenRuleError(
                f"task {attempt.task.id}: {quote_error(error)}; use text or a tuple of texts and numbers"
            ) from None
        keys += seen.state_key is not None
    if not keys:
        raise NotTestedError("every state_key is None: steps are compared by task alone")
    return f"{keys} keys"


def state_key_can_be_written(subject: Subject) -> str:
    """Keys are kept in the journal and sent between processes. One that cannot be written ends its attempt as a fault:
    use text, finite numbers, True, False, None, or tuples of these.
    """
    keys = 0
    for attempt, seen in iterate_observations(subject):
        if not _is_hashable(seen.state_key):
            raise NotTestedError("there are keys that are not hashable, which is another rule")
        try:
            keys += to_plain_key(seen.state_key) is not None
        except EnvironmentFault as fault:
            raise BrokenRuleError(f"task {attempt.task.id}: {fault}") from None
    if not keys:
        raise NotTestedError("every state_key is None: steps are compared by task alone")
    return f"{keys} keys"


def state_key_is_equal_for_equal_situations(subject: Subject) -> str:
    """Step-level credit compares steps with equal keys. A key with an address, a random number or a time in it is
    never equal, and the method silently falls back to comparing whole attempts.
    """
    subject.require_repeatable()
    subject.require_keys()
    difference = _find_unequal_keys(subject)
    if difference:
        raise BrokenRuleError(difference)
    return f"{sum(len(attempt.keys) for attempt in subject.attempts)} keys met twice"


def _find_unequal_keys(subject: Subject) -> str:
    """Where an attempt, played again, has other keys; empty = nowhere."""
    for attempt in subject.attempts:
        again = subject.replay(attempt.task, attempt.actions)
        for step, (key, key_again) in enumerate(zip(attempt.keys, again.keys, strict=True)):
            if key != key_again:
                return f"task {attempt.task.id}: after the same {step} actions the keys are {key!r} and {key_again!r}"
    return ""


def state_key_has_no_counter_or_clock(subject: Subject) -> str:
    """A step number or a time makes every visit of a situation a new one, so nothing is ever compared."""
    subject.require_keys()
    _check_clock(subject)
    revisits = agreements = 0
    for way, meetings in (
        ("", _find_revisits(subject)),
        (WASTED, _try_detours(subject)),
        (RETURNED, _try_returns(subject)),
    ):
        agreed = sum(meetings)
        if len(meetings) >= MIN_REVISITS and not agreed:
            raise BrokenRuleError(
                f"the same text and actions came again {len(meetings)} times{way}, each time with a new key"
            )
        revisits, agreements = revisits + len(meetings), agreements + agreed
    if agreements:
        return f"{revisits} situations came again, {agreements} of them with a key seen before"
    long = [attempt.keys for attempt in subject.attempts if len(attempt.keys) >= MIN_COUNTED_STEPS]
    if len(long) >= 2 and all(_is_counter(keys) for keys in long):
        raise BrokenRuleError(f"a number in the key counts the steps: {', '.join(map(repr, long[0][:3]))}")
    came = f"{revisits}, each time with a new key" if revisits else "none"
    raise NotTestedError(f"too few situations came again to tell a counter by: {came}")


def _check_clock(subject: Subject) -> None:
    for attempt in subject.attempts:
        for key in attempt.keys:
            if STAMP.search(str(key)) or any(_is_now(int(run)) for run in re.findall(r"\d{10,20}", str(key))):
                raise BrokenRuleError(f"task {attempt.task.id}: the key {key!r} contains a time")


def _find_revisits(subject: Subject) -> list[bool]:
    """Situations that came again within an attempt: whether each came with a key that it had before."""
    meetings: list[bool] = []
    for attempt in subject.attempts:
        keys_of: dict[object, set[Hashable]] = defaultdict(set)
        for seen, key in zip(attempt.observations, attempt.keys, strict=True):
            known = keys_of[to_comparable(seen)]
            meetings += [key in known] if known else []
            known.add(key)
    return meetings


def _try_detours(subject: Subject) -> list[bool]:
    """Situations that were reached once more after a step that was wasted: whether each has the key it had without."""
    meetings: list[bool] = []
    if subject.unrepeatable or _find_unequal_keys(subject):  # attempts cannot be compared with one another
        return meetings
    for attempt in subject.attempts:
        try:
            longer = subject.replay(attempt.task, (NONSENSE[0], *attempt.actions))
        except Exception:  # nonsense has a rule of its own
            continue
        pairs = zip(
            zip(attempt.observations, attempt.keys, strict=True),
            zip(longer.observations[1:], longer.keys[1:], strict=True),
            strict=False,
        )
        meetings += [
            key == later for (seen, key), (again, later) in pairs if to_comparable(seen) == to_comparable(again)
        ]
    return meetings


def _try_returns(subject: Subject) -> list[bool]:
    """Situations that two accepted actions led away from and back to: whether each has the key it had."""
    meetings: list[bool] = []
    tried = 0
    for task in subject.tasks:
        first = subject.replay(task, ())
        for away in first.first.admissible or ():
            there = subject.replay(task, (away,))
            for back in () if there.outcomes[0].ended else there.outcomes[0].observation.admissible or ():
                tried += 1
                if tried > MAX_RETURNS_TRIED:
                    return meetings
                home = subject.replay(task, (away, back))
                if to_comparable(home.observations[-1]) == to_comparable(first.first) and not home.outcomes[-1].ended:
                    meetings.append(home.keys[-1] == home.keys[0])
    return meetings


def _is_hashable(key: object) -> bool:
    try:
        hash(key)
    except Exception:
        return False
    return True


def _is_now(number: int) -> bool:
    seconds = number / 10.0 ** max(0, len(str(number)) - 10)
    return abs(seconds - time.time()) < 86_400 * 2


def _is_counter(keys: list[Hashable]) -> bool:
    """Whether some number in the keys goes up, or down, by one at every step."""
    runs = [[int(run) for run in re.findall(r"\d+", str(key))] for key in keys]
    width = min(map(len, runs))
    return any(
        all(run[place] - runs[0][place] == sign * step for step, run in enumerate(runs))
        for place in range(width)
        for sign in (1, -1)
    )
