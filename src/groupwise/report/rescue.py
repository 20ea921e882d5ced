"""Rescued groups: how replay, reward shaping or hints changed groups with little or no learning signal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from groupwise.data.records import Origin
from groupwise.report.derived_credit import ParentRollout
from groupwise.report.groups import PlayedGroup, PlayedRollout, read_groups
from groupwise.report.number_format import NO_NUMBER, format_compact, format_number
from groupwise.training.run_reader import RunFolder

MAX_UPDATES = 4
"""How many of the last updates are searched for rescued groups."""
RESCUE_METRICS = ("replay/", "hint/", "shaping/")
"""Prefixes of the metrics of updates with rescued groups."""


@dataclass(frozen=True, kw_only=True)
class Rescue:
    """What changed a group.

    Worked example: all eight rollouts failed, so their advantages would be 0. One success was replayed from update 4,
    and now their mean absolute advantage is 0.18: replayed (4, ...), size_without 0, size 0.18, is_rescued.
    """

    task: str
    replayed: tuple[ParentRollout, ...]
    hinted_successes: tuple[ParentRollout, ...]
    """Successes with a hint that are recorded without it."""
    num_joined_hinted: int
    """Rollouts with a hint that joined it."""
    num_joined_solved: int
    """Those of them that are known to have solved the task."""
    num_shaped: int
    is_shaped_apart: bool
    """Whether shaping gave different amounts. Equal amounts add at most a signal about the length."""
    num_rollouts: int
    has_hint: bool
    """Whether its own rollouts had a hint: in the prompt, by forced tokens or another temperature."""
    request_words: tuple[str, ...]
    """The plan's requests for rollouts with a hint."""
    hint: ParentRollout | None
    """The rollout that their prompt showed; None = none, or not recorded."""
    size: float
    """Mean absolute advantage of its own steps."""
    size_without: float | None
    """The same without joined rollouts and shaping; None = there are none, or unknown."""
    is_rescued: bool
    """Whether it has a learning signal, and would have had none."""

    @property
    def by(self) -> list[str]:
        done = {"replay": self.replayed, "shaping": self.num_shaped, "hint": self.has_hint or self.num_joined_hinted}
        return [name for name, sign in done.items() if sign]


def rescue_of(group: PlayedGroup) -> Rescue | None:
    """What changed a group; None = nothing."""
    has_hint = any(_is_hinted(rollout) for rollout in group.rollouts)
    hinted = [rollout for rollout in group.joined if _is_hinted(rollout)]
    num_shaped = sum(rollout.is_shaped for rollout in group.rollouts)
    if not (group.joined or has_hint or num_shaped):
        return None
    replaced = [rollout for rollout in group.set_aside if has_hint and not _is_hinted(rollout)]
    if replaced or group.size_without is None:
        was_silent = (
            len({own.outcome if own.success is None else own.success for own in replaced or group.rollouts}) <= 1
        )
    else:
        was_silent = not group.size_without
    added = {tuple(step.added for step in rollout.steps if step.added) for rollout in group.rollouts}
    asked = (member.request_words for member in group.members if _is_hinted(member))
    return Rescue(
        task=group.task,
        replayed=_list_parents(group.joined, Origin.REPLAYED),
        hinted_successes=_list_parents(group.joined, Origin.HINTED),
        num_joined_hinted=len(hinted),
        num_joined_solved=sum(bool(rollout.success) for rollout in hinted),
        num_shaped=num_shaped,
        is_shaped_apart=len(added) > 1,
        num_rollouts=len(group.rollouts),
        has_hint=has_hint,
        request_words=tuple(dict.fromkeys(filter(None, asked))),
        hint=next(iter(_list_parents(group.rollouts, Origin.REFLECTED)), None),
        size=group.credit_size,
        size_without=group.size_without,
        is_rescued=group.teaches and (was_silent or (has_hint and not replaced)),
    )


def find_recent_rescues(
    folder: RunFolder, last: Sequence[PlayedGroup], *, max_rescues: int
) -> list[tuple[int, Rescue]]:
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


def describe_replayed(rescue: Rescue) -> str:
    if not rescue.replayed:
        return NO_NUMBER
    return f"{len(rescue.replayed)} from {name_updates([source.number for source in rescue.replayed])}"


def describe_shaping(rescue: Rescue) -> str:
    if not rescue.num_shaped:
        return NO_NUMBER
    return f"{rescue.num_shaped} of {rescue.num_rollouts}{'' if rescue.is_shaped_apart else ', all equally'}"


def describe_hint(rescue: Rescue) -> str:
    words = []
    if rescue.has_hint:
        shown = rescue.hint
        asked = ", ".join(rescue.request_words) or "with a hint"
        words.append(f"shown rollout {shown.rollout} of update {shown.number}" if shown else asked)
    if num := rescue.num_joined_hinted:
        is_solved = num == rescue.num_joined_solved
        noun = ("success" if num == 1 else "successes") if is_solved else ("rollout" if num == 1 else "rollouts")
        solved = "" if is_solved else f", {rescue.num_joined_solved} solved"
        words.append(f"{num} {noun} with a hint joined{solved}")
    return ", ".join(words) or NO_NUMBER


def format_sizes(rescue: Rescue) -> tuple[str, str]:
    """The mean absolute advantage before and after; a group that consists of hints has no before."""
    return format_number(rescue.size_without, 3), format_number(rescue.size, 3)


def name_updates(numbers: Sequence[int]) -> str:
    """Updates in words.

    >>> name_updates([4]), name_updates([6, 4, 4]), name_updates([1, 2, 3])
    ('update 4', 'updates 4 and 6', 'updates 1, 2 and 3')
    """
    known = [str(number) for number in sorted(set(numbers))]
    if len(known) == 1:
        return f"update {known[0]}"
    return f"updates {', '.join(known[:-1])} and {known[-1]}"


def describe_origin(rollout: PlayedRollout) -> str:
    """The origin of a rollout in words; empty for a new one."""
    source = rollout.source
    if source is None:
        words = f"{rollout.origin}: {rollout.request_words}" if rollout.request_words else rollout.origin
        return "" if rollout.origin == Origin.FRESH.value else words
    if rollout.origin == Origin.REPLAYED.value:
        far = "" if source.log_ratio is None else f", log-ratio {format_compact(source.log_ratio)}"
        return f"replayed from update {source.number}, rollout {source.rollout}: {source.why}{far}"
    if rollout.origin == Origin.HINTED.value:
        return f"{source.why}: rollout {source.rollout} of {source.task}"
    return f"shown rollout {source.rollout} of update {source.number}"


def _list_parents(rollouts: Sequence[PlayedRollout], origin: Origin) -> tuple[ParentRollout, ...]:
    return tuple(rollout.source for rollout in rollouts if rollout.source and rollout.origin == origin.value)


def _is_hinted(rollout: PlayedRollout) -> bool:
    return rollout.origin in (Origin.REFLECTED.value, Origin.HINTED.value)
