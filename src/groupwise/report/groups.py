"""The groups of an update as reports show them: attempts and steps, each with its credit and whom it was compared with.

`read_groups` reads them from a run's folder.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any

from groupwise.report.derived_credit import (
    ComparisonGroup,
    CreditedTokens,
    DerivedCredit,
    ParentAttempt,
    UnderivableCredit,
    derive_credit,
    find_joined,
    find_parent,
    measure_without_rescue,
    read_recalled_attempts,
)
from groupwise.report.explained_step import ExplainedPair, explain_pairs
from groupwise.report.prompts import make_response_decoder
from groupwise.system.errors import ConfigError, RecordError
from groupwise.system.text import Decoder
from groupwise.training.run_reader import RunFolder


@dataclass(frozen=True, kw_only=True)
class PlayedStep:
    """One exchange with the environment, and what came of it."""

    index: int
    observation: str
    action: str
    response: str
    """What the model said, where that can be decoded; else empty."""
    flaw: str
    """What was wrong with it: malformed, refused, or both; invalid, where the journal does not tell; else empty."""
    cut: bool
    reward: float
    credit: float
    """Its credit, as the journal holds it."""
    compared: bool | None
    """Whether anybody else was in its groups; None = not known here."""
    company: tuple[ComparisonGroup, ...]
    """Whom it was compared with, group by group; empty where that is not known here."""
    own_rollout_only: bool | None = None
    """Whether it was compared only with other steps of its own rollout; None = not known here."""
    added: float = 0.0
    """How much of its reward comparing the attempts of the group added."""
    tokens: CreditedTokens | None = None
    """The credit of its tokens, where it is not that of the step and derives again; else None."""
    channels: Mapping[str, float] = field(default_factory=dict)
    """Its credit in each further channel that the loss reads, where that derives again."""

    @property
    def has_credit(self) -> bool:
        """Whether it has credit; where its tokens have their own, whether any that trains has."""
        return bool(self.credit) if self.tokens is None else bool(self.tokens.trained.any())

    @property
    def words_beyond_action(self) -> str:
        """What the model said, where that is more than the action; else nothing."""
        return "" if self.response.lower() == self.action.lower() else self.response


@dataclass(frozen=True, kw_only=True)
class PlayedAttempt:
    """An attempt at a task."""

    task: str
    attempt: int
    stop: str
    outcome: float
    """Its outcome, or the sum of its rewards."""
    success: float | None
    """1 = solved, 0 = not; None where the environment does not say."""
    origin: str
    error: str | None
    steps: tuple[PlayedStep, ...]
    source: ParentAttempt | None = None
    """The attempt it goes back to: the one that was recalled, or is shown in its prompt; None = it is new."""
    set_aside_by: str = ""
    """Who kept it out of all comparisons, and why; empty = nobody."""
    request_words: str = ""
    """What the plan asked for it with, beside the task; empty = nothing that its origin does not say."""

    @property
    def is_shaped(self) -> bool:
        """Whether comparing the attempts of the group added to its rewards."""
        return any(step.added for step in self.steps)


@dataclass(frozen=True, kw_only=True)
class PlayedGroup:
    """The attempts at one task of an update."""

    task: str
    attempts: tuple[PlayedAttempt, ...]
    joined: tuple[PlayedAttempt, ...] = ()
    """The attempts that joined it from elsewhere: past ones, and guided ones beside unguided ones."""
    size_without: float | None = None
    """Mean size of its steps' credit, had nothing joined it and nothing been added; None = as it is, or not known."""
    set_aside: tuple[PlayedAttempt, ...] = ()
    """The attempts that were played and took part in nothing."""
    pairs: tuple[ExplainedPair, ...] | None = None
    """The pairs of its attempts that the loss was handed; None where it reads none, or they do not derive again."""
    details_missing: str = ""
    """Why the credit of tokens and channels is not there although the algorithm gives some, in a sentence; or empty."""
    underived: str = ""
    """Why the update's credit does not derive again, and what is shown instead, in a sentence; empty = it does."""

    @property
    def outcomes(self) -> list[float]:
        """Outcome of each attempt that was sampled for it."""
        return [attempt.outcome for attempt in self.attempts]

    @property
    def spread(self) -> float:
        """Standard deviation of the outcomes (population); exactly 0 where all are equal."""
        outcomes = self.outcomes
        if len(set(outcomes)) <= 1:
            return 0.0
        mean = math.fsum(outcomes) / len(outcomes)
        return math.sqrt(math.fsum((outcome - mean) ** 2 for outcome in outcomes) / len(outcomes))

    @property
    def steps(self) -> list[PlayedStep]:
        """The steps of the attempts that were sampled for it."""
        return [step for attempt in self.attempts for step in attempt.steps]

    @property
    def num_compared(self) -> int | None:
        """How many steps were compared; None = not known here."""
        flags = [step.compared for step in self.steps]
        return None if None in flags else sum(map(bool, flags))

    @property
    def teaches(self) -> bool:
        """Whether any step or token of it, or of what joined, has credit; where the loss reads pairs, has it any."""
        if self.pairs is not None:
            return bool(self.pairs)
        return any(step.has_credit for attempt in self.members for step in attempt.steps)

    @property
    def members(self) -> tuple[PlayedAttempt, ...]:
        """Everybody who took part."""
        return self.attempts + self.joined

    @property
    def credit_size(self) -> float:
        """Mean size of its own steps' credit."""
        steps = self.steps
        return math.fsum(abs(step.credit) for step in steps) / max(len(steps), 1)

    def best(self) -> PlayedAttempt:
        """The attempt of highest outcome; among equals the shortest, then the first."""
        return min(
            self.attempts or self.joined or self.set_aside,
            key=lambda attempt: (-attempt.outcome, len(attempt.steps), attempt.attempt),
        )

    def worst(self) -> PlayedAttempt:
        """The attempt of lowest outcome; among equals the longest, then the last."""
        return max(
            self.attempts or self.joined or self.set_aside,
            key=lambda attempt: (-attempt.outcome, len(attempt.steps), attempt.attempt),
        )


def find_attempt(group: PlayedGroup, number: int, *, where: str) -> PlayedAttempt:
    attempts = (*group.members, *group.set_aside)
    for attempt in attempts:
        if attempt.attempt == number:
            return attempt
    known = ", ".join(str(attempt.attempt) for attempt in attempts)
    raise RecordError(f"{where}, task {group.task!r}: there is no attempt {number}; there are {known}")


def describe_underived(groups: Iterable[PlayedGroup]) -> str:
    """What the groups of an update say where its credit does not derive again; empty = it does."""
    return next((group.underived for group in groups if group.underived), "")


def describe_missing_details(groups: Iterable[PlayedGroup]) -> str:
    """What the groups of an update say where the credit of tokens, channels or pairs do not derive again; or empty."""
    return next((group.details_missing for group in groups if group.details_missing), "")


def describe_set_aside(group: PlayedGroup) -> str:
    """Which attempts were set aside, and by whom; empty where none was."""
    numbers_by: dict[str, list[str]] = {}
    for attempt in group.set_aside:
        numbers_by.setdefault(attempt.set_aside_by, []).append(str(attempt.attempt))
    return "; ".join(
        f"attempt{'s' if len(numbers) > 1 else ''} {', '.join(numbers)} set aside by {who}"
        for who, numbers in numbers_by.items()
    )


def describe_requests(group: PlayedGroup) -> list[str]:
    """What the plan asked for attempts of a group with, a line for all that were asked for alike."""
    numbers_by: dict[str, list[str]] = {}
    for attempt in (*group.members, *group.set_aside):
        if attempt.request_words:
            numbers_by.setdefault(attempt.request_words, []).append(str(attempt.attempt))
    return [
        f"attempt{'s' if len(numbers) > 1 else ''} {', '.join(numbers)} {'were' if len(numbers) > 1 else 'was'} "
        f"asked for: {words}"
        for words, numbers in numbers_by.items()
    ]


# Reading the groups of an update from a run's folder: who joined, who was compared with whom, what the model said.

_Identity = tuple[str, int, int]
"""A step of an update: its task, attempt and index."""


def read_groups(folder: RunFolder, number: int) -> list[PlayedGroup]:
    """What was sampled for an update, by task; an error where the run has no such update."""
    records = list(folder.journal.trajectories(number))
    if not records and number not in folder.updates:
        known = folder.updates
        words = f"its updates run from {known[0]} to {known[-1]}" if known else "it has made none yet"
        raise RecordError(f"{folder.path}: there is no update {number}; {words}")
    recalled, algorithm = read_recalled_attempts(folder.journal, number), folder.find_algorithm()
    states = folder.journal.states_before(number)
    derived = derive_credit(records, algorithm, recalled, states)
    details, missing = _index_details(derived)
    # Who took part in no comparison was compared with nobody.
    alone = {"compared": False, "company": ()}
    unknown = {"compared": None, "company": ()} if isinstance(derived, UnderivableCredit) else alone
    decode, request_words = make_response_decoder(folder.path), folder.journal.request_words(number)

    def make_attempt(record: Mapping[str, Any]) -> PlayedAttempt:
        names = ("task", "attempt", "stop", "outcome", "success", "origin")
        took_part = "credit" in record
        steps = [
            _make_step(row, credit, details.get(_identify(row), unknown) if took_part else alone, decode)
            for row, credit in zip(record["steps"], record.get("credit", repeat(0.0)), strict=took_part)
        ]
        return PlayedAttempt(
            **{name: record[name] for name in names},
            error=record.get("error"),
            steps=tuple(steps),
            source=find_parent(record, number),
            set_aside_by=record.get("set_aside_by", ""),
            request_words=request_words.get((record["task"], record["attempt"]), ""),
        )

    by_task: dict[str, dict[str, list[PlayedAttempt]]] = {}
    joined = find_joined([*records, *recalled])
    for record in [*records, *recalled, *folder.journal.set_aside(number)]:
        kinds = by_task.setdefault(record["task"], {"attempts": [], "joined": [], "set_aside": []})
        is_joined = (record["task"], record["attempt"]) in joined
        kind = "set_aside" if "set_aside_by" in record else "joined" if is_joined else "attempts"
        kinds[kind].append(make_attempt(record))
    groups = [
        PlayedGroup(
            task=task,
            attempts=tuple(kinds["attempts"]),
            joined=tuple(kinds["joined"]),
            set_aside=tuple(kinds["set_aside"]),
        )
        for task, kinds in by_task.items()
    ]
    if isinstance(derived, UnderivableCredit):
        return [replace(group, underived=derived.describe(number)) if group.steps else group for group in groups]
    pairs, pairs_missing = _read_pairs(derived)
    changed = {group.task for group in groups if group.joined or any(own.is_shaped for own in group.attempts)}
    sizes = (measure_without_rescue(records, algorithm, states) or {}) if changed else {}
    return [
        replace(
            group,
            pairs=None if pairs is None else pairs.get(group.task, ()),
            details_missing=missing or pairs_missing,
            size_without=sizes.get(group.task) if group.task in changed else None,
        )
        for group in groups
    ]


def find_underived(folder: RunFolder) -> dict[int, UnderivableCredit]:
    """The updates whose credit does not derive again from the journal, and why; those without a step have none."""
    algorithm = folder.find_algorithm()
    underived: dict[int, UnderivableCredit] = {}
    for number in folder.updates:
        records, recalled = list(folder.journal.trajectories(number)), read_recalled_attempts(folder.journal, number)
        derived = derive_credit(records, algorithm, recalled, folder.journal.states_before(number))
        if isinstance(derived, UnderivableCredit) and any(record["steps"] for record in records):
            underived[number] = derived
    return underived


def _index_details(derived: DerivedCredit | UnderivableCredit) -> tuple[dict[_Identity, dict[str, Any]], str]:
    """What derives again of each step beside its credit, as fields of a `PlayedStep`; and why not all of it does."""
    if isinstance(derived, UnderivableCredit):
        return {}, ""
    columns = {
        "compared": derived.credit.compared.tolist(),
        "company": derived.find_peers(),
        "own_rollout_only": derived.find_own_rollout_only(),
    }
    missing = ""
    try:
        tokens, channels = derived.credit_tokens(), derived.credit_channels()
        columns |= {} if tokens is None else {"tokens": tokens}
        columns["channels"] = [{name: of[row] for name, of in channels.items()} for row in range(len(derived.rows))]
    except (RecordError, ConfigError) as error:
        missing = f"The credit of tokens and channels cannot be derived again ({error})"
    known = [dict(zip(columns, of_row, strict=True)) for of_row in zip(*columns.values(), strict=True)]
    return {_identify(row): details for row, details in zip(derived.rows, known, strict=True)}, missing


def _read_pairs(derived: DerivedCredit) -> tuple[dict[str | int, tuple[ExplainedPair, ...]] | None, str]:
    """The pairs that the loss was handed, by task; None where it reads none, or with why they do not derive again."""
    if derived.algorithm.pairing is None:
        return None, ""
    by_task: dict[str | int, tuple[ExplainedPair, ...]] = {}
    try:
        for pair in explain_pairs(derived.algorithm, derived.table, derived.credit):
            by_task[pair.task] = (*by_task.get(pair.task, ()), pair)
    except (RecordError, ConfigError) as error:
        return None, f"Pairs cannot be derived again ({error})"
    return by_task, ""


def _identify(row: Mapping[str, Any]) -> _Identity:
    return row["task"], row["attempt"], row["index"]


def _make_step(row: Mapping[str, Any], credit: float, details: Mapping[str, Any], decode: Decoder | None) -> PlayedStep:
    flaws = {"malformed": row.get("well_formed"), "refused": row.get("accepted"), "invalid": row.get("valid")}
    return PlayedStep(
        index=row["index"],
        observation=str(row.get("observation") or ""),
        action=str(row.get("action") or ""),
        response=decode(row["response_ids"]) if decode and row.get("response_ids") else "",
        flaw=", ".join(flaw for flaw, is_fine in flaws.items() if is_fine is False),
        cut=bool(row.get("cut", False)),
        reward=row["reward"],
        credit=credit,
        added=row["reward"] - row.get("reward_alone", row["reward"]),
        **details,
    )
