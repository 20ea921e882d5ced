"""Steps with peers on real sessions, compared with the table that came with them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from groupwise.agents.recorded_sessions import open_sessions
from groupwise.agents.state_rules import (
    ExchangeStateRule,
    LastToolResultStateRule,
    Messages,
    ToolHistoryStateRule,
    ToolRule,
    WritesStateRule,
    make_key,
)
from groupwise.report.audit_sessions import StateRule, audit_sessions

FOLDER = Path(os.environ.get("GROUPWISE_SESSIONS", Path(__file__).parents[4] / "shared" / "data" / "sessions"))
NAMES = {"airline": "tau_airline", "retail": "tau_retail", "alfworld": "alfworld", "bash": "intercode_bash"}
EXACT = {"ignore": (), "normalise": False}
"""The table was made from canonical JSON and white space alone."""


class CallsWithResults(ToolRule, slot="state_rule"):
    """The last calls with their results, whatever the user wrote since: a row of the table that is no rule of ours."""

    def __call__(self, messages: Messages) -> str:
        replies = self.read(messages).replies[-1:]
        return make_key(calls=sorted(call.with_result() for reply in replies for call in reply))


def read_table() -> dict[tuple[str, str], float]:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    heading, *rows = re.findall(r"^\| (.*) \|$", text.partition("| rule |")[0] and text[text.index("| rule |") :], re.M)
    files = [name.strip() for name in heading.split("|")[1:]]
    cells = [[cell.strip().strip("`") for cell in row.split("|")] for row in rows]
    return {(file, row[0]): float(cell) for row in cells for file, cell in zip(files, row[1:], strict=True) if cell}


@pytest.mark.skipif(not FOLDER.is_dir(), reason="recorded sessions are beside the repository, in ../shared")
@pytest.mark.parametrize("name", NAMES)
def test_the_fractions_are_those_of_the_table(name: str) -> None:
    sessions = open_sessions(FOLDER / f"{NAMES[name]}.jsonl.gz")
    rules: dict[str, StateRule] = {
        "last tool result": LastToolResultStateRule(**EXACT),
        "last calls + results": CallsWithResults(**EXACT),
        "the same + user messages since": ExchangeStateRule(**EXACT),
        "ordered list of all calls": ToolHistoryStateRule(**EXACT),
    }
    if sessions.writes:
        rules["multiset of writes"] = WritesStateRule(writes=sessions.writes, **EXACT)
        rules["writes + last calls + results + user messages since"] = ExchangeStateRule(
            writes=sessions.writes, **EXACT
        )
    calls = list(sessions.calls(None))
    if calls[0].state is not None:
        states = {id(call.messages): call.state for call in calls}
        rules["world"] = lambda messages: states[id(messages)]
    found = {rule.name: 100 * rule.peers for rule in audit_sessions(calls, rules, {}).rules}
    table = {rule: share for (file, rule), share in read_table().items() if file == name}
    assert found.keys() == table.keys()
    assert {rule: (found[rule], share) for rule, share in table.items() if abs(found[rule] - share) > 0.1} == {}
