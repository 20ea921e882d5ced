"""A run file on top of another one: what counts, what is replaced, and which file an error names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomli_w

from groupwise import ConfigError, RunConfig, methods
from groupwise.training.config.run_file import decode_run, lay_over, load_algorithm, load_run, read_run_file
from tests.unit.cli.conftest import Run
from tests.unit.cli.conftest import groupwise as groupwise

BASE = """
[algorithm]
method = "hgpo"
depth = 4

[env]
kind = "identity"
length = 3

[model]
kind = "tiny"

[training]
updates = 3
tasks = 5
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with `shared/base.toml`."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "base.toml").write_text(BASE, encoding="utf-8")
    return tmp_path


def write(folder: Path, text: str, *, extends: str = "shared/base.toml") -> Path:
    path = folder / "run.toml"
    path.write_text(f'extends = "{extends}"\n{text}', encoding="utf-8")
    return path


def load(folder: Path, text: str, **options: Any) -> RunConfig:
    return load_run(write(folder, text), **options)


def test_what_a_file_does_not_say_the_file_that_it_extends_says(here: Path) -> None:
    config = load(here, "[training]\nupdates = 8\n")
    assert (config.training.updates, config.training.tasks) == (8, 5)
    assert config.algorithm == methods.hgpo(depth=4)
    assert config.env.config() == {"kind": "identity", "num_words": 8, "length": 3, "max_steps": 8}
    assert load_algorithm(here / "run.toml") == methods.hgpo(depth=4)
    assert config == load_run(here / "shared" / "base.toml", overrides=["training.updates=8"])


def test_the_command_line_comes_last(here: Path) -> None:
    overrides = ["training.updates=9", "training.learner.eps=0.5"]
    config = load(here, "[training]\nupdates = 8\n", unset=["training.tasks", "algorithm.depth"], overrides=overrides)
    assert (config.training.updates, config.training.tasks) == (9, 16)
    assert config.algorithm == methods.hgpo()


def test_another_kind_replaces_its_table_and_the_same_one_fills_it_up(here: Path) -> None:
    assert load(here, '[env]\nkind = "lookup"\n').env.config() == decode_run(
        {"algorithm": {"method": "grpo"}, "env": {"kind": "lookup"}, "model": {"kind": "tiny"}}
    ).env.config()  # fmt: skip
    assert load(here, '[env]\nkind = "identity"\nnum_words = 5\n').env.config()["length"] == 3
    assert load(here, "[env]\nnum_words = 5\n").env.config()["length"] == 3


def test_another_method_replaces_the_algorithm_and_its_options_stay_with_it(here: Path) -> None:
    assert load(here, '[algorithm]\nmethod = "grpo"\n').algorithm == methods.grpo()
    config = load(here, '[algorithm]\nmethod = "hgpo"\ngamma = 0.5\n')
    assert config.algorithm == methods.hgpo(depth=4, gamma=0.5)
    assert config.made_by == {"method": "hgpo", "depth": 4, "gamma": 0.5}
    changed = load(here, '[algorithm.loss]\nold = "engine"\n')
    assert changed.made_by == {"method": "hgpo", "depth": 4, "loss": {"old": "engine"}}


@pytest.mark.parametrize(
    ("below", "changes", "merged"),
    [
        (
            {"engine": {"rows": 8}},
            {"engine": {"kind": "local", "memory": 1}},
            {"kind": "local", "rows": 8, "memory": 1},
        ),
        ({"engine": {"rows": 8}}, {"engine": {"kind": "vllm"}}, {"kind": "vllm"}),
        ({"engine": {"kind": "vllm", "context": 9}}, {"engine": {"kind": "local"}}, {"kind": "local"}),
        ({"engine": "local"}, {"engine": {"rows": 8}}, {"rows": 8}),
        ({"engine": {"rows": 8}}, {"engine": "local"}, "local"),
        ({"engine": {"method": 1, "rows": 8}}, {"engine": {"method": 2}}, {"method": 2, "rows": 8}),
        ({"engine": [1, 2]}, {"engine": [3]}, [3]),
    ],
)
def test_tables_are_merged_unless_their_kind_is_another(below: Any, changes: Any, merged: Any) -> None:
    assert lay_over(below, changes) == {"engine": merged}


def test_paths_are_relative_to_the_file_that_says_them(here: Path) -> None:
    data = '\n[env]\nkind = "data_set"\npath = "train.jsonl"\ncolumns = { prompt = "p", answer = "a" }\n'
    (here / "shared" / "base.toml").write_text(BASE.partition("[env]")[0] + data + '[model]\nkind = "tiny"\n')
    settings = load(here, '[env]\ntest_path = "test.jsonl"\n').env.config()
    assert (settings["path"], settings["test_path"]) == (f"{here}/shared/train.jsonl", f"{here}/test.jsonl")


def test_settings_that_python_hands_in_may_extend_a_file_too(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)
    config = decode_run({"extends": "shared/base.toml", "training": {"updates": 8}})
    assert config == load(here, "[training]\nupdates = 8\n")


def test_a_runs_own_settings_may_be_extended(here: Path) -> None:
    stored = load_run(here / "shared" / "base.toml").config()
    (here / "shared" / "base.toml").write_text(tomli_w.dumps(stored), encoding="utf-8")
    assert load(here, "seed = 4\n").config() == stored | {"seed": 4}
    assert load(here, '[algorithm]\nmethod = "grpo"\n').made_by == {"method": "grpo"}
    changed = load(here, '[algorithm.loss]\nold = "engine"\n')
    assert changed.made_by is None, "its parts are not those of the method"


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("seed = 'x'\n", "run.toml", "seed: expected an integer, found 'x'"),
        (
            "",
            "BASE",
            "training.updates: expected a number greater than or equal to 0, found -1",
        ),
        ("[training]\ntasks = 4\n", "BASE", "training.updates: expected a number greater"),
        ("[training]\nupdates = -2\n", "run.toml", "training.updates: expected a number greater"),
        ("[trainin]\nupdates = 2\n", "run.toml", "trainin: unknown setting; did you mean 'training'?"),
        (
            "[algorithm]\ndepth = -1\n",
            "run.toml",
            "algorithm.depth: expected a number greater than or equal to 0, found -1",
        ),
        (
            '[algorithm]\nmethod = "gpro"\n',
            "run.toml",
            "algorithm.method: there is no method 'gpro'; did you mean 'grpo'?",
        ),
    ],
)
def test_an_error_names_the_file_in_which_the_key_stands(here: Path, text: str, place: str, message: str) -> None:
    base = here / "shared" / "base.toml"
    base.write_text(BASE.replace("updates = 3", "updates = -1"), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(here, text)
    where = f"{base} (extended by {here / 'run.toml'})" if place == "BASE" else str(here / "run.toml")
    assert str(caught.value).startswith(f"{where}: {message}")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('method = "hgpo"', 'method = "hgop"', "algorithm.method: there is no method 'hgop'; did you mean 'hgpo'?"),
        ("depth = 4", "dpth = 4", "algorithm.dpth: not an option of the method 'hgpo'"),
        ("depth = 4", "depth = -4", "algorithm.depth: expected a number"),
        ("depth = 4", "loss = { odl = 1 }", "algorithm.loss.odl: unknown setting; did you mean 'old'?"),
        ('kind = "identity"', 'kind = "idntity"', "env.kind: there is no env 'idntity'"),
        ("[training]", "[trainin]", "trainin: unknown setting; did you mean 'training'?"),
    ],
)
def test_a_slip_in_the_file_below_names_that_file(here: Path, before: str, after: str, message: str) -> None:
    base = here / "shared" / "base.toml"
    base.write_text(BASE.replace(before, after), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(here, "[algorithm.loss]\nold = 'engine'\n[env]\nlength = 1\n", overrides=["seed=1"])
    assert str(caught.value).startswith(f"{base} (extended by {here / 'run.toml'}) with --set seed=1: {message}")


def test_what_the_command_line_sets_is_no_fault_of_the_file_below(here: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(here, "", overrides=["training.updates=-1"])
    assert str(caught.value).startswith(f"{here / 'run.toml'} with --set training.updates=-1: training.updates: ")


@pytest.mark.parametrize(
    ("extends", "message"),
    [
        ("3", "run.toml: extends: found 3; give the path of a run file"),
        ('""', "run.toml: extends: found ''; give the path of a run file"),
        (
            '"shared/bas.toml"',
            "run.toml: extends: HERE/shared/bas.toml: there is no such file; did you mean HERE/shared/base.toml? Give "
            "a run file (TOML)",
        ),
        ('"shared"', "run.toml: extends: HERE/shared: cannot be read (Is a directory); give a run file (TOML)"),
        ('"torn.toml"', "run.toml: extends: HERE/torn.toml: not valid TOML: Invalid value (at end of document)"),
        (
            '"second.toml"',
            "second.toml: extends: a file that another one extends cannot extend a third; write the settings of "
            "'shared/base.toml' here, or let HERE/run.toml extend that",
        ),
        (
            '"run.toml"',
            "run.toml: extends: a file that another one extends cannot extend a third; write the settings of "
            "'run.toml' here, or let HERE/run.toml extend that",
        ),
    ],
)
def test_a_file_that_cannot_be_extended_is_a_sentence(here: Path, extends: str, message: str) -> None:
    (here / "second.toml").write_text('extends = "shared/base.toml"\n', encoding="utf-8")
    (here / "torn.toml").write_text("seed = ", encoding="utf-8")
    (here / "run.toml").write_text(f"extends = {extends}\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        read_run_file(here / "run.toml")
    assert str(caught.value) == f"{here}/{message.replace('HERE', str(here))}"


def test_commands_read_both_files(here: Path, groupwise: Run) -> None:
    write(here, "[env]\nnum_words = 5\n")
    task_set = groupwise("tasks", "run.toml")
    assert task_set.status == 0, task_set.err
    assert task_set.out.startswith("Identity(num_words=5, length=3): 3 task sets")
    (here / "shared" / "base.toml").write_text(BASE.replace("length = 3", "lenght = 3"), encoding="utf-8")
    ran = groupwise("tasks", "run.toml")
    assert ran.err.startswith("error: shared/base.toml (extended by run.toml): env.lenght: unknown setting")
