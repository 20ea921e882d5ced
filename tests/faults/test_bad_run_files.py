"""Run files, task set files, prompts and `--set` that nobody meant: refused in one sentence, within bounds."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import Any

import pytest
import tomli_w
from typer.testing import CliRunner

from groupwise.cli.main import make_app
from groupwise.envs.identity import Identity
from groupwise.envs.kit.task_set import TaskSetFile
from groupwise.methods.r3 import Reflection
from groupwise.store.journal import Journal
from groupwise.system.errors import ConfigError, FileError, GroupwiseError
from groupwise.system.files import MAX_TEXT_BYTES, parse_value, read_text_file
from groupwise.training.config.run_file import decode_run, load_algorithm, load_run, read_run_file
from groupwise.training.run_reader import RunFolder
from tests.faults.mutations import mutate_toml

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").rglob("*.toml"))
GOOD = '[algorithm]\nmethod = "grpo"\n[env]\nkind = "identity"\n[model]\nkind = "tiny"\n'


def message(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_run(path)
    assert str(caught.value).startswith(f"{path}: ")
    return str(caught.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"seed = " + b"9" * 5000, "not valid TOML: a number in it has more than 100 digits"),
        (b"seed = 0x" + b"f" * 5000, "not valid TOML: a number in it has more than 100 digits"),
        (b"seed = " + b"[" * 5000 + b"]" * 5000, "not valid TOML: its lists and tables are nested too deep"),
        (b"seed = " + b"[" * 150 + b"]" * 150, "not valid TOML: its lists and tables are nested too deep"),
        (b"seed = " + b"{ a = " * 150 + b"1" + b" }" * 150, "not valid TOML: its lists and tables are nested too deep"),
        (b"seed = \x00", "not valid TOML: Invalid value (at line 1, column 8)"),
    ],
)
def test_toml_that_is_none(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(content)
    assert message(path) == expected


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\xff\xfes\x00", "byte 1 is not UTF-8 (0xff)"),
        (b"seed = 0\n# caf\xe9", "byte 15 is not UTF-8 (0xe9)"),
        (b"#" * (MAX_TEXT_BYTES + 1), "the file holds more than 1 MiB"),
    ],
)
def test_files_that_are_no_text(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(content)
    assert message(path) == f"cannot be read ({reason}); give a run file (TOML) or the folder of a run"


def test_a_pipe_is_refused_before_it_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    os.mkfifo(path)
    expected = (
        "cannot be read (this is a pipe or a device; copy its content into a file); give a run file (TOML) or the "
        "folder"
    )
    assert message(path) == f"{expected} of a run"
    with pytest.raises(FileError, match="this is a pipe or a device; copy its content into a file"):
        TaskSetFile.read(path)
    with pytest.raises(ConfigError, match="this is a pipe or a device; copy its content into a file"):
        Reflection(prompt=str(path))


def test_a_device_that_never_ends() -> None:
    with pytest.raises(ValueError, match="a pipe or a device"):
        read_text_file(Path("/dev/zero"))


def test_a_byte_order_mark_and_line_ends_of_windows_are_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert load_run(path).env.config()["kind"] == "identity"


def test_a_value_of_a_megabyte_is_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(f'{GOOD}[training]\nupdates = "{"x" * 500_000}"\n')
    assert 0 < len(message(path)) < 2100


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("9" * 5000, "9" * 5000),
        ("[" * 5000, "[" * 5000),
        ("[" * 150 + "]" * 150, "[" * 150 + "]" * 150),
        ("1\nseed = 2", "1\nseed = 2"),
        ("a." * 5000, "a." * 5000),
        ("3", 3),
        ("[1, 2]", [1, 2]),
        ("none", "none"),
    ],
)
def test_values_of_set(text: str, value: Any) -> None:
    assert parse_value(text) == value


@pytest.mark.parametrize("override", ["seed=" + "9" * 5000, "a." * 5000 + "b=1", "x" * 5000, "seed." * 20 + "b=1"])
def test_overrides_that_cannot_be_meant(override: str) -> None:
    content = {"seed": 0, "algorithm": {"method": "grpo"}, "env": {"kind": "identity"}, "model": {"kind": "tiny"}}
    with pytest.raises(ConfigError):
        decode_run(content, overrides=[override])


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("env = 5\n", "`env` is a int; give the section [env] a `kind`"),
        ("[[env]]\n", "`env` is a list; give the section [env] a `kind`"),
        ("seed = " + "9" * 5000, "not valid TOML: a number in it has more than 100 digits"),
        ("seed = " + "[" * 5000, "not valid TOML: its lists and tables are nested too deep"),
    ],
)
def test_run_files_whose_task_sets_are_asked_for(tmp_path: Path, content: str, expected: str) -> None:
    path = tmp_path / "run.toml"
    path.write_text(content)
    result = CliRunner().invoke(make_app(), ["tasks", str(path)])
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception) == f"{path}: {expected}"


@pytest.mark.parametrize("content", ["seed = " + "9" * 5000, "seed = " + "[" * 5000, "#" * (MAX_TEXT_BYTES + 1)])
def test_the_settings_of_a_run_folder(tmp_path: Path, content: str) -> None:
    Journal(tmp_path / "journal.sqlite").close()
    (tmp_path / "config.toml").write_text(content)
    with pytest.raises(FileError) as caught:
        RunFolder(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'config.toml'}: ")


def test_settings_of_an_environment_that_is_checked() -> None:
    result = CliRunner().invoke(make_app(), ["check", "env", "identity", "--set", "length=" + "9" * 5000])
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception) == (
        f"Identity: length: unable to parse input string as an integer, exceeded maximum size, found '{'9' * 5000}'"
    )


@pytest.mark.parametrize(
    "content",
    [
        "[" * 100_000,
        "9" * 5000,
        '{"schema": 2, "schema": 2}',
        '{"schema": 2, "seal": "", "env": 5, "task_sets": {}}',
        '{"schema": 2, "seal": "", "env": {}, "task_sets": {"train": {"tasks": [[]], "hash": ""}}}',
        '{"schema": 2, "seal": "", "env": {}, "task_sets": {"train": {"tasks": "abc", "hash": ""}}}',
        "\ufeff",
    ],
)
def test_task_set_files(tmp_path: Path, content: str) -> None:
    path = tmp_path / "task_set.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(FileError) as caught:
        TaskSetFile.read(path)
    assert str(caught.value).startswith(f"{path}: not a task set file (")


def test_a_task_set_file_that_is_sound_is_read(tmp_path: Path) -> None:
    task_set = TaskSetFile.of(Identity())
    task_set.write(tmp_path / "task_set.json")
    assert TaskSetFile.read(tmp_path / "task_set.json") == task_set


@pytest.mark.parametrize("content", [b"\xff\xfe", b"x" * (MAX_TEXT_BYTES + 1)])
def test_prompts_that_are_no_text(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "prompt.txt").write_bytes(content)
    with pytest.raises(ConfigError, match=r"the reflection prompt .* cannot be read"):
        Reflection(prompt=str(tmp_path / "prompt.txt"))


def test_spoilt_run_files_are_read_or_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    said: list[str] = []
    for seed in range(300):
        rng = Random(seed)
        text = mutate_toml(tomli_w.dumps(read_run_file(rng.choice(EXAMPLES)).content), rng).replace('".a:b"', '"x"')
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            load_algorithm(path)
            load_run(path)
        except GroupwiseError as error:
            said.append(str(error))
    assert 100 < len(said) < 300
    assert [each for each in said if "\n" in each or len(each) > 2100] == []
