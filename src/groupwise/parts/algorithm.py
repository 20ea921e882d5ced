"""An algorithm: the parts that a recipe puts together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from groupwise.data.credit import Credit
from groupwise.data.samples import Pair
from groupwise.data.segments import BoolArray
from groupwise.data.step_table import StepTable
from groupwise.parts.part import Part
from groupwise.parts.slots import (
    AdmissionPart,
    CreditFilter,
    EstimatorPart,
    Filter,
    FilterPart,
    GuidancePart,
    JudgePart,
    LossPart,
    MeasurePart,
    PairingPart,
    ReplayPart,
    ShaperPart,
    TokenCreditSlot,
)


class Algorithm(Part):
    """Everything that makes a method: how steps earn credit, which of them may train, and what is minimised.

    Where attempts that all did equally well would teach nothing, a method may also add to what they earned (`shapers`),
    recall past attempts into their groups (`replay`), and attempt tasks again with guidance in the prompt (`guidance`).

    >>> from groupwise import StepTable, methods
    >>> table = StepTable.from_columns(task=["t", "t"], attempt=[0, 1], index=[0, 0], reward=[1.0, 0.0])
    >>> methods.dr_grpo().advantage(table).values.tolist()
    [0.5, -0.5]
    """

    advantage: EstimatorPart
    """Turns a step table into credit."""
    token_credit: TokenCreditSlot | None = None
    """Turns the credit of a step into that of its tokens, and says which of them train; None = each token has the
    credit of its step, and all train."""
    filters: tuple[FilterPart, ...] = ()
    """Which steps may train; a step must pass all of them. Groups still count the steps they drop; statistics over the
    tokens of the batch (`Whitened`) do not, but for what a filter drops that reads the credit itself."""
    admissions: tuple[AdmissionPart, ...] | None = None
    """Which attempts are compared at all, one after the other; what they leave out leaves the statistics too. None =
    all are."""
    measures: tuple[MeasurePart, ...] | None = None
    """What is found out about attempts before they are shaped and compared, one after the other, and written down as
    facts of their steps; None = nothing."""
    judge: JudgePart | None = None
    """Whom measures may ask; None = nobody."""
    shapers: tuple[ShaperPart, ...] = ()
    """What comparing the attempts of a group adds to what they earned, one after the other."""
    replay: ReplayPart | None = None
    """Which past attempts join the groups; None = none."""
    guidance: GuidancePart | None = None
    """Which tasks get further attempts with guidance in their prompt; None = none."""
    channels: Mapping[str, EstimatorPart] | None = None
    """Further credit that the loss reads by name, beside that of `advantage`; None = none."""
    pairing: PairingPart | None = None
    """Which attempts at a task the loss holds against each other; None = none."""
    loss: LossPart | None = None
    """What is minimised; None = the algorithm gives credit only."""

    @property
    def reads_past_attempts(self) -> bool:
        """Whether it needs the attempts of earlier updates."""
        return self.replay is not None or self.guidance is not None

    @property
    def measures_reference(self) -> bool:
        """Whether a measure asks the policy that the run started from."""
        return any("reference" in part.needs for part in self.measures or ())

    @property
    def credit_filters(self) -> tuple[CreditFilter, ...]:
        """The filters that read the credit."""
        return tuple(cast(CreditFilter, part) for part in self.filters if getattr(part, "reads_credit", False))

    def estimator_table(self, table: StepTable) -> StepTable:
        """The table as the estimator sees it: it knows which steps the filters drop that do not read the credit."""
        return table.with_filters(
            tuple(cast(Filter, part) for part in self.filters if not getattr(part, "reads_credit", False))
        )

    def credit(self, table: StepTable) -> Credit:
        """Credit of every step; statistics over the tokens that train leave out what the filters drop."""
        return self.advantage(self.estimator_table(table))

    def channel_credit(self, table: StepTable) -> dict[str, Credit]:
        """Credit of every step in each of the further channels, by name."""
        seen = self.estimator_table(table)
        return {name: estimator(seen) for name, estimator in (self.channels or {}).items()}

    def keep(self, table: StepTable, credit: Credit | None = None) -> BoolArray:
        """Which rows may train, as handed in (N); `credit` is what `credit(table)` gave, or None to compute it here."""
        seen = self.estimator_table(table)
        kept = seen.trains
        if self.credit_filters:
            earned = (self.advantage(seen) if credit is None else credit).by_step()
            for admits in self.credit_filters:
                kept = kept & admits(seen, earned)
        return kept[table.step_of_row]

    def find_pairs(self, table: StepTable, keep: BoolArray) -> Sequence[Pair]:
        """Which attempts the loss holds against each other, among the rows to keep (N); none without a pairing."""
        if self.pairing is None:
            return ()
        trains = np.empty(len(table), dtype=np.bool_)
        trains[table.step_of_row] = keep
        # In place of the filters, which are in `keep`: those that read the credit too, which a table cannot ask.
        return self.pairing(replace(table, extra={**table.extra, "trains": trains}, filters=(), _asked={}))
