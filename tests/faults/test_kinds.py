"""Kinds that name nothing, and modules that fail, end the process or are no Python: one sentence each."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from groupwise import ConfigError, Part
from groupwise.parts.part import Slot, find_part_class
from tests.unit.cli.conftest import Run, groupwise

__all__ = ["groupwise"]

NO_PLACES = (".a:b", "a:", ":b", ":", "a..b:C", "a.:C", "a:b:c", "a b:C", "a:1", "..:x", "a\0:C", "a:C\ud800", "a/b:C")
MODULES = {
    "syntax": ("def f(:\n", "importing the module 'syntax' failed (SyntaxError: invalid syntax (syntax.py, line 1))"),
    "leaves": ("import sys\nsys.exit(0)\n", "importing the module 'leaves' ends the process (SystemExit: 0)"),
    "raises": ("raise BaseException('away')\n", "importing the module 'raises' failed (BaseException: away)"),
    "long": ("raise ValueError('x' * 10**6)\n", "importing the module 'long' failed (ValueError: xxx"),
    "rude": ("raise ValueError('\\x1b]0;x\\x07')\n", "importing the module 'rude' failed (ValueError: \\x1b]0;x\\x07)"),
    "mute": (
        "class Mute(Exception):\n    def __str__(self):\n        raise RuntimeError\nraise Mute\n",
        "importing the module 'mute' failed (Mute: its message cannot be shown)",
    ),
    "needs": ("import nothing_of_this_name\n", "No module named 'nothing_of_this_name'"),
    "nulls": ("x = '\0'\n", "importing the module 'nulls' failed (SyntaxError: source code string cannot contain null"),
    "typo": (
        "from groupwise import Part\nclass Env(Part, slot='evn'):\n    pass\n",
        "importing the module 'typo' failed (ConfigError: class Env: there is no slot 'evn'; did you mean 'env'?",
    ),
}


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "modules"
    folder.mkdir()
    for name, (source, _) in MODULES.items():
        (folder / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("kind", NO_PLACES, ids=ascii)
def test_what_is_no_place_of_a_class_is_named(kind: str) -> None:
    with pytest.raises(ConfigError) as raised:
        find_part_class("env", kind)
    said = str(raised.value)
    assert said.startswith("there is no env '")
    assert said.endswith("'; write package.module:Class")
    said.encode("utf-8")
    assert said.isprintable()


@pytest.mark.parametrize("name", MODULES)
def test_a_module_that_cannot_be_imported_is_one_sentence(name: str, modules: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        find_part_class("env", f"{name}:Env")
    said = str(raised.value)
    assert said.startswith(f"cannot load the env '{name}:Env': {MODULES[name][1]}")
    assert said.isprintable()
    assert len(said) < 700


def test_a_user_who_stops_a_slow_import_stops(modules: Path) -> None:
    (modules / "slow.py").write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        find_part_class("env", "slow:Env")


@pytest.mark.parametrize("name", ["syntax", "leaves", "raises"])
def test_the_command_says_it_in_one_line_with_status_2(name: str, modules: Path, groupwise: Run) -> None:
    ran = groupwise("check", "env", f"{name}:Env")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith(f"error: cannot load the env '{name}:Env': ")
    assert ran.err.count("\n") == 1


def test_a_class_within_a_class_can_be_named() -> None:
    assert find_part_class("grouper", f"{__name__}:Outer.Inner") is Outer.Inner


def test_a_class_without_a_slot_is_told_how_to_have_one() -> None:
    with pytest.raises(ConfigError) as raised:
        Slot("grouper").fill({"kind": f"{__name__}:Slotless"})
    assert str(raised.value) == (
        "Slotless has no slot, but a grouper is needed here; write class Slotless(Part, slot='grouper')"
    )


def test_a_slot_that_is_none_is_refused_where_the_class_is_made() -> None:
    with pytest.raises(ConfigError) as raised:

        class Mine(Part, slot="gruoper"):
            pass

    assert str(raised.value) == (
        "class Mine: there is no slot 'gruoper'; did you mean 'grouper'? docs/howto/extending/slots.md lists them all"
    )


class Slotless(Part):
    pass


class Outer:
    class Inner(Part, slot="grouper"):
        pass
