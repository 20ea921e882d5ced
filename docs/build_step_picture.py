"""Draw images/step_advantages.svg, the README's picture, from recorded ALFWorld rollouts: no number is typed.

python docs/build_step_picture.py [--check]

Eight rollouts of one task are lines with a dot per step. All eight reach one state; its dots show HGPO advantages.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path
from typing import Any

from groupwise import StepTable, methods
from groupwise.store import RolloutsFile

ROLLOUTS = Path(__file__).parents[1] / "examples" / "alfworld_rollouts.jsonl"
PICTURE = Path(__file__).parent / "images" / "step_advantages.svg"
TASK = "pick_clean_then_place_in_recep-Lettuce-None-Fridge-19"
STATE = "You arrive at sinkbasin 1"
SHOWN = 3
"""The rollout whose steps are explained."""
WIDTH, HEIGHT = 1200, 440
SHOWN_AT, TOP, ROW_GAP = 142, 188, 30
"""Where the line of the explained rollout is, and those of the others."""
LEFT, RIGHT = 150, 1184
BOX_LEFT, BOX_RIGHT, BOX_WIDTH = 366, 606, 220
STYLE = """
text { font: 16px system-ui, sans-serif; fill: #24292f }
.title { font-size: 22px; font-weight: 600 }
.bold { font-weight: 600 }
.quiet { fill: #59636e }
.column { fill: #f3e8c8 }
.box { fill: #fff; stroke: #8c959f }
.pointer { stroke: #8c959f; stroke-width: 1.5 }
.solved { stroke: #9cc3ee; fill: #9cc3ee }
.failed { stroke: #c4c9ce; fill: #c4c9ce }
.plus { fill: #0b60c4 }
.minus { fill: #d9660a }
.ring { stroke: #fff; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .quiet { fill: #a3adb8 }
  .column { fill: #4a4120 }
  .box { fill: #20262d; stroke: #7d8590 }
  .pointer { stroke: #7d8590 }
  .solved { stroke: #2f5f94; fill: #2f5f94 }
  .failed { stroke: #555d66; fill: #555d66 }
  .plus { fill: #58a6ff }
  .minus { fill: #ff9440 }
  .ring { stroke: #0d1117 }
}
"""


def draw() -> str:
    """The picture as SVG."""
    rows = [row for row in RolloutsFile.open(ROLLOUTS).rows() if row["task"] == TASK]
    columns = {name: [row[name] for row in rows] for name in ("task", "rollout", "step", "state", "reward")}
    table = StepTable.from_columns(**columns)
    hgpo, grpo = methods.hgpo(depth=2).advantage(table).values, methods.grpo().advantage(table).values
    rollouts: dict[int, list[int]] = {}
    for place, row in enumerate(rows):
        rollouts.setdefault(row["rollout"], []).append(place)
    # Lines are shifted so that the first steps in the shared state form a column.
    first = {
        number: next(step for step, place in enumerate(places) if in_state(rows[place]))
        for number, places in rollouts.items()
    }
    before, after = max(first.values()), max(len(rollouts[number]) - first[number] for number in rollouts)
    gap = (RIGHT - LEFT) / (before + after - 1)
    column = LEFT + before * gap
    others = sorted(set(rollouts) - {SHOWN})
    lines = {SHOWN: SHOWN_AT} | {number: TOP + line * ROW_GAP for line, number in enumerate(others)}
    bottom = max(lines.values())

    marks = [
        text(12, 30, "Which step made the difference?", "start", "title"),
        text(RIGHT, 30, "Eight rollouts of one ALFWorld task, one dot per step", "end", "quiet"),
        f'<rect class="column" x="{column - 13:.1f}" y="{SHOWN_AT - 16}" width="26" height="{bottom - SHOWN_AT + 32}" '
        'rx="6"/>',
        text(
            column,
            bottom + 34,
            f"All 8 rollouts reach this state: “{STATE}”. Coloured dots are steps in it.",
            "middle",
            "quiet",
        ),
    ]
    for number, places in rollouts.items():
        y, is_solved = lines[number], any(rows[place]["reward"] > 0 for place in places)
        kind = "solved" if is_solved else "failed"
        xs = [column + (step - first[number]) * gap for step in range(len(places))]
        marks.append(text(12, y + 5, f"rollout {number} {kind}", "start", "bold" if number == SHOWN else "quiet"))
        marks.append(f'<line class="{kind}" x1="{xs[0]:.1f}" x2="{xs[-1]:.1f}" y1="{y}" y2="{y}" stroke-width="2.5"/>')
        explained = 0
        for x, place in zip(xs, places, strict=True):
            if not in_state(rows[place]):
                marks.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y}" r="3.5"/>')
                continue
            if number == SHOWN:
                marks += explain(rows[place], hgpo[place], x, left=(BOX_LEFT, BOX_RIGHT)[explained])
                explained += 1
            sign = "plus" if hgpo[place] > 0 else "minus"
            radius = 4.5 + 5 * min(abs(hgpo[place]), 1.2)
            marks.append(f'<circle class="{sign} ring" cx="{x:.1f}" cy="{y}" r="{radius:.1f}"/>')
        if number == SHOWN:
            marks.append(text(xs[-1] + 16, y + 5, f"GRPO: {grpo[places[0]]:+.2f} for every step", "start", "bold"))
    at = HEIGHT - 8
    for x, kind, size, words in (
        (18, "plus", 8, "positive HGPO advantage"),
        (270, "minus", 8, "negative HGPO advantage"),
        (532, "failed", 3.5, "other steps"),
    ):
        marks.append(
            f'<circle class="{kind}" cx="{x}" cy="{at - 5}" r="{size}"/>{text(x + 14, at, words, "start", "")}'
        )
    body = "\n".join(marks)
    label = (
        f"Eight rollouts of one task. GRPO gives every step of rollout {SHOWN} the same advantage. HGPO compares steps "
        "in a state that all rollouts reach, and gives them different advantages."
    )
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}">'
    return f"{head}\n<style>{STYLE}</style>\n{body}\n</svg>\n"


def explain(row: dict[str, Any], advantage: float, x: float, *, left: int) -> list[str]:
    """A box above a step, with its action and its advantage."""
    words = f"step {row['step']}: {row['action'].removesuffix(' with sinkbasin 1')}"
    return [
        f'<line class="pointer" x1="{x:.1f}" x2="{x:.1f}" y1="{SHOWN_AT}" y2="104"/>',
        f'<rect class="box" x="{left}" y="52" width="{BOX_WIDTH}" height="54" rx="6"/>',
        text(left + 12, 73, words, "start", ""),
        text(left + 12, 96, f"HGPO: {advantage:+.2f}", "start", "bold"),
    ]


def in_state(row: dict[str, object]) -> bool:
    return str(row["state"]).startswith(STATE)


def text(x: float, y: float, words: str, anchor: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def main(options: list[str]) -> None:
    """Write the picture; with --check, say that it is out of date."""
    drawn = draw()
    if options != ["--check"]:
        PICTURE.write_text(drawn, encoding="utf-8")
    elif PICTURE.read_text(encoding="utf-8") != drawn:
        sys.exit(f"{PICTURE.name} is out of date: run python docs/build_step_picture.py")


if __name__ == "__main__":
    main(sys.argv[1:])
