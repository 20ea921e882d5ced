"""Bad input to the commands around training: one sentence as a user reads it, status 2, and no run that is begun."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.unit.cli.conftest import Run
from tests.unit.cli.run_files import SMALL, small

SIGNATURES = "give it (trajectory), (trajectory, responses) or TRL's (completions, **kwargs), and let it return numbers"


def refuse(groupwise: Run, *arguments: str) -> str:
    """The sentence that a command is refused with: the last line, alone after notes."""
    ran = groupwise(*arguments)
    *notes, last = ran.err.splitlines()
    assert (ran.status, ran.out) == (2, "")
    assert all(note.startswith("note: ") for note in notes), ran.err
    assert last.startswith("error: "), last
    return last.removeprefix("error: ")


def check_nothing_begun(folder: Path) -> None:
    assert not list(folder.rglob("config.toml")) + list(folder.rglob("journal.sqlite")) + list(folder.rglob("*.lock"))


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("def reward(): return 1.0", f"takes (); {SIGNATURES}"),
        ("def reward(prompt, response): return 1.0", f"takes (prompt, response); {SIGNATURES}"),
        ("def reward(*, trajectory): return 1.0", f"takes (*, trajectory); {SIGNATURES}"),
        ("async def reward(trajectory): return 1.0", f"is async or a generator, and takes (trajectory); {SIGNATURES}"),
    ],
)
def test_a_function_with_the_wrong_signature(function: str, said: str, groupwise: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"{function}\n", encoding="utf-8")
    rewards = SMALL + '\n[[rewards]]\nkind = "function"\nfunction = "mine.py:reward"\n'
    (tmp_path / "run.toml").write_text(rewards, encoding="utf-8")
    assert refuse(groupwise, "train", "run.toml") == (
        f"run.toml: rewards.0.function: the function '{tmp_path}/mine.py:reward' {said}"
    )
    check_nothing_begun(tmp_path)


def test_a_function_that_takes_a_column_which_tasks_do_not_have(groupwise: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def reward(completions, solution): return [1.0]\n", encoding="utf-8")
    rewards = SMALL + '\n[[rewards]]\nkind = "function"\nfunction = "mine.py:reward"\n'
    (tmp_path / "run.toml").write_text(rewards, encoding="utf-8")
    said = refuse(groupwise, "train", "run.toml")
    before, _, after = said.partition(" of task 'identity-train-")
    assert before == f"rewards: the function '{tmp_path}/mine.py:reward' takes 'solution', which is no column"
    assert after.partition("'")[2] == "; its columns are words: add it to the data, or give the parameter a default"
    check_nothing_begun(tmp_path)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("{}", "no column 'prompt' for the prompt; it has question, label. Set env.columns."),
        (
            '{prompt="question"}',
            "no column 'answer' for the answer; it has question, label. Set env.columns.",
        ),
        (
            '{prompt="question",answer="label",split="part"}',
            "no column 'part' for the split; it has question, label. Set env.columns.",
        ),
    ],
)
def test_a_data_set_without_the_mapped_columns(columns: str, said: str, groupwise: Run, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"question": "1+1?", "label": "2"}\n', encoding="utf-8")
    env = f'env={{kind="data_set",path="rows.jsonl",columns={columns}}}'
    use = said.partition(" for the ")[2].partition(";")[0]
    fix = "the right column" if use in ("prompt", "answer") else "the right column, or to the empty text"
    wrong = f"{tmp_path / 'rows.jsonl:1'}: there is {said}{use} to {fix}"
    assert refuse(groupwise, "train", small(tmp_path), "--set", env) == wrong
    assert refuse(groupwise, "preview", "small.toml", "--trust", "--set", env) == wrong
    check_nothing_begun(tmp_path)


@pytest.mark.parametrize(
    ("column_map", "said"),
    [
        ("task=question,reward=score", "rows.jsonl, line 1: no column 'score'; Valid: label, question"),
        (
            "task=question",
            "column map: no column for 'reward'; a map needs task and reward, such as task=prompt_id,reward=score",
        ),
    ],
)
def test_an_audit_of_a_file_without_the_mapped_columns(
    column_map: str, said: str, groupwise: Run, tmp_path: Path
) -> None:
    (tmp_path / "rows.jsonl").write_text('{"question": "1+1?", "label": 2}\n', encoding="utf-8")
    assert refuse(groupwise, "audit", "rows.jsonl", "--map", column_map) == said


def write_adapter(folder: Path, base: str | None) -> None:
    """The folder of a LoRA adapter that names the model it sits on."""
    folder.mkdir()
    settings: dict[str, Any] = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "base_model_name_or_path": base}
    (folder / "adapter_config.json").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "adapter_model.safetensors").touch()


@pytest.mark.parametrize(
    ("base", "said"),
    [
        (
            None,
            "ADAPTER/adapter_config.json does not say which model the adapter sits on; name its folder there under "
            "'base_model_name_or_path', or merge the adapter into its model first",
        ),
        (
            "gone",
            "the adapter in ADAPTER sits on 'HERE/gone', which cannot be loaded (there is no folder 'HERE/gone'; in "
            "'HERE' there are: whole); put it there, or name where it is in ADAPTER/adapter_config.json",
        ),
        (
            "adapter",
            "the adapter in ADAPTER sits on 'ADAPTER', which cannot be loaded (it is an adapter itself); put it there, "
            "or name where it is in ADAPTER/adapter_config.json",
        ),
    ],
    ids=["not named", "gone", "an adapter"],
)
def test_an_adapter_without_its_base(base: str | None, said: str, groupwise: Run, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    write_adapter(adapter, str(tmp_path / base) if base else None)
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "config.json").write_text("{}", encoding="utf-8")
    expected = f"model.path: {said}".replace("ADAPTER", str(adapter)).replace("HERE", str(tmp_path))
    model = ("--set", f'model={{kind="pretrained",path="{adapter}"}}')
    assert refuse(groupwise, "train", small(tmp_path), *model) == expected
    check_nothing_begun(tmp_path)


NO_RUN = "not the folder of a run: it has no journal.sqlite; give the folder that `groupwise train --out FOLDER` wrote"
NO_SETTINGS = "empty/config.toml: there is no such file; give a run file (TOML) or the folder of a run"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("inspect", "empty"), f"empty: {NO_RUN}"),
        (("report", "empty"), f"empty: {NO_RUN}"),
        (("report", "empty", "nowhere"), f"empty: {NO_RUN}"),
        (("export", "empty"), f"empty: {NO_RUN}"),
        (
            ("export", "nowhere"),
            "nowhere: there is no such folder; give the folder that `groupwise train --out FOLDER` wrote",
        ),
        (("export", "file"), "file: not a folder; give the folder that `groupwise train --out FOLDER` wrote"),
        (
            ("evaluate", "empty"),
            "empty: there is no config.toml; give a run folder, as `groupwise train` creates it",
        ),
        (("audit", "empty"), "empty: this is a folder; give one rollouts file, or the folder of a run"),
        (("train", "empty"), NO_SETTINGS),
        (("train", "--resume", "empty"), NO_SETTINGS),
        (
            ("train", "--resume", "nowhere"),
            "nowhere: there is no such file; give a run file (TOML) or the folder of a run",
        ),
        (("preview", "empty"), NO_SETTINGS),
        (("sweep", "empty"), NO_SETTINGS),
        (("tasks", "empty"), NO_SETTINGS),
    ],
)
def test_a_folder_that_is_no_run(arguments: tuple[str, ...], said: str, groupwise: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    assert refuse(groupwise, *arguments) == said
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["empty", "file"]


MIXED = """
[env]
kind = "mixture"
members = [{ name = "home", env = { kind = "household" } }, { name = "sums", env = { kind = "countdown" } }]
"""


def test_mixed_environments_whose_action_rules_differ(groupwise: Run, tmp_path: Path) -> None:
    before, _, after = SMALL.partition("[env]")
    mixed = before + MIXED + "\n[model]" + after.partition("[model]")[2]
    (tmp_path / "run.toml").write_text(mixed, encoding="utf-8")
    choosing = ("--set", "rollout.action_parser=choice", "--set", 'rollout.template.show_admissible="numbered"')
    assert refuse(groupwise, "train", "run.toml", *choosing) == (
        "env: rollout.action_parser 'choice' fits home, which lists its possible actions, but not sums, whose actions "
        "are free text. Mix environments that fit one action parser, or set rollout.action_parser to "
        '"whole_response" or "tagged"'
    )
    own_rule = mixed.replace('{ kind = "countdown" }', '{ kind = "countdown" }, action_parser = "tagged"')
    (tmp_path / "own.toml").write_text(own_rule, encoding="utf-8")
    assert refuse(groupwise, "train", "own.toml") == (
        "own.toml: env.members.1.action_parser: a run has one action parser; set "
        "rollout.action_parser for all environments of the mixture"
    )
    check_nothing_begun(tmp_path)
