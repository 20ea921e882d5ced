"""An algorithm: the parts that a recipe puts together."""

from __future__ import annotations

from collections.abc import Mapping

from groupwise.core.credit import Credit
from groupwise.core.parts import (
    AdmissionPart,
    EstimatorPart,
    FilterPart,
    GuidancePart,
    LossPart,
    PairingPart,
    Part,
    ReplayPart,
    ShaperPart,
)
from groupwise.core.segments import BoolArray
from groupwise.core.step_table import StepTable


class Algorithm(Part):
    """Everything that makes a method: how steps earn credit, which of them may train, and what is minimised.

    Where attempts that all did equally well would teach nothing, a method may also add to what they earned (`shapers`),
    recall past attempts into their groups (`replay`), and attempt tasks again with guidance in the prompt (`guidance`).

    >>> from groupwise import StepTable, recipes
    >>> table = StepTable.from_columns(task=["t", "t"], attempt=[0, 1], index=[0, 0], reward=[1.0, 0.0])
    >>> recipes.dr_grpo().advantage(table).values.tolist()
    [0.5, -0.5]
    """

    advantage: EstimatorPart
    """Turns a step table into credit."""
    filters: tuple[FilterPart, ...] = ()
    """Which steps may train; a step must pass all of them. Groups still count the steps they drop; statistics over the
    tokens of the batch (`Whitened`) do not."""
    admissions: tuple[AdmissionPart, ...] | None = None
    """Which attempts are compared at all, one after the other; what they leave out leaves the statistics too. None =
    all are."""
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
    def reads_history(self) -> bool:
        """Whether it needs the attempts of earlier updates."""
        return self.replay is not None or self.guidance is not None

    def credit(self, table: StepTable) -> Credit:
        """Credit of every step; statistics over the tokens that train leave out what the filters drop."""
        return self.advantage(table.with_filters(self.filters))

    def channel_credit(self, table: StepTable) -> dict[str, Credit]:
        """Credit of every step in each of the further channels, by name."""
        kept = table.with_filters(self.filters)
        return {name: estimator(kept) for name, estimator in (self.channels or {}).items()}

    def keep(self, table: StepTable) -> BoolArray:
        """Which rows may train, in the order of the rows handed in (N)."""
        return table.with_filters(self.filters).trains[table.step_of_row]
