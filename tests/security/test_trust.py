"""Reading a run that somebody sent runs nothing of it: no import, no environment, no module of the current folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from groupwise import ConfigError, Part, methods
from groupwise.parts.outside import may_run, only_reading
from groupwise.parts.part import CATALOGUES, Slot, check_may_open, find_part_class, load_catalogue
from groupwise.training.run_reader import RunFolder
from tests.installed import run_installed
from tests.unit.cli.conftest import Run, groupwise
from tests.unit.report.run_folders import settings, write_run

__all__ = ["groupwise"]

TRAP = """
import pathlib

from groupwise import Part
from groupwise.envs import Household

pathlib.Path("sprung").write_text("the trap was imported")


class Env(Household, slot="env"):
    pass


class Grouper(Part, slot="grouper"):
    def __call__(self, table):
        return table.task
"""
TRAPPED_ENV = {"kind": "trap:Env"}
TRAPPED_ALGORITHM = {
    "advantage": {"kind": "relative", "by": {"kind": "trap:Grouper"}, "of": {"kind": "episode_return"}}
}
READING: dict[str, tuple[str, ...]] = {
    "report": ("report", "run"),
    "inspect": ("inspect", "run"),
    "inspect an update": ("inspect", "run", "--update", "1"),
    "inspect a rollout": ("inspect", "run", "--update", "1", "--task", "TASK"),
    "inspect two runs": ("inspect", "--diff", "run", "run"),
    "audit": ("audit", "run"),
    "audit under its file": ("audit", "run", "--method", "run/config.toml"),
    "explain": ("explain", "run", "--rollout", "0", "--step", "0", "--method", "run/config.toml"),
    "explain what trained": ("explain", "run", "--rollout", "0", "--step", "0"),
    "check rollouts": ("check", "rollouts", "run"),
    "tasks": ("tasks", "run"),
    "tasks of a file": ("tasks", "run/config.toml"),
    "evaluate": ("evaluate", "run"),
}
NEEDS_IT = {"audit under its file", "explain", "explain what trained", "tasks", "tasks of a file", "evaluate"}
"""What cannot be done without; the others leave out what needs it."""


@pytest.fixture
def received(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A run whose environment and grouper are of a module that lies beside it."""
    (tmp_path / "trap.py").write_text(TRAP, encoding="utf-8")
    write_run(tmp_path / "run", updates=1, tasks=1, rollouts=2, env=TRAPPED_ENV)
    monkeypatch.syspath_prepend(str(tmp_path / "elsewhere"))
    yield tmp_path
    sys.modules.pop("trap", None)


def trap_algorithm(folder: Path) -> None:
    import tomli_w

    config = settings(methods.hgpo()) | {"env": TRAPPED_ENV, "algorithm": TRAPPED_ALGORITHM}
    (folder / "run" / "config.toml").write_text(tomli_w.dumps(config), encoding="utf-8")


def arguments_of(case: str, folder: Path) -> list[str]:
    with RunFolder(folder / "run") as run:
        task = run.rollouts[0]["task"]
    return [task if argument == "TASK" else argument for argument in READING[case]]


@pytest.mark.parametrize("case", READING)
def test_no_reading_command_imports_what_a_run_names(case: str, received: Path, groupwise: Run) -> None:
    trap_algorithm(received)
    ran = groupwise(*arguments_of(case, received))
    assert not (received / "sprung").exists()
    assert "trap" not in sys.modules
    assert ran.status == (2 if case in NEEDS_IT else 0), ran.err
    if case in NEEDS_IT:
        assert "not loaded without --trust" in ran.err
        assert ran.err.count("\n") == 1


@pytest.mark.parametrize("case", ["report", "inspect a rollout", "audit", "tasks", "explain", "explain what trained"])
def test_with_trust_it_is_loaded(case: str, received: Path, groupwise: Run) -> None:
    trap_algorithm(received)
    ran = groupwise(*arguments_of(case, received), "--trust")
    assert (received / "sprung").exists()
    explains = case.startswith("explain")
    assert ran.status == (1 if explains else 0), ran.err
    assert ("has -1.339813064: another number" in ran.out) == explains, "the journal's is another algorithm's"


def test_the_page_and_inspect_say_what_was_left_alone(received: Path, groupwise: Run) -> None:
    assert groupwise("inspect", "run", "--update", "1").err == ""
    ran = groupwise(*arguments_of("inspect a rollout", received))
    assert ran.err == (
        "the env 'trap:Env' is not loaded without --trust: it would run code from outside groupwise; add --trust if "
        "you trust the author of this run\n"
    )
    groupwise("report", "run")
    page = (received / "run" / "report.html").read_text(encoding="utf-8")
    assert "not loaded without --trust" in page


def test_an_audit_goes_on_without_the_algorithm_it_may_not_load(received: Path, groupwise: Run) -> None:
    trap_algorithm(received)
    ran = groupwise("audit", "run")
    assert ran.status == 0
    assert ran.err.startswith("without this run's own method: run/config.toml: ")
    assert "hgpo" in ran.out


def test_what_a_user_names_on_the_command_line_is_loaded(received: Path, groupwise: Run) -> None:
    ran = groupwise("tasks", "trap:Env")
    assert ran.status == 0, ran.err
    assert (received / "sprung").exists()


def test_the_current_folder_is_last_and_only_where_code_may_run(received: Path, groupwise: Run) -> None:
    (received / "watch.py").write_text(
        "import pathlib, sys\n"
        "from groupwise import Part\n"
        "pathlib.Path('paths').write_text(repr(sys.path))\n"
        "class Env(Part, slot='env'):\n    def task_set(self, split):\n        return ()\n"
    )
    before = list(sys.path)
    groupwise("tasks", "watch:Env")
    paths: list[str] = eval((received / "paths").read_text())
    assert paths[-1] == str(received)
    assert str(received) not in paths[:-1]
    assert sys.path == [place for place in before if place]
    groupwise("audit", "run")
    assert str(received) not in sys.path
    sys.modules.pop("watch")


@pytest.mark.parametrize("command", [("audit", "run"), ("inspect", "run"), ("check", "env", "mine:Env")])
def test_no_module_of_the_current_folder_is_taken_for_another(command: tuple[str, ...], tmp_path: Path) -> None:
    write_run(tmp_path / "run", updates=1, tasks=1, rollouts=2)
    for name in ("json", "numpy", "torch", "tokenizers", "rich", "sqlite3", "decimal"):
        (tmp_path / f"{name}.py").write_text(f"open('sprung', 'w').write({name!r})\n")
    (tmp_path / "mine.py").write_text(
        "import json, numpy, decimal\nfrom groupwise.envs import Identity\nclass Env(Identity, slot='env'):\n    pass\n"
    )
    ran = run_installed(*command, cwd=tmp_path)
    assert not (tmp_path / "sprung").exists()
    assert ran.returncode in (0, 1), ran.stderr
    assert b"Traceback" not in ran.stderr


def test_only_environments_that_work_from_their_fields_are_opened_to_read() -> None:
    inside = {kind for kind, part in load_catalogue("env").items() if part.self_contained}
    ours = {
        "household",
        "gridworld",
        "boxes",
        "countdown",
        "worked_sums",
        "ranked_lists",
        "lookup",
        "identity",
        "aliased",
    }
    # A mixture reaches no further than its members, each of which is asked (tests/unit/envs/test_mixture.py).
    assert inside == {*ours, "storefront", "mixture"}


@pytest.mark.parametrize(
    "env",
    [
        {"kind": "openenv", "url": "http://127.0.0.1:9", "world": "w"},
        {"kind": "gymnasium", "id": "FrozenLake-v1"},
        {"kind": "alfworld"},
        {"kind": "textworld"},
        {"kind": "scienceworld"},
        {"kind": "webshop", "path": "products"},
    ],
    ids=lambda env: env["kind"],
)
def test_an_environment_that_reaches_out_is_not_opened_to_read(
    env: dict[str, Any], tmp_path: Path, groupwise: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "run", updates=1, tasks=1, rollouts=2, env=env)
    opened: list[str] = []
    part = find_part_class("env", env["kind"])
    monkeypatch.setattr(part, "task_set", lambda self, split: opened.append(split) or ())
    for command in (("report", "run"), ("inspect", "run", "--update", "1"), ("audit", "run")):
        assert groupwise(*command).status == 0
    ran = groupwise("tasks", "run")
    assert (ran.status, opened) == (2, [])
    assert f"the environment '{env['kind']}' is not loaded without --trust" in ran.err


def test_gymnasium_imports_the_module_of_an_id_and_so_it_is_not_decoded_to_read() -> None:
    with only_reading(), pytest.raises(ConfigError, match="not loaded without --trust"):
        Slot("env").fill({"kind": "gymnasium", "id": "trap:Env-v0"})
    with only_reading(), pytest.raises(ConfigError, match="not loaded without --trust"):
        Slot("env").fill({"kind": "gymnasium", "id": "GymV26Environment-v0", "kwargs": {"env_id": "trap:Env-v0"}})
    with only_reading():
        Slot("env").fill({"kind": "gymnasium", "id": "FrozenLake-v1"})


def test_a_reflection_prompt_of_a_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("$rollout")
    Slot("hint").fill({"kind": "reflection", "prompt": str(tmp_path / "prompt.txt")})
    with only_reading(), pytest.raises(ConfigError, match="not loaded without --trust"):
        Slot("hint").fill({"kind": "reflection", "prompt": str(tmp_path / "prompt.txt")})


def test_a_class_does_not_inherit_that_it_stays_inside() -> None:
    from groupwise.envs import Identity

    class Mine(Identity, slot="env"):
        pass

    with only_reading():
        check_may_open(Identity())
        with pytest.raises(ConfigError, match="not loaded without --trust"):
            check_may_open(Mine())


def test_python_may_run_what_it_likes_and_reading_ends_with_its_context() -> None:
    assert may_run()
    with only_reading():
        assert not may_run()
        with only_reading(trust=True):
            assert may_run()
        assert not may_run()
    assert may_run()


@pytest.mark.parametrize("slot", CATALOGUES)
def test_no_slot_loads_from_outside_while_reading(slot: str) -> None:
    with only_reading(), pytest.raises(ConfigError, match="not loaded without --trust"):
        find_part_class(slot, f"{__name__}:Outside")


class Outside(Part):
    pass


def test_a_damaged_tokenizer_or_a_path_out_of_the_folder_costs_the_words_only(tmp_path: Path, groupwise: Run) -> None:
    folder = write_run(tmp_path / "run", updates=1, tasks=1, rollouts=2)
    (folder / "checkpoints" / "0001").mkdir(parents=True)
    for latest, content in (("0001", "{}"), ("0001", '{"version": "1.0"'), ("../../elsewhere", "{}")):
        (folder / "checkpoints" / "latest").write_text(latest)
        (folder / "checkpoints" / "0001" / "tokenizer.json").write_text(content)
        assert groupwise("inspect", "run", "--update", "1").status == 0


def test_the_doctor_looks_at_a_run_file_without_loading_it(
    received: Path, groupwise: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr("groupwise.training.doctor.doctor.self_test", lambda: iter(()))
    ran = groupwise("doctor", "run/config.toml")
    assert ran.status == 0
    assert " note     run/config.toml: " in ran.out
    assert "the env 'trap:Env' is not loaded without --trust" in ran.out
    assert not (received / "sprung").exists()
    groupwise("doctor", "run/config.toml", "--trust")
    assert (received / "sprung").exists()


def test_a_safe_path_leaves_the_current_folder_out_altogether(received: Path) -> None:
    ran = run_installed("tasks", "trap:Env", cwd=received, env={"PYTHONSAFEPATH": "1"})
    assert ran.returncode == 2
    assert b"No module named 'trap'" in ran.stderr
    assert not (received / "sprung").exists()
