"""Agents of your own: a run gives each rollout a session, and records every call as a step with a state."""

from __future__ import annotations

from groupwise.agents.function_agent import FunctionAgent, agent
from groupwise.agents.sessions import Ended, Session
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
    "Ended",
    "ExchangeStateRule",
    "FunctionAgent",
    "LastToolResultStateRule",
    "NoneStateRule",
    "ResultsStateRule",
    "Session",
    "ToolHistoryStateRule",
    "WritesStateRule",
    "agent",
]

CATALOGUE: dict[str, dict[str, type[Part]]] = {
    "agent": {"function": FunctionAgent},
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
