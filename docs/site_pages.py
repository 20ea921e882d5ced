"""A hook of mkdocs: pages that live at the root are part of the site, and links lead where the site has them.

The repository's pages link to each other as files, which any viewer of the repository follows. The site has the pages
of docs/ and some from the root; a link to any other file (source, settings, results) becomes its text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
ELSEWHERE = {
    "README.md": "index.md",
    "docs/index.md": "pages.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "LABLOG.md": "lablog.md",
    "examples/README.md": "reference/examples.md",
    "conformance/README.md": "full/conformance.md",
    "conformance/numbers.md": "full/numbers.md",
    "tests/mutation/README.md": "full/planted_bugs.md",
    **{f"benchmarks/pages/{path.name}": f"full/{path.name}" for path in ROOT.glob("benchmarks/pages/*.md")},
}
"""What the site calls pages that are not in docs/, or not under the same name."""
BOOSTS = {
    **dict.fromkeys(
        ("adr/", "full/", "lablog.md", "changelog.md", "contributing.md", "architecture.md", "api.md"), 0.1
    ),
    "reference/parts/": 0.4,
}
"""How much pages count in the search, by the beginnings of their names; 1 for all others.

Most questions are answered by a tutorial, a how-to page or the settings, and not by a decision or a list of kinds.
"""
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages at the root; the first page is the README, and the index of pages is one of them."""
    index = files.get_file_from_path("index.md")
    assert index is not None, "docs/index.md lists the pages"
    files.remove(index)
    for place, name in ELSEWHERE.items():
        files.append(File.generated(config, name, content=(ROOT / place).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Point links at pages of the site; a link to anything else is its text."""
    name = page.file.src_uri
    boost = next((boost for beginning, boost in BOOSTS.items() if name.startswith(beginning)), None)
    if boost is not None:
        page.meta["search"] = {"boost": boost}
    place = next((place for place, other in ELSEWHERE.items() if other == name), f"docs/{name}")
    return LINK.sub(lambda match: lead_link(match, place=place, name=name, files=files), markdown)


def lead_link(match: re.Match[str], *, place: str, name: str, files: Files) -> str:
    """A link of a page of the repository as one of the site.

    Args:
        match: the link.
        place: where the page is in the repository.
        name: what the site calls it.
        files: what the site has.
    """
    image, text, target = match.groups()
    if re.match(r"\w+:|#", target):
        return match[0]
    path, _, anchor = target.partition("#")
    to = posixpath.normpath(posixpath.join(posixpath.dirname(place), path))
    to = f"{to}/README.md" if (ROOT / to).is_dir() else to
    to = ELSEWHERE.get(to, to.removeprefix("docs/"))
    file = files.get_file_from_path(to)
    if file is None or file.inclusion.is_excluded():
        return text
    link = posixpath.relpath(to, posixpath.dirname(name) or ".")
    return f"{image}[{text}]({link}{'#' + anchor if anchor else ''})"
