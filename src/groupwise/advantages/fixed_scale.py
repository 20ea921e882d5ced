"""A scale for groups without success, in which rewards by rank are all there is to compare.

Axes: N members, M groups.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from groupwise.advantages.scales import Deviation
from groupwise.core.segments import FloatArray, Segments


class FixedUnlessSolved(Deviation, slot="scale"):
    """The standard deviation plus eps, or a fixed number in groups without any success.

        scale = deviation + eps  where some x_i > above,  else fixed

    Ours, for rewards by rank (R^3), whose size cancels in their own deviation: failed attempts told apart by little
    would move the policy as far as a solved group. Over 0.5, a whole group ranked has credit from -best to +best.
    """

    fixed: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.5
    """What a group without success is divided by."""
    above: Annotated[float, Field(allow_inf_nan=False)] = 0.5
    """The value above which a member is a success: what the best of the failed may be paid."""

    def __call__(self, values: FloatArray, groups: Segments) -> FloatArray:
        return np.where(groups.high(values) > self.above, super().__call__(values, groups), self.fixed)
