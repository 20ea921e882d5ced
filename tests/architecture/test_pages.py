"""The pages hang together: links hold, no page is an orphan, and what they name is there."""

from __future__ import annotations

import importlib
import importlib.util
import re
import tomllib
from types import ModuleType

import pytest

from tests.architecture.markdown import anchors_of, current_pages, inline_code_of, links_of, pages, target_of, text_of
from tests.architecture.sources import PACKAGE, ROOT, name_of

START = "docs/index.md"
NOT_PAGES = ("docs/methods/notes/",)
"""What `docs/build_methods.py` puts into the pages of methods."""
BY_SEARCH = ("howto/extending/", "reference/parts/", "reference/envs/")
"""Folders of pages of a kind that are not in the navigation."""
PATH = re.compile(r"[\w./*-]+")
DOTTED = re.compile(r"groupwise(?:\.\w+)+")
FOLDERS = {path.name for root in (ROOT, PACKAGE) for path in root.iterdir() if path.is_dir() and path.name != "runs"}
NOT_HERE = {
    "methods/NAME.py": "a method that is to be added, CONTRIBUTING.md",
    "examples/methods/NAME.toml": "the run file of a method that is to be added, CONTRIBUTING.md",
    "sooner.py": "the reader's own, docs/learn/own_method.md",
    "thermostat.py": "the reader's own, docs/learn/own_environment.md",
    "rewards.py": "the reader's own, docs/learn/own_data.md",
    "json.py": "what somebody may have put beside a run, docs/why/security.md",
    "torch.py": "what somebody may have put beside a run, docs/why/security.md",
}
"""Python files that pages name and that are not in the repository, and why."""
NOT_MODULES = {
    "groupwise.rollouts": "a key of Parquet files, docs/reference/rollouts.md",
    "groupwise.schema.json": "a file",
}
"""What pages name and what only looks like a module, and why."""


@pytest.mark.parametrize("page", [page for page in pages() if not page.startswith(NOT_PAGES)])
def test_links_lead_somewhere(page: str) -> None:
    broken = []
    for link in links_of(page):
        path, anchor = target_of(page, link)
        if not path.exists() or (anchor and anchor not in anchors_of(name_of(path))):
            broken.append(link)
    assert broken == []


def test_every_page_of_the_docs_is_reached_from_the_index() -> None:
    reached, waiting = set[str](), ["README.md", START]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        paths = [target_of(page, link)[0] for link in links_of(page)]
        waiting += [name_of(path) for path in paths if path.suffix == ".md"]
    assert START in {name_of(target_of("README.md", link)[0]) for link in links_of("README.md")}
    orphans = [page for page in pages() if page.startswith("docs/") and page not in reached]
    assert [page for page in orphans if not page.startswith(NOT_PAGES)] == []


def test_the_index_lists_every_decision_in_order() -> None:
    """By itself: a decision that some other page leads to is reached, and yet readers of the list do not find it."""
    listed = [target_of(START, link)[0] for link in links_of(START) if link.startswith("adr/")]
    assert [name_of(path) for path in listed] == [page for page in pages() if page.startswith("docs/adr/")]


def test_the_map_has_the_layers_of_the_contract() -> None:
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    layers = [set(layer.split(" | ")) for layer in contract[0]["layers"] if layer != "__main__"]
    rows = re.findall(r"^\| \d+ \| (.*?) \|", text_of("ARCHITECTURE.md"), re.MULTILINE)
    assert [set(re.findall(r"`(\w+)`", row)) for row in rows] == layers


def test_every_example_is_listed_once() -> None:
    listed = [name_of(target_of("examples/README.md", link)[0]) for link in links_of("examples/README.md")]
    run_files = [name for name in listed if name.endswith(".toml")]
    assert sorted(run_files) == sorted(name_of(path) for path in (ROOT / "examples").rglob("*.toml"))


@pytest.mark.parametrize("page", current_pages())
def test_files_that_a_page_names_are_there(page: str) -> None:
    metrics = re.findall(r"^\| `([\w/]+)` ", text_of("docs/reference/metrics.md"), re.MULTILINE)
    named = [code for code in inline_code_of(page) if PATH.fullmatch(code) and is_ours(code) and code not in metrics]
    assert [path for path in named if path not in NOT_HERE and not is_there(path, page)] == []


def is_ours(path: str) -> bool:
    """Whether a path speaks of the repository: a Python file, or something in one of its folders."""
    return path.endswith(".py") or ("/" in path and path.partition("/")[0] in FOLDERS)


def is_there(path: str, page: str = "README.md") -> bool:
    """Whether a file or folder is there, by its path from the root, in the package or beside the page, or by name."""
    roots = (ROOT, PACKAGE, (ROOT / page).parent)
    if any(any(root.glob(path.rstrip("/"))) for root in roots):
        return True
    return "/" not in path and any(PACKAGE.rglob(path))


@pytest.mark.parametrize(
    ("path", "exists"),
    [("data/records.py", True), ("records.py", True), ("tests/oracles", True), ("data/nothing.py", False)],
)
def test_a_file_that_is_not_there_is_found_out(path: str, exists: bool) -> None:
    assert is_ours(path) or "oracles" in path
    assert is_there(path) == exists


@pytest.mark.parametrize("page", current_pages())
def test_names_of_the_package_that_a_page_names_are_there(page: str) -> None:
    pytest.importorskip("torch")
    named = [code for code in inline_code_of(page) if DOTTED.fullmatch(code) and code not in NOT_MODULES]
    assert [name for name in named if not is_importable(name)] == []


def is_importable(name: str) -> bool:
    """Whether a dotted name is a module of the package, or an attribute of one."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        return is_importable(module) and hasattr(importlib.import_module(module), attribute)
    return True


@pytest.mark.more
@pytest.mark.parametrize("script", ["build_results", "build_lab", "build_slots", "build_r3"])
def test_tables_are_what_the_script_would_write(script: str) -> None:
    module = load_script(script)
    for path in getattr(module, "PAGES", None) or [module.PAGE]:
        text = text_of(name_of(path))
        assert module.page(text) == text, f"run `python docs/{script}.py`"


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["all weights, float32", "all weights, lean", "LoRA, rank 16", "QLoRA, rank 16"])
def test_the_memory_table_is_what_the_script_would_write(kind: str) -> None:
    """One size of each kind: all twenty lines take a minute."""
    pytest.importorskip("peft")
    module = load_script("build_memory")
    lines = [
        line
        for line in text_of("docs/howto/gpu_memory.md").splitlines()
        if line.startswith(tuple(f"| {size}, " for size in module.SHAPES))
    ]
    assert [line.split(" | ")[0][2:] for line in lines] == [
        f"{size}, {kind}" for size in module.SHAPES for kind in module.KINDS
    ]
    expected = f"| {' | '.join(module.row('0.5B', kind))} |"
    assert expected in lines, "run `python docs/build_memory.py`"


def test_the_tables_of_results_are_all_on_a_page_and_changed_numbers_are_found() -> None:
    module = load_script("build_results")
    texts = [text_of(name_of(path)) for path in module.PAGES]
    assert {name for text in texts for name in re.findall(r"<!-- table: (\w+) -->", text)} == set(module.TABLES)
    changed = texts[0].replace("46.8 %", "56.8 %")
    assert changed != texts[0] == module.page(changed)


def test_the_table_of_slots_has_every_slot() -> None:
    from groupwise.parts.part import CATALOGUES

    asked = load_script("build_slots").protocols_of_slots()
    assert set(asked) == set(CATALOGUES)


def test_every_page_of_the_navigation_has_a_kind_and_none_is_missing() -> None:
    """Its folder is its kind. Single extension points, slots and environments are found by search, as methods are."""
    counting = load_script("count_words")
    listed = set(counting.read_navigation()) - set(counting.START)
    assert {page.partition("/")[0] for page in listed} == set(counting.KINDS)
    there = {
        page.removeprefix("docs/") for page in pages() if page.startswith(tuple(f"docs/{k}/" for k in counting.KINDS))
    }
    single = {page for page in there if page.startswith(BY_SEARCH) and not page.endswith("README.md")}
    assert listed - set(counting.FROM_OUTSIDE) == there - single


def load_script(script: str) -> ModuleType:
    """A script of the docs, as a module."""
    spec = importlib.util.spec_from_file_location(script, ROOT / "docs" / f"{script}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
