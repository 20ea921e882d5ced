"""Draw images/step_advantages.svg, the README's picture, from recorded ALFWorld rollouts: no number is typed.

python docs/build_step_picture.py [--check]

Eight rollouts of one task are lines with a dot per step. All eight reach one state; its dots show HGPO advantages.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

from groupwise import StepTable, methods
from groupwise.store import RolloutsFile

ROLLOUTS = Path(__file__).parents[1] / "examples" / "alfworld_rollouts.jsonl"
PICTURE = Path(__file__).parent / "images" / "step_advantages.svg"
TASK = "pick_clean_then_place_in_recep-Lettuce-None-Fridge-19"
STATE = "You arrive at sinkbasin 1"
SHOWN = 3
"""The rollout whose steps are explained."""
WIDTH, HEIGHT = 1200, 440
TOP, ROW_GAP = 104, 36
LEFT, RIGHT = 96, 1176
STYLE = """
text { font: 14px system-ui, sans-serif; fill: #333 }
.title { font-size: 17px; font-weight: 600 }
.note { font-size: 14px; font-weight: 600 }
.quiet { fill: #666 }
.column { fill: #f1ead8 }
.box { fill: #fff; stroke: #999 }
.pointer { stroke: #999; fill: none }
.solved { stroke: #2f6db3; fill: #2f6db3 }
.failed { stroke: #a0a0a0; fill: #a0a0a0 }
.plus { fill: #1f6fd0 }
.minus { fill: #d9741a }
.ring { stroke: #fff; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e6e6 }
  .quiet { fill: #a8a8a8 }
  .column { fill: #3a3524 }
  .box { fill: #20252b; stroke: #777 }
  .solved { stroke: #6aa5e8; fill: #6aa5e8 }
  .failed { stroke: #777; fill: #777 }
  .plus { fill: #58a6ff }
  .minus { fill: #f0933c }
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
    # Each line is moved so that its first step in the shared state stands in one column.
    first = {
        number: next(step for step, place in enumerate(places) if in_state(rows[place]))
        for number, places in rollouts.items()
    }
    before, after = max(first.values()), max(len(rollouts[number]) - first[number] for number in rollouts)
    gap = (RIGHT - LEFT) / (before + after - 1)
    column = LEFT + before * gap

    marks = [
        f'<rect class="column" x="{column - 13:.1f}" y="{TOP - 22}" width="26" height="{8 * ROW_GAP + 8}" rx="6"/>'
    ]
    marks.append(text(column + 13, TOP - 32, f"all 8 rollouts reach “{STATE}”", "end", "quiet"))
    spots: dict[int, tuple[float, float]] = {}
    for line, (number, places) in enumerate(sorted(rollouts.items())):
        y = TOP + line * ROW_GAP
        kind = "solved" if any(rows[place]["reward"] > 0 for place in places) else "failed"
        xs = [column + (step - first[number]) * gap for step in range(len(places))]
        marks.append(text(12, y + 5, f"{number}  {kind}", "start", "quiet"))
        marks.append(f'<line class="{kind}" x1="{xs[0]:.1f}" x2="{xs[-1]:.1f}" y1="{y}" y2="{y}" stroke-width="2"/>')
        for x, place in zip(xs, places, strict=True):
            if in_state(rows[place]):
                sign = "plus" if hgpo[place] > 0 else "minus"
                radius = 5 + 3 * min(abs(hgpo[place]), 1.6)
                marks.append(f'<circle class="{sign} ring" cx="{x:.1f}" cy="{y}" r="{radius:.1f}"/>')
                spots[place] = (x, y)
            else:
                marks.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y}" r="2.5"/>')
    explained = [place for place in rollouts[SHOWN] if in_state(rows[place])]
    for at, rise, place in zip((700, 944), (22, 13), explained, strict=True):
        x, y = spots[place]
        words = f"step {rows[place]['step']}: {rows[place]['action'].removesuffix(' with sinkbasin 1')}"
        marks.append(f'<path class="pointer" d="M {x:.1f} {y - 8} V {y - rise} H {at + 24} V 68"/>')
        marks.append(f'<rect class="box" x="{at}" y="22" width="232" height="46" rx="6"/>')
        marks.append(text(at + 12, 41, words, "start", ""))
        marks.append(text(at + 12, 60, f"HGPO {hgpo[place]:+.2f}, GRPO {grpo[place]:+.2f}", "start", "note"))
    marks.append(text(12, 30, "Which step made the difference?", "start", "title"))
    marks.append(text(12, 50, "One ALFWorld task, eight rollouts, a dot per step.", "start", "quiet"))
    bottom = TOP + 8 * ROW_GAP + 24
    marks.append(
        f'<circle class="plus" cx="18" cy="{bottom - 5}" r="7"/>'
        + text(32, bottom, "positive HGPO advantage", "start", "")
    )
    marks.append(
        f'<circle class="minus" cx="228" cy="{bottom - 5}" r="7"/>'
        + text(242, bottom, "negative; a larger dot is a larger advantage", "start", "")
    )
    marks.append(
        text(
            RIGHT,
            bottom,
            f"GRPO gives {grpo[rollouts[SHOWN][0]]:+.2f} to every step of rollout {SHOWN}.",
            "end",
            "quiet",
        )
    )
    body = "\n".join(marks)
    label = "Eight rollouts of one task. Steps in a state that all of them reach are coloured by their HGPO advantage."
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}">'
    return f"{head}\n<style>{STYLE}</style>\n{body}\n</svg>\n"


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
