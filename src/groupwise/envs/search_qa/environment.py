"""Questions over documents: search, read, search again, answer."""

from __future__ import annotations

import json
import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from groupwise.data.records import Task
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.kit.answers import find_tagged_parts
from groupwise.envs.kit.bm25 import Bm25
from groupwise.envs.kit.draws import draw_uniform
from groupwise.envs.kit.info import list_named, write_call, write_checks, write_text
from groupwise.envs.kit.progress import SteppedEnvironment
from groupwise.envs.kit.row_files import Row, read_rows, read_text
from groupwise.envs.kit.task_set import SPLITS, TaskSets, check_env, choose_split, split_of_content
from groupwise.envs.kit.words import prepend_goal, vocabulary_of
from groupwise.parts.part import Part
from groupwise.parts.path_settings import PathText
from groupwise.system.errors import ConfigError, FileError, RecordError, nearest

MAX_RESPONSE_CHARACTERS = 100_000
"""Longest part of a response that is read."""
NOTHING_KNOWN = "Nothing is known yet."
NOT_UNDERSTOOD = "Nothing happens. Write <search> words </search> or <answer> words </answer>."
NO_RESULTS = "<information>Nothing was found.</information>"


class SearchQa(Part, slot="env"):
    """Questions that need one or several searches in documents of your own.

    `<search>words</search>` shows the best matching documents, between information tags. `<answer>words</answer>` ends
    the rollout. Text outside the tags is ignored, so a response may think aloud. The tags are those of Search-R1 (Jin
    et al. 2025, arXiv:2503.09516); answers are compared as in SQuAD. A response with neither tag is invalid.

    Choices: search is BM25 over title and text. If a question has no `split`, its words decide. `state_key` is the
    titles found so far, in alphabetical order. The expert searches the question's `titles` one by one, or the question
    itself if it has none; then it answers. The step info has the search, the documents shown, the answer and how well
    it matches. Only questions with `titles` also get the documents and entities that lead to the answer.
    """

    writes: ClassVar[frozenset[str]] = frozenset(
        {"answer", "gold_answer", "exact", "graded_match", "calls", "num_calls", "checks"}
        | {"documents", "gold_documents", "entities", "gold_entities"}
    )
    documents: PathText = ""
    """Folder of .txt and .md files, or a .jsonl file with `title` and `text` per line; empty = built-in ones."""
    questions: PathText = ""
    """A .jsonl file with `question` and `answers`, and perhaps `titles` and `split`; empty = the built-in questions."""
    num_results: Annotated[int, Field(ge=1)] = 3
    """Documents that a search shows."""
    num_words: Annotated[int, Field(ge=1)] = 100
    """Words of a document that are shown, from the first."""
    max_steps: Annotated[int, Field(ge=1)] = 6
    """Steps before a rollout is truncated."""
    score: Literal["exact", "f1"] = "exact"
    """Score of an answer: 1 if it is right, or its word overlap with a right one. Success means right."""
    success_reward: float = 1.0
    """Factor of the score."""
    goal_in_text: bool = False
    """Whether each text begins with the question."""

    def task_set(self, split: str) -> tuple[Task, ...]:
        return choose_split(_build_task_sets(self.documents, self.questions), split)

    def open(self, task: Task) -> SearchQaEnvironment:
        check_env(task, ENV)
        corpus = read_corpus(self.documents)
        if task.payload["corpus"] != corpus.digest:
            raise RecordError(
                f"task {task.id} was made for the documents {task.payload['corpus']}, but these are {corpus.digest}; "
                "open it with the documents of its task set"
            )
        return SearchQaEnvironment(task, self, corpus)

    def vocabulary(self) -> tuple[str, ...]:
        texts = [self.instruction(), "Task:", NOTHING_KNOWN, NOT_UNDERSTOOD, NO_RESULTS, "Right. Wrong."]
        texts += [
            _show_document(number, document)
            for number, document in enumerate(read_corpus(self.documents).documents, start=1)
        ]
        for question in read_questions(self.questions):
            texts += [question.question, *question.answers, *question.titles]
        return vocabulary_of(texts)

    def instruction(self) -> str:
        return "Answer the question: <search> words </search> to look up, then <answer> words </answer>."


class SearchQaEnvironment(SteppedEnvironment):
    """One rollout of a question."""

    def __init__(self, task: Task, part: SearchQa, corpus: Corpus) -> None:
        super().__init__(task, part.max_steps)
        self._part, self._corpus = part, corpus
        self._question: str = task.payload["question"]
        self._answers, self._titles = tuple(task.payload["answers"]), tuple(task.payload["titles"])
        self._gold: dict[str, Any] = {"gold_answer": write_text(self._answers[0])}
        if self._titles:  # without titles it is not known which documents lead to the answer
            named = list_named(self._titles, self._question)
            entities = dict.fromkeys((*(title for title in self._titles if title not in named), self._answers[0]))
            self._gold["gold_documents"] = [write_text(title) for title in self._titles]
            self._gold["gold_entities"] = [write_text(entity) for entity in entities]
        self._titles_read: frozenset[str] = frozenset()
        self._progress.observation = self._observe(NOTHING_KNOWN)

    def act(self, action: str) -> Outcome:
        self._progress.step()
        said = action[:MAX_RESPONSE_CHARACTERS]
        name, text = next(find_tagged_parts(said, "search", "answer"), ("", ""))
        if not text.strip():
            info = self._tell_info(said, checks=write_checks(read=False))
            return self._progress.outcome(self._observe(NOT_UNDERSTOOD), accepted=False, info=info)
        if name == "answer":
            return self._answer(said, text)
        documents = self._corpus.search(text, self._part.num_results)
        self._titles_read |= {document.title for document in documents}
        info = self._tell_info(said, query=text, checks=write_checks(read=True, fits=True))
        info["documents"] = [write_text(document.title) for document in documents]
        shown = [
            _show_document(number, document, self._part.num_words) for number, document in enumerate(documents, start=1)
        ]
        found = f"<information>{' '.join(shown)}</information>" if shown else NO_RESULTS
        return self._progress.outcome(self._observe(found), info=info)

    def _answer(self, said: str, answer: str) -> Outcome:
        right, graded_match = exact_match(answer, self._answers), f1(answer, self._answers)
        worth = float(right) if self._part.score == "exact" else graded_match
        info = self._tell_info(said, checks=write_checks(read=True, fits=True, right=right))
        # All right answers get one text, in any wording.
        info["answer"] = self._gold["gold_answer"] if right else write_text(normalise(answer))
        info |= {"exact": right, "graded_match": graded_match}
        seen = self._observe("Right." if right else "Wrong.")
        return self._progress.outcome(seen, success=right, reward=worth * self._part.success_reward, info=info)

    def _tell_info(self, said: str, *, checks: dict[str, bool], query: str | None = None) -> dict[str, Any]:
        calls = [] if query is None else [write_call("search", {"query": query.strip()})]
        info = {**self._gold, "calls": calls, "num_calls": len(calls), "checks": checks}
        if "gold_entities" in self._gold:
            info["entities"] = list_named(self._gold["gold_entities"], said)
        return info

    def expert(self) -> str | None:
        if self._progress.ended:
            return None
        # The last step is for the answer. A document that a search for its title does not find is skipped.
        if self._progress.steps + 1 < self._part.max_steps:
            for title in self._titles:
                if title not in self._titles_read:
                    found = self._corpus.search(title, self._part.num_results)
                    if title in {document.title for document in found}:
                        return f"<search>{title}</search>"
            if not self._titles and not self._titles_read and self._corpus.search(self._question, 1):
                return f"<search>{self._question}</search>"
        return f"<answer>{self._answers[0]}</answer>"

    def _observe(self, text: str) -> Observation:
        return Observation(
            text=prepend_goal(self._question, text) if self._part.goal_in_text else text,
            state_key="; ".join(sorted(self._titles_read)),
            goal=self._question,
        )


def _show_document(number: int, document: Document, num_words: int | None = None) -> str:
    return f"Doc {number} (Title: {document.title}) {' '.join(document.text.split()[:num_words])}"


@lru_cache(maxsize=4)
def _build_task_sets(documents: str, questions: str) -> TaskSets:
    corpus = read_corpus(documents)
    # In random order: files tend to put similar questions together.
    ordered = sorted(read_questions(questions), key=lambda question: draw_uniform(ENV, "panel", question.question))
    task_sets: dict[str, list[Task]] = {split: [] for split in SPLITS}
    for asked in ordered:
        about = {"question": asked.question, "answers": list(asked.answers), "titles": list(asked.titles)}
        tags = (f"hops {len(asked.titles)}",) if asked.titles else ()
        task = Task.create(env=ENV, split=asked.split, payload=about | {"corpus": corpus.digest}, tags=tags)
        task_sets[asked.split].append(task)
    for split, tasks in task_sets.items():
        if not tasks:
            raise ConfigError(
                f"search_qa: none of {len(ordered)} questions is in the {split} task set; add questions, or give each "
                "a `split`"
            )
    return {split: tuple(tasks) for split, tasks in task_sets.items()}


# Documents to search and questions to answer, built-in or the user's.

ENV = "search_qa"
TEXTS = (".txt", ".md")
OURS = Path(__file__).parent


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A text that a search may find."""

    title: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchQuestion:
    """A question and its answers."""

    question: str
    answers: tuple[str, ...]
    """Every answer that is right."""
    titles: tuple[str, ...]
    """Documents that lead to the answer, in order, for the expert; empty = not known."""
    split: str


class Corpus:
    """Documents and the search over them."""

    def __init__(self, documents: list[Document]) -> None:
        self.documents = documents

    @cached_property
    def digest(self) -> str:
        content = json.dumps([[document.title, document.text] for document in self.documents])
        return sha256(content.encode()).hexdigest()[:16]

    def search(self, query: str, count: int) -> list[Document]:
        return [self.documents[number] for number in self._index.search(query, count)]

    @cached_property
    def _index(self) -> Bm25:
        texts = [f"{document.title} {document.text}" for document in self.documents]
        return Bm25(texts, needed_by=ENV, extra="search")


@lru_cache(maxsize=2)
def read_corpus(path: str) -> Corpus:
    """The documents of a folder (.txt, .md) or of a file of rows; the built-in ones if there is no path."""
    place = Path(path) if path else OURS / "documents.jsonl"
    if place.is_dir():
        files = sorted(file for file in place.rglob("*") if file.suffix in TEXTS)
        documents = [Document(title=file.stem, text=read_text(file)) for file in files]
    elif place.is_file():
        documents = [_make_document(*placed) for placed in read_rows(place, row_name="a document")]
    else:
        raise ConfigError(
            f"search_qa: there is no {path!r}; set `documents` to a folder of .txt or .md files, or to a .jsonl file"
        )
    if not documents:
        raise ConfigError(f"search_qa: {path!r} has no documents; add .txt or .md files, or lines")
    return Corpus(documents)


@lru_cache(maxsize=2)
def read_questions(path: str) -> list[SearchQuestion]:
    place = Path(path) if path else OURS / "questions.jsonl"
    if not place.is_file():
        raise ConfigError(f"search_qa: there is no file {path!r}; set `questions` to a .jsonl file of questions")
    questions: dict[str, SearchQuestion] = {}
    for where, row in read_rows(place, row_name="a question"):
        question, answers = row.get("question"), row.get("answers", row.get("golden_answers", row.get("answer")))
        answers = [answers] if isinstance(answers, str) else answers
        if not (isinstance(question, str) and isinstance(answers, list) and answers):
            raise FileError(f"{where}: there is no `question` or no `answers`; write both, answers as a list")
        split = row.get("split") or split_of_content({"question": question})
        if split not in SPLITS:
            raise FileError(f"{where}: there is no split {split!r}; {nearest(str(split), SPLITS)}")
        if question in questions:
            raise FileError(f"{where}: the question {question!r} occurs twice; list it once")
        titles = tuple(map(str, row.get("titles", ())))
        questions[question] = SearchQuestion(
            question=question, answers=tuple(map(str, answers)), titles=titles, split=split
        )
    return list(questions.values())


def _make_document(where: str, row: Row) -> Document:
    if isinstance(row.get("contents"), str):  # the format of Wikipedia dumps for retrievers
        title, _, text = row["contents"].partition("\n")
        return Document(title=title.strip().strip('"'), text=text)
    if not (isinstance(row.get("title"), str) and isinstance(row.get("text"), str)):
        raise FileError(f"{where}: there is no `title` or no `text`; write both, or `contents`")
    return Document(title=row["title"], text=row["text"])


# Whether an answer is right: exact match and F1 after SQuAD (Rajpurkar et al. 2016, arXiv:1606.05250).

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(text: str) -> str:
    """A text without case, punctuation, articles and extra spaces.

    >>> normalise("The  Amber-Sea.")
    'ambersea'
    """
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact_match(answer: str, right: Sequence[str]) -> bool:
    return normalise(answer) in {normalise(accepted) for accepted in right}


def f1(answer: str, right: Sequence[str]) -> float:
    """The best overlap of words with a right answer: the harmonic mean of precision and replay.

    >>> round(f1("the Amber Sea in the north", ["the Amber Sea"]), 3)
    0.667
    """
    said, best = normalise(answer).split(), 0.0
    for words in (normalise(accepted).split() for accepted in right):
        if not said or not words:
            best = max(best, float(said == words))
        else:
            best = max(best, 2 * sum((Counter(said) & Counter(words)).values()) / (len(said) + len(words)))
    return best
