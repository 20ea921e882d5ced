"""What a loss gets beside advantages: named columns of the step table, further advantages (channels), pairs.

Axes: N rows of the table, in the order of the trajectories' steps.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from groupwise.data.column_checks import to_numbers
from groupwise.data.records import Trajectory
from groupwise.data.samples import Pair
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
"""The metric: number of pairs of an update."""

OWN_COLUMNS = ("reward", "step", "episode_return")
"""Columns that every step table has, beside its named columns."""


@dataclass(frozen=True, eq=False, kw_only=True)
class LossContext:
    """What a loss gets beside advantages, one row per step."""

    columns: Mapping[str, FloatArray] = field(default_factory=dict)
    """The columns that the loss declares, by name (N each)."""
    channels: Mapping[str, FloatArray] = field(default_factory=dict)
    pairs: tuple[Pair, ...] = ()
    """Which trajectories are compared with each other, by their numbers in the update."""


def check_loss_context(algorithm: Algorithm, loss: Loss) -> None:
    """Check that the loss gets all that it needs, and reads all channels and pairs; before a model loads."""
    for need in sorted(loss.needs - COLUMN_OF.keys() - {PAIRS}):
        known = [*COLUMN_OF, PAIRS]
        raise ConfigError(f"algorithm.loss: it needs {need!r}, which nothing here computes; {nearest(need, known)}")
    if PAIRS in loss.needs and algorithm.pairing is None:
        raise ConfigError(
            f"algorithm.loss: {name_of(loss)} compares pairs of rollouts, but no part chooses them; add "
            'algorithm.pairing, such as "best_against_worst"'
        )
    if algorithm.pairing is not None and PAIRS not in loss.needs:
        raise ConfigError(
            f"algorithm.pairing: {name_of(loss)} reads no pairs; leave the pairing out, or choose a loss that needs "
            f"{PAIRS!r}"
        )
    if SPANS in loss.needs and not getattr(algorithm.token_credit, "gives_spans", False):
        raise ConfigError(
            "algorithm.loss: it computes ratios per span, but no part gives spans; choose a token_credit that gives "
            "spans, or ratios per step"
        )
    read, offered = get_declared(loss, "channels"), frozenset(algorithm.channels or {})
    beside = get_declared(loss, "columns") or offered
    if beside and getattr(algorithm.replay, "keeps_credit", False):
        raise ConfigError(
            f"algorithm.replay: replayed rollouts keep their stored advantages, but {min(beside)!r} is not stored; "
            "leave out the replay, or what the loss reads beside advantages"
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
    """The names that a loss declares in this attribute, if it has it."""
    names: frozenset[str] = getattr(loss, attribute, frozenset())
    return names


def make_loss_context(
    algorithm: Algorithm, table: StepTable, trajectories: Sequence[Trajectory], *, keep: BoolArray
) -> LossContext:
    """The table is made of these trajectories; `keep` says whether each row trains, after every filter (N)."""
    names = get_declared(algorithm.loss, "columns")
    if not names and not algorithm.channels and algorithm.pairing is None:
        return LossContext()
    return LossContext(
        columns={name: _read_column(table, name, algorithm.loss) for name in sorted(names)},
        channels={name: credit.values for name, credit in algorithm.channel_credit(table).items()},
        pairs=_find_pairs(algorithm, table, trajectories, keep),
    )


def _read_column(table: StepTable, name: str, loss: object) -> FloatArray:
    """A column that the loss declares (N)."""
    try:
        values = getattr(table, name) if name in OWN_COLUMNS else table.column(name)
        return to_numbers(name, values)[table.step_of_row]
    except RecordError as error:
        raise RecordError(f"algorithm.loss: {name_of(loss)} declares the column {name!r}: {error}") from None


def _find_pairs(
    algorithm: Algorithm, table: StepTable, trajectories: Sequence[Trajectory], keep: BoolArray
) -> tuple[Pair, ...]:
    """Pairs of trajectories, chosen among the rollouts that train."""
    if algorithm.pairing is None:
        return ()
    number_of_row = [number for number, trajectory in enumerate(trajectories) for _ in trajectory.steps]
    trajectory_of: dict[int, int] = {}
    for rollout, number in zip(table.rollout[table.step_of_row].tolist(), number_of_row, strict=True):
        if trajectory_of.setdefault(rollout, number) != number:
            raise RecordError(
                f"trajectory {trajectories[number].id!r} continues a rollout that began in another one, but pairs need "
                "whole rollouts; record each rollout as one trajectory"
            )
    pairs = algorithm.find_pairs(table, keep)
    return tuple(pair._replace(winner=trajectory_of[pair.winner], loser=trajectory_of[pair.loser]) for pair in pairs)


def report_missing_pairs(number: int, journal: Journal) -> None:
    """Log that update `number` has no pair to learn from, unless the update before had none either.

    This is no error: all rollouts at hard tasks may fail for a while. If there can never be a pair, the run is rejected
    before it begins (`check_algorithm`).
    """
    if dict(journal.curve(NUM_PAIRS)).get(number - 1) == 0:
        return
    _log.warning(
        f"update {number}: no task has two rollouts that train and have different scores, so the loss has no pair to "
        f"learn from. Nothing is learned while {NUM_PAIRS} is 0. Give tasks that only some rollouts solve, a graded "
        "reward, or more rollouts per task (rollout.group_size)"
    )
