"""Reading the groups of an update from a run's folder: who joined, who was compared with whom, what the model said."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from groupwise.core.errors import ConfigError, RecordError
from groupwise.reports.explain.pairs import ExplainedPair
from groupwise.reports.run.attempt_origins import ParentAttempt, find_joined, find_parent, read_recalled_attempts
from groupwise.reports.run.credited_tokens import CreditedTokens
from groupwise.reports.run.derived_credit import (
    ComparisonGroup,
    DerivedCredit,
    UnderivableCredit,
    derive_credit,
    measure_without_rescue,
)
from groupwise.reports.run.response_text import make_response_decoder
from groupwise.reports.run.run_folder import RunFolder
from groupwise.reports.run.update_groups import PlayedAttempt, PlayedGroup, PlayedStep

_Identity = tuple[str, int, int]
"""A step of an update: its task, attempt and index."""


@dataclass(frozen=True, kw_only=True)
class _StepDetails:
    """What derives again of a step, beside its credit."""

    compared: bool | None
    """Whether anybody else was in its groups; None = not known here."""
    company: tuple[ComparisonGroup, ...] = ()
    """Whom it was compared with, group by group."""
    own_rollout_only: bool | None = None
    """Whether it was compared only with other steps of its own rollout; None = not known here."""
    tokens: CreditedTokens | None = None
    """The credit of its tokens; None where it is that of the step."""
    channels: Mapping[str, float] = field(default_factory=dict)
    """Its credit in each further channel."""


def read_groups(folder: RunFolder, number: int) -> list[PlayedGroup]:
    """What was sampled for an update, by task; an error where the run has no such update."""
    records = list(folder.journal.trajectories(number))
    if not records and number not in folder.updates:
        raise RecordError(f"{folder.path}: there is no update {number}; {_describe_updates(folder.updates)}")
    recalled, algorithm = read_recalled_attempts(folder.journal, number), folder.find_algorithm()
    states = folder.journal.states_before(number)
    derived = derive_credit(records, algorithm, recalled, states)
    details, details_missing = _index_details(derived)
    # Who took part in no comparison was compared with nobody.
    unknown = _StepDetails(compared=None if isinstance(derived, UnderivableCredit) else False)
    decode = make_response_decoder(folder.path)
    groups: dict[str, list[PlayedAttempt]] = {}
    for record in [*records, *recalled]:
        steps = tuple(
            _make_step(row, credit, details.get(_identify(row), unknown), decode)
            for row, credit in zip(record["steps"], record["credit"], strict=True)
        )
        groups.setdefault(record["task"], []).append(_make_attempt(record, steps, find_parent(record, number)))
    aside: dict[str, list[PlayedAttempt]] = {}
    for record in folder.journal.set_aside(number):
        steps = tuple(_make_step(row, 0.0, _StepDetails(compared=False), decode) for row in record["steps"])
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
    pairs, pairs_missing = _read_pairs(derived)
    missing = details_missing or pairs_missing
    played = [replace(group, pairs=pairs.get(group.task, ()) if pairs is not None else None) for group in played]
    played = [replace(group, details_missing=missing) for group in played] if missing else played
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


def _index_details(derived: DerivedCredit | UnderivableCredit) -> tuple[dict[_Identity, _StepDetails], str]:
    """What is known of each step beside its credit, by its identity; and why not all of it is."""
    if isinstance(derived, UnderivableCredit):
        return {}, ""
    columns = (derived.credit.compared.tolist(), derived.find_company(), derived.find_own_rollout_only())
    details = {
        _identify(row): _StepDetails(compared=compared, company=company, own_rollout_only=own)
        for row, compared, company, own in zip(derived.rows, *columns, strict=True)
    }
    if derived.algorithm.token_credit is None and not derived.algorithm.channels:
        return details, ""
    try:
        return _add_details(details, derived), ""
    except (RecordError, ConfigError) as error:
        return details, f"The credit of tokens and channels cannot be derived again ({error})"


def _add_details(details: Mapping[_Identity, _StepDetails], derived: DerivedCredit) -> dict[_Identity, _StepDetails]:
    """Add the credit of tokens and of further channels, where the algorithm gives any."""
    tokens, channels = derived.credit_tokens(), derived.credit_channels()
    return {
        _identify(row): replace(
            details[_identify(row)],
            tokens=None if tokens is None else tokens[number],
            channels={name: values[number] for name, values in channels.items()},
        )
        for number, row in enumerate(derived.rows)
    }


def _read_pairs(derived: DerivedCredit) -> tuple[dict[str | int, tuple[ExplainedPair, ...]] | None, str]:
    """The pairs that the loss was handed, by task; None where it reads none, or with why they do not derive again."""
    if derived.algorithm.pairing is None:
        return None, ""
    by_task: dict[str | int, tuple[ExplainedPair, ...]] = {}
    try:
        for pair in derived.explain_pairs():
            by_task[pair.task] = (*by_task.get(pair.task, ()), pair)
    except (RecordError, ConfigError) as error:
        return None, f"Pairs cannot be derived again ({error})"
    return by_task, ""


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
    details: _StepDetails,
    decode: Callable[[Sequence[int]], str] | None,
) -> PlayedStep:
    response = decode(row["response_ids"]) if decode and row.get("response_ids") else ""
    return PlayedStep(
        index=row["index"],
        observation=str(row.get("observation") or ""),
        action=str(row.get("action") or ""),
        response=response,
        flaw=_describe_flaw(row),
        cut=bool(row.get("cut", False)),
        reward=row["reward"],
        credit=credit,
        compared=details.compared,
        company=details.company,
        own_rollout_only=details.own_rollout_only,
        added=row["reward"] - row.get("reward_alone", row["reward"]),
        tokens=details.tokens,
        channels=details.channels,
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
