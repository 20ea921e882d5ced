"""Write the tables of info in docs/reference/environments.md, from the environments.

python docs/build_info.py [--check]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from groupwise.parts.part import load_catalogue

PAGE = Path(__file__).parent / "reference" / "environments.md"
BEGIN = "<!-- Written by docs/build_info.py from the environments. Do not edit by hand. -->\n"
END = "<!-- end of the info -->\n"


INFO: dict[str, tuple[str, str, str]] = {
    "answer": (
        "text",
        "what was answered, as answers are compared: equal texts are one answer, and one that counts as right is "
        "`gold_answer`",
        "steps that answer (worked_sums: every step, empty where no total is said)",
    ),
    "gold_answer": ("text", "a right answer, the first where several are taken", "every step"),
    "exact": ("true or false", "whether the whole answer is right", "steps that answer"),
    "graded_match": ("a number from 0 to 1", "how much of the answer is right", "steps that answer"),
    "match_parts": (
        "numbers from 0 to 1 by name",
        "how much of each thing that was asked for is right; what was not asked for is absent",
        "steps that answer",
    ),
    "calls": (
        "a list of `{name, arguments}`",
        "the tool calls that were read out of the action, carried out or not; to answer or to buy is none",
        "every step",
    ),
    "num_calls": ("an integer from 0 upwards", "how many these are", "every step"),
    "gold_calls": (
        "a list of `{name, arguments}`",
        "calls that do what is asked, in order; where there are turns, what the present one asks",
        "every step",
    ),
    "gold_entities": (
        "a list of texts",
        "whom and what one comes across on the way to the answer, the answer included and what the question names not",
        "every step; in search_qa where the question names its documents",
    ),
    "entities": ("a list of texts", "those of `gold_entities` that the action names", "where these are"),
    "documents": ("a list of texts", "titles of the documents that were shown, the best first", "steps that search"),
    "gold_documents": (
        "a list of texts",
        "titles of the documents that lead to the answer, in order",
        "every step, where the question says so",
    ),
    "turn": ("an integer from 0 upwards", "which of the user's requests the step belongs to", "every step"),
    "num_turns": ("an integer from 0 upwards", "how many requests the task has", "every step"),
    "turns_passed": (
        "an integer from 0 upwards",
        "how many turns have passed their checks by now",
        "steps that end a turn",
    ),
    "checks": (
        "true or false by stage",
        "stages in order: `read` (the action could be read), `fits` (what it says is allowed here), `right` (it does "
        "what was asked); a stage that it did not come to, or that is not judged yet, is absent",
        "every step",
    ),
    "expression": ("text", "the expression that was read, with single spaces", "steps whose expression can be read"),
    "lines_right": ("a list of true or false", "whether each line of the answer is right by itself", "every step"),
    "lines_on_track": (
        "a list of true or false",
        "whether each line's result is what the numbers so far come to",
        "every step",
    ),
    "line_ends": ("a list of integers", "words up to the end of each line", "every step"),
    "items": (
        "a list of texts",
        "what each item of a list names, in order; empty where it names nothing that was offered",
        "every step",
    ),
    "item_relevance": (
        "a list of integers",
        "how relevant each item is; 0 where it is not offered or comes again",
        "every step",
    ),
    "items_exact": (
        "a list of true or false",
        "whether each item, up to the last rank, is as relevant as the best list's at its rank",
        "every step",
    ),
    "item_spans": (
        "a list of pairs of integers",
        "where each item begins and ends in the action, in characters, the sign that ends it included",
        "every step",
    ),
    "best_relevance": ("a list of integers", "relevance by rank of the best list", "every step"),
    "list_length": ("an integer from 0 upwards", "how many items are asked for", "every step"),
}
"""What each info value takes, what it means, and on which steps it stands, by name."""


def table() -> str:
    """The step info of each environment, then its meaning."""
    writes: dict[str, frozenset[str]] = {
        kind: part.writes for kind, part in load_catalogue("env").items() if hasattr(part, "writes")
    }
    kinds = sorted(writes)
    assert INFO.keys() == frozenset().union(*writes.values()), (
        "every info value is told, and what is told is an info value"
    )
    who = "".join(
        f"| `{name}` | {' | '.join('yes' if name in writes[kind] else '' for kind in kinds)} |\n" for name in INFO
    )
    what = "".join(f"| `{name}` | {' | '.join(info_key)} |\n" for name, info_key in INFO.items())
    return (
        f"| info value | {' | '.join(f'[{kind}](#{kind})' for kind in kinds)} |\n|---|{'---|' * len(kinds)}\n{who}\n"
        f"| info value | takes | meaning | stands on |\n|---|---|---|---|\n{what}"
    )


def page(before: str) -> str:
    """The page with current tables."""
    first, _, rest = before.partition(BEGIN)
    _, _, last = rest.partition(END)
    return f"{first}{BEGIN}\n{table()}\n{END}{last}"


def main() -> None:
    """Write the page; with --check, report whether it is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is not up to date")
    present = PAGE.read_text(encoding="utf-8")
    if not parser.parse_args().check:
        PAGE.write_text(page(present), encoding="utf-8")
    elif page(present) != present:
        sys.exit(f"{PAGE} is stale; run `python docs/build_info.py`")


if __name__ == "__main__":
    main()
