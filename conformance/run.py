"""Put the cases to a subject, or write the page from recorded answers.

Ask: `python -m conformance.run --subject ours [--out result.json] [--case 'a-lone-*'] [--strict]`.
Write: `python -m conformance.run --table results/*.json --write conformance/README.md`.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import platform
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from conformance.case import Case
from conformance.cases import CASES
from conformance.page import page
from conformance.subjects import Subject, load

FORMAT = 1

Verdict = Literal["pass", "fail", "cannot be asked"]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a subject did with a case."""

    name: str
    verdict: Verdict
    reason: str = ""
    """Why the case cannot be asked."""
    actual: str = ""
    expected: str = ""


def put(case: Case, subject: Subject) -> Outcome:
    """Ask a subject everything a case wants to know, and judge the answers."""
    requests = case.expect.requests(case)
    for request in requests:
        reason = subject.supports(request.method, request.options, request.columns)
        if reason is not None:
            return Outcome(name=case.name, verdict="cannot be asked", reason=reason)
    try:
        answers = [subject.advantage(ask.method, ask.options, ask.columns) for ask in requests]
    except Exception as error:  # A library may raise anything; whatever it is, the case has no answer.
        first_line = next(iter(str(error).splitlines()), "").rstrip(".")
        actual = f"{type(error).__name__}: {first_line}"
        return Outcome(name=case.name, verdict="fail", actual=actual, expected="an answer")
    fault = case.expect.judge(case, answers)
    if fault is None:
        return Outcome(name=case.name, verdict="pass")
    return Outcome(name=case.name, verdict="fail", actual=fault.actual, expected=fault.expected)


def put_all(cases: Iterable[Case], subject_name: str) -> dict[str, object]:
    """The record of a run: who was asked, with which versions, and what came of it."""
    subject = load(subject_name)
    start = time.perf_counter()
    outcomes = [put(case, subject) for case in cases]
    return {
        "format": FORMAT,
        "subject": subject_name,
        "title": subject.title,
        "versions": {"python": platform.python_version(), **subject.versions},
        "seconds": round(time.perf_counter() - start, 2),
        "cases": [asdict(outcome) for outcome in outcomes],
    }


def arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m conformance.run", description=__doc__.split("\n")[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--subject", help="a name in conformance/subjects, or module:Class")
    what.add_argument("--table", nargs="+", type=Path, metavar="RESULT", help="results to put side by side")
    parser.add_argument("--out", type=Path, help="write the result here, as JSON")
    parser.add_argument("--case", default="*", help="only the cases whose names match this pattern")
    parser.add_argument("--strict", action="store_true", help="exit with status 1 when a case fails")
    parser.add_argument("--write", type=Path, help="write the page here instead of printing it")
    return parser.parse_args(words)


def report(record: dict[str, object], outcomes: list[dict[str, str]]) -> None:
    for outcome in outcomes:
        detail = outcome["reason"]
        if outcome["verdict"] == "fail":
            detail = f"found {outcome['actual']}, expected {outcome['expected']}"
        print(f"{outcome['verdict']:<16}{outcome['name']}{'  (' + detail + ')' if detail else ''}")
    counts = Counter(outcome["verdict"] for outcome in outcomes)
    summary = ", ".join(f"{counts[verdict]} {verdict}" for verdict in ("pass", "fail", "cannot be asked"))
    print(f"{record['title']}: {summary} in {record['seconds']} s")


def main(words: list[str] | None = None) -> int:
    options = arguments(words)
    if options.table:
        text = page([json.loads(path.read_text()) for path in options.table])
        if options.write:
            options.write.write_text(text)
        else:
            print(text)
        return 0
    cases = [case for case in CASES if fnmatch.fnmatch(case.name, options.case)]
    record = put_all(cases, options.subject)
    outcomes: list[dict[str, str]] = record["cases"]  # type: ignore[assignment]
    report(record, outcomes)
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n")
    return int(options.strict and any(outcome["verdict"] == "fail" for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
