"""What a part is: slots, parts with memory, catalogues, and checks of parts that come from outside."""

from __future__ import annotations

from groupwise.parts.algorithm import Algorithm
from groupwise.parts.part import (
    Count,
    Finite,
    NotNegative,
    Part,
    Positive,
    PositiveShare,
    Share,
    make_config_error,
    name_of,
)
from groupwise.parts.slots import Draw, EstimatorPart, GrouperPart, LossPart, ScalePart, SignalPart
from groupwise.parts.stateful import ObservedUpdate
