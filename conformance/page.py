"""The page that puts subjects side by side."""

from __future__ import annotations

from collections import Counter
from typing import Any

from conformance.case import Case
from conformance.cases import CASES, CHAPTERS

Record = dict[str, Any]
"""What `python -m conformance.run --subject ... --out FILE` writes."""

INTRO = """\
# Conformance

<!-- Written by `python -m conformance.with_peers`. Do not edit by hand. -->

{count} named cases say what a library that computes group-based credit must answer: a small table of steps, a method,
and the credit of every row, or a relation between two tables. They live in `conformance/cases/`; each carries the
sentence that says why, and its source.

- A **law** is what any correct library must do. Tolerances leave room for single precision and for every published
  epsilon.
- A **convention** is a choice on which published practice differs; the case states ours. Failing one is no fault.
- A case that cannot be put to a library is counted apart, with the reason, and is not a failure.

Sources: a thread is named as repository#number; *numbers* is the page of [numbers worked by hand](numbers.md),
which also lists the requirements (R1, R2, ...) and the numbered traps.

One command runs everything and writes this page. It builds an environment for each peer under `.peers/`, or takes one
that is there already:

```
python -m conformance.with_peers [--python-verl PATH] [--python-trl PATH]
```

How each library is asked is described at the top of its file in `conformance/subjects/`.
"""

MARKS = {"pass": "pass", "fail": "**fail**", "cannot be asked": "n/a"}


def page(records: list[Record]) -> str:
    """The whole page as Markdown."""
    records = sorted(records, key=lambda record: (record["subject"] != "ours", record["title"].lower()))
    outcomes = [{outcome["name"]: outcome for outcome in record["cases"]} for record in records]
    parts = [
        INTRO.format(count=len(CASES)),
        "## Summary\n\n" + summary(records, outcomes),
        "## Versions\n\n" + versions(records),
        "## What was answered differently\n",
        *(f"### {record['title']}\n\n" + failures(by_name) for record, by_name in zip(records, outcomes, strict=True)),
        "## What could not be asked\n\n" + list_unasked(records, outcomes),
        "## Every case\n",
        *(f"### {title}\n\n" + chapter(cases, records, outcomes) for title, cases in CHAPTERS.items()),
    ]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def summary(records: list[Record], outcomes: list[dict[str, Any]]) -> str:
    lines = ["| library | kind | pass | fail | cannot be asked |", "|---|---|---:|---:|---:|"]
    for record, by_name in zip(records, outcomes, strict=True):
        for kind in ("law", "convention"):
            counts = Counter(by_name[case.name]["verdict"] for case in CASES if case.kind == kind)
            numbers = " | ".join(str(counts[verdict]) for verdict in MARKS)
            lines.append(f"| {record['title']} | {kind} | {numbers} |")
    return "\n".join(lines) + "\n"


def versions(records: list[Record]) -> str:
    return "\n".join(
        f"- **{record['title']}** (`{record['subject']}`): "
        + ", ".join(f"{package} {version}" for package, version in record["versions"].items())
        for record in records
    )


def failures(by_name: dict[str, Any]) -> str:
    lines = [
        f"- `{case.name}` ({case.kind}): found {by_name[case.name]['actual']}, expected "
        f"{by_name[case.name]['expected']}."
        for case in CASES
        if by_name[case.name]["verdict"] == "fail"
    ]
    return "\n".join(lines) if lines else "Nothing."


def list_unasked(records: list[Record], outcomes: list[dict[str, Any]]) -> str:
    lines = []
    for record, by_name in zip(records, outcomes, strict=True):
        reasons = Counter(outcome["reason"] for outcome in by_name.values() if outcome["reason"])
        lines += [f"- {record['title']}: {reason} ({count} cases)." for reason, count in reasons.most_common()]
    return "\n".join(lines).replace("(1 cases)", "(1 case)")


def chapter(cases: list[Case], records: list[Record], outcomes: list[dict[str, Any]]) -> str:
    titles = " | ".join(record["title"] for record in records)
    lines = [
        f"| case | method | kind | trap | {titles} |",
        "|---|---|---|---:|" + "---|" * len(records),
    ]
    for case in cases:
        marks = " | ".join(MARKS[by_name[case.name]["verdict"]] for by_name in outcomes)
        trap = "" if case.trap is None else case.trap
        lines.append(f"| {case.name.replace('-', ' ')} | {case.method} | {case.kind} | {trap} | {marks} |")
    return "\n".join(lines)
