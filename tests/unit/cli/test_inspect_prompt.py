"""`groupwise inspect --prompt`: what the model saw at a recorded step, by origin; and what cannot be shown."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.unit.cli.calls import show_json, words
from tests.unit.cli.conftest import Run
from tests.unit.cli.run_files import small


@pytest.fixture
def trained(groupwise: Run, tmp_path: Path) -> Path:
    groupwise("train", small(tmp_path), "--out", "run", "--set", "rollout.system=be brief")
    return tmp_path / "run"


def find_task(folder: Path) -> str:
    return str(show_json("inspect", folder, "--update", 1)["groups"][0]["task"])


def test_a_recorded_prompt_is_shown_by_origin(groupwise: Run, trained: Path) -> None:
    task = find_task(trained)
    step = ("inspect", str(trained), "--update", "1", "--task", task, "--rollout", "0", "--step", "0", "--prompt")
    ran = groupwise(*step)
    assert ran.status == 0, ran.err
    lines = words(ran.out)
    assert lines[0].startswith(f"update 1, task {task}, rollout 0, step 0 ")
    assert any("template«<s>» system« be brief» instruction«" in line for line in lines)
    assert any(line.endswith(" response") for line in lines)
    data = show_json(*step)
    assert data["prompt"] == "".join(data["prompt_texts"])
    assert len(data["prompt_ids"]) == len(data["origins"]) == len(data["prompt_texts"])
    assert data["response_ids"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--rollout", "0", "--prompt"), "--prompt needs a step; add --step N"),
        (("--rollout", "0", "--step", "0", "--token", "0", "--prompt"), "--prompt and --token cannot be combined"),
        (("--rollout", "0", "--step", "9", "--prompt"), "there is no step 9; give one from 0 to 0"),
    ],
)
def test_what_cannot_be_shown_is_a_sentence(
    groupwise: Run, trained: Path, options: tuple[str, ...], sentence: str
) -> None:
    ran = groupwise("inspect", str(trained), "--update", "1", "--task", find_task(trained), *options)
    assert ran.status == 2
    assert sentence in ran.err


def test_a_run_without_its_tokenizer_is_a_sentence(groupwise: Run, trained: Path) -> None:
    for path in trained.glob("checkpoints/*/tokenizer.json"):
        path.unlink()
    step = ("--update", "1", "--task", find_task(trained), "--rollout", "0", "--step", "0", "--prompt")
    ran = groupwise("inspect", str(trained), *step)
    assert ran.status == 2
    assert "the tokenizer of the run's last checkpoint cannot be read" in ran.err
