"""Sentences as a reader meets them: in pages, help texts, errors and reports, without code, tables and headings.

`python -m tests.architecture.prose docs/learn docs/howto/report.md` lists by page what is too long, the mean, and
home-made words.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.markdown import FENCE
from tests.architecture.sources import ROOT

LONGEST = 30
"""A sentence has at most so many words."""
MEAN = 20
"""So many words have the sentences of a page on average, at most."""

HOME_MADE = re.compile(
    r"""\b(
    attempts?|hand(?:ed|s|ing)?-?overs?|hand(?:s|ed|ing)?\ weights\ over|canar(?:y|ies)|panels?|seams?|sloppy
    |to\ the\ bit|whoever|nobody|come\ round|comes\ round|(?:told|tell|telling)\ apart|learnt|likelier|foreseen
    |mend(?:ed|s|ing)?|goes\ on|go\ on|praised?|blamed?
    |be\ it|as\ far\ as|put\ to\ the|held\ against|dealt|lanes?
    |sampled\ ahead\ of\ time|played\ ahead|in\ shares
    |a\ (?:loss|number|row|seed|line)\ a\ (?:token|row|step|request|run|update)|teaches\ nothing|earns?|is\ paid|worlds?
    )\b""",
    re.IGNORECASE | re.VERBOSE,
)
"""Words that the field does not use, and turns that make a reader stop."""
NOT_HOME_MADE = re.compile(
    r"rich\.panel|world[- ]size|world model|text world|ALFWorld|TextWorld|ScienceWorld|control panel", re.IGNORECASE
)

COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
CODE = re.compile(r"`[^`]+`")
IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
ITEM = re.compile(r"^\s*(?:[-*]|\d+\.)\s+")
END = re.compile(r"(?<=[.!?])[*_)\"']*\s+(?=[\"'(*_]*[A-Z0-9«])")
ABBREVIATION = re.compile(r"\b(?:e\.g|i\.e|cf|vs|et al|Fig|Eq|Sec|No)\.$|\b[A-Z]\.$")


def paragraphs_of_page(text: str) -> Iterator[str]:
    """Paragraphs and list items of a Markdown text; tables, headings, code and pictures left out."""
    lines: list[str] = []
    for line in [*FENCE.sub("\n", COMMENT.sub("\n", text)).splitlines(), ""]:
        stripped = line.strip()
        if not stripped or stripped.startswith(("|", "#", "!!!", "???", "---", "===", "$$")) or ITEM.match(line):
            if lines:
                yield " ".join(lines)
            lines = []
        if stripped and not stripped.startswith(("|", "#", "!!!", "???", "---", "===", "$$")):
            lines.append(ITEM.sub("", line).strip().removeprefix("> "))


def sentences_of(paragraph: str) -> list[str]:
    """The sentences of a paragraph. A piece of code counts as one word, a link as its text."""
    plain = LINK.sub(r"\1", IMAGE.sub("", CODE.sub("CODE", paragraph)))
    made: list[str] = []
    for piece in END.split(plain):
        if made and ABBREVIATION.search(made[-1]):
            made[-1] += " " + piece
        else:
            made.append(piece)
    return [sentence for sentence in made if count_words(sentence)]


def count_words(sentence: str) -> int:
    """What stands between spaces and has a letter or a digit."""
    return sum(any(character.isalnum() for character in word) for word in sentence.split())


def home_made_words(text: str) -> list[str]:
    return [match[0].lower() for match in HOME_MADE.finditer(NOT_HOME_MADE.sub("", text))]


def sentences_of_page(text: str) -> list[str]:
    return [sentence for paragraph in paragraphs_of_page(text) for sentence in sentences_of(paragraph)]


def texts_of_errors(source: str) -> Iterator[str]:
    """What `raise` statements of a module say; a value in the middle counts as one word."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Raise) or node.exc is None:
            continue
        inner: set[int] = set()
        for part in ast.walk(node.exc):
            if isinstance(part, ast.JoinedStr):
                inner.update(id(value) for value in part.values)
                yield "".join(str(value.value) if isinstance(value, ast.Constant) else "X" for value in part.values)
            elif isinstance(part, ast.Constant) and isinstance(part.value, str) and id(part) not in inner:
                yield part.value


def texts_of_strings(source: str) -> Iterator[str]:
    """The strings of a module that are texts for readers: six words or more, and no docstring."""
    tree = ast.parse(source)
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inner.update(id(value) for value in node.values)
            text = "".join(str(value.value) if isinstance(value, ast.Constant) else "X" for value in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            text = node.value
        else:
            continue
        if id(node) not in inner and count_words(text) >= 6:
            yield text


def main(names: list[str]) -> None:
    for name in names:
        given = Path(name)
        for path in sorted(given.rglob("*.md")) if given.is_dir() else [given]:
            text = path.read_text(encoding="utf-8")
            sentences = sentences_of_page(text)
            counts = [count_words(sentence) for sentence in sentences]
            where = path.resolve().relative_to(ROOT) if path.resolve().is_relative_to(ROOT) else path
            print(f"{where}: {len(counts)} sentences, mean {sum(counts) / max(len(counts), 1):.1f} words")  # noqa: T201
            for sentence, count in zip(sentences, counts, strict=True):
                if count > LONGEST:
                    print(f"  {count} words: {sentence[:150]}")  # noqa: T201
            for sentence in sentences:
                for word in home_made_words(sentence):
                    print(f"  {word}: {sentence[:150]}")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
