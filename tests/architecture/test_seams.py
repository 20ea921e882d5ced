"""`groupwise.extend` has what a package from outside needs, and the code in docs/howto/extending runs."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from groupwise import extend as seams
from tests.architecture.sources import PACKAGE, ROOT
from tests.fresh_interpreter import fresh, without

PAGES = sorted((ROOT / "docs" / "howto" / "extending").glob("*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_every_name_is_there_and_is_listed() -> None:
    imported = {name for name in vars(seams) if not name.startswith("__")} - {"annotations"}
    assert sorted(seams.__all__) == sorted(imported)


def test_what_parts_are_declared_with_needs_no_torch() -> None:
    code = without("torch", "transformers") + "from groupwise.extend import *\nprint(Part.__module__)\n"
    assert fresh(code) == "groupwise.parts.part\n"


def test_a_name_means_one_thing() -> None:
    """Environments and reports have records of their own, which nobody meets beside these."""
    defined = defaultdict(list)
    for path in PACKAGE.rglob("*.py"):
        inner = path.relative_to(PACKAGE)
        if inner.parts[0] in ("envs", "report", "extend.py"):
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for name in names_of(node):
                defined[name].append(str(inner))
    assert {name: defined[name] for name in seams.__all__ if len(defined[name]) > 1 and not name.isupper()} == {}


def names_of(node: ast.stmt) -> list[str]:
    """What a statement at the top of a file defines."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run_one_after_another(page: Path) -> None:
    pytest.importorskip("torch")
    names: dict[str, object] = {"__name__": f"page_{page.stem}"}
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        exec(compile(block, str(page), "exec", dont_inherit=True), names)


def test_every_page_with_code_says_where_names_come_from() -> None:
    coded = [page for page in PAGES if "slot=" in "".join(BLOCK.findall(page.read_text(encoding="utf-8")))]
    assert len(coded) >= 7
    lacking = [page.name for page in coded if "from groupwise.extend import" not in page.read_text(encoding="utf-8")]
    assert lacking == []
