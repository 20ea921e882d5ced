"""Write the tables of r3.md and its picture from benchmarks/results/r3.json: no number is typed.

python docs/build_r3.py [--check]

A table is below its name, `<!-- table: NAME -->`; the text around it is written by hand.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from table_text import RESULTS, interval, percent, result, table

PAGE = Path(__file__).parents[1] / "benchmarks" / "pages" / "r3.md"
PICTURE = Path(__file__).parent / "images" / "r3.svg"
TABLE = re.compile(r"(<!-- table: (\w+) -->\n)(?:\|.*\n)*")
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 880.0, 400.0, 56.0, 40.0, 340.0
TASK_SETS = ((LEFT, 330.0, "curve", "Held-out success"), (400.0, 674.0, "cut_curve", "Held-out answers cut off"))
COLOURS = ("#4d4d4d", "#c8641b", "#2a7f9e", "#7fb2c8", "#0b3c52", "#6b3fa0", "#b79ad6", "#4f7d32", "#c2185b")


def outcome() -> str:
    """Success of each variant at equal sampled tokens, on held-out and on training questions."""
    measured = read_result()
    rows = []
    for variant, row in measured.get("variants", {}).items():
        against = row.get(f"held_out_against_{measured['baseline']}")
        rows.append(
            [
                variant,
                _share(row["held_out"]["success"]),
                "" if against is None else _points(against["more"]),
                _share(row["training"]["success"]),
                f"{row['updates']:.0f}",
            ]
        )
    head = ("variant", "held out", "more than GRPO, points", "training questions", "updates")
    return table(head, rows) if rows else ""


def conduct() -> str:
    """What the answers look like at the end."""
    rows = []
    for variant, row in read_result().get("variants", {}).items():
        out, own = row["held_out"], row["training"]
        rows.append(
            [
                variant,
                _share(out["cut_off"]),
                *(f"{percent(own[name]['value'])} %" for name in ("solve_none", "solve_all")),
                f"{out['tokens_of_answer']['value']:.1f}",
                f"{out['entropy']['value']:.3f}",
            ]
        )
    head = ("variant", "cut off", "solve-none", "solve-all", "tokens an answer", "entropy")
    return table(head, rows) if rows else ""


def calibration() -> str:
    """Responses cut by the token limit before training."""
    measured = read_result().get("calibration")
    if not measured:
        return ""
    names = ("cut_of_wrong", "cut_of_right", "success", "solve_none", "cut_where_none", "solve_all")
    rows = [
        [
            f"**{limit}**" if int(limit) == measured["limit"] else limit,
            *(f"{percent(row[name])} %" for name in names),
        ]
        for limit, row in sorted(measured["by_limit"].items(), key=lambda entry: int(entry[0]))
    ]
    head = (
        *("limit, tokens", "cut of the wrong", "cut of the right", "right within the limit"),
        *("questions none of eight solves", "cut off there", "questions all eight solve"),
    )
    return table(head, rows)


def read_result() -> dict[str, Any]:
    """The result of the benchmark; empty if it was not run yet."""
    measured: dict[str, Any] = result("r3") if (RESULTS / "r3.json").is_file() else {}
    return measured


def _share(case: Mapping[str, Any]) -> str:
    return f"{percent(case['value'])} % [{interval(case['interval'])}]"


def _points(case: Mapping[str, Any]) -> str:
    low, high = case["interval"]
    return f"{100 * case['value']:+.1f} [{100 * low:+.1f} to {100 * high:+.1f}]"


def draw(measured: Mapping[str, Any]) -> str:
    """Success and fraction of cut answers on held-out questions over sampled tokens, one line per variant, as SVG."""
    body = "\n".join(line for task_set in TASK_SETS for line in _draw_task_set(measured, *task_set))
    names = "\n".join(
        _write(694, TOP + 14 + 20 * place, variant, anchor="start", colour=COLOURS[place])
        for place, variant in enumerate(measured["variants"])
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {HEIGHT:.0f}" '
        f'style="font-family: sans-serif; font-size: 12px">\n'
        f'<rect width="{WIDTH:.0f}" height="{HEIGHT:.0f}" fill="white"/>\n{body}\n{names}\n</svg>\n'
    )


def _draw_task_set(measured: Mapping[str, Any], left: float, right: float, name: str, title: str) -> Iterator[str]:
    curves = {variant: [point["value"] for point in row[name]] for variant, row in measured["variants"].items()}
    values = [value for curve in curves.values() for value in curve]
    low, high = min(values), max(values) + 1e-9
    marks = measured["marks"]
    yield _write(left, 22, f"{title}, {len(measured['seeds'])} seeds", anchor="start")
    for part in range(5):
        share = low + (high - low) * part / 4
        y = BOTTOM - (BOTTOM - TOP) * part / 4
        yield f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>'
        yield _write(left - 6, y + 4, f"{percent(share, 0)} %", anchor="end")
    for mark in marks:
        yield _write(left + (right - left) * mark / marks[-1], BOTTOM + 18, f"{mark / 1000:.0f}k")
    yield _write((left + right) / 2, BOTTOM + 38, "sampled tokens")
    for place, curve in enumerate(curves.values()):
        points = " ".join(
            f"{left + (right - left) * mark / marks[-1]:.1f},"
            f"{BOTTOM - (BOTTOM - TOP) * (value - low) / (high - low):.1f}"
            for mark, value in zip(marks, curve, strict=True)
        )
        yield f'<polyline points="{points}" fill="none" stroke="{COLOURS[place]}" stroke-width="2"/>'


def _write(x: float, y: float, text: str, *, anchor: str = "middle", colour: str = "#222222") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'


TABLES = {"outcome": outcome, "conduct": conduct, "calibration": calibration}


def page(text: str) -> str:
    """The page with current tables."""
    return TABLE.sub(lambda match: match[1] + TABLES[match[2]](), text)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page and the picture; with --check, report whether they are stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where something would change")
    options = parser.parse_args(arguments)
    measured = read_result()
    wanted = {PAGE: page(PAGE.read_text(encoding="utf-8"))} | ({PICTURE: draw(measured)} if measured else {})
    changed = [path for path, text in wanted.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if options.check:
        sys.exit(f"run `python docs/build_r3.py`: {changed[0].name} is not what it would be" if changed else 0)
    for path in changed:
        path.write_text(wanted[path], encoding="utf-8")


if __name__ == "__main__":
    main()
