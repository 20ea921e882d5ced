"""The section on rescued groups: how many there were, what was done for them, and what it did to their credit."""

from __future__ import annotations

from collections.abc import Sequence

from groupwise.evaluation.verdict import RunVerdict
from groupwise.reports.run.page.bands import draw_bands_card
from groupwise.reports.run.page.curves import Curve, draw_curve_card
from groupwise.reports.run.page.markup import Html, tag
from groupwise.reports.run.page.sections import find_update_span, make_metric_curve, make_section
from groupwise.reports.run.rescue import (
    Rescue,
    describe_guidance,
    describe_recalled,
    describe_shaping,
    find_recent_rescues,
    format_sizes,
    has_rescues,
)
from groupwise.reports.run.run_folder import RunFolder
from groupwise.reports.run.update_groups import PlayedGroup

MAX_ROWS = 12
"""How many rescued groups are listed."""
CURVES = {
    "rollout/zero_spread": "Tasks without spread",
    "replay/recalled": "Recalled attempts",
    "replay/age": "Age of what was recalled",
    "replay/log_ratio": "Distance of what was recalled",
    "guidance/groups": "Groups with guidance",
    "guidance/success": "Success with guidance",
    "shaping/groups": "Shaped groups",
}
"""The metrics that have a curve here, where the run has them, and what they are called."""


def write_rescued_section(folder: RunFolder, verdict: RunVerdict | None, last: Sequence[PlayedGroup]) -> Html | None:
    """What became of the groups that would have taught nothing; None where nothing was done for any."""
    if not has_rescues(folder):
        return None
    curves: list[Curve] = [
        make_metric_curve(folder, name, title, verdict)
        for name, title in CURVES.items()
        if any(folder.metrics.get(name, {}).values())
    ]
    shares = _find_shares(folder)
    meaning = (
        "Share of groups by where their credit comes from. Groups with guidance are counted too: where their attempts "
        "differ, they have signal by themselves."
    )
    bands = (
        [draw_bands_card("Groups with signal", meaning, shares, find_update_span(folder, verdict))] if shares else []
    )
    lead = (
        "Where all attempts at a task do equally well, comparing them teaches nothing. Such a group is rescued by past "
        "attempts that join it, by rewards that rank it, or by a further group with guidance."
    )
    return make_section(
        "rescued",
        "Rescued groups",
        tag("div", bands, [draw_curve_card(curve) for curve in curves], class_="cards"),
        _write_table(find_recent_rescues(folder, last, max_rescues=MAX_ROWS)),
        lead=lead,
    )


def _find_shares(folder: RunFolder) -> dict[str, dict[int, float]]:
    """The share of groups that had signal of their own, that were rescued, and that had none, by update."""
    signal, rescued = (folder.metrics.get(f"credit/groups_{name}", {}) for name in ("with_signal", "rescued"))
    numbers = sorted(signal.keys() & rescued.keys())
    if not numbers:
        return {}
    return {
        "by themselves": {number: signal[number] - rescued[number] for number in numbers},
        "rescued": {number: rescued[number] for number in numbers},
        "without": {number: 1 - signal[number] for number in numbers},
    }


def _write_table(rescues: Sequence[tuple[int, Rescue]]) -> Html | None:
    if not rescues:
        return None
    names = ("update", "task", "recalled", "shaped", "guidance", "mean |credit|")
    head = tag("tr", [tag("th", name, scope="col") for name in names])
    rows = [_write_row(number, rescue) for number, rescue in rescues]
    note = (
        "Mean size of the credit of the group's own steps: computed again without what joined or was added, and as it "
        "was. A group that is new because of its guidance has no number before."
    )
    return tag(
        "div",
        tag("h3", "The newest of them"),
        tag("div", tag("table", tag("thead", head), tag("tbody", rows), class_="rescues"), class_="scroll"),
        tag("p", note, class_="meaning"),
        class_="newest",
    )


def _write_row(number: int, rescue: Rescue) -> Html:
    without, size = format_sizes(rescue)
    why = "; ".join(dict.fromkeys(source.why for source in rescue.recalled))
    return tag(
        "tr",
        tag("th", str(number), scope="row"),
        tag("td", tag("code", rescue.task)),
        tag("td", describe_recalled(rescue), title=why or None),
        tag("td", describe_shaping(rescue)),
        tag("td", describe_guidance(rescue)),
        tag("td", f"{without} → ", tag("b", size)),
    )
