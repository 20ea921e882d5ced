"""What search_qa reads: documents to search and questions to answer, ours or the user's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

from groupwise.core.errors import ConfigError, FileError, nearest
from groupwise.envs.kit.bm25 import Bm25
from groupwise.envs.kit.panel import SPLITS, split_of_content

ENV = "search_qa"
TEXTS = (".txt", ".md")


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A text that a search may find."""

    title: str
    """What it is about."""
    text: str
    """What it says."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchQuestion:
    """A question and its answers."""

    question: str
    """What is asked."""
    answers: tuple[str, ...]
    """Every answer that is right."""
    titles: tuple[str, ...]
    """Documents that lead to the answer, in order; the expert looks them up. Empty where nobody says."""
    split: str
    """The panel it belongs to."""


class Corpus:
    """Documents and the search over them."""

    def __init__(self, documents: list[Document]) -> None:
        self.documents = documents
        """What can be found."""

    @cached_property
    def digest(self) -> str:
        """Fingerprint of the documents: a task belongs to the corpus that it was made for."""
        content = json.dumps([[document.title, document.text] for document in self.documents])
        return sha256(content.encode()).hexdigest()[:16]

    def search(self, query: str, count: int) -> list[Document]:
        """The documents that fit a query best."""
        return [self.documents[number] for number in self._index.search(query, count)]

    @cached_property
    def _index(self) -> Bm25:
        texts = [f"{document.title} {document.text}" for document in self.documents]
        return Bm25(texts, needed_by=ENV, extra="search")


def read_corpus(path: str) -> Corpus:
    """The documents of a folder (.txt, .md) or of a .jsonl file; ours where no path is given."""
    if not path:
        return Corpus([_make_document("ours", *row) for row in _read_rows(_read_ours("documents"), "ours")])
    place = Path(path)
    if place.is_dir():
        files = sorted(file for file in place.rglob("*") if file.suffix in TEXTS)
        documents = [Document(title=file.stem, text=_read_text(file)) for file in files]
    elif place.is_file():
        documents = [_make_document(path, *row) for row in _read_rows(_read_text(place), path)]
    else:
        raise ConfigError(
            f"search_qa: there is no {path!r}; give in `documents` a folder of .txt or .md files, or a .jsonl file"
        )
    if not documents:
        raise ConfigError(f"search_qa: {path!r} holds no document; put .txt or .md files there, or lines into the file")
    return Corpus(documents)


def read_questions(path: str) -> list[SearchQuestion]:
    """The questions of a .jsonl file; ours where no path is given."""
    if path and not Path(path).is_file():
        raise ConfigError(f"search_qa: there is no file {path!r}; give in `questions` a .jsonl file of questions")
    text, where = (_read_text(Path(path)), path) if path else (_read_ours("questions"), "ours")
    questions: dict[str, SearchQuestion] = {}
    for line, row in _read_rows(text, where):
        question = _make_question(where, line, row)
        if question.question in questions:
            raise FileError(
                f"{where}: line {line}: the question {question.question!r} stands there twice; list it once"
            )
        questions[question.question] = question
    return list(questions.values())


def _make_question(where: str, line: int, row: Mapping[str, Any]) -> SearchQuestion:
    question, answers = row.get("question"), row.get("answers", row.get("golden_answers", row.get("answer")))
    answers = [answers] if isinstance(answers, str) else answers
    if not (isinstance(question, str) and isinstance(answers, list) and answers):
        raise FileError(f"{where}: line {line} has no `question` or no `answers`; write both, answers as a list")
    split = row.get("split") or split_of_content({"question": question})
    if split not in SPLITS:
        raise FileError(f"{where}: line {line}: there is no split {split!r}; {nearest(str(split), SPLITS)}")
    return SearchQuestion(
        question=question,
        answers=tuple(str(answer) for answer in answers),
        titles=tuple(str(title) for title in row.get("titles", ())),
        split=split,
    )


def _make_document(where: str, line: int, row: Mapping[str, Any]) -> Document:
    if isinstance(row.get("contents"), str):  # the form of the Wikipedia dumps that retrievers index
        title, _, text = row["contents"].partition("\n")
        return Document(title=title.strip().strip('"'), text=text)
    if not (isinstance(row.get("title"), str) and isinstance(row.get("text"), str)):
        raise FileError(f"{where}: line {line} has no `title` or no `text`; write both, or `contents`")
    return Document(title=row["title"], text=row["text"])


def _read_rows(text: str, where: str) -> list[tuple[int, Mapping[str, Any]]]:
    rows: list[tuple[int, Mapping[str, Any]]] = []
    for line, content in enumerate(text.splitlines(), start=1):
        if not content.strip():
            continue
        try:
            row = json.loads(content)
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else error
            raise FileError(f"{where}: line {line} is not JSON ({reason}); write one object a line") from None
        if not isinstance(row, Mapping):
            raise FileError(f"{where}: line {line} is a {type(row).__name__}; write one object a line")
        rows.append((line, row))
    return rows


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise FileError(f"{path}: this is not UTF-8 text; convert it, or leave it out") from None


def _read_ours(name: str) -> str:
    return (files("groupwise.envs.search_qa") / f"{name}.jsonl").read_text(encoding="utf-8")
