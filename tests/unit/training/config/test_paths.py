"""Paths of run files: relative to the file; those of `--set` and of Python, to the working directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomli_w

from groupwise import Algorithm, ConfigError, RunConfig
from groupwise.methods.r3 import Reflection
from groupwise.rollout import TemplateFile
from groupwise.training.config.run_file import decode_run, load_algorithm, load_run

PATHS: dict[str, dict[str, Any]] = {
    "task_set": {"task_set": "PLACE"},
    "rewards[0].function": {"rewards": [{"kind": "function", "function": "PLACE.py:score"}]},
    "env.path": {"env": {"kind": "data_set", "path": "PLACE", "columns": {"prompt": "p", "answer": "a"}}},
    "env.test_path": {"env": {"kind": "math", "path": "/data", "test_path": "PLACE"}},
    "env.documents": {"env": {"kind": "search_qa", "documents": "PLACE"}},
    "env.questions": {"env": {"kind": "search_qa", "questions": "PLACE"}},
    "env.members[0].env.path": {
        "env": {
            "kind": "mixture",
            "members": [
                {"name": "own", "env": {"kind": "webshop", "path": "PLACE"}},
                {"name": "words", "env": {"kind": "identity"}},
            ],
        }
    },
    "training.weight_sync.folder": {"training": {"weight_sync": {"kind": "through_file", "folder": "PLACE"}}},
    "engine.python": {"engine": {"kind": "vllm", "python": "./PLACE"}},
    "model.path": {"model": {"kind": "pretrained", "path": "./PLACE"}},
    "trackers[0].uri": {"trackers": [{"kind": "mlflow", "uri": "PLACE"}]},
}
"""A setting of each kind; PLACE is the path."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, beside the run file's folder `there`; both have a reward file."""
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "place.py").write_text("def score(trajectory):\n    return 0.0\n", encoding="utf-8")
        (tmp_path / name / "prompt.txt").write_text(f"{name}: $rollout", encoding="utf-8")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def fill(settings: Any, place: str) -> Any:
    if isinstance(settings, dict):
        return {key: fill(value, place) for key, value in settings.items()}
    if isinstance(settings, list):
        return [fill(value, place) for value in settings]
    return settings.replace("PLACE", place) if isinstance(settings, str) else settings


def make_content(settings: Any, place: str) -> dict[str, Any]:
    run = {"algorithm": {"method": "grpo"}, "env": {"kind": "identity"}, "model": {"kind": "tiny"}}
    return run | fill(settings, place)


def write(path: Path, content: dict[str, Any]) -> Path:
    path.write_text(tomli_w.dumps(content), encoding="utf-8")
    return path


def read_place(config: RunConfig, setting: str) -> str:
    value: Any = config.config()
    for key in setting.replace("]", "").replace("[", ".").split("."):
        value = value[int(key)] if key.isdecimal() else value[key]
    return str(value).removesuffix(".py:score")


@pytest.mark.parametrize("setting", PATHS)
def test_a_path_is_relative_to_the_run_file_and_to_the_working_directory_elsewhere(here: Path, setting: str) -> None:
    there, content = here.with_name("there"), make_content(PATHS[setting], "place")
    config = load_run(write(there / "run.toml", content))
    assert read_place(config, setting) == f"{there}/place"
    assert read_place(decode_run(content), setting) == f"{here}/place"
    assert load_run(write(here / "config.toml", config.config())) == config, "what is stored means the same anywhere"


def test_a_path_of_set_is_relative_to_the_working_directory(here: Path) -> None:
    there, content = here.with_name("there"), make_content(PATHS["env.path"], "place")
    file = write(there / "run.toml", content)
    assert read_place(load_run(file, overrides=["env.path=other.jsonl"]), "env.path") == f"{here}/other.jsonl"
    reward = 'rewards=[{kind="function", function="place.py:score"}]'
    config = load_run(file, overrides=[reward])
    assert read_place(config, "rewards[0].function") == f"{here}/place"
    assert read_place(config, "env.path") == f"{there}/place"


@pytest.mark.parametrize(
    ("setting", "place"),
    [
        ("env.path", "hub:owner/name"),
        ("env.path", "/data/*.jsonl"),
        ("engine.python", "python"),
        ("trackers[0].uri", "http://127.0.0.1:5000"),
        ("trackers[0].uri", "databricks"),
    ],
)
def test_what_is_no_relative_path_stays(here: Path, setting: str, place: str) -> None:
    content = make_content(fill(fill(PATHS[setting], "PLACE"), place), place)
    if setting == "engine.python":
        content["engine"]["python"] = place
    assert read_place(load_run(write(here.with_name("there") / "run.toml", content)), setting) == place


def test_a_prompt_is_read_from_beside_the_run_file(here: Path) -> None:
    section = {"method": "r3", "hint": {"prompt": "prompt.txt"}}
    file = write(here.with_name("there") / "run.toml", make_content({"algorithm": section}, ""))
    assert read_prompt(load_algorithm(file)) == "there: $rollout"
    overridden = load_run(file, overrides=["algorithm.hint.prompt=prompt.txt"])
    assert read_prompt(overridden.algorithm) == "here: $rollout"


def test_the_text_of_a_prompt_is_read_from_beside_the_run_file_and_kept(here: Path) -> None:
    there = here.with_name("there")
    for folder in (here, there):
        (folder / "first.txt").write_text(f"{folder.name}: $observation\n", encoding="utf-8")
    rollout = {"template": {"kind": "template_file", "first": "first.txt", "asks_for_tags": False}}
    file = write(there / "run.toml", make_content({"rollout": rollout}, ""))
    config = load_run(file)
    assert config.rollout.template == TemplateFile(first="there: $observation", asks_for_tags=False)
    overridden = load_run(file, overrides=["rollout.template.first=first.txt"])
    assert overridden.rollout.template == TemplateFile(first="here: $observation", asks_for_tags=False)
    stored = write(here / "config.toml", config.config())
    for folder in (here, there):
        (folder / "first.txt").unlink()
    assert load_run(stored) == config
    with pytest.raises(ConfigError) as raised:
        load_run(file)
    assert str(raised.value) == (
        f"{file}: rollout.template.first: 'first.txt' cannot be read (No such file or directory); give the path of a "
        "text file, relative to the run file, or the text itself with placeholders such as $observation"
    )


def read_prompt(algorithm: Algorithm) -> str:
    assert isinstance(algorithm.hint, Reflection)
    return algorithm.hint.prompt


def test_a_model_is_looked_for_beside_the_run_file_then_here_then_on_the_hub(here: Path) -> None:
    there = here.with_name("there")
    file = write(there / "run.toml", make_content({"model": {"kind": "pretrained", "path": "owner/name"}}, ""))
    assert read_place(load_run(file), "model.path") == "owner/name"
    (here / "owner" / "name").mkdir(parents=True)
    assert read_place(load_run(file), "model.path") == f"{here}/owner/name"
    (there / "owner").mkdir()
    (there / "owner" / "name").mkdir()
    assert read_place(load_run(file), "model.path") == f"{there}/owner/name"
