"""Numbers, markup, axes and curves: the pieces that the page is made of."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.report.charts import (
    Curve,
    choose_window,
    draw_credit_bar,
    draw_credit_strip,
    draw_curve,
    draw_curve_card,
    draw_histogram,
    draw_stacked_bar,
    make_update_axis,
    make_value_axis,
    round_up_step,
    scale_credit,
    smooth_points,
    split_at_gaps,
)
from groupwise.report.markup import Html, cut_text, join, tag
from groupwise.report.number_format import (
    format_compact,
    format_count,
    format_number,
    format_percent,
    format_points,
    format_seconds,
    format_signed,
)
from groupwise.system.text import escape_controls

FINITE = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e12, max_value=1e12)


class Parsed(HTMLParser):
    """The tags and the text that a browser would see."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.shown = ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.shown += data


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (format_percent(0.385), "38.5\u202f%"),
        (format_percent(1.0, 0), "100\u202f%"),
        (format_percent(None), "\u2013"),
        (format_percent(math.nan), "\u2013"),
        (format_points(-0.05), "\u22125.0\u202fpoints"),
        (format_number(-0.0004, 3), "0.000"),
        (format_number(-1234.5, 1), "\u22121,234.5"),
        (format_signed(0.25, 2), "+0.25"),
        (format_signed(-0.25, 2), "\u22120.25"),
        (format_signed(1e-9, 2), "0.00"),
        (format_signed(math.inf), "\u2013"),
        (format_compact(0.0), "0"),
        (format_compact(-0.0312345), "\u22120.0312"),
        (format_compact(999.7), "1,000"),
        (format_compact(12345.6), "12,346"),
        (format_compact(2.5e-7), "2.5e\u22127"),
        (format_compact(3e9), "3e9"),
        (format_seconds(0.25), "0.25\u202fs"),
        (format_seconds(59.9), "60\u202fs"),
        (format_seconds(75), "1\u202fmin 15\u202fs"),
        (format_seconds(7300), "2\u202fh 1\u202fmin"),
        (format_seconds(None), "\u2013"),
        (format_count(1, "task"), "1 task"),
        (format_count(2000, "task"), "2,000 tasks"),
    ],
)
def test_numbers_are_written_as_people_read_them(shown: str, expected: str) -> None:
    assert shown == expected


def test_an_element_has_its_attributes_and_its_content() -> None:
    made = tag("p", "1 < 2", tag("b", "yes"), [Html("<i></i>"), "&"], None, class_="note", aria_label='"x"', open=True)
    assert made == '<p class="note" aria-label="&quot;x&quot;" open>1 &lt; 2<b>yes</b><i></i>&amp;</p>'
    assert tag("rect", x=1.0, y=2.25, title=None, hidden=False) == '<rect x="1" y="2.2"/>'


@given(st.text(), st.text())
def test_no_text_becomes_markup(content: str, attribute: str) -> None:
    parsed = Parsed(tag("p", content, tag("b", "end"), title=attribute))
    assert parsed.tags == ["p", "b"]
    assert parsed.shown == escape_controls(content) + "end"
    assert parsed.attributes == [("title", escape_controls(attribute))]


def test_a_long_text_is_cut_and_says_by_how_much() -> None:
    assert cut_text("short & sweet", 20) == "short &amp; sweet"
    assert cut_text("<" * 1500, 3) == '&lt;&lt;&lt;<span class="cut"> … 1,497 more characters</span>'
    assert join("a", None, "<") == "a&lt;"


@given(st.lists(FINITE, min_size=1, max_size=20), st.booleans())
def test_an_axis_holds_all_its_values_in_order(values: list[float], share: bool) -> None:
    axis = make_value_axis(values, 100.0, 0.0, share=share)
    slack = 1e-6 * max(1.0, *map(abs, values))
    assert axis.low - slack <= min(values) <= max(values) <= axis.high + slack
    assert axis.ticks[0] == axis.low
    assert axis.ticks[-1] == axis.high
    assert 2 <= len(axis.ticks) <= 8
    assert (axis.place(axis.low), axis.place(axis.high)) == (100.0, 0.0)
    low, high = sorted((values[0], values[-1]))
    assert axis.place(low) >= axis.place(high) - 1e-6


@pytest.mark.parametrize(
    ("values", "share", "ticks"),
    [
        ([0.2, 0.9], True, (0.0, 0.25, 0.5, 0.75, 1.0)),
        ([0.31, 0.48], True, (0.3, 0.35, 0.4, 0.45, 0.5)),
        ([0.01, 0.04], True, (0.0, 0.05, 0.1)),
        ([0.992, 1.0], True, (0.9, 0.95, 1.0)),
        ([0.5, 0.5], True, (0.45, 0.5, 0.55)),
        ([0.2, 1.9], False, (0.0, 0.5, 1.0, 1.5, 2.0)),
        ([-0.05, 0.02], False, (-0.06, -0.04, -0.02, 0.0, 0.02)),
        ([8.0, 8.0], False, (0.0, 5.0, 10.0)),
        ([0.0], False, (-1.0, -0.5, 0.0, 0.5, 1.0)),
        ([], False, (0.0, 0.5, 1.0)),
    ],
)
def test_ticks_are_round_numbers(values: list[float], share: bool, ticks: tuple[float, ...]) -> None:
    assert make_value_axis(values, 0.0, 1.0, share=share).ticks == pytest.approx(ticks)


def test_ticks_that_are_close_have_different_labels() -> None:
    axis = make_value_axis([12.01, 12.09], 0.0, 1.0)
    assert [axis.label(tick) for tick in axis.ticks] == ["12.00", "12.02", "12.04", "12.06", "12.08", "12.10"]


def test_updates_have_whole_ticks() -> None:
    assert make_update_axis((1, 40), 0.0, 1.0).ticks == (10.0, 20.0, 30.0, 40.0)
    assert make_update_axis((0, 3), 0.0, 1.0).ticks == (0.0, 1.0, 2.0, 3.0)
    assert make_update_axis((7, 7), 0.0, 1.0).ticks == (7.0,)
    assert make_update_axis((7, 7), 0.0, 1.0).place(7) == 0.5


@given(st.floats(min_value=1e-9, max_value=1e9))
def test_a_step_is_round_and_just_large_enough(minimum: float) -> None:
    step = round_up_step(minimum)
    assert minimum * (1 - 1e-6) <= step <= 2.5 * minimum * (1 + 1e-6)
    assert f"{step:.0e}"[0] in "125"


def test_a_line_breaks_where_an_update_is_missing() -> None:
    points = [(1, 0.1), (2, 0.2), (4, 0.4), (5, 0.5)]
    assert list(split_at_gaps(points)) == [points[:2], points[2:]]
    sparse = [(10, 0.1), (20, 0.2), (30, 0.3)]
    assert list(split_at_gaps(sparse)) == [sparse]
    assert list(split_at_gaps([])) == []
    assert list(split_at_gaps([(1, 0.0)])) == [[(1, 0.0)]]


def test_a_running_mean_is_taken_about_each_point() -> None:
    points = [(number, float(number**2)) for number in range(1, 6)]
    assert smooth_points(points, 3) == [(1, 1.0), (2, 14 / 3), (3, 29 / 3), (4, 50 / 3), (5, 25.0)]
    assert choose_window(60) == 0
    assert choose_window(500) == 21


def curve(points: list[tuple[int, float]], **more: object) -> Curve:
    span = (points[0][0], points[-1][0]) if points else (0, 1)
    return Curve(title="Loss", meaning="What was minimised.", points=points, span=span, **more)  # type: ignore[arg-type]


def test_a_curve_shows_its_points_and_says_their_numbers() -> None:
    drawn = draw_curve(curve([(1, 0.25), (2, 0.75)], is_share=True))
    # Across from 48 to 328, up from 148 (0) to 10 (1).
    assert 'points="48.0,113.5 328.0,44.5"' in drawn
    assert "<title>update 1: 25.0\u202f%</title>" in drawn
    assert 'aria-label="Loss: 25.0\u202f% at update 1, 75.0\u202f% at update 2"' in drawn
    assert re.findall(r'text-anchor="end">([^<]+)<', drawn) == [f"{tick}\u202f%" for tick in (0, 25, 50, 75, 100)]


def test_a_long_curve_stays_small_and_has_a_calm_line() -> None:
    drawn = draw_curve_card(curve([(number, math.sin(number)) for number in range(1, 501)]))
    assert drawn.count("<title>") == 60
    assert drawn.count('class="raw"') == 1
    assert drawn.count('class="line"') == 1
    assert "Dark line: mean of 21 updates." in drawn
    assert len(drawn) < 30_000


def test_a_curve_without_points_is_an_empty_frame() -> None:
    assert "no number yet" in draw_curve(curve([]))
    assert "\u2013" in draw_curve_card(curve([]))


@given(st.lists(FINITE | st.sampled_from([math.nan, math.inf, -math.inf, 0.0]), min_size=1, max_size=30))
def test_any_credit_can_be_drawn(credits: list[float]) -> None:
    reach = max((abs(credit) for credit in credits if math.isfinite(credit)), default=0.0)
    for credit in credits:
        assert 0.0 <= scale_credit(credit, reach) <= 1.0
        assert "nan" not in draw_credit_bar(credit, reach)
    assert "nan" not in draw_credit_strip(credits, reach)
    assert "nan" not in draw_histogram(credits)


def test_positive_credit_is_drawn_upwards_and_negative_downwards() -> None:
    drawn = draw_credit_strip([1.0, -0.5, 0.0], 1.0)
    bars = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="4.00" height="([\d.]+)" class="fill (\w+)"', drawn)
    assert bars == [("0.00", "0", "11", "plus"), ("5.00", "11", "5.5", "minus"), ("10.00", "11", "0.6", "none")]


def test_a_histogram_counts_every_value_once() -> None:
    drawn = draw_histogram([-1.0, -1.0, 0.0, 0.9, 1.0, 1.0])
    counts = [int(count) for count in re.findall(r": (\d+) steps?<", drawn)]
    assert counts == [2, 1, 1, 2]
    assert re.findall(r'class="fill (\w+)"', drawn) == ["minus", "none", "plus", "plus"]
    assert "<rect" in draw_histogram([0.0, 0.0])


def test_parts_of_the_time_are_as_wide_as_their_shares() -> None:
    drawn = draw_stacked_bar({"learn": 3.0, "rollout": 1.0, "credit": 0.0})
    assert re.findall(r"flex-grow:([\d.]+)", drawn) == ["0.7500", "0.2500", "0.0020"]
    assert 'title="learn: 3\u202fs, 75.0\u202f%"' in drawn
