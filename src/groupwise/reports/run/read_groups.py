"""Reading the groups of an update from a run's folder: who joined, who was compared with whom, what the model said."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from groupwise.core.errors import RecordError
from groupwise.core.run_paths import TOKENIZER, RunPaths
from groupwise.reports.run.attempt_origins import ParentAttempt, find_joined, find_parent, read_recalled_attempts
from groupwise.reports.run.derived_credit import (
    ComparisonGroup,
    DerivedCredit,
    UnderivableCredit,
    derive_credit,
    measure_without_rescue,
)
from groupwise.reports.run.run_folder import RunFolder
from groupwise.reports.run.update_groups import PlayedAttempt, PlayedGroup, PlayedStep

_Identity = tuple[str, int, int]
"""A step of an update: its task, attempt and index."""


def read_groups(folder: RunFolder, number: int) -> list[PlayedGroup]:
    """What was sampled for an update, by task; an error where the run has no such update."""
    records = list(folder.journal.trajectories(number))
    if not records and number not in folder.updates:
        raise RecordError(f"{folder.path}: there is no update {number}; {_describe_updates(folder.updates)}")
    recalled, algorithm = read_recalled_attempts(folder.journal, number), folder.find_algorithm()
    states = folder.journal.states_before(number)
    derived = derive_credit(records, algorithm, recalled, states)
    comparisons = _index_comparisons(derived)
    # Who took part in no comparison was compared with nobody.
    unknown = (None if isinstance(derived, UnderivableCredit) else False, ())
    decode = make_response_decoder(folder.path)
    groups: dict[str, list[PlayedAttempt]] = {}
    for record in [*records, *recalled]:
        steps = tuple(
            _make_step(row, credit, *comparisons.get(_identify(row), unknown), decode)
            for row, credit in zip(record["steps"], record["credit"], strict=True)
        )
        groups.setdefault(record["task"], []).append(_make_attempt(record, steps, find_parent(record, number)))
    aside: dict[str, list[PlayedAttempt]] = {}
    for record in folder.journal.set_aside(number):
        steps = tuple(_make_step(row, 0.0, False, (), decode) for row in record["steps"])
        attempt = _make_attempt(record | {"error": None}, steps, None)
        aside.setdefault(record["task"], []).append(replace(attempt, set_aside_by=record["set_aside_by"]))
    request_words = folder.journal.request_words(number)
    for attempts in (*groups.values(), *aside.values()):
        attempts[:] = [
            replace(attempt, request_words=request_words.get((attempt.task, attempt.attempt), ""))
            for attempt in attempts
        ]
    joined = find_joined([*records, *recalled])
    tasks = dict.fromkeys([*groups, *aside])
    played = [_make_group(task, groups.get(task, ()), aside.get(task, ()), joined) for task in tasks]
    if isinstance(derived, UnderivableCredit):
        return [replace(group, underived=derived.describe(number)) if group.steps else group for group in played]
    if not any(_was_changed(group) for group in played):
        return played
    sizes = measure_without_rescue(records, algorithm, states) or {}
    return [replace(group, size_without=sizes.get(group.task)) if _was_changed(group) else group for group in played]


def find_underived(folder: RunFolder) -> dict[int, UnderivableCredit]:
    """The updates whose credit does not derive again from the journal, and why; those without a step have none."""
    algorithm, underived = folder.find_algorithm(), dict[int, UnderivableCredit]()
    for number in folder.updates:
        records, recalled = list(folder.journal.trajectories(number)), read_recalled_attempts(folder.journal, number)
        derived = derive_credit(records, algorithm, recalled, folder.journal.states_before(number))
        if isinstance(derived, UnderivableCredit) and any(record["steps"] for record in records):
            underived[number] = derived
    return underived


def make_response_decoder(folder: Path) -> Callable[[Sequence[int]], str] | None:
    """What turns sampled ids into text: the tokenizer of the run's last checkpoint; None where it cannot be read."""
    paths = RunPaths(folder)
    try:
        latest = paths.latest.read_text(encoding="utf-8").strip()
        path = paths.checkpoints / Path(latest).name / TOKENIZER
        is_there = path.is_file()
    except (OSError, ValueError):  # a page is worth showing without it; `train --resume` says what is wrong
        return None
    if not is_there or importlib.util.find_spec("tokenizers") is None:
        return None
    from tokenizers import Tokenizer

    tokenizer = _try(lambda: Tokenizer.from_file(str(path)))

    def decode(ids: Sequence[int]) -> str:
        text = _try(lambda: tokenizer.decode(list(ids), skip_special_tokens=True))
        return "" if text is None else str(text).strip()

    return None if tokenizer is None else decode


def _try(call: Callable[[], Any]) -> Any:
    """What a call gives; None where it fails. A damaged file makes the tokenizer panic, which is no `Exception`."""
    try:
        return call()
    except KeyboardInterrupt:
        raise
    except BaseException:
        return None


def _index_comparisons(
    derived: DerivedCredit | UnderivableCredit,
) -> dict[_Identity, tuple[bool | None, tuple[ComparisonGroup, ...]]]:
    """Whether each step was compared, and with whom, by its identity."""
    if isinstance(derived, UnderivableCredit):
        return {}
    rows = zip(derived.rows, derived.credit.compared.tolist(), derived.find_company(), strict=True)
    return {_identify(row): (compared, company) for row, compared, company in rows}


def _identify(row: Mapping[str, Any]) -> _Identity:
    return row["task"], row["attempt"], row["index"]


def _make_group(
    task: str,
    attempts: Sequence[PlayedAttempt],
    set_aside: Sequence[PlayedAttempt],
    joined: Collection[tuple[str, int]],
) -> PlayedGroup:
    return PlayedGroup(
        task=task,
        attempts=tuple(attempt for attempt in attempts if (task, attempt.attempt) not in joined),
        joined=tuple(attempt for attempt in attempts if (task, attempt.attempt) in joined),
        set_aside=tuple(set_aside),
    )


def _was_changed(group: PlayedGroup) -> bool:
    """Whether somebody joined the group, or something was added to its rewards."""
    return bool(group.joined) or any(attempt.is_shaped for attempt in group.attempts)


def _make_step(
    row: dict[str, Any],
    credit: float,
    compared: bool | None,
    company: tuple[ComparisonGroup, ...],
    decode: Callable[[Sequence[int]], str] | None,
) -> PlayedStep:
    action = str(row.get("action") or "")
    response = decode(row["response_ids"]) if decode and row.get("response_ids") else ""
    return PlayedStep(
        index=row["index"],
        observation=str(row.get("observation") or ""),
        action=action,
        response="" if response.lower() == action.lower() else response,
        flaw=_describe_flaw(row),
        cut=bool(row.get("cut", False)),
        reward=row["reward"],
        credit=credit,
        compared=compared,
        company=company,
        added=row["reward"] - row.get("reward_alone", row["reward"]),
    )


def _describe_flaw(row: Mapping[str, Any]) -> str:
    checks = {"malformed": row.get("well_formed"), "refused": row.get("accepted"), "invalid": row.get("valid")}
    return ", ".join(flaw for flaw, is_fine in checks.items() if is_fine is False)


def _make_attempt(record: dict[str, Any], steps: tuple[PlayedStep, ...], parent: ParentAttempt | None) -> PlayedAttempt:
    return PlayedAttempt(
        task=record["task"],
        attempt=record["attempt"],
        stop=record["stop"],
        outcome=record["outcome"],
        success=record["success"],
        origin=record["origin"],
        error=record["error"],
        steps=steps,
        source=parent,
    )


def _describe_updates(numbers: Sequence[int]) -> str:
    return f"its updates run from {numbers[0]} to {numbers[-1]}" if numbers else "it has made none yet"
