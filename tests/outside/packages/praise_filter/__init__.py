"""A filter of a user's own that reads the credit: only praise trains."""

from __future__ import annotations

from typing import ClassVar

from groupwise.extend import BoolArray, Credit, Part, StepTable


class OnlyPraise(Part, slot="filter"):
    """Drop the steps whose credit is not positive; groups and statistics still count them."""

    reads_credit: ClassVar[bool] = True

    def __call__(self, table: StepTable, credit: Credit) -> BoolArray:
        return credit.values > 0
