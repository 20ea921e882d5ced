"""The groups of an update for reports: rollouts and steps with advantages and groups. `read_groups` reads them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any

from groupwise.report import derived_credit
from groupwise.report.explained_step import ExplainedPair, explain_pairs
from groupwise.report.prompts import make_response_decoder
from groupwise.system.errors import ConfigError, RecordError
from groupwise.system.text import Decoder
from groupwise.training.run_reader import RunFolder


@dataclass(frozen=True, kw_only=True)
class PlayedStep:
    """One step of a rollout."""

    step: int
    observation: str
    action: str
    response: str
    """The response as text; empty if it cannot be decoded."""
    flaw: str
    """malformed, refused, both, or invalid (in journals that do not distinguish them); empty = valid."""
    cut: bool
    reward: float
    credit: float
    """Its advantage in the journal."""
    compared: bool | None
    """Whether other steps were in its groups; None = unknown."""
    company: tuple[derived_credit.ComparisonGroup, ...]
    """Its groups; empty = unknown."""
    own_rollout_only: bool | None = None
    """Whether it was compared only with other steps of its own rollout; None = unknown."""
    added: float = 0.0
    tokens: derived_credit.CreditedTokens | None = None
    """The advantages of its tokens, if they have their own and these can be derived again."""
    channels: Mapping[str, float] = field(default_factory=dict)
    """Its advantages in further channels, if these can be derived again."""
    prompt_cut: int = 0
    """How many tokens the limit on prompts removed from its prompt."""

    @property
    def has_credit(self) -> bool:
        """Whether it, or one of its trained tokens, has an advantage other than 0."""
        return bool(self.credit) if self.tokens is None else bool(self.tokens.trained.any())

    @property
    def words_beyond_action(self) -> str:
        """The response, if it has more than the action."""
        return "" if self.response.lower() == self.action.lower() else self.response


@dataclass(frozen=True, kw_only=True)
class PlayedRollout:
    """A rollout of a task."""

    task: str
    rollout: int
    stop: str
    outcome: float
    """Its final score, or the sum of its rewards."""
    success: float | None
    """1 = solved, 0 = not solved; None = unknown."""
    origin: str
    error: str | None
    steps: tuple[PlayedStep, ...]
    source: derived_credit.ParentRollout | None = None
    """The rollout that it comes from, by replay or by its prompt; None = it is new."""
    set_aside_by: str = ""
    """The part that left it out of all comparisons, and why; empty = none."""
    request_words: str = ""
    """What the plan requested besides the task; empty = nothing more than its origin says."""

    @property
    def is_shaped(self) -> bool:
        return any(step.added for step in self.steps)


@dataclass(frozen=True, kw_only=True)
class PlayedGroup:
    """The rollouts of one task of an update."""

    task: str
    rollouts: tuple[PlayedRollout, ...]
    joined: tuple[PlayedRollout, ...] = ()
    """Rollouts that joined it: replayed ones, and rollouts with a hint beside rollouts without one."""
    size_without: float | None = None
    """Mean absolute advantage without joined rollouts and reward shaping; None = nothing changes, or unknown."""
    set_aside: tuple[PlayedRollout, ...] = ()
    pairs: tuple[ExplainedPair, ...] | None = None
    """The pairs for the loss; None = the loss reads none, or they cannot be derived again."""
    details_missing: str = ""
    """Why the advantages of tokens and channels are missing; empty = they are not missing."""
    underived: str = ""
    """Why the update's advantages cannot be derived again; empty = they can."""

    @property
    def outcomes(self) -> list[float]:
        return [rollout.outcome for rollout in self.rollouts]

    @property
    def spread(self) -> float:
        """Population standard deviation of the final scores; exactly 0 if all are equal."""
        outcomes = self.outcomes
        if len(set(outcomes)) <= 1:
            return 0.0
        mean = math.fsum(outcomes) / len(outcomes)
        return math.sqrt(math.fsum((outcome - mean) ** 2 for outcome in outcomes) / len(outcomes))

    @property
    def steps(self) -> list[PlayedStep]:
        return [step for rollout in self.rollouts for step in rollout.steps]

    @property
    def num_compared(self) -> int | None:
        """Number of compared steps; None = unknown."""
        flags = [step.compared for step in self.steps]
        return None if None in flags else sum(map(bool, flags))

    @property
    def teaches(self) -> bool:
        """Whether it has a learning signal: a nonzero advantage, or a pair if the loss reads pairs."""
        if self.pairs is not None:
            return bool(self.pairs)
        return any(step.has_credit for rollout in self.members for step in rollout.steps)

    @property
    def members(self) -> tuple[PlayedRollout, ...]:
        return self.rollouts + self.joined

    @property
    def credit_size(self) -> float:
        """Mean absolute advantage of its own steps."""
        steps = self.steps
        return math.fsum(abs(step.credit) for step in steps) / max(len(steps), 1)

    def best(self) -> PlayedRollout:
        """The rollout with the highest final score; among equals the shortest, then the first."""
        return self._rank()[0]

    def worst(self) -> PlayedRollout:
        """The rollout with the lowest final score; among equals the longest, then the last."""
        return self._rank()[-1]

    def _rank(self) -> list[PlayedRollout]:
        rollouts = self.rollouts or self.joined or self.set_aside
        return sorted(rollouts, key=lambda rollout: (-rollout.outcome, len(rollout.steps), rollout.rollout))


def find_rollout(group: PlayedGroup, number: int, *, where: str) -> PlayedRollout:
    rollouts = (*group.members, *group.set_aside)
    for rollout in rollouts:
        if rollout.rollout == number:
            return rollout
    known = ", ".join(str(rollout.rollout) for rollout in rollouts)
    raise RecordError(f"{where}, task {group.task!r}: there is no rollout {number}; there are {known}")


def describe_underived(groups: Iterable[PlayedGroup]) -> str:
    return next((group.underived for group in groups if group.underived), "")


def describe_missing_details(groups: Iterable[PlayedGroup]) -> str:
    return next((group.details_missing for group in groups if group.details_missing), "")


def describe_set_aside(group: PlayedGroup) -> str:
    numbers_by: dict[str, list[str]] = {}
    for rollout in group.set_aside:
        numbers_by.setdefault(rollout.set_aside_by, []).append(str(rollout.rollout))
    return "; ".join(
        f"rollout{'s' if len(numbers) > 1 else ''} {', '.join(numbers)} left out by {part}"
        for part, numbers in numbers_by.items()
    )


def describe_requests(group: PlayedGroup) -> list[str]:
    """What the plan requested for the rollouts of a group, one line per request."""
    numbers_by: dict[str, list[str]] = {}
    for rollout in (*group.members, *group.set_aside):
        if rollout.request_words:
            numbers_by.setdefault(rollout.request_words, []).append(str(rollout.rollout))
    return [
        f"rollout{'s' if len(numbers) > 1 else ''} {', '.join(numbers)} requested: {words}"
        for words, numbers in numbers_by.items()
    ]


_Identity = tuple[str, int, int]
"""A step of an update: its task, rollout and number."""


def read_groups(folder: RunFolder, number: int) -> list[PlayedGroup]:
    """Read the groups of an update from a run folder; an error if there is no such update."""
    records = list(folder.journal.trajectories(number))
    if not records and number not in folder.updates:
        known = folder.updates
        words = f"its updates are {known[0]} to {known[-1]}" if known else "it has none yet"
        raise RecordError(f"{folder.path}: there is no update {number}; {words}")
    replayed, algorithm = derived_credit.read_replayed_rollouts(folder.journal, number), folder.find_algorithm()
    states = folder.journal.states_before(number)
    derived = derived_credit.derive_credit(records, algorithm, replayed, states)
    details, missing = _index_details(derived)
    alone = {"compared": False, "company": ()}
    unknown = {"compared": None, "company": ()} if isinstance(derived, derived_credit.UnderivableCredit) else alone
    decode, request_words = make_response_decoder(folder.path), folder.journal.request_words(number)

    def make_rollout(record: Mapping[str, Any]) -> PlayedRollout:
        names = ("task", "rollout", "stop", "outcome", "success", "origin")
        took_part = "credit" in record
        steps = [
            _make_step(row, credit, details.get(_identify(row), unknown) if took_part else alone, decode)
            for row, credit in zip(record["steps"], record.get("credit", repeat(0.0)), strict=took_part)
        ]
        return PlayedRollout(
            **{name: record[name] for name in names},
            error=record.get("error"),
            steps=tuple(steps),
            source=derived_credit.find_parent(record, number),
            set_aside_by=record.get("set_aside_by", ""),
            request_words=request_words.get((record["task"], record["rollout"]), ""),
        )

    by_task: dict[str, dict[str, list[PlayedRollout]]] = {}
    joined = derived_credit.find_joined([*records, *replayed])
    for record in [*records, *replayed, *folder.journal.set_aside(number)]:
        kinds = by_task.setdefault(record["task"], {"rollouts": [], "joined": [], "set_aside": []})
        is_joined = (record["task"], record["rollout"]) in joined
        kind = "set_aside" if "set_aside_by" in record else "joined" if is_joined else "rollouts"
        kinds[kind].append(make_rollout(record))
    groups = [
        PlayedGroup(
            task=task,
            rollouts=tuple(kinds["rollouts"]),
            joined=tuple(kinds["joined"]),
            set_aside=tuple(kinds["set_aside"]),
        )
        for task, kinds in by_task.items()
    ]
    if isinstance(derived, derived_credit.UnderivableCredit):
        return [replace(group, underived=derived.describe(number)) if group.steps else group for group in groups]
    pairs, pairs_missing = _read_pairs(derived)
    changed = {group.task for group in groups if group.joined or any(own.is_shaped for own in group.rollouts)}
    sizes = (derived_credit.measure_without_rescue(records, algorithm, states) or {}) if changed else {}
    return [
        replace(
            group,
            pairs=None if pairs is None else pairs.get(group.task, ()),
            details_missing=missing or pairs_missing,
            size_without=sizes.get(group.task) if group.task in changed else None,
        )
        for group in groups
    ]


def find_underived(folder: RunFolder) -> dict[int, derived_credit.UnderivableCredit]:
    """The updates whose advantages cannot be derived again, and why; updates without steps are left out."""
    algorithm = folder.find_algorithm()
    underived: dict[int, derived_credit.UnderivableCredit] = {}
    for number in folder.updates:
        records, replayed = (
            list(folder.journal.trajectories(number)),
            derived_credit.read_replayed_rollouts(folder.journal, number),
        )
        derived = derived_credit.derive_credit(records, algorithm, replayed, folder.journal.states_before(number))
        if isinstance(derived, derived_credit.UnderivableCredit) and any(record["steps"] for record in records):
            underived[number] = derived
    return underived


def _index_details(
    derived: derived_credit.DerivedCredit | derived_credit.UnderivableCredit,
) -> tuple[dict[_Identity, dict[str, Any]], str]:
    """The derived fields of each `PlayedStep`, and why some are missing."""
    if isinstance(derived, derived_credit.UnderivableCredit):
        return {}, ""
    columns = {
        "compared": derived.credit.compared.tolist(),
        "company": derived.find_peers(),
        "own_rollout_only": derived.find_own_rollout_only(),
    }
    missing = ""
    try:
        tokens, channels = derived.credit_tokens(), derived.algorithm.channel_credit(derived.table)
        columns |= {} if tokens is None else {"tokens": tokens}
        values = {name: credit.values.tolist() for name, credit in channels.items()}
        columns["channels"] = [{name: of[row] for name, of in values.items()} for row in range(len(derived.rows))]
    except (RecordError, ConfigError) as error:
        missing = f"The advantages of tokens and channels cannot be derived again ({error})"
    known = [dict(zip(columns, of_row, strict=True)) for of_row in zip(*columns.values(), strict=True)]
    return {_identify(row): details for row, details in zip(derived.rows, known, strict=True)}, missing


def _read_pairs(derived: derived_credit.DerivedCredit) -> tuple[dict[str | int, tuple[ExplainedPair, ...]] | None, str]:
    """The pairs for the loss by task; None = it reads none, or with a reason, they cannot be derived again."""
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
    return row["task"], row["rollout"], row["step"]


def _make_step(row: Mapping[str, Any], credit: float, details: Mapping[str, Any], decode: Decoder | None) -> PlayedStep:
    flaws = {"malformed": row.get("well_formed"), "refused": row.get("accepted"), "invalid": row.get("valid")}
    return PlayedStep(
        step=row["step"],
        observation=str(row.get("observation") or ""),
        action=str(row.get("action") or ""),
        response=decode(row["response_ids"]) if decode and row.get("response_ids") else "",
        flaw=", ".join(flaw for flaw, is_fine in flaws.items() if is_fine is False),
        cut=bool(row.get("cut", False)),
        prompt_cut=row.get("prompt_cut", 0),
        reward=row["reward"],
        credit=credit,
        added=row["reward"] - row.get("reward_alone", row["reward"]),
        **details,
    )
