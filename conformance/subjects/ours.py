"""groupwise, through the call path its users take."""

from __future__ import annotations

from importlib import metadata

import groupwise
from conformance.case import Columns, Options
from groupwise import methods


class Ours:
    """`StepTable.from_columns`, then `methods.NAME(**options).advantage(table)`."""

    def __init__(self) -> None:
        self.versions = {"groupwise": groupwise.__version__, "numpy": metadata.version("numpy")}
        self.title = f"groupwise {self.versions['groupwise']}"

    def supports(self, method: str, options: Options, columns: Columns) -> str | None:
        return None

    def advantage(self, method: str, options: Options, columns: Columns) -> list[float]:
        table = groupwise.StepTable.from_columns(**columns)
        credit = getattr(methods, method)(**options).advantage(table)
        return [float(value) for value in credit.values]
