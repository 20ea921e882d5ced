"""The searches of a shop: Lucene's terms and ranking without Java, and Lucene itself by pyserini."""

from __future__ import annotations

import json
import math
import os
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("snowballstemmer", reason="the extra `webshop` is not installed")
pytest.importorskip("bm25s", reason="the extra `webshop` is not installed")

from benchmarks.shop_search import digest, goals_study, rank, storefront_study
from groupwise import ConfigError
from groupwise.envs import Storefront, Webshop
from groupwise.envs.kit.bm25 import STOP_WORDS
from groupwise.envs.webshop.environment import ShopEnvironment
from groupwise.envs.webshop.search import LuceneBm25, _load_porter, make_index, round_length, split_as_lucene
from tests.unit.envs.shops import LAMP, SCRUB, SCRUB_2, SOAP, shop, task

ROOT = Path(__file__).parents[4]
DATA = Path(os.environ.get("GROUPWISE_WEBSHOP_DATA", ROOT.parent / "shared" / "data" / "webshop"))
"""Where the publisher's files may lie."""
RECORD = json.loads((ROOT / "benchmarks" / "results" / "shop_search.json").read_text(encoding="utf-8"))
"""What Lucene found: `python -m benchmarks.shop_search`."""


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("running shoes", ["run", "shoe"]),
        ("run shoe", ["run", "shoe"]),
        ("Men's shoes, the women\u2019s are not", ["men", "shoe", "women"]),
        ("6.5 ounce (pack of 2), 1,000 pieces", ["6.5", "ounc", "pack", "2", "1,000", "piec"]),
        ("clip-in t-shirt", ["clip", "t", "shirt"]),
        ("easy assembly, assembled", ["easi", "assembl", "assembl"]),
        ("technology technologies technological", ["technolog", "technolog", "technolog"]),
        ("xs us ties", ["xs", "us", "ti"]),
        ("u.s. i\u2019m ___ !", ["u.", "i\u2019m"]),
        (" ".join(sorted(STOP_WORDS)), []),
    ],
)
def test_terms_are_those_of_lucenes_english_analyser(text: str, terms: list[str]) -> None:
    assert split_as_lucene(text) == terms


def test_the_33_stop_words_of_lucene() -> None:
    assert len(STOP_WORDS) == 33
    assert split_as_lucene("from all our own") == ["from", "all", "our", "own"]


def lucene_scores(texts: dict[str, str], query: str) -> dict[str, float]:
    """BM25 by its formula, text by text: k1 0.9, b 0.4, without rounded lengths. Texts without a term do not count."""
    cut = {name: terms for name, text in texts.items() if (terms := split_as_lucene(text))}
    mean = sum(len(terms) for terms in cut.values()) / len(cut)
    scores = dict.fromkeys(texts, 0.0)
    for term in split_as_lucene(query):
        having = [name for name, terms in cut.items() if term in terms]
        weight = math.log(1 + (len(cut) - len(having) + 0.5) / (len(having) + 0.5))
        for name in having:
            times = cut[name].count(term)
            scores[name] += weight * times / (times + 0.9 * (1 - 0.4 + 0.4 * len(cut[name]) / mean))
    return scores


@pytest.mark.parametrize("seed", range(20))
def test_the_ranking_is_that_of_the_formula(seed: int) -> None:
    draws = random.Random(seed)
    words = ["shoe", "shoes", "run", "running", "lamp", "the", "floor", "men's", "red"]
    texts = {f"{draws.random():.9f}": " ".join(draws.choices(words, k=draws.randint(1, 30))) for _ in range(40)}
    index, names = LuceneBm25(texts), list(texts)
    for _ in range(10):
        query = " ".join(draws.choices([*words, "unknown"], k=draws.randint(1, 6)))
        scores = lucene_scores(texts, query)
        found = [names[number] for number in index.search(query, 100)]
        assert set(found) == {name for name, score in scores.items() if score > 0}
        assert [scores[name] for name in found] == pytest.approx(sorted((scores[n] for n in found), reverse=True))
        assert index.search(query, 3) == index.search(query, 100)[:3]


def test_equal_scores_are_ordered_by_name() -> None:
    assert LuceneBm25({"b": "red shoe", "c": "red shoe", "a": "red shoes"}).search("red", 5) == [2, 0, 1]


def test_a_query_without_a_term_finds_nothing() -> None:
    for texts in ({"a": "red shoe"}, {"a": "the"}):
        assert LuceneBm25(texts).search("the of !", 5) == LuceneBm25(texts).search("", 5) == []


@pytest.mark.parametrize(
    ("length", "stored"), [(0, 0), (39, 39), (40, 40), (41, 40), (43, 42), (55, 54), (56, 56), (59, 56), (1000, 984)]
)
def test_long_texts_have_rounded_lengths(length: int, stored: int) -> None:
    assert round_length(length) == stored


def test_the_ranking_is_what_lucene_itself_found() -> None:
    """600 queries over 1,000 products: each list of 50 is recorded from pyserini."""
    assert digest(rank("porter", storefront_study())) == RECORD["storefront"]["lucene"]
    assert RECORD["storefront"]["porter"]["same_results"] == RECORD["storefront"]["queries"] == 600


def test_with_people_s_goals_the_ranking_is_lucenes_but_for_few() -> None:
    if not (DATA / "human_goals.json").is_file():
        pytest.skip("the publisher's human_goals.json is not at hand")
    texts, queries = goals_study(DATA)
    assert (len(texts), len(queries)) == (1000, 2000)
    goals = RECORD["goals"]
    assert goals["porter"]["same_first"] == 2000
    assert goals["porter"]["same_results"] >= 1950
    assert goals["terms"]["same_terms"] >= goals["terms"]["texts"] - 10
    assert digest(rank("porter", (texts, queries))) != goals["lucene"], "then all are equal: say so on the page"


def test_a_shop_searches_as_it_is_told() -> None:
    pytest.importorskip("rapidfuzz")
    found = {}
    for search in ("bm25", "porter"):
        part = Storefront(search=search, num_products=60)
        environment = part.open(part.task_set("test")[0])
        found[search] = environment.act("search[scrubbing]").observation.text
    assert "Total results: 0" in found["bm25"]
    assert "Total results: 0" not in found["porter"]


def test_without_the_package_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    _load_porter.cache_clear()
    monkeypatch.setitem(sys.modules, "snowballstemmer", None)
    with pytest.raises(ConfigError) as raised:
        _load_porter()
    assert str(raised.value) == (
        "the environment 'webshop' needs a package that is not installed; pip install 'groupwise[webshop]'"
    )


class TestPyserini:
    @pytest.fixture
    def pyserini(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """A package of this name that keeps documents as they are, and finds those with the first word of a query."""
        package = tmp_path / "packages" / "pyserini"
        for folder in ("index/lucene", "search/lucene"):
            (package / folder).mkdir(parents=True)
        (tmp_path / "packages" / "jnius_config.py").write_text(
            "vm_running, options = False, []\n\ndef add_options(*words):\n    options.extend(words)\n"
        )
        (package / "index" / "lucene" / "__main__.py").write_text(
            "import shutil, sys\n"
            "words = dict(zip(sys.argv[1::2], sys.argv[2::2]))\n"
            "assert words['--collection'] == 'JsonCollection' and words['--threads'] == '1', words\n"
            "if 'broken' in open(words['--input'] + '/documents.jsonl').read():\n"
            "    sys.exit('at first\\nno index today')\n"
            "shutil.copytree(words['--input'], words['--index'])\n"
        )
        (package / "search" / "lucene" / "__init__.py").write_text(
            "import json, pathlib\n"
            "class Hit:\n"
            "    def __init__(self, docid): self.docid = docid\n"
            "class LuceneSearcher:\n"
            "    def __init__(self, folder):\n"
            "        lines = pathlib.Path(folder, 'documents.jsonl').read_text().splitlines()\n"
            "        self.documents = [json.loads(line) for line in lines]\n"
            "    def search(self, query, k):\n"
            "        words = query.split()\n"
            "        return [Hit(d['id']) for d in self.documents if words[0] in d['contents'].split()][:k]\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path / "packages"))
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'packages'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
        before = dict(sys.modules)
        yield
        for name in sys.modules.keys() - before.keys():
            del sys.modules[name]

    @pytest.mark.usefixtures("pyserini")
    def test_documents_are_the_products_by_their_names(self) -> None:
        texts = {"B2": "red shoe", "B1": "blue shoe", "B3": "red lamp"}
        index = make_index("pyserini", texts, env="webshop")
        assert index.search("red things", 5) == [0, 2]
        assert index.search("shoe", 1) == [0]
        assert sys.modules["jnius_config"].options == ["-Xrs"], "or Ctrl-C would end the run at once"

    @pytest.mark.usefixtures("pyserini")
    def test_a_shop_shows_what_it_finds(self) -> None:
        stock = shop(search="pyserini")
        environment = ShopEnvironment(task(catalogue=stock), Webshop(path="unused", search="pyserini"), stock)
        seen = environment.act("search[scrub of tea tree]").observation
        assert seen.state_key == f"results 1 {SCRUB.asin} {SCRUB_2.asin}"
        assert {LAMP.asin, SOAP.asin}.isdisjoint(str(seen.state_key).split())

    @pytest.mark.usefixtures("pyserini")
    def test_an_index_that_cannot_be_made_is_told(self) -> None:
        with pytest.raises(ConfigError) as raised:
            make_index("pyserini", {"B1": "broken"}, env="webshop")
        assert str(raised.value) == 'search = "pyserini": pyserini could not make its index: no index today'

    def test_without_the_package_one_sentence_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "jnius_config", None)
        with pytest.raises(ConfigError) as raised:
            make_index("pyserini", {"B1": "shoe"}, env="webshop")
        assert str(raised.value) == (
            'search = "pyserini" needs pyserini and Java, but ModuleNotFoundError: import of jnius_config halted; None '
            'in sys.modules; pip install pyserini, install the Java that it asks for, or set search = "porter"'
        )

    def test_the_real_one_ranks_as_recorded(self) -> None:
        pytest.importorskip("pyserini", reason="pyserini is not installed")
        assert digest(rank("pyserini", storefront_study())) == RECORD["storefront"]["lucene"]


def test_the_page_says_what_was_recorded() -> None:
    page = (ROOT / "docs" / "reference" / "envs" / "webshop.md").read_text(encoding="utf-8")
    table = page.partition("<!-- benchmarks/results/shop_search.json -->\n")[2].partition("\n\n")[0]
    listed = [[int(n.replace(",", "")) for n in re.findall(r"[\d,]*\d", row)][-5:] for row in table.splitlines()[2:]]
    assert listed == [
        [
            RECORD[study]["queries"],
            *(RECORD[study][search][same] for search in ("porter", "bm25") for same in ("same_results", "same_first")),
        ]
        for study in ("storefront", "goals")
    ]
    terms = RECORD["goals"]["terms"]
    assert f"Lucene's for {terms['same_terms']:,} of {terms['texts']:,} goals" in page
    assert f"pyserini {RECORD['pyserini']}, the publisher's version, and Java {RECORD['java'].split()[2][1:3]}" in page
