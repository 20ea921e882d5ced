"""Sentences as a reader meets them: in pages, help texts, errors and reports, without code, tables and headings.

`python -m tests.architecture.prose docs/learn docs/howto/report.md src/groupwise/report` lists what is too long, and
home-made words. `python -m tests.architecture.prose --lower` writes the counts of now into the record of
`test_prose.py`, in which they may only fall.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer

from tests.architecture.markdown import FENCE, pages, text_of
from tests.architecture.sources import PACKAGE, ROOT, files

RECORD = ROOT / "tests" / "architecture" / "prose_counts.json"
LIST = "python -m tests.architecture.prose"

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


def texts_of_module(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """What a module says to readers: texts of `raise` statements as "errors", docstrings of fields as "fields"."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            yield from (("errors", text) for text in texts_of_strings(node.exc))
        elif isinstance(node, ast.ClassDef):
            for field, after in pairwise(node.body):
                if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr):
                    yield from (("fields", text) for text in texts_of_strings(after))


def texts_of_strings(tree: ast.AST) -> Iterator[str]:
    """The strings below a node; a value in the middle of one counts as one word."""
    inner: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inner.update(id(value) for value in node.values)
            yield "".join(str(value.value) if isinstance(value, ast.Constant) else "X" for value in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.value


def texts_of_template(text: str) -> Iterator[str]:
    """The texts of a template of HTML; what a program puts in counts as one word."""
    text = re.sub(r"\{#.*?#\}|<(style|script)\b.*?</\1>", "", text, flags=re.DOTALL)
    text = re.sub(r"\{\{.*?\}\}", "X", re.sub(r"\{%.*?%\}", "", text, flags=re.DOTALL), flags=re.DOTALL)
    text = re.sub(r"</?(?:a|b|code|em|i|span|strong|sub|sup)\b[^>]*>", "", text)
    for piece in re.split(r"<[^>]*>|\n\s*\n", text):
        if piece.strip():
            yield " ".join(piece.split())


def texts_of_help() -> Iterator[tuple[str, str]]:
    """What `groupwise ... --help` says: the command, and its own sentences and those of its options."""
    from groupwise.cli.main import make_app

    waiting: list[tuple[str, Any]] = [("groupwise", typer.main.get_command(make_app()))]
    while waiting:
        name, command = waiting.pop()
        waiting += [(f"{name} {inner}", given) for inner, given in getattr(command, "commands", {}).items()]
        for text in [command.help, *(getattr(parameter, "help", None) for parameter in command.params)]:
            yield from ((name, " ".join(paragraph.split())) for paragraph in (text or "").split("\n\n"))


def faults_of(sentences: Iterable[str]) -> list[str]:
    """Sentences that are too long, and home-made words, each with its sentence."""
    faults: list[str] = []
    for sentence in sentences:
        if (count := count_words(sentence)) > LONGEST:
            faults.append(f"{count} words: {sentence}")
        faults += [f"{word}: {sentence}" for word in home_made_words(sentence)]
    return faults


def faults_of_page(text: str) -> list[str]:
    """Those of its sentences, and that they are too long on average."""
    sentences = sentences_of_page(text)
    mean = sum(map(count_words, sentences)) / max(len(sentences), 1)
    return [*faults_of(sentences), *([f"mean {mean:.1f} words"] if mean > MEAN else [])]


def faults_of_file(path: Path) -> dict[str, list[str]]:
    """What is found in a page, a module or a template, by the kind of text."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return {"page": faults_of_page(text)}
    if path.suffix != ".py":
        return {"report": faults_of(flatten(texts_of_template(text)))}
    tree, faults = ast.parse(text), dict[str, list[str]]()
    for kind, said in texts_of_module(tree):
        faults.setdefault(kind, []).extend(faults_of(sentences_of(said)))
    if path.parent.name == "report":
        said = (text for text in texts_of_strings(tree) if " " in text.strip())
        faults["report"] = faults_of(flatten(said))
    return faults


def flatten(texts: Iterable[str]) -> Iterator[str]:
    return (sentence for text in texts for sentence in sentences_of(text))


def is_plain(page: str) -> bool:
    """Whether a page may have no fault at all: what a new user reads first."""
    return page == "README.md" or page.startswith(("docs/learn/", "docs/howto/"))


def count_faults() -> dict[str, int]:
    """Faults of everything that readers see: by page, and by package and kind of text. Nothing stands for none."""
    counts = Counter[str]()
    for page in pages():
        if not page.startswith("docs/methods/") or page.startswith("docs/methods/notes/"):  # the others are generated
            counts[page] = len(faults_of_page(text_of(page)))
    for path in files(PACKAGE):
        if path.suffix in (".py", ".j2"):
            package = path.relative_to(PACKAGE).parts[0]
            for kind, faults in faults_of_file(path).items():
                counts[f"src/groupwise/{package}: {kind}"] += len(faults)
    counts["help"] = len(faults_of(flatten(text for _, text in texts_of_help())))
    return {name: count for name, count in sorted(counts.items()) if count}


def read_record() -> dict[str, int]:
    record: dict[str, int] = json.loads(RECORD.read_text(encoding="utf-8"))
    return record


def write_record() -> None:
    """Lower the recorded counts to those of now; none may rise, and no page may come to the record."""
    record, counts = read_record(), count_faults()
    if risen := {name: count for name, count in counts.items() if count > record.get(name, 0)}:
        sys.exit(f"these counts have risen, rewrite the sentences that `{LIST} PATH` lists: {risen}")
    RECORD.write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")


def main(names: list[str]) -> None:
    if names == ["--lower"]:
        return write_record()
    for name in names:
        given = Path(name).resolve()
        found = [path for path in files(given) if path.suffix in (".md", ".py", ".j2")] if given.is_dir() else [given]
        for path in found:
            for kind, faults in faults_of_file(path).items():
                for fault in faults:
                    print(f"{path.relative_to(ROOT)} ({kind}) {fault[:180]}")  # noqa: T201
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
