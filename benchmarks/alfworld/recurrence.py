"""How often states recur in what was played, and how much history matters: rollouts files, their audit, a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.alfworld.settings import CREDIT, METHODS
from groupwise.data.step_fields import STEP_FIELDS
from groupwise.store import write_rollouts
from groupwise.store.formats import open_rollouts
from groupwise.store.journal import Journal

MAX_ROWS = 100_000
"""Steps of a rollouts file, some 2 MB; where there are more, updates are left out, evenly."""
READ_BY_CREDIT = (*(field.name for field in STEP_FIELDS if field.in_rows and field.column), "version")
"""Of a step, what credit reads; tokens stay in the journal."""
DEPTH = 4


def write_whole_groups(journal: Path, file: Path) -> int:
    """Write a run's rollouts, whole groups, as a rollouts file; one update in how many is there."""
    with Journal(journal, read_only=True) as opened:
        numbers, sizes = opened.update_numbers(), dict(opened.curve("rollout/total_steps"))
        one_in = max(-(-int(sum(sizes.values())) // MAX_ROWS), 1)
        write_rollouts(file, _rows(opened, numbers[::one_in]), meta={"env": "alfworld"})
        return one_in


def _rows(journal: Journal, numbers: list[int]) -> Iterator[dict[str, Any]]:
    written: set[str] = set()
    for number in numbers:
        before = frozenset(written)
        for rollout in journal.trajectories(number):
            # A task that comes again has rollouts of the same numbers, which would be another group.
            if rollout["task"] not in before:
                written.add(rollout["task"])
                yield from ({name: row[name] for name in READ_BY_CREDIT if name in row} for row in rollout["steps"])


def audit_rollouts(file: Path) -> dict[str, Any]:
    """The audit of a rollouts file, as `groupwise audit --json` prints it."""
    from groupwise import methods
    from groupwise.report.audit import audit_tables

    algorithms = {name: methods.build(name, **CREDIT.get(name, {})) for name in METHODS}
    return audit_tables((chunk.table() for chunk in open_rollouts(file).chunks()), algorithms, depth=DEPTH).as_json()


def share_of_levels(audit: Mapping[str, Any]) -> list[dict[str, float]]:
    """By depth, the share of all steps that share a key and a past of that depth, and that have unequal returns there.

    The released HGPO leaves out a level of exactly 0, such as that of equal returns.
    """
    return [
        {
            "depth": level["depth"],
            "compared": round(level["compared_steps"] / audit["census"]["steps"], 4),
            "unequal": round((level["compared_steps"] - level["equal_steps"]) / audit["census"]["steps"], 4),
        }
        for level in audit["levels"]
    ]


SEE = """\
How it trained there, against GRPO and GiGPO:
[results](../../benchmarks/pages/results.md#how-far-does-a-pretrained-model-get-on-alfworld). There the penalty for
malformed responses was off, and one for refused commands, which nobody published, did harm
([ADR 6](../adr/0006-invalid-penalty.md)).
"""
"""What the page of the method says below the table."""
HEADING = "## How often states recur on ALFWorld, and how much history matters"


def table(audit: Mapping[str, Any], whose: str) -> str:
    """An audit as a paragraph and a table for the page of a method; `whose` says what was audited."""
    census, levels = audit["census"], audit["levels"]
    steps = census["steps"]
    last = levels[2]
    lines = [
        f"Measured on {whose}: {census['tasks']:,} tasks, {census['rollouts']:,} rollouts, {steps:,} steps "
        f"(`groupwise audit`). At depth 2, {_share(last['alone_steps'], steps)} of the steps have nobody who shares "
        f"their history, against {_share(levels[0]['alone_steps'], steps)} whose state nobody else visits. Where both "
        f"are compared, history moves the baseline by {last['relative_shift']:.2f} deviations of the state's group and "
        f"turns the sign of {_share(last['sign_flips'], last['compared_at_both'])} of the distances from it.",
        "",
        "| earlier states that must agree | compared | alone | too early | mean size | baseline moves | sign turns |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_line(level, steps) for level in levels]
    return "\n".join(lines) + "\n"


def _line(level: Mapping[str, Any], steps: int) -> str:
    shares = " | ".join(_share(level[f"{name}_steps"], steps) for name in ("compared", "alone", "too_early"))
    moves = turns = ""
    if level["depth"]:
        moves = f"{level['baseline_shift']:.2f} ({level['relative_shift']:.2f} deviations)"
        turns = _share(level["sign_flips"], level["compared_at_both"])
    return f"| {level['depth']} | {shares} | {level['mean_size']:.1f} | {moves} | {turns} |"


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"
