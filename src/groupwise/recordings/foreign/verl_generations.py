"""verl's own rollout dumps: `{update}.jsonl`, one response a row (`trainer.rollout_data_dir`, `validation_data_dir`).

Read here, and nothing else:

    input   -> observation, and the task where there is no uid (a digest of the text)
    output  -> action
    score   -> reward and outcome
    step    -> group             the number of the update: attempts at one task are compared within an update
    uid     -> task; of the form `{sample}_{session}_{output}` (verl >= 0.9) it is task, attempt and index
    acc     -> extra.acc

A response is an attempt of one step, numbered in the order of the file. An attempt of several outputs (by `uid`, whose
rows verl writes next to each other) is a step each; its outcome is the score of the last output, as in verl's own
metrics, and the other steps have reward 0. These dumps record no state: nothing is comparable below the attempt.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from groupwise.recordings.foreign.record import ForeignLines, Record, make_id
from groupwise.recordings.lines import Progress
from groupwise.recordings.row import Row

MAX_DIGITS = 100
"""Of the numbers in a `uid`."""

_OUTPUT_UID = re.compile(r"(.+)_(\d+)_(\d+)")


class VerlGenerationsSource(ForeignLines):
    """The responses of a verl dump as rows."""

    read_as = "verl generations"

    def read_rows(self, progress: Progress | None, left_out: Counter[str]) -> Iterator[tuple[int, Row]]:
        """Every response."""
        seen: Counter[str] = Counter()
        values = self.lines.values(progress)
        rows = (_make_row(Record.of(self.lines.path, line, value), seen) for line, value in values)
        for _, attempt in groupby(rows, key=_identify_attempt):
            outputs = list(attempt)
            outcome = outputs[-1][1]["reward"]
            for line, row in outputs:
                row["outcome"] = outcome
                row["reward"] = outcome if row is outputs[-1][1] else 0.0
                yield line, row


def _identify_attempt(numbered: tuple[int, Row]) -> tuple[Any, Any]:
    _, row = numbered
    return row.get("group", row["task"]), row["attempt"]


def _make_row(record: Record, seen: Counter[str]) -> tuple[int, Row]:
    uid = str(record.id("uid")) if "uid" in record.fields else None
    parts = _OUTPUT_UID.fullmatch(uid) if uid is not None else None
    if parts is not None and max(len(parts[2]), len(parts[3])) > MAX_DIGITS:
        raise record.error(
            "uid", f"ends in a number of more than {MAX_DIGITS} digits", "verl numbers sessions and outputs from 0"
        )
    prompt = record.text("input") or ""
    task = parts[1] if parts is not None else uid or f"input-{make_id(prompt)}"
    group = f"{task}@{record.id('step')}" if "step" in record.fields else task
    row: Row = {
        "task": task,
        "group": group,
        "attempt": int(parts[2]) if parts is not None else seen[group],
        "index": int(parts[3]) if parts is not None else 0,
        "observation": prompt,
        "action": record.text("output"),
        "reward": record.number("score"),
    }
    seen[group] += 1
    if "acc" in record.fields:
        row["extra"] = {"acc": record.fields["acc"]}
    return record.line, row
