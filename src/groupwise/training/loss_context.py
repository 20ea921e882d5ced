"""What a loss is handed beside credit: named columns of the step table, further channels of credit, pairs.

Axes: N rows of the table, in the order of the trajectories' steps.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from groupwise.data.column_checks import to_numbers
from groupwise.data.records import Trajectory
from groupwise.data.samples import Pair, Totals
from groupwise.data.segments import BoolArray, FloatArray
from groupwise.data.step_table import StepTable
from groupwise.losses.token_columns import COLUMN_OF, PAIRS, SPANS
from groupwise.parts.algorithm import Algorithm
from groupwise.parts.part import name_of
from groupwise.parts.slots import Loss
from groupwise.store.journal import Journal
from groupwise.system.errors import ConfigError, RecordError, nearest

_log = logging.getLogger(__name__)

NUM_PAIRS = "learner/pairs"
"""The metric of how many pairs an update has."""

OWN_COLUMNS = ("reward", "index", "episode_return")
"""What every step table has, beside its named columns."""


@dataclass(frozen=True, eq=False, kw_only=True)
class LossContext:
    """What a loss is handed of an update beside credit, a row a step."""

    columns: Mapping[str, FloatArray] = field(default_factory=dict)
    """The columns that the loss declares, by name (N each)."""
    channels: Mapping[str, FloatArray] = field(default_factory=dict)
    pairs: tuple[Pair, ...] = ()
    """Which trajectories are held against each other, by their numbers in the update."""

    def columns_of(self, row: int) -> dict[str, float]:
        return {name: float(column[row]) for name, column in self.columns.items()}

    def channels_of(self, row: int) -> dict[str, float]:
        return {name: float(channel[row]) for name, channel in self.channels.items()}

    def metrics(self) -> dict[str, float]:
        """Mean size of the credit of each channel."""
        return {f"extra/channel/{name}": float(np.abs(channel).mean()) for name, channel in self.channels.items()}


def check_loss_context(algorithm: Algorithm, loss: Loss) -> None:
    """Refuse a loss that needs what nothing gives, and channels or pairs that nobody reads; before a model loads."""
    for need in sorted(loss.needs - COLUMN_OF.keys() - {PAIRS}):
        known = [*COLUMN_OF, PAIRS]
        raise ConfigError(f"algorithm.loss: it needs {need!r}, which nothing here computes; {nearest(need, known)}")
    if PAIRS in loss.needs and algorithm.pairing is None:
        raise ConfigError(
            f"algorithm.loss: {name_of(loss)} holds attempts against each other, and no part says which; add "
            'algorithm.pairing, such as "best_against_worst"'
        )
    if algorithm.pairing is not None and PAIRS not in loss.needs:
        raise ConfigError(
            f"algorithm.pairing: {name_of(loss)} reads no pairs; leave the pairing out, or choose a loss that needs "
            f"{PAIRS!r}"
        )
    if SPANS in loss.needs and not getattr(algorithm.token_credit, "gives_spans", False):
        raise ConfigError(
            "algorithm.loss: it takes ratios by span, and no part says which tokens belong together; choose a "
            "token_credit that gives spans, or take ratios by step"
        )
    read, offered = get_declared(loss, "channels"), frozenset(algorithm.channels or {})
    beside = get_declared(loss, "columns") or offered
    if beside and getattr(algorithm.replay, "keeps_credit", False):
        raise ConfigError(
            f"algorithm.replay: recalled attempts keep the credit that they had, and no {min(beside)!r} was kept with "
            "it; leave out the replay, or what the loss reads beside credit"
        )
    for name in sorted(read - offered):
        raise ConfigError(
            f"algorithm.loss: {name_of(loss)} reads the channel {name!r}, which no estimator gives; add "
            f"algorithm.channels.{name}. {nearest(name, offered)}"
        )
    for name in sorted(offered - read):
        raise ConfigError(
            f"algorithm.channels.{name}: {name_of(loss)} does not read it; leave the channel out, or declare it in "
            f"`channels` of the loss. {nearest(name, read)}"
        )


def get_declared(loss: object, attribute: str) -> frozenset[str]:
    """The names that a loss declares under this attribute; a loss need not have it."""
    names: frozenset[str] = getattr(loss, attribute, frozenset())
    return names


def make_loss_context(
    algorithm: Algorithm, table: StepTable, trajectories: Sequence[Trajectory], *, keep: BoolArray
) -> LossContext:
    """Make what the algorithm's loss is handed of an update.

    The trajectories are those that the table was made of; `keep` says whether each row trains, after every filter (N).
    """
    names = get_declared(algorithm.loss, "columns")
    if not names and not algorithm.channels and algorithm.pairing is None:
        return LossContext()
    return LossContext(
        columns={name: _read_column(table, name, algorithm.loss) for name in sorted(names)},
        channels={name: credit.values for name, credit in algorithm.channel_credit(table).items()},
        pairs=_find_pairs(algorithm, table, trajectories, keep),
    )


def _read_column(table: StepTable, name: str, loss: object) -> FloatArray:
    """A column of the table that the loss declares (N)."""
    try:
        values = getattr(table, name) if name in OWN_COLUMNS else table.column(name)
        return to_numbers(name, values)[table.step_of_row]
    except RecordError as error:
        raise RecordError(f"algorithm.loss: {name_of(loss)} declares the column {name!r}: {error}") from None


def _find_pairs(
    algorithm: Algorithm, table: StepTable, trajectories: Sequence[Trajectory], keep: BoolArray
) -> tuple[Pair, ...]:
    """The pairs of the table's attempts as pairs of trajectories, chosen among what trains."""
    if algorithm.pairing is None:
        return ()
    number_of_row = [number for number, trajectory in enumerate(trajectories) for _ in trajectory.steps]
    trajectory_of: dict[int, int] = {}
    for attempt, number in zip(table.attempt[table.step_of_row].tolist(), number_of_row, strict=True):
        if trajectory_of.setdefault(attempt, number) != number:
            raise RecordError(
                f"trajectory {trajectories[number].id!r} goes on with an attempt that began in another one, which no "
                "pair can hold whole; record each attempt as one trajectory"
            )
    pairs = algorithm.find_pairs(table, keep)
    return tuple(pair._replace(winner=trajectory_of[pair.winner], loser=trajectory_of[pair.loser]) for pair in pairs)


def report_missing_pairs(algorithm: Algorithm, totals: Totals, *, number: int, journal: Journal) -> None:
    """Log a line where an update has no pair to learn from, unless the update before had none either.

    It is no error: attempts at hard tasks may all fail for a while. Where there never can be a pair, the run is refused
    before it begins (`check_algorithm`).
    """
    if algorithm.pairing is None or totals.pairs or dict(journal.curve(NUM_PAIRS)).get(number - 1) == 0:
        return
    _log.warning(
        f"update {number}: no task has two attempts that train and did differently, so that the loss has no pair to "
        f"learn from; while {NUM_PAIRS} stays 0 nothing is learnt, so give tasks that some attempts solve and some do "
        "not, a graded reward, or more attempts (rollout.plan.attempts)"
    )
