"""An algorithm: the parts of a method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from groupwise.data.credit import Credit
from groupwise.data.samples import Pair
from groupwise.data.segments import BoolArray
from groupwise.data.step_table import StepTable
from groupwise.parts import slots
from groupwise.parts.part import Part


class Algorithm(Part):
    """The parts of a method: how steps get advantages, which steps may train, and which loss is minimised.

    For zero-variance groups a method may also shape the rewards of a group (`shapers`), add replayed rollouts
    (`replay`), and run tasks again with a hint in the prompt (`hint`).

    >>> from groupwise import StepTable, methods
    >>> table = StepTable.from_columns(task=["t", "t"], rollout=[0, 1], step=[0, 0], reward=[1.0, 0.0])
    >>> methods.dr_grpo().advantage(table).values.tolist()
    [0.5, -0.5]
    """

    advantage: slots.EstimatorPart
    """The estimator: computes the advantages of a step table."""
    token_credit: slots.TokenCreditSlot | None = None
    """Turns a step's advantage into advantages of its tokens, and says which tokens train. None = each token has the
    advantage of its step, and all train."""
    filters: tuple[slots.FilterPart, ...] = ()
    """Which steps may train: those that pass all filters. Groups still count the dropped steps. Statistics over the
    tokens of the batch (`Whitened`) do not, unless the filter reads the advantages."""
    rollout_filters: tuple[slots.RolloutFilterPart, ...] | None = None
    """The rollout filters, in order. A dropped rollout is left out of the statistics too. None = all are kept."""
    scorers: tuple[slots.ScorerPart, ...] | None = None
    """The scorers, in order. They run before the rollouts are shaped and compared, and write step info. None = none."""
    judge: slots.JudgePart | None = None
    """The judge that scorers may ask; None = none."""
    shapers: tuple[slots.ShaperPart, ...] = ()
    """Group reward shaping, in order: what comparing the rollouts of a group adds to their rewards."""
    replay: slots.ReplayPart | None = None
    """Which past rollouts join the groups; None = none."""
    hint: slots.HintPart | None = None
    """Which tasks get further rollouts with a hint in the prompt; None = none."""
    channels: Mapping[str, slots.EstimatorPart] | None = None
    """Estimators of further advantages that the loss reads by name; None = none."""
    critic: slots.CriticPart | None = None
    """The critic, whose values the estimator or the token credit reads; None = none."""
    pairing: slots.PairingPart | None = None
    """Which rollouts of a task the loss compares in pairs; None = none."""
    loss: slots.LossPart | None = None
    """The loss; None = the algorithm computes advantages only."""

    @property
    def reads_past_rollouts(self) -> bool:
        """Whether it needs the rollouts of earlier updates."""
        return self.replay is not None or self.hint is not None

    @property
    def scorers_need_reference(self) -> bool:
        """Whether a scorer asks the initial policy of the run."""
        return any("reference" in part.needs for part in self.scorers or ())

    @property
    def credit_filters(self) -> tuple[slots.CreditFilter, ...]:
        return tuple([cast(slots.CreditFilter, part) for part in self.filters if getattr(part, "reads_credit", False)])

    def estimator_table(self, table: StepTable) -> StepTable:
        """The table with the filters that do not read the advantages: the estimator may ask which steps they drop."""
        return table.with_filters(
            [cast(slots.Filter, part) for part in self.filters if not getattr(part, "reads_credit", False)]
        )

    def credit(self, table: StepTable) -> Credit:
        return self.advantage(self.estimator_table(table))

    def channel_credit(self, table: StepTable) -> dict[str, Credit]:
        """The advantages of all steps in each further channel, by name."""
        seen = self.estimator_table(table)
        return {name: estimator(seen) for name, estimator in (self.channels or {}).items()}

    def keep(self, table: StepTable, credit: Credit | None = None) -> BoolArray:
        """Which rows may train (N); `credit` is the result of `credit(table)`, or None to compute it here."""
        seen = self.estimator_table(table)
        kept = seen.trains
        if self.credit_filters:
            earned = (self.advantage(seen) if credit is None else credit).by_step()
            for admits in self.credit_filters:
                kept = kept & admits(seen, earned)
        return kept[table.step_of_row]

    def find_pairs(self, table: StepTable, keep: BoolArray) -> Sequence[Pair]:
        """The pairs of rollouts that the loss compares, among the rows to keep (N); none without a pairing."""
        if self.pairing is None:
            return ()
        trains = np.empty(len(table), dtype=np.bool_)
        trains[table.step_of_row] = keep
        # `trains` replaces the filters: `keep` covers those that read the advantages too, which a table cannot ask.
        return self.pairing(replace(table, extra={**table.extra, "trains": trains}, filters=(), _asked={}))
