"""Markdown as the tests read it: pages, headings, links, and blocks of code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.architecture.sources import ROOT, files, name_of

FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
DECISIONS = ("docs/adr/", "LABLOG.md")
"""Pages that say what was: the names in them may be gone."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    language: str
    text: str

    @property
    def place(self) -> str:
        """Where it stands, for a failing test."""
        return f"{self.page}, block of {self.language or 'no language'} that begins {self.text[:60]!r}"


@cache
def pages() -> tuple[str, ...]:
    """Every Markdown file of the repository, by its path from the root."""
    return tuple(name_of(path) for path in files(ROOT) if path.suffix == ".md")


def current_pages() -> list[str]:
    """The pages that say what is."""
    return [page for page in pages() if not page.startswith(DECISIONS)]


@cache
def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks_of(page: str, *languages: str) -> list[Block]:
    """The fenced blocks of a page, of these languages or of all."""
    made = [Block(page, match[1], match[2]) for match in FENCE.finditer(text_of(page))]
    return [block for block in made if not languages or block.language in languages]


def prose_of(page: str) -> str:
    """A page without its fenced blocks."""
    return FENCE.sub("", text_of(page))


def inline_code_of(page: str) -> list[str]:
    """What stands between backticks in the prose of a page."""
    return INLINE.findall(prose_of(page))


def links_of(page: str) -> list[str]:
    """The targets of a page's links and images, those to other sites left out."""
    targets = LINK.findall(INLINE.sub("", prose_of(page)))
    return [target for target in targets if not re.match(r"\w+:", target)]


def anchors_of(page: str) -> set[str]:
    """What a link into a page may end with: its headings as GitHub spells them in addresses."""
    anchors: set[str] = set()
    for heading in HEADING.findall(prose_of(page)):
        words = re.sub(r"[^\w\- ]", "", LINK.sub(_text_of_link, heading).replace("`", "").lower())
        anchor, number = words.strip().replace(" ", "-"), 1
        while (numbered := anchor if number == 1 else f"{anchor}-{number - 1}") in anchors:
            number += 1
        anchors.add(numbered)
    return anchors


def target_of(page: str, link: str) -> tuple[Path, str]:
    """The file that a link of a page leads to, and the anchor within it."""
    path, _, anchor = link.partition("#")
    here = ROOT / page
    return (here.parent / path).resolve() if path else here, anchor


def _text_of_link(match: re.Match[str]) -> str:
    return match[0][1:].partition("]")[0]
