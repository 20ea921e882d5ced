"""The search engines of a shop: which products a query finds, the best one first."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import weakref
from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Literal, Protocol

import numpy as np

from groupwise.envs.kit.bm25 import K1, STOP_WORDS, B, Bm25
from groupwise.envs.kit.packages import import_package
from groupwise.system.errors import ConfigError

Search = Literal["bm25", "porter", "pyserini"]
TOKEN = re.compile(
    r"\w+(?:(?:(?<=[^\W\d_])[.:'\u2019](?=[^\W\d_])|(?<=\d)[.,;'\u2019](?=\d))\w+)*"  # men's, 6.5, 1,000
)
"""A word for Lucene's tokenizer, which follows Unicode's rules for word boundaries (UAX 29)."""
POSSESSIVE = re.compile(r"['\u2019][sS]$")
MIN_STEMMED_LETTERS = 3
"""Lucene's stemmer leaves shorter words as they are."""
EXACT_LENGTHS = 40
"""Lucene stores the lengths of texts in one byte each; only lengths below this are exact."""


class Index(Protocol):
    """Ranks texts by what they share with a query."""

    def search(self, query: str, count: int) -> list[int]:
        """The numbers of the best texts for a query."""
        ...


def make_index(search: Search, texts: Mapping[str, str], *, env: str) -> Index:
    """An index over texts, by their names."""
    if search == "pyserini":
        return Lucene(texts)
    if search == "porter":
        return LuceneBm25(texts)
    return Bm25(list(texts.values()), needed_by=env, extra="webshop")


class LuceneBm25:
    """Lucene's ranking without Java: BM25 over the terms of its EnglishAnalyzer, in its arithmetic.

        score = sum_q c_q w_q (1 - 1 / (1 + f_q / n)),   w_q = log(1 + (N - d_q + 0.5) / (d_q + 0.5))
        n = k1 (1 - b + b * length / mean length)

    c_q and f_q count the term q in the query and in the text, d_q the texts with it. As in Lucene, numbers are float32
    and lengths are rounded. As in pyserini, equal scores are ordered by the names of the texts.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        numbers = {name: number for number, name in enumerate(texts)}
        self._numbers = [numbers[name] for name in sorted(texts)]
        self._terms: dict[str, int] = {}
        terms, rows, counts, lengths = array("I"), array("I"), array("I"), array("I")
        for row, name in enumerate(sorted(texts)):
            counted = Counter(split_as_lucene(texts[name]))
            lengths.append(counted.total())
            for term, count in counted.items():
                terms.append(self._terms.setdefault(term, len(self._terms)))
                rows.append(row)
                counts.append(count)
        by_term = np.argsort(terms, kind="stable")
        self._starts = np.searchsorted(np.array(terms)[by_term], np.arange(len(self._terms) + 1))
        self._rows = np.array(rows)[by_term]
        self._num_texts = np.count_nonzero(lengths)
        mean = np.float32(max(np.sum(lengths), 1) / max(self._num_texts, 1))
        rounded = np.array([round_length(length) for length in lengths], dtype=np.float32)
        norms = 1 / (np.float32(K1) * (np.float32(1 - B) + np.float32(B) * rounded / mean))
        self._frequencies = np.array(counts, dtype=np.float32)[by_term] * norms[self._rows]

    def search(self, query: str, count: int) -> list[int]:
        """The numbers of the best texts for a query; texts without a shared term are left out."""
        total = np.zeros(len(self._numbers))
        for term, times in Counter(split_as_lucene(query)).items():
            if (number := self._terms.get(term)) is None:
                continue
            start, end = self._starts[number : number + 2]
            found = end - start
            weight = np.float32(times) * np.float32(np.log(1 + (self._num_texts - found + 0.5) / (found + 0.5)))
            total[self._rows[start:end]] += weight - weight / (1 + self._frequencies[start:end])
        scores = total.astype(np.float32)
        best = np.argsort(-scores, kind="stable")[:count]
        return [self._numbers[row] for row in best if scores[row] > 0]


def round_length(length: int) -> int:
    """The length of a text as Lucene stores it: beyond `EXACT_LENGTHS`, about three binary digits are left.

    >>> [round_length(length) for length in (39, 40, 41, 42, 100, 1000)]
    [39, 40, 40, 42, 96, 984]
    """
    if length < EXACT_LENGTHS:
        return length
    shift = max((length - 24).bit_length() - 4, 0)
    return 24 + (length - 24 >> shift << shift)


def split_as_lucene(text: str) -> list[str]:
    """The terms of a text as Lucene's EnglishAnalyzer makes them: words without possessive 's and stop words, stemmed.

    Worked example: "The men's running shoes" has the terms men, run and shoe.
    """
    words = (POSSESSIVE.sub("", word).lower() for word in TOKEN.findall(text))
    return [_stem(word) for word in words if word not in STOP_WORDS and any(map(str.isalnum, word))]


@cache
def _stem(word: str) -> str:
    if len(word) < MIN_STEMMED_LETTERS:
        return word
    porter = _load_porter()
    stem = porter(word)
    # Lucene has the two rules that Porter added later: bli becomes ble, and logi becomes log.
    if stem.endswith("bli"):
        return porter(f"{stem[:-1]}e")
    return stem[:-1] if stem.endswith("logi") else stem


@cache
def _load_porter() -> Callable[[str], str]:
    stem: Callable[[str], str] = import_package("webshop", "snowballstemmer").stemmer("porter").stemWord
    return stem


class Lucene:
    """The publisher's index: Lucene in Java, by the package pyserini. It is made in a temporary folder."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        try:
            import jnius_config

            if not jnius_config.vm_running:
                jnius_config.add_options("-Xrs")  # or Java ends the process on Ctrl-C
            from pyserini.search.lucene import LuceneSearcher
        except Exception as error:  # not an ImportError if Java is missing
            raise ConfigError(
                f'search = "pyserini" needs pyserini and Java, but {type(error).__name__}: {error}; pip install '
                'pyserini, install the Java that it asks for, or set search = "porter"'
            ) from None
        self._numbers = {name: number for number, name in enumerate(texts)}
        folder = Path(mkdtemp(prefix="groupwise-lucene-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        documents, index = folder / "documents", folder / "index"
        documents.mkdir()
        with (documents / "documents.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps({"id": name, "contents": text}) + "\n" for name, text in texts.items())
        made = subprocess.run(  # the publisher's command
            [
                *(sys.executable, "-m", "pyserini.index.lucene", "--collection", "JsonCollection"),
                *("--input", str(documents), "--index", str(index)),
                *("--generator", "DefaultLuceneDocumentGenerator", "--threads", "1"),
            ],
            capture_output=True,
            text=True,
        )
        if made.returncode:
            said = (made.stderr.strip() or made.stdout.strip()).rpartition("\n")[2]
            raise ConfigError(f'search = "pyserini": pyserini could not make its index: {said}')
        self._searcher = LuceneSearcher(str(index))

    def search(self, query: str, count: int) -> list[int]:
        return [self._numbers[hit.docid] for hit in self._searcher.search(query, count)]
