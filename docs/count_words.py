"""Count the words of the pages in the navigation by kind and page, and those of all other pages.

python docs/count_words.py

A word is what stands between spaces and has a letter or a digit. Tables and code count like prose.
"""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent
KINDS = ("learn", "howto", "reference", "why")
"""The folders of docs/ with the pages of the navigation: a page has one kind."""
FROM_OUTSIDE = {"reference/examples.md": "examples/README.md"}
"""Pages of a kind that lie elsewhere in the repository."""
START = ("index.md", "pages.md")
"""The first pages of the site, the README and the list of pages: they have no kind."""
WORD = re.compile(r"\S*[^\W_]\S*")


def count_words(path: Path) -> int:
    """Words of a page."""
    return len(WORD.findall(path.read_text(encoding="utf-8")))


def read_navigation() -> list[str]:
    """The pages of the navigation, by their name on the site."""
    _, _, nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")
    return re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", nav, re.MULTILINE)


def count_navigation() -> dict[str, dict[str, int]]:
    """Words by kind and page."""
    counted: dict[str, dict[str, int]] = {kind: {} for kind in KINDS}
    for page in read_navigation():
        if page not in START:
            kind, _, name = page.partition("/")
            counted[kind][name] = count_words(ROOT / FROM_OUTSIDE.get(page, f"docs/{page}"))
    return counted


def count_others() -> dict[str, int]:
    """Words of the pages that are found by search and by links, by folder."""
    listed, counted = {ROOT / "docs" / page for page in read_navigation()}, dict[str, int]()
    for path in sorted(DOCS.rglob("*.md")):
        if path not in listed and path.name != "index.md" and "notes" not in path.parts:
            folder = path.parent.relative_to(ROOT).as_posix()
            counted[folder] = counted.get(folder, 0) + count_words(path)
    return counted


def main() -> None:
    """Print the counts."""
    counted = count_navigation()
    for kind, pages in counted.items():
        print(f"{kind}: {sum(pages.values()):,}")
        for page, num in sorted(pages.items(), key=lambda entry: -entry[1]):
            print(f"  {num:>7,}  {page}")
    print(f"in the navigation: {sum(sum(pages.values()) for pages in counted.values()):,}")
    for folder, num in count_others().items():
        print(f"  {num:>7,}  {folder}, by search only")


if __name__ == "__main__":
    main()
