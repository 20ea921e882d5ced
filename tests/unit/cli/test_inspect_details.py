"""`groupwise inspect`: tokens shaded by their credit, in colours and without; channels; pairs; and the same as JSON."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from groupwise.cli.attributed_tokens import choose_colours
from groupwise.cli.inspect import MANY_COLOURS, SIXTEEN_COLOURS, lay_out_tokens
from groupwise.report.groups import PlayedStep, read_groups
from groupwise.report.prompts import TokenTexts
from groupwise.training.run_reader import RunFolder
from tests.unit.cli.calls import invoke, show_json, words
from tests.unit.report.token_runs import CHANNELLED, PAIRED, answer, write_token_run

pytest.importorskip("tokenizers")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_token_run(tmp_path / "run")


def read_step(run: Path, rollout: int) -> PlayedStep:
    with RunFolder(run) as folder:
        (group,) = read_groups(folder, 1)
    return group.rollouts[rollout].steps[0]


def test_without_colours_a_number_stands_before_the_tokens_that_have_it(run: Path) -> None:
    lines = words(invoke("inspect", run, "--update", 1, "--task", "sum", "--rollout", 0))
    assert "advantage of tokens: printed before the tokens that have it; · if they do not train" in lines
    at = lines.index("0 What is three plus four?")
    assert lines[at + 1 : at + 4] == [
        "·«so» +0.750«three plus» ·«four» +0.250«is seven»",
        "4 of 5 sampled tokens train; advantages +0.250 to +0.750, sum +2.000",
        "> seven reward 1",
    ]


def test_in_colours_praise_and_blame_differ_and_what_does_not_train_is_dim(run: Path) -> None:
    texts = TokenTexts(run)
    (praised, _), (blamed, _) = (
        lay_out_tokens(read_step(run, rollout), texts, 0.75, MANY_COLOURS) for rollout in (0, 1)
    )
    assert praised.plain == "so three plus four is seven"
    assert [(praised.plain[span.start : span.end], span.style) for span in praised.spans] == [
        ("so", "dim"),
        (" three plus", "white on #1a4f96"),
        (" four", "dim"),
        (" is seven", "black on #b5d1f2"),
    ]
    assert [span.style for span in blamed.spans] == ["white on #8f3f06", "black on #f6c79c"]


@pytest.mark.parametrize(
    ("system", "palette"), [("truecolor", MANY_COLOURS), ("256", MANY_COLOURS), ("standard", SIXTEEN_COLOURS)]
)
def test_the_colours_are_those_that_a_terminal_has(system: str, palette: object) -> None:
    assert choose_colours(Console(force_terminal=True, color_system=system), MANY_COLOURS, SIXTEEN_COLOURS) is palette  # type: ignore[arg-type]
    assert (
        choose_colours(Console(force_terminal=True, color_system=system, no_color=True), MANY_COLOURS, SIXTEEN_COLOURS)
        is None
    )  # type: ignore[arg-type]
    assert choose_colours(Console(force_terminal=False, color_system=system), MANY_COLOURS, SIXTEEN_COLOURS) is None  # type: ignore[arg-type]


def luminance(colour: tuple[int, int, int]) -> float:
    linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("style", [style for side in MANY_COLOURS for style in side])
def test_every_shade_can_be_read(style: str) -> None:
    """The contrast that WCAG asks of a text: 4.5 to 1."""
    name, _, ground = style.partition(" on #")
    text = luminance({"black": (0, 0, 0), "white": (255, 255, 255)}[name])
    below = luminance(tuple(bytes.fromhex(ground)))  # type: ignore[arg-type]
    assert (max(text, below) + 0.05) / (min(text, below) + 0.05) >= 4.5


def test_json_has_every_token_with_its_text_and_credit(run: Path) -> None:
    data = show_json("inspect", run, "--update", 1, "--task", "sum", "--rollout", 0)
    (step,) = data["rollout"]["steps"]
    assert [(token["text"], token["trains"], token["credit"]) for token in step["tokens"]] == [
        ("so", False, None),
        (" three", True, 0.75),
        (" plus", True, 0.75),
        (" four", False, None),
        (" is", True, 0.25),
        (" seven", True, 0.25),
    ]
    assert "channels" not in step
    assert "pairs" not in data


def test_channels_stand_below_the_credit_of_a_step(tmp_path: Path) -> None:
    run = write_token_run(tmp_path / "run", CHANNELLED)
    lines = words(invoke("inspect", run, "--update", 1, "--task", "sum", "--rollout", 1))
    assert "channel tempo \N{MINUS SIGN}0.500" in lines
    (step,) = show_json("inspect", run, "--update", 1, "--task", "sum", "--rollout", 1)["rollout"]["steps"]
    assert step["channels"] == {"tempo": -0.5}
    assert "tokens" not in step


def test_pairs_are_counted_by_group_and_told_by_rollout(tmp_path: Path) -> None:
    spare = answer(2, "three is nine", 0.5, [3], [])
    run = write_token_run(
        tmp_path / "run", PAIRED, [answer(0, "nine", 1.0, [1], []), answer(1, "so", 0.0, [1], []), spare]
    )
    groups = words(invoke("inspect", run, "--update", 1))
    assert groups[0] == "run, update 1: 1 group, 0 without any pair"
    assert groups[1].split()[-1] == "pairs"
    described = "rollout 0 over rollout 1: best and worst rollout at the task: return 1 against 0; margin 1, weight 1"
    assert f"pair: {described}" in words(invoke("inspect", run, "--update", 1, "--task", "sum", "--rollout", 1))
    assert "rollout 2 is in none of the 1 pairs of the task" in words(
        invoke("inspect", run, "--update", 1, "--task", "sum", "--rollout", 2)
    )
    (pair,) = show_json("inspect", run, "--update", 1)["groups"][0]["pairs"]
    assert (pair["winner"], pair["loser"], pair["gap"]) == (0, 1, 1.0)
    assert show_json("inspect", run, "--update", 1, "--task", "sum", "--rollout", 0)["pairs"] == [pair]


def test_why_tells_a_token_with_its_neighbours_and_a_step_its_pairs(run: Path, tmp_path: Path) -> None:
    asked = ("inspect", run, "--update", 1, "--task", "sum", "--rollout", 0, "--step", 0)
    lines = words(invoke(*asked, "--token", 4))
    at = lines.index("token 4, id 5 (log-prob -1, entropy 0.5): SegmentCredit")
    assert lines[at + 1 : at + 6] == [
        "so three plus four »is« seven (tokens 0 to 5)",
        "advantage of its step: 1",
        "value where its segment begins: 0.75 (measured)",
        "value where its segment ends: 1 (what was compared)",
        "segment 2 of 2: 1 - 0.75 = 0.25; advantage of the token +0.250000000, by hand +0.250000000",
    ]
    masked, forced = (words(invoke(*asked, "--token", token))[-1] for token in (3, 0))
    assert masked == "it does not train: its probability was 0.99005, and only tokens below 0.9 do"
    assert forced == "it was forced on the policy and is read like the prompt: it does not train"
    paired = write_token_run(tmp_path / "paired", PAIRED)
    pairs_of_step = show_json("explain", paired, "--task", "sum@1", "--rollout", 1, "--step", 0)["pairs"]
    assert [(pair["winner"], pair["loser"]) for pair in pairs_of_step] == [(0, 1)]
