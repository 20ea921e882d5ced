"""Write the tables of docs/howto/extending/slots.md, from the protocols as the sources spell them.

python docs/build_slots.py [--check]
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from groupwise.parts.part import CATALOGUES
from groupwise.parts.requirements import REQUIRED
from groupwise.training.config.schema import make_run_schema

DOCS = Path(__file__).parent
PAGE = DOCS / "howto" / "extending" / "slots.md"
SOURCES = DOCS.parent / "src" / "groupwise"
BEGIN = "<!-- Written by docs/build_slots.py from the protocols. Do not edit by hand. -->\n"
END = "<!-- end of the tables -->\n"
OPENED = ("Environment", "Engine", "Learner", "WeightSync", "LiveCurriculum", "LiveTracker", "PartState")
"""What parts open or start, and a run then calls."""
SEAMS = {
    "scorer": "scorers",
    "judge": "scorers",
    "estimator": "token_credit",
    "token_credit": "token_credit",
    "filter": "token_credit",
    "plan": "plans",
    "rollout_filter": "plans",
    "loss": "loss",
    "pairing": "loss",
    "critic": "critic",
    "engine": "engine",
    "learner": "learner",
    "weight_sync": "learner",
    "state_rule": "../agents/state_rules",
}
"""Slots that have a page of their own under docs/howto/extending."""


def protocols() -> dict[str, ast.ClassDef]:
    """Every protocol of the package, by name; a callable is one that has `__call__` alone, with its slot's names."""
    known = {
        node.name: node
        for tree in _trees()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and "Protocol" in map(ast.unparse, node.bases)
    }
    slots = {name: slot for slot, names in protocols_of_slots().items() for name in names}
    for tree in _trees():
        for node, below in pairwise(tree.body):
            match = re.fullmatch(r"(\w+) = Callable\[\[(.+)\], (\w+)\]", ast.unparse(node))
            if match is not None and match[1] in slots.keys() - known.keys():
                names = re.findall(r"\w+", REQUIRED[slots[match[1]]]["__call__"].written)
                types = re.findall(r"\w+(?:\[.*?\])?", match[2])
                taken = ", ".join(f"{name}: {kind}" for name, kind in zip(names, types, strict=True))
                text = (
                    f"class {match[1]}:\n    {ast.unparse(below)}\n    def __call__(self, {taken}) -> {match[3]}: ..."
                )
                known[match[1]] = next(entry for entry in ast.parse(text).body if isinstance(entry, ast.ClassDef))
    return known


def protocols_of_slots() -> dict[str, list[str]]:
    """Names of the protocols that parts of a slot have one of: `Annotated[Filter | CreditFilter, Slot("filter")]`."""
    names: dict[str, list[str]] = {}
    for tree in _trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Annotated":
                match = re.fullmatch(r"\(?([\w |]+), Slot\('(\w+)'\)\)?", ast.unparse(node.slice))
                if match is not None:
                    names[match[2]] = match[1].split(" | ")
    return names


def _trees() -> Iterator[ast.Module]:
    for path in sorted(SOURCES.rglob("*.py")):
        yield ast.parse(path.read_text(encoding="utf-8"))


def signatures(protocol: ast.ClassDef) -> list[str]:
    """The signatures of a protocol: attributes, then methods."""
    lines = []
    for node in protocol.body:
        if isinstance(node, ast.AnnAssign):
            lines.append(ast.unparse(node))
        elif isinstance(node, ast.FunctionDef):
            returns = ast.unparse(node.returns) if node.returns else "None"
            if "property" in map(ast.unparse, node.decorator_list):
                lines.append(f"{node.name}: {returns}")
            else:
                lines.append(f"def {node.name}({ast.unparse(node.args)}) -> {returns}")
    return lines


def summary(protocol: ast.ClassDef) -> str:
    """The first paragraph of a protocol's docstring, without what every part of the slot has in common."""
    paragraph = (ast.get_docstring(protocol) or "").partition("\n\n")[0]
    words = re.sub(r"^Fills the slot `\w+`: ", "", " ".join(paragraph.split()))
    return words[:1].upper() + words[1:]


def places() -> dict[str, list[str]]:
    """Where a run file has a field for each slot: the path of the key, or the part whose field it is."""
    schema = make_run_schema()
    definitions = schema["definitions"]
    where: dict[str, list[str]] = {slot: [] for slot in CATALOGUES}
    algorithm = definitions["Algorithm"]["oneOf"][-1]
    _add_places(where, "algorithm.", algorithm, definitions)
    _add_places(where, "", schema, definitions)
    for name, definition in definitions.items():
        kinds = definition.get("properties", {}).get("kind", {}).get("enum")
        if kinds and not name.startswith("slot_"):
            for key, field in definition["properties"].items():
                for slot in _slots_of(field):
                    where[slot].append(f"`{key}` of `{kinds[0]}`")
    return where


def _add_places(where: dict[str, list[str]], path: str, section: dict[str, Any], definitions: dict[str, Any]) -> None:
    for key, field in section.get("properties", {}).items():
        for slot in _slots_of(field):
            where[slot].append(f"`{path}{key}`")
        for name in _references(field):
            if not name.startswith("slot_") and name != "Algorithm":
                _add_places(where, f"{path}{key}.", definitions[name], definitions)


def _slots_of(field: Any) -> list[str]:
    return [name.removeprefix("slot_") for name in _references(field) if name.startswith("slot_")]


def _references(field: Any) -> list[str]:
    """The definitions that a field's schema refers to."""
    return list(dict.fromkeys(re.findall(r"#/definitions/(\w+)", repr(field))))


def tables() -> str:
    """The table of slots, then that of what parts open."""
    known, where = protocols(), places()
    rows = [
        f"| {_slot_cell(slot)} | {name_places(where[slot])} | {_code([known[name] for name in names])} "
        f"| {' '.join(summary(known[name]) for name in names)} |\n"
        for slot, names in sorted(protocols_of_slots().items(), key=lambda item: list(CATALOGUES).index(item[0]))
    ]
    opened = [f"| `{name}` | {_code([known[name]])} | {summary(known[name])} |\n" for name in OPENED]
    return (
        f"| slot | in a run file | what the class has | what it does |\n|---|---|---|---|\n{''.join(rows)}\n"
        "Some parts open or start something that the run then calls:\n\n"
        f"| what | what it has | what it is |\n|---|---|---|\n{''.join(opened)}"
    )


def _slot_cell(slot: str) -> str:
    page = f"<br>[page]({SEAMS[slot]}.md)" if slot in SEAMS else ""
    kinds = "environments.md" if slot == "env" else f"parts/{slot}.md"
    return f"`{slot}`<br>[kinds](../../reference/{kinds}){page}"


def name_places(where: list[str]) -> str:
    """Two of the places; `relative`, which most methods are made of, before the others."""
    first = sorted(where, key=lambda place: "`relative`" not in place)[:2]
    more = f" and {len(where) - 2} more" if len(where) > 2 else ""
    return ", ".join(first) + more


def _code(asked: list[ast.ClassDef]) -> str:
    """The signatures of a protocol, one per line; two protocols one after the other."""
    cells = [
        "<br>".join(f"`{' '.join(line.split())}`".replace("|", "\\|") for line in signatures(protocol))
        for protocol in asked
    ]
    return "<br>or<br>".join(cells)


def page(before: str) -> str:
    """The page with current tables."""
    first, _, rest = before.partition(BEGIN)
    _, _, last = rest.partition(END)
    return f"{first}{BEGIN}\n{tables()}\n{END}{last}"


def main() -> None:
    """Write the tables; with --check, report whether the page is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is not up to date")
    text = PAGE.read_text(encoding="utf-8")
    if not parser.parse_args().check:
        PAGE.write_text(page(text), encoding="utf-8")
    elif page(text) != text:
        sys.exit(f"{PAGE} is stale; run `python docs/build_slots.py`")


if __name__ == "__main__":
    main()
