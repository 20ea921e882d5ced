"""`groupwise preview`: prompts in colours by origin, or with their names; the same as JSON; nothing foreign runs."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
from rich.console import Console

from groupwise.cli.attributed_tokens import STYLES, choose_styles, lay_out_text
from groupwise.cli.preview import print_preview
from groupwise.rollout.origins import TokenOrigin
from groupwise.training.config.run_file import load_run
from groupwise.training.doctor.preview import preview_run
from tests.unit.cli.calls import show_json, words
from tests.unit.cli.conftest import Run
from tests.unit.cli.run_files import small


def test_prompts_readings_and_costs_are_printed(groupwise: Run, tmp_path: Path) -> None:
    ran = groupwise("preview", small(tmp_path), "--tasks", "1", "--tokens", "--set", "rollout.max_tokens=2")
    assert ran.status == 0, ran.err
    lines = words(ran.out)
    assert lines[0] == "the origin of each piece of text is printed before it"
    assert any(line.startswith("step 0 ") and "tokens:" in line for line in lines)
    assert any(line.startswith("template«<s>» instruction« ") for line in lines)
    assert any(line.startswith("as it is asked for ") and line.endswith(" valid") for line in lines)
    assert any(line.startswith("in other words, cut off at max_tokens ") for line in lines)
    assert any(line.startswith("0 ") and line.endswith(" '<s>' template") for line in lines)
    assert any(
        line.startswith("an update: 8 rollouts. If all have the maximum length (8 steps): 128 sampled")
        for line in lines
    )
    assert any(line.startswith("memory: about ") for line in lines)
    assert any(line.startswith("time: about ") for line in lines)


def test_json_has_every_id_with_its_origin(groupwise: Run, tmp_path: Path) -> None:
    data = show_json("preview", tmp_path / small(tmp_path))
    config = load_run(tmp_path / "small.toml")
    shown = preview_run(config)
    assert [rollout["task"] for rollout in data["rollouts"]] == [rollout.task for rollout in shown.rollouts]
    for row, rollout in zip(data["rollouts"], shown.rollouts, strict=True):
        for row_of_step, step in zip(row["steps"], rollout.steps, strict=True):
            assert row_of_step["prompt_ids"] == list(step.prompt.ids)
            assert row_of_step["origins"] == list(step.prompt.origins)
            assert row_of_step["prompt"] == "".join(row_of_step["prompt_texts"])
            assert row_of_step["response_ids"] == list(step.response_ids)
    assert data["costs"]["rollouts"] == 8
    assert data["notes"] == ["sample responses are longer than rollout.max_tokens, 1; raise it"]


def test_settings_are_set_and_unset(tmp_path: Path, groupwise: Run) -> None:
    options = ("--unset", "rollout.max_tokens", "--set", "training.tasks=3")
    data = show_json("preview", tmp_path / small(tmp_path), *options)
    assert (data["costs"]["rollouts"], data["notes"]) == (12, [])


def test_a_terminal_shows_colours_and_a_legend(tmp_path: Path) -> None:
    shown = preview_run(load_run(tmp_path / small(tmp_path)), num_tasks=1)
    console = Console(force_terminal=True, color_system="truecolor", width=200, record=True)
    assert choose_styles(console) == STYLES
    print_preview(console, shown, with_tokens=False)
    html = console.export_html(inline_styles=True)
    assert "background-color: #f6c79c" in html or "background-color: #b5d1f2" in html
    assert " observation " in html
    assert "«" not in html.partition("sample response")[0].partition("read as")[0]


def test_every_origin_has_a_colour_and_recorded_text_moves_no_cursor() -> None:
    assert set(STYLES) == {str(origin) for origin in TokenOrigin}
    assert lay_out_text(["a\x1b[2J", "b"], ["task", "task"], None).plain == "task«a\\x1b[2Jb»"


def test_a_world_from_outside_is_not_opened_without_trust(groupwise: Run, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("raise SystemExit('it ran')", encoding="utf-8")
    file = tmp_path / small(tmp_path)
    file.write_text(
        file.read_text(encoding="utf-8").replace('kind = "identity"', 'kind = "own:World"'), encoding="utf-8"
    )
    ran = groupwise("preview", "small.toml")
    assert ran.status == 2
    assert "not loaded without --trust" in ran.err
    assert "it ran" not in ran.err
    assert "it ran" in groupwise("preview", "small.toml", "--trust").err


def test_a_run_file_that_is_not_there_is_a_sentence(groupwise: Run) -> None:
    assert "there is no such file" in groupwise("preview", "nowhere.toml").err
