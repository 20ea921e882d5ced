"""Rescued groups, which would have taught nothing or less: what was done for them, and what became of their credit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from groupwise.data.records import Origin
from groupwise.report.derived_credit import ParentAttempt
from groupwise.report.groups import PlayedAttempt, PlayedGroup, read_groups
from groupwise.report.number_format import NO_NUMBER, format_compact, format_number
from groupwise.training.run_reader import RunFolder

MAX_UPDATES = 4
"""How many updates are searched for rescued groups, from the last one backwards."""
RESCUE_METRICS = ("replay/", "guidance/", "shaping/")
"""What the names of the metrics begin with that an update has where something was done for its groups."""


@dataclass(frozen=True, kw_only=True)
class Rescue:
    """What was done for a group.

    Worked example: all eight attempts failed, so that their credit would have been 0; one success was recalled from
    update 4, and now their mean size is 0.18: recalled (4, ...), size_without 0, size 0.18, is_rescued.
    """

    task: str
    recalled: tuple[ParentAttempt, ...]
    """The past attempts that joined it."""
    guided_successes: tuple[ParentAttempt, ...]
    """The successes with guidance that joined it as if they had had none."""
    num_joined_guided: int
    """Attempts with guidance that joined it."""
    num_joined_solved: int
    """Those of them that solved the task, as far as the environment says so."""
    num_shaped: int
    """Attempts to whose rewards comparing them added something."""
    is_shaped_apart: bool
    """Whether it added more to some than to others; what is added to all alike tells at most how long they were."""
    num_attempts: int
    """Attempts that were sampled for it."""
    has_guidance: bool
    """Whether its own attempts were guided: by their prompt, forced tokens or another temperature."""
    request_words: tuple[str, ...]
    """What the plan asked for guided attempts with, each once."""
    guidance: ParentAttempt | None
    """The attempt that their prompt showed; None = none, or it was not recorded."""
    size: float
    """Mean size of its own steps' credit."""
    size_without: float | None
    """The same without what joined or was added; None = there was nothing, or it is not known."""
    is_rescued: bool
    """Whether it has credit, and would have had none: attempts that did equally well, or a group that guidance made."""

    @property
    def by(self) -> list[str]:
        """What was done, in a word each."""
        done = {
            "replay": self.recalled,
            "shaping": self.num_shaped,
            "guidance": self.has_guidance or self.num_joined_guided,
        }
        return [name for name, sign in done.items() if sign]


def rescue_of(group: PlayedGroup) -> Rescue | None:
    """What was done for a group; None where that is nothing."""
    has_guidance = any(_is_guided(attempt) for attempt in group.attempts)
    guided = [attempt for attempt in group.joined if _is_guided(attempt)]
    num_shaped = sum(attempt.is_shaped for attempt in group.attempts)
    if not (group.joined or has_guidance or num_shaped):
        return None
    replaced = [attempt for attempt in group.set_aside if has_guidance and not _is_guided(attempt)]
    if replaced or group.size_without is None:
        was_silent = _is_even(replaced or group.attempts)
    else:
        was_silent = not group.size_without
    added = {tuple(step.added for step in attempt.steps if step.added) for attempt in group.attempts}
    asked = (member.request_words for member in group.members if _is_guided(member))
    return Rescue(
        task=group.task,
        recalled=_list_parents(group.joined, Origin.REPLAYED),
        guided_successes=_list_parents(group.joined, Origin.GUIDED),
        num_joined_guided=len(guided),
        num_joined_solved=sum(bool(attempt.success) for attempt in guided),
        num_shaped=num_shaped,
        is_shaped_apart=len(added) > 1,
        num_attempts=len(group.attempts),
        has_guidance=has_guidance,
        request_words=tuple(dict.fromkeys(filter(None, asked))),
        guidance=next(iter(_list_parents(group.attempts, Origin.REFLECTED)), None),
        size=group.credit_size,
        size_without=group.size_without,
        is_rescued=group.teaches and (was_silent or (has_guidance and not replaced)),
    )


def find_recent_rescues(
    folder: RunFolder, last: Sequence[PlayedGroup], *, max_rescues: int
) -> list[tuple[int, Rescue]]:
    """The groups of the newest updates that were rescued, newest first; `last` are those of the last update."""
    rescues: list[tuple[int, Rescue]] = []
    for place, number in enumerate(folder.updates[: -MAX_UPDATES - 1 : -1]):
        groups = read_groups(folder, number) if place else last
        candidates = [rescue_of(group) for group in groups]
        rescues += [(number, rescue) for rescue in candidates if rescue and rescue.is_rescued]
        if len(rescues) >= max_rescues:
            break
    return rescues[:max_rescues]


def has_rescues(folder: RunFolder) -> bool:
    return any(any(curve.values()) for name, curve in folder.metrics.items() if name.startswith(RESCUE_METRICS))


def describe_recalled(rescue: Rescue) -> str:
    """How many past attempts joined, and from which updates."""
    if not rescue.recalled:
        return NO_NUMBER
    return f"{len(rescue.recalled)} from {name_updates([source.number for source in rescue.recalled])}"


def describe_shaping(rescue: Rescue) -> str:
    """To how many attempts something was added, and whether to all of them the same."""
    if not rescue.num_shaped:
        return NO_NUMBER
    return f"{rescue.num_shaped} of {rescue.num_attempts}{'' if rescue.is_shaped_apart else ', all alike'}"


def describe_guidance(rescue: Rescue) -> str:
    """What the prompt showed or the plan asked for, and how many attempts with guidance joined."""
    words = []
    if rescue.has_guidance:
        shown = rescue.guidance
        asked = ", ".join(rescue.request_words) or "with guidance"
        words.append(f"shown attempt {shown.attempt} of update {shown.number}" if shown else asked)
    if num := rescue.num_joined_guided:
        is_solved = num == rescue.num_joined_solved
        noun = ("success" if num == 1 else "successes") if is_solved else ("attempt" if num == 1 else "attempts")
        solved = "" if is_solved else f", {rescue.num_joined_solved} solved"
        words.append(f"{num} {noun} with guidance joined{solved}")
    return ", ".join(words) or NO_NUMBER


def format_sizes(rescue: Rescue) -> tuple[str, str]:
    """The mean size of its credit without and with what was done; a group that guidance made has no before."""
    return format_number(rescue.size_without, 3), format_number(rescue.size, 3)


def name_updates(numbers: Sequence[int]) -> str:
    """Some updates in words.

    >>> name_updates([4]), name_updates([6, 4, 4]), name_updates([1, 2, 3])
    ('update 4', 'updates 4 and 6', 'updates 1, 2 and 3')
    """
    known = [str(number) for number in sorted(set(numbers))]
    if len(known) == 1:
        return f"update {known[0]}"
    return f"updates {', '.join(known[:-1])} and {known[-1]}"


def describe_origin(attempt: PlayedAttempt) -> str:
    """Where an attempt comes from, in words; empty for one that is new."""
    source = attempt.source
    if source is None:
        words = f"{attempt.origin}: {attempt.request_words}" if attempt.request_words else attempt.origin
        return "" if attempt.origin == Origin.FRESH.value else words
    if attempt.origin == Origin.REPLAYED.value:
        far = "" if source.log_ratio is None else f", log-ratio {format_compact(source.log_ratio)}"
        return f"recalled from update {source.number}, attempt {source.attempt}: {source.why}{far}"
    if attempt.origin == Origin.GUIDED.value:
        return f"{source.why}: attempt {source.attempt} at {source.task}"
    return f"shown attempt {source.attempt} of update {source.number}"


def _list_parents(attempts: Sequence[PlayedAttempt], origin: Origin) -> tuple[ParentAttempt, ...]:
    return tuple(attempt.source for attempt in attempts if attempt.source and attempt.origin == origin.value)


def _is_guided(attempt: PlayedAttempt) -> bool:
    return attempt.origin in (Origin.REFLECTED.value, Origin.GUIDED.value)


def _is_even(attempts: Sequence[PlayedAttempt]) -> bool:
    scores = {attempt.outcome if attempt.success is None else attempt.success for attempt in attempts}
    return len(scores) <= 1
