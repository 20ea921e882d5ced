"""The page of several runs: it says what the results say, along every axis, and holds nothing that runs."""

from __future__ import annotations

import re
from pathlib import Path

from groupwise.report.number_format import NO_NUMBER
from groupwise.report.runs import group_runs, read_run
from groupwise.report.runs_page import make_cost_axis, render_runs_page
from tests.unit.report.several_runs import write_small_run


def render(*folders: Path) -> str:
    return render_runs_page(group_runs([read_run(folder) for folder in folders]), name="several")


def list_texts(page: str) -> list[str]:
    return [
        text.strip()
        for text in re.sub(r"<style>.*?</style>|<svg.*?</svg>", "", page).split("<")
        for text in [text.partition(">")[2]]
        if text.strip()
    ]


def test_the_page_tells_variants_pairs_families_runs_and_settings(tmp_path: Path) -> None:
    folders = [
        write_small_run(tmp_path / f"{method}{seed}", seed=seed, method=method, wins={0: 1, 3: wins})
        for method, wins in (("grpo", 2), ("rloo", 3))
        for seed in (0, 1, 2)
    ]
    page = render(*folders)
    texts = list_texts(page)
    for section in (
        "Curves of evaluations and training rollouts",
        "Variants compared in pairs",
        "Success by task category",
        "Results of each run",
        "Settings in which variants differ",
    ):
        assert section in texts
    assert "2 variants, 6 runs" in texts
    assert texts[texts.index("last") : texts.index("seeds") + 1] == ["last", "best", "seeds"]
    start = texts.index("seeds") + 1
    assert texts[start : start + 6] == ["grpo", "50.0\u202f%", "50.0 to 50.0", "50.0\u202f%", "50.0 to 50.0", "3"]
    pairs = texts.index("95 % interval") + 1
    assert texts[pairs : pairs + 5] == ["rloo", "over", "grpo", "1.00", "1.00 to 1.00"]
    easy = texts.index("easy")
    assert texts[easy : easy + 5] == ["easy", "2 tasks", "grpo", "50.0\u202f%", "50.0 to 50.0"]
    assert texts.count("by") == 1
    assert page == render(*folders)


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    folders = [
        write_small_run(tmp_path / f"{method}{seed}", seed=seed, method=method, wins={0: 1, 3: wins})
        for method, wins, seeds in (("grpo", 2, (0,)), ("rloo", 3, (0, 1)))
        for seed in seeds
    ]
    texts = list_texts(render(*folders))
    start = texts.index("seeds") + 1
    assert texts[start : start + 4] == ["grpo", "50.0\u202f%", "50.0\u202f%", "1"]
    assert texts[start + 4 : start + 10] == ["rloo", "75.0\u202f%", "75.0 to 75.0", "75.0\u202f%", "75.0 to 75.0", "2"]
    pairs = texts.index("95 % interval") + 1
    assert texts[pairs : pairs + 5] == ["rloo", "over", "grpo", "1.00", NO_NUMBER]


def test_every_chart_is_there_along_every_axis_and_the_first_is_chosen(tmp_path: Path) -> None:
    page = render(write_small_run(tmp_path / "0"), write_small_run(tmp_path / "1", seed=1))
    num_charts = page.count("<figure")
    for axis in ("updates", "steps", "tokens", "time"):
        assert page.count(f'class="by by-{axis}"') == num_charts == 3
        assert f'<label for="axis-{axis}">' in page
        assert re.search(rf"#axis-{axis}:checked ~ \* \.by-{axis}", page)
    assert re.findall(r'<input type="radio" name="axis" id="(\S+)" checked', page) == ["axis-updates"]


def test_nothing_runs_and_nothing_is_fetched(tmp_path: Path) -> None:
    evil = "</style><script>alert(1)</script>"
    page = render(
        write_small_run(tmp_path / "0", tags=(evil,), env={"kind": evil}),
        write_small_run(tmp_path / "1", seed=1, tags=(evil,), env={"kind": evil}),
    )
    assert "<script" not in page
    assert not re.search(r"https?://|url\(|@import|src=", page)
    assert "default-src &#x27;none&#x27;; style-src &#x27;unsafe-inline&#x27;" in page


def test_what_must_be_known_to_read_the_numbers_is_said(tmp_path: Path) -> None:
    page = render(
        write_small_run(tmp_path / "0", updates=2, wins={0: 1, 2: 2}),
        write_small_run(tmp_path / "1", seed=1, wins={}),
    )
    texts = list_texts(page)
    assert "An interval over fewer than three seeds is not reliable: grpo." in texts
    assert "Not evaluated yet, so not counted: grpo seed 1." in texts
    assert "Not finished; counted up to their last update: grpo seed 0 (2 of 3)." in texts


def test_runs_without_evaluation_are_not_ranked(tmp_path: Path) -> None:
    texts = list_texts(
        render(write_small_run(tmp_path / "0", wins={}), write_small_run(tmp_path / "1", seed=1, wins={}))
    )
    assert "None of these runs was evaluated on a fixed task set, so they cannot be ranked." in texts
    assert "Success" in texts


def test_ticks_of_each_axis_are_round_and_have_their_unit() -> None:
    def label(kind: str, high: float) -> list[str]:
        axis, _ = make_cost_axis(kind, high, 0.0, 100.0)
        return [axis.label(tick).replace("\u202f", " ") for tick in axis.ticks]

    assert label("updates", 24) == ["0", "5", "10", "15", "20"]
    assert label("tokens", 1_300_000) == ["0", "0.5 M", "1 M"]
    assert label("steps", 840) == ["0", "500"]
    assert label("time", 95) == ["0", "50 s"]
    assert label("time", 1000) == ["0", "5 min", "10 min", "15 min"]
    assert label("time", 0) == ["0"]
