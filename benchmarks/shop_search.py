"""How close the searches of a shop are to Lucene's, the publisher's search engine of WebShop.

    python -m benchmarks.shop_search [--data FOLDER]

asks the same queries of `search = "pyserini"`, "porter" and "bm25", and counts queries with the same results. It needs
pyserini and Java. The first study has the products and instructions of a storefront. With the folder of the files
items_ins_v2_1000.json and human_goals.json, a second one has people's goals as queries. Each of its texts is several
other goals, so texts are as long as those of products. The result goes to `benchmarks/results/shop_search.json`.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.result_file import describe_command, write_result
from groupwise.envs import Storefront
from groupwise.envs.small.storefront import draw_catalogue
from groupwise.envs.webshop.catalogue import MAX_RESULTS
from groupwise.envs.webshop.environment import PAGE_SIZE
from groupwise.envs.webshop.search import Search, make_index, split_as_lucene

RESULT = Path(__file__).parent / "results" / "shop_search.json"
SEARCHES: tuple[Search, ...] = ("porter", "bm25")
NUM_PRODUCTS = 1000
NUM_GOALS = 2000
GOALS_PER_TEXT = (2, 14)

Study = tuple[Mapping[str, str], Sequence[str]]
"""Texts by their names, and queries."""


def storefront_study() -> Study:
    part = Storefront(num_products=NUM_PRODUCTS)
    catalogue = draw_catalogue(part.shop, part.num_products, part.num_kinds)
    tasks = [*part.task_set("test"), *part.task_set("validation")]
    texts = {product.asin: product.search_text for product in catalogue.products}
    return texts, [str(task.payload["instruction"]).lower() for task in tasks]


def goals_study(folder: Path) -> Study:
    goals = [str(goal).lower() for goal in json.loads((folder / "human_goals.json").read_text(encoding="utf-8"))]
    draws = random.Random(0)
    draws.shuffle(goals)
    queries, others = goals[:NUM_GOALS], goals[NUM_GOALS:]
    texts = {}
    for number in range(NUM_PRODUCTS):
        few, many = GOALS_PER_TEXT
        first = number * 9
        texts[f"B{draws.randrange(10**9):09d}"] = " ".join(others[first : first + draws.randint(few, many)])
    return texts, queries


def rank(search: Search, study: Study) -> list[list[int]]:
    texts, queries = study
    index = make_index(search, texts, env="webshop")
    return [index.search(query, MAX_RESULTS) for query in queries]


def digest(lists: Sequence[Sequence[int]]) -> str:
    return sha256(json.dumps(lists).encode()).hexdigest()


def compare(study: Study) -> dict[str, Any]:
    """Counts of queries with the results of Lucene, by search."""
    wanted = rank("pyserini", study)
    found: dict[str, Any] = {"texts": len(study[0]), "queries": len(study[1]), "lucene": digest(wanted)}
    for search in SEARCHES:
        pairs = list(zip(rank(search, study), wanted, strict=True))
        found[search] = {
            "same_first": sum(got[:1] == best[:1] for got, best in pairs),
            "same_page": sum(got[:PAGE_SIZE] == best[:PAGE_SIZE] for got, best in pairs),
            "same_results": sum(got == best for got, best in pairs),
        }
    return found


def compare_terms(folder: Path) -> dict[str, int]:
    """How many texts have the terms of Lucene's own analyser: goals, and the texts of the publisher's products."""
    from pyserini.analysis import Analyzer, get_lucene_analyzer

    analyser = Analyzer(get_lucene_analyzer())
    products = json.loads((folder / "items_ins_v2_1000.json").read_text(encoding="utf-8")).values()
    texts = json.loads((folder / "human_goals.json").read_text(encoding="utf-8"))
    texts += [product["instruction"] for product in products if product.get("instruction")]
    texts += [attribute for product in products for attribute in product["attributes"]]
    same = sum(split_as_lucene(text) == list(analyser.analyze(text)) for text in texts)
    return {"texts": len(texts), "same_terms": same}


def main(words: Sequence[str] | None = None) -> None:
    """Compare, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of items_ins_v2_1000.json and human_goals.json")
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args(words)
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr.partition("\n")[0]
    result: dict[str, Any] = {
        "command": describe_command("benchmarks.shop_search", sys.argv[1:] if words is None else words),
        "pyserini": version("pyserini"),
        "java": java,
        "storefront": compare(storefront_study()),
    }
    if arguments.data:
        result["goals"] = compare(goals_study(arguments.data)) | {"terms": compare_terms(arguments.data)}
    print(json.dumps(result, indent=2))
    write_result(result, arguments.out)


if __name__ == "__main__":
    main()
