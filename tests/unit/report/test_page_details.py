"""The page where tokens have credit of their own, or a loss reads channels or pairs: shades, legend, tables, size."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from groupwise.report.derived_credit import NUM_SHADES, CreditedTokens
from groupwise.report.groups import PlayedGroup, PlayedRollout, PlayedStep, read_groups
from groupwise.report.page import (
    MAX_PAIRS,
    MAX_TOKENS,
    MAX_TOKENS_OF_ROLLOUT,
    Scales,
    TokenShades,
    render_page,
    write_group,
)
from groupwise.report.prompts import TaskGoal, TokenTexts
from groupwise.training.run_reader import RunFolder
from tests.unit.report import token_runs
from tests.unit.report.outline import Outline
from tests.unit.report.token_runs import CHANNELLED, PAIRED, answer, write_token_run

CSS = resources.files("groupwise.report")


def page_of(folder: Path) -> str:
    with RunFolder(folder) as run:
        return render_page(run, method="segments")


def test_the_text_is_shaded_by_credit_and_says_its_number(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    page = page_of(write_token_run(tmp_path / "run"))
    Outline(page)
    responses = re.findall(r'<p class="said shaded">(.*?)</p>', page)
    spans = [re.findall(r'<span class="(\w+)" title="([^"]+)">([^<]+)</span>', response) for response in responses]
    assert spans[0] == [
        ("untrained", "token 0: forced on the policy, does not train", "so"),
        ("p5", "tokens 1 to 2: +0.7500", " three plus"),
        ("untrained", "token 3: does not train", " four"),
        ("p2", "tokens 4 to 5: +0.2500", " is seven"),
    ]
    assert [(kind, text) for kind, _, text in spans[1]] == [("m5", "three plus four"), ("m2", " is nine")]
    assert "4 of 5 sampled tokens train; advantages +0.250 to +0.750, sum +2.000" in page


def test_a_legend_says_what_the_shades_mean(tmp_path: Path) -> None:
    page = page_of(write_token_run(tmp_path / "run"))
    legend = page.partition('<p class="shades">')[2].partition("</p>")[0]
    shades = [*(f"m{shade}" for shade in range(NUM_SHADES, 0, -1)), *(f"p{shade}" for shade in range(NUM_SHADES + 1))]
    assert re.findall(r'<i class="shade (\w\d)"></i>', legend) == shades
    assert "\N{MINUS SIGN}0.750" in legend
    assert "+0.750" in legend


def test_pairs_stand_below_the_task_with_why_and_margin(tmp_path: Path) -> None:
    page = page_of(write_token_run(tmp_path / "run", PAIRED))
    (row,) = re.findall(r'<tr><th scope="row">(rollout 0)</th><td>(.*?)</td><td>(.*?)</td><td>(.*?)</td>', page)
    assert row == ("rollout 0", "rollout 1", "best and worst rollout at the task: return 1 against 0", "1")
    assert "The loss reads pairs of rollouts; they are listed below each task." in page
    even = [answer(rollout, "nine", 1.0, [1], []) for rollout in (0, 1)]
    assert "The loss reads pairs, and these rollouts form none." in page_of(
        write_token_run(tmp_path / "even", PAIRED, even)
    )


def test_channels_are_bars_of_their_own(tmp_path: Path) -> None:
    page = page_of(write_token_run(tmp_path / "run", CHANNELLED))
    channels = re.findall(r'<dl class="channels"><dt>channel tempo</dt><dd><span class="number (\w+)">', page)
    assert channels == ["plus", "minus"]


def test_only_pages_with_something_to_show_have_its_rules(run_path: Path, tmp_path: Path) -> None:
    assert "untrained" not in page_of(run_path)
    assert ".untrained" in page_of(write_token_run(tmp_path / "run"))


def test_a_hostile_text_stays_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tokenizers")
    hostile = "<script>alert(1)</script>\x1b[2J\N{RIGHT-TO-LEFT OVERRIDE}"
    monkeypatch.setattr(token_runs, "WORDS", [*token_runs.WORDS, hostile])
    rollouts = [answer(0, f"so {hostile}", 1.0, [2], []), answer(1, "nine", 0.0, [1], [])]
    page = page_of(write_token_run(tmp_path / "run", rollouts=rollouts))
    Outline(page)
    assert "<script" not in page
    assert "\x1b" not in page
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in page
    assert html.escape("<script>alert(1)</script>") in page


# Size


def make_step(index: int, num: int) -> PlayedStep:
    """A step whose tokens all have another credit, so that nothing can be told together."""
    values = np.linspace(-1.0, 1.0, num)
    tokens = CreditedTokens(ids=list(range(num)), num_forced=0, values=values, trains=np.ones(num, dtype=np.bool_))
    return PlayedStep(
        step=index,
        observation="",
        action="a",
        response="said",
        flaw="",
        cut=False,
        reward=0.0,
        credit=1.0,
        compared=True,
        company=(),
        tokens=tokens,
    )


def make_group(steps: int, tokens: int) -> PlayedGroup:
    rollout = PlayedRollout(
        task="t",
        rollout=0,
        stop="terminated",
        outcome=1.0,
        success=None,
        origin="fresh",
        error=None,
        steps=tuple(make_step(index, tokens) for index in range(steps)),
    )
    return PlayedGroup(task="t", rollouts=(rollout,))


def write(group: PlayedGroup, folder: Path) -> str:
    shades = TokenShades(TokenTexts(folder), [group])
    return write_group(group, TaskGoal(text="", tags=()), scales=Scales(reach=1.0, shades=shades))


def test_a_long_response_is_shown_at_both_ends_and_says_what_is_left_out(tmp_path: Path) -> None:
    text = write(make_group(1, 1000), tmp_path)
    assert f" … {1000 - MAX_TOKENS} tokens left out … " in text
    assert len(re.findall(r'<span class="[pm]\d"', text)) == MAX_TOKENS
    assert "token 0:" in text
    assert "token 999:" in text


def test_an_rollout_of_ten_thousand_long_steps_makes_a_small_page(tmp_path: Path) -> None:
    group = make_group(10_000, 500)
    text = write(group, tmp_path)
    assert len(re.findall(r'<span class="[pm]\d"', text)) <= MAX_TOKENS_OF_ROLLOUT
    (rollout,) = group.rollouts
    bare = replace(rollout, steps=tuple(replace(step, tokens=None) for step in rollout.steps))
    plain = write_group(replace(group, rollouts=(bare,)), TaskGoal(text="", tags=()), scales=Scales(reach=1.0))
    assert len(text) - len(plain) < 250_000
    assert "500 of 500 sampled tokens train" in text
    assert "; not shaded, to keep the page small" in text
    assert "steps left out" in text


def test_no_more_pairs_are_listed_than_can_be_read(tmp_path: Path) -> None:
    folder = write_token_run(tmp_path / "run", PAIRED)
    with RunFolder(folder) as run:
        (group,) = read_groups(run, 1)
    assert group.pairs is not None
    many = PlayedGroup(task="t", rollouts=group.rollouts, pairs=group.pairs * 100)
    text = write_group(many, TaskGoal(text="", tags=()), scales=Scales(reach=1.0))
    assert text.count("return 1 against 0") == MAX_PAIRS
    assert f"{100 - MAX_PAIRS} more are not listed" in text


# Contrast


def read_colours(css: str, *, dark: bool) -> dict[str, tuple[float, ...]]:
    """The variables of the page, light or dark."""
    light, _, rest = css.partition("@media")
    colours = dict(re.findall(r"--(\w+): #([0-9a-f]{6})", light))
    if dark:
        colours |= dict(re.findall(r"--(\w+): #([0-9a-f]{6})", rest.partition("}\n}")[0]))
    return {name: tuple(bytes.fromhex(value)) for name, value in colours.items()}


def luminance(colour: tuple[float, ...]) -> float:
    linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: tuple[float, ...], second: tuple[float, ...]) -> float:
    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_texts_on_every_shade_can_be_read(dark: bool) -> None:
    """The contrast that WCAG asks of a text: 4.5 to 1."""
    colours = read_colours(CSS.joinpath("page.css").read_text(encoding="utf-8"), dark=dark)
    shades = re.findall(
        r"\.([pm]\d) \{ background: color-mix\(in srgb, var\(--(\w+)\) (\d+)%", CSS.joinpath("details.css").read_text()
    )
    assert len(shades) == 2 * NUM_SHADES
    for _, name, share in shades:
        mixed = tuple(
            int(share) / 100 * full + (1 - int(share) / 100) * ground
            for full, ground in zip(colours[name], colours["card"], strict=True)
        )
        assert contrast(colours["ink"], mixed) >= 4.5
    assert contrast(colours["muted"], colours["card"]) >= 4.5
