"""A new user's path by the pages alone: own environment, method and reward, an adapter, a folder, the same tokens."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from transformers import AutoModelForCausalLM

from tests.architecture.markdown import blocks_of, text_of
from tests.end_to_end.idea_to_model import PAGE, PYTHON_FILES, RUN_FILES, Reader

pytestmark = pytest.mark.more


def test_the_page_leads_from_the_readers_files_to_a_folder_that_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = Reader(tmp_path, monkeypatch)
    commands = reader.follow()  # its last block compares the tokens of the engine and of transformers
    assert [command.split()[1] for command in commands] == [
        *("train", "export", "check", "doctor", "preview", "inspect", "report", "export")
    ]
    update, answers = reader.names["update"], reader.names["answers"]
    assert update.number == 4
    assert len(set(answers)) > 1, "tokens that are all the same would be the same by chance"
    assert "just right . it is" in capsys.readouterr().out, "the page's last line prints prompts and answers"
    for rollout in update.trajectories:
        shortness = 1.0 + 1.0 / len(rollout.steps)
        assert rollout.scores["return"] == rollout.scores["success"] * shortness, "paid by the reader's own function"
    settings = tomllib.loads((tmp_path / "runs" / "mine" / "config.toml").read_text(encoding="utf-8"))
    assert settings["algorithm"]["advantage"]["of"] == {"kind": "sooner:Sooner", "half_life": 20.0}
    check_that_the_adapter_is_in_the_policy(reader)


def check_that_the_adapter_is_in_the_policy(reader: Reader) -> None:
    """The folder has the log-probs of the run's own learner, and the model below the adapter has not."""
    pairs = list(zip(reader.names["prompts"], reader.names["answers"], strict=True))
    own = [sum(logps) for logps in reader.names["run"].learner.logps(pairs)]
    exported, base = (score(reader.folder / name, pairs) for name in ("policy", "base"))
    assert exported == pytest.approx(own, abs=1e-4)
    assert max(abs(here - there) for here, there in zip(base, own, strict=True)) > 0.01


def score(folder: Path, pairs: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> list[float]:
    """How likely each answer is to a model of transformers."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    sums = []
    with torch.no_grad():
        for prompt, answer in pairs:
            logps = model(torch.tensor([prompt + answer])).logits[0].log_softmax(-1)
            places = range(len(prompt) - 1, len(prompt) + len(answer) - 1)
            sums.append(sum(float(logps[place, token]) for place, token in zip(places, answer, strict=True)))
    return sums


def test_the_page_names_every_file_that_its_reader_saves_and_where_from() -> None:
    for file, page in (PYTHON_FILES | RUN_FILES).items():
        assert f"`{file}`" in text_of(PAGE)
        assert page == PAGE or f"]({Path(page).name}" in text_of(PAGE)
    assert len(blocks_of(PAGE, "toml")) == 1
    brought = re.findall(r"^\| (`.*?) \|", text_of(PAGE), flags=re.MULTILINE)
    assert sum(cell.count("`") // 2 for cell in brought) == 4
    assert "\nFour files, in your current folder:" in text_of(PAGE)
