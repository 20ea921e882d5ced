"""A run's policy comes out as a folder that others load: the same policy, with a card that says what it is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")

from transformers import AutoModelForCausalLM, AutoTokenizer

from groupwise import load_run, open_run, train
from groupwise.engines.engine import Request
from groupwise.store.journal import Journal
from groupwise.store.run_folder import RunPaths
from groupwise.system.errors import ConfigError, FileError, TrainingError
from groupwise.training.checkpoints import open_run_at
from groupwise.training.evaluation.summary import Evaluation
from groupwise.training.export import _name_model, choose_checkpoint, export_run
from groupwise.training.run_reader import RunFolder
from tests.faults.damaged_runs import flip_bit
from tests.unit.cli.conftest import Run as Command
from tests.unit.cli.conftest import groupwise  # noqa: F401
from tests.unit.training.fake_hub import Hub, open_hub

SETTINGS: dict[str, Any] = {
    "algorithm": {"method": "grpo"},
    "env": {"kind": "identity", "num_words": 4, "length": 1},
    "model": {"kind": "tiny"},
    "warm_start": {"tasks": 4, "epochs": 6, "learning_rate": 0.02},
    "rollout": {"max_tokens": 2, "group_size": 16},
    "training": {"updates": 4, "tasks": 8, "checkpoint_every": 2, "learner": {"learning_rate": 0.01}},
    "evaluation": {"tasks": 6, "every": 2},
}
PROMPTS = ((2, 5, 7), (2, 9, 11, 6, 8), (4,) * 12)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in `whole`, and one in `adapted` that trained an adapter on what it began with."""
    folder = tmp_path_factory.mktemp("runs")
    train(SETTINGS, folder / "whole")
    base = export_run(folder / "whole", folder / "base", update=0).folder
    model = {"kind": "pretrained", "path": str(base), "lora_rank": 4, "lora_scale": 8.0}
    train({**SETTINGS, "model": model, "warm_start": None}, folder / "adapted")
    return folder


def answer_with_engine(run: Path, number: int | None = None) -> list[tuple[int, ...]]:
    with open_run_at(load_run(run), run, number, read_only=True) as opened:
        asked = [Request(prompt_ids=ids, max_tokens=12, temperature=0.0, seed=0) for ids in PROMPTS]
        return [tuple(answer.response_ids) for answer in opened.engine.generate(asked)]


def answer_with_transformers(folder: Path) -> list[tuple[int, ...]]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    answers = []
    for ids in PROMPTS:
        asked = torch.tensor([ids])
        made = model.generate(
            asked, attention_mask=torch.ones_like(asked), do_sample=False, max_new_tokens=12, eos_token_id=None
        )
        answers.append(tuple(made[0, len(ids) :].tolist()))
    return answers


@pytest.mark.few(1)
@pytest.mark.parametrize(("run", "merge"), [("whole", False), ("adapted", True)])
def test_transformers_says_what_our_engine_says(place: Path, tmp_path: Path, run: str, merge: bool) -> None:
    exported = export_run(place / run, tmp_path / "out", merge=merge)
    assert exported.update == 4
    assert not exported.is_adapter
    answers = answer_with_transformers(exported.folder)
    assert answers == answer_with_engine(place / run)
    assert answers != answer_with_engine(place / run, 0), "another policy would be noticed"
    files = {path.name for path in exported.folder.iterdir()}
    assert files >= {"config.json", "model.safetensors", "tokenizer.json", "README.md", "groupwise_run.toml"}
    assert not files & {"state.json", "optimizer.safetensors", "adapter_config.json"}
    assert AutoTokenizer.from_pretrained(exported.folder)("say")["input_ids"]


def test_an_adapter_goes_out_alone_and_goes_on_training(place: Path, tmp_path: Path) -> None:
    exported = export_run(str(place / "adapted"), str(tmp_path / "deep" / "out"))
    assert exported.is_adapter
    named = json.loads((exported.folder / "adapter_config.json").read_text())["base_model_name_or_path"]
    assert Path(named) == (place / "base").resolve()
    settings = {**SETTINGS, "model": {"kind": "pretrained", "path": str(exported.folder)}}
    settings["training"] = {"updates": 1, "tasks": 2}
    assert RunPaths(train(settings, tmp_path / "more")).checkpoint(1).is_dir()


def test_the_card_has_the_evaluation_the_task_set_and_the_method(place: Path, tmp_path: Path) -> None:
    card = (export_run(place / "whole", tmp_path / "out", update=2).folder / "README.md").read_text()
    with Journal(RunPaths(place / "whole").journal, read_only=True) as journal:
        rows = [row for row in journal.evaluations() if row.number == 2]
    evaluation = Evaluation.from_rows(rows)
    assert f"| 2 | {evaluation.name} | {100 * evaluation.success:.1f} % |" in card
    assert f"`{evaluation.task_set}`" in card
    assert "grpo" in card
    assert "2 of 4 updates" in card
    assert "| 0 |" in card, "where it began"
    assert "trained on" not in card
    assert card.startswith("---\nlibrary_name: transformers\n")
    merged = (export_run(place / "adapted", tmp_path / "merged", merge=True).folder / "README.md").read_text()
    assert "base_model" not in merged, "a folder of this machine is nobody's model"
    assert str(place) not in merged


def test_a_model_of_the_hub_keeps_its_whole_name() -> None:
    assert _name_model("Qwen/Qwen2.5-1.5B-Instruct") == "Qwen/Qwen2.5-1.5B-Instruct"
    assert _name_model("/models/policy") is None


def test_the_best_is_the_earliest_of_the_highest(place: Path) -> None:
    with RunFolder(place / "whole") as run, Journal(RunPaths(place / "whole").journal, read_only=True) as journal:
        scores = {
            number: Evaluation.from_rows([row for row in journal.evaluations() if row.number == number]).success
            for number in (0, 2, 4)
        }
        highest = max(scores.values())
        assert int(choose_checkpoint(run, best=True).name) == min(
            number for number, score in scores.items() if score == highest
        )


def test_what_cannot_be_exported_is_told_and_nothing_is_left(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(ConfigError, match="no checkpoint of update 3; there are: 0, 2, 4"):
        export_run(place / "whole", out, update=3)
    with pytest.raises(ConfigError, match="give one of them"):
        export_run(place / "whole", out, update=2, best=True)
    with pytest.raises(ConfigError, match="no adapter to merge; leave --merge out"):
        export_run(place / "whole", out, merge=True)
    with pytest.raises(FileError, match="no journal"):
        export_run(tmp_path, out)
    with pytest.raises(FileError, match="exists already"):
        export_run(place / "whole", tmp_path)
    assert not out.exists()


def test_an_adapter_without_its_base_is_told(place: Path, tmp_path: Path) -> None:
    base, moved = place / "base", place / "elsewhere"
    base.rename(moved)
    try:
        with pytest.raises(ConfigError) as caught:
            export_run(place / "adapted", tmp_path / "out", merge=True)
    finally:
        moved.rename(base)
    checkpoint = place / "adapted/checkpoints/0004"
    assert str(caught.value) == (
        f"model.path: the adapter in {checkpoint} sits on '{base}', which cannot be loaded (there is no folder "
        f"'{base}'; in '{place}' there are: elsewhere); put it there, or name where it is in "
        f"{checkpoint}/adapter_config.json"
    )
    assert not any(tmp_path.iterdir())


def test_a_damaged_checkpoint_is_not_exported(tmp_path: Path) -> None:
    settings = {**SETTINGS, "training": {"updates": 1, "tasks": 2}, "evaluation": {"tasks": 0}}
    folder = train(settings, tmp_path / "run")
    with RunFolder(folder) as run, pytest.raises(ConfigError, match="no checkpoint was evaluated"):
        int(choose_checkpoint(run, best=True).name)
    card = (export_run(folder, tmp_path / "first").folder / "README.md").read_text()
    assert "It was not evaluated" in card
    flip_bit(RunPaths(folder).checkpoint(1) / "model.safetensors")
    with pytest.raises(TrainingError, match="is damaged"):
        export_run(folder, tmp_path / "out")


def test_a_run_without_a_checkpoint_is_told(tmp_path: Path) -> None:
    with open_run({**SETTINGS, "evaluation": {"tasks": 0}}, tmp_path / "run"):
        pass
    with pytest.raises(ConfigError, match="no checkpoint yet"):
        export_run(tmp_path / "run", tmp_path / "out")


PUSH = """
import sys
from groupwise.cli.main import main
sys.argv = ["groupwise", "export", *sys.argv[1:], "--push", "somebody/policy"]
main()
"""


def push(hub: Hub, cache: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {
        "HF_ENDPOINT": hub.url,
        "HF_TOKEN": "hf_" + "x" * 34,
        "HF_HOME": str(cache),
        "HF_HUB_DISABLE_XET": "1",
        "PYTHONPATH": ":".join(sys.path),
        "PATH": "/usr/bin:/bin",
    }
    # The hub's library reads where the hub is when it is imported.
    command = [sys.executable, "-c", PUSH, *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.few(1)
@pytest.mark.parametrize("refuses", [False, True])
def test_a_folder_is_pushed_to_a_hub(place: Path, tmp_path: Path, refuses: bool) -> None:
    with open_hub() as hub:
        hub.refuses = refuses
        ran = push(hub, tmp_path / "cache", str(place / "whole"), "--out", str(tmp_path / "out"))
    assert (tmp_path / "out" / "model.safetensors").is_file(), ran.stderr
    if refuses:
        assert ran.returncode == 2
        assert "could not be pushed" in ran.stderr
        assert "hf_" not in ran.stderr
        command = f"`groupwise export {tmp_path / 'out'} --push somebody/policy`"
        assert command in " ".join(ran.stderr.split())
        return
    assert ran.returncode == 0, ran.stderr
    assert "private" in json.dumps(hub.repositories[0])
    assert hub.tokens - {""} == {"Bearer hf_" + "x" * 34}
    assert hub.files.keys() == {path.name for path in (tmp_path / "out").iterdir()}
    assert all((tmp_path / "out" / name).read_bytes() == content for name, content in hub.files.items())
    assert f"pushed to {hub.url}/somebody/policy" in ran.stdout


@pytest.mark.more
def test_a_folder_whose_push_failed_is_sent_as_it_is(place: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    with open_hub() as hub:
        hub.refuses = True
        assert push(hub, tmp_path / "cache", str(place / "whole"), "--out", out).returncode == 2
        hub.refuses = False
        ran = push(hub, tmp_path / "cache", out)
    assert ran.returncode == 0, ran.stderr
    assert hub.files.keys() == {path.name for path in (tmp_path / "out").iterdir()}


def test_an_exported_folder_is_not_exported_again(groupwise: Command, place: Path, tmp_path: Path) -> None:  # noqa: F811
    export_run(place / "whole", tmp_path / "out")
    ran = groupwise("export", "out", "--merge")
    assert ran.status == 2
    assert ran.err.strip() == ("error: out is an exported folder; it can only be uploaded: --push ACCOUNT/NAME")


def test_the_command_says_what_it_wrote(groupwise: Command, place: Path, tmp_path: Path) -> None:  # noqa: F811
    ran = groupwise("export", str(place / "adapted"), "--out", "out", "--best")
    assert ran.status == 0, ran.err
    assert "the adapter after update" in ran.out
    assert "with --merge, the folder contains the whole model" in ran.out
    ran = groupwise("export", str(place / "whole"), "--out", "other", "--json")
    assert json.loads(ran.out) == {"folder": "other", "update": 4, "is_adapter": False, "pushed_to": None}
    ran = groupwise("export", str(tmp_path))
    assert ran.status == 2
    assert len(ran.err.strip().splitlines()) == 1
