"""Agents of your own: which of their model calls are compared."""

from __future__ import annotations

from groupwise.agents.state_rules import (
    ExchangeStateRule,
    LastToolResultStateRule,
    NoneStateRule,
    ResultsStateRule,
    ToolHistoryStateRule,
    WritesStateRule,
)
from groupwise.parts.part import Part

__all__ = [
    "CATALOGUE",
    "ExchangeStateRule",
    "LastToolResultStateRule",
    "NoneStateRule",
    "ResultsStateRule",
    "ToolHistoryStateRule",
    "WritesStateRule",
]

CATALOGUE: dict[str, dict[str, type[Part]]] = {
    "state_rule": {
        "exchange": ExchangeStateRule,
        "writes": WritesStateRule,
        "results": ResultsStateRule,
        "tool_history": ToolHistoryStateRule,
        "last_tool_result": LastToolResultStateRule,
        "none": NoneStateRule,
    },
}
"""Slot -> kind -> class."""
