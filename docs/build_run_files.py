"""Write docs/reference/settings.md and docs/reference/parts/: every setting of a run file, from the schema of editors.

python docs/build_run_files.py [--check]

What is above the mark of settings.md is written by hand. Environments have other pages, see `build_environments.py`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from build_slots import name_places, places, protocols, protocols_of_slots, summary

from groupwise.parts.part import CATALOGUES
from groupwise.training.config.schema import make_run_schema

FOLDER = Path(__file__).parent / "reference"
PAGE = FOLDER / "settings.md"
PARTS = FOLDER / "parts"
SECTIONS = {
    "algorithm": "the method",
    "model": "weights, LoRA",
    "rollout": "group size, history, sampling, lag",
    "engine": "what samples",
    "training": "number of updates, tasks per update",
    "training.learner": "learning rate, optimizer, batch sizes",
    "evaluation": "how often, on which tasks",
    "checkpoints": "which are kept",
    "warm_start": "supervised fine-tuning before the first update",
    "alarms": "warnings and stops",
}
"""The sections of a run file in the order of the page, with words for their headings, so that the search finds them."""
COMMON_KINDS = {"model": ("pretrained", "tiny"), "engine": ("local",), "training.learner": ("local",)}
"""The kinds whose fields are on this page too, by the section that they fill."""
WRITTEN = "<!-- Written by docs/build_run_files.py from the models. Do not edit by hand. -->"

Schema = dict[str, Any]


class Settings:
    """The pages, from the schema of run files."""

    def __init__(self) -> None:
        self._schema: Schema = make_run_schema()
        self._definitions: Schema = self._schema["definitions"]

    def write_pages(self) -> dict[Path, str]:
        """Every page and its text."""
        known, where = protocols(), places()
        about = {slot: " ".join(summary(known[name]) for name in names) for slot, names in protocols_of_slots().items()}
        parts = [slot for slot in CATALOGUES if slot != "env"]
        return {PAGE: self.write_page()} | {
            PARTS / f"{slot}.md": self._write_slot(slot, about[slot], where[slot]) for slot in parts
        }

    def write_page(self) -> str:
        """The page with the sections of a run file."""
        sections = [f"## [{path}]: {title}\n\n{self._write_section(path)}" for path, title in SECTIONS.items()]
        slots = [f"| {link_slot(slot)} | {_list(self.read_kinds(slot))} |\n" for slot in CATALOGUES if slot != "env"]
        kinds = f"## Kinds of parts\n\n| slot | kinds |\n|---|---|\n{''.join(slots)}"
        by_hand = PAGE.read_text(encoding="utf-8").partition(WRITTEN)[0]
        return "\n".join([f"{by_hand}{WRITTEN}\n\n## Top level\n\n{make_table(self._schema)}", *sections, kinds])

    def _write_section(self, path: str) -> str:
        if path in COMMON_KINDS:
            return self._write_common_kinds(path.rpartition(".")[2], COMMON_KINDS[path])
        if path == "algorithm":
            algorithm = self._definitions["Algorithm"]
            return f"{algorithm['description']} Without a `method`:\n\n{make_table(algorithm['oneOf'][-1])}"
        section = self._find(self._schema["properties"][path])
        inner = {name: self._find(field) for name, field in section["properties"].items()}
        nested = {name: entry["properties"] for name, entry in inner.items() if "properties" in entry}
        own = {name: field for name, field in section["properties"].items() if name not in nested}
        texts = [f"{section['description']}\n\n{make_table({**section, 'properties': own})}"]
        shared = dict[str, Schema]()
        for fields in nested.values():  # the action of every alarm
            shared = {name: field for name, field in (shared or fields).items() if fields.get(name) == field}
        if shared:
            texts.append(f"Each of the sections below has:\n\n{make_table({'properties': shared})}")
        for name, fields in nested.items():
            table = make_table({"properties": {key: field for key, field in fields.items() if key not in shared}})
            texts.append(f"### [{path}.{name}]\n\n{inner[name]['description']}\n\n{table}")
        for name, field in section["properties"].items():
            entry = self._find(field["items"]) if isinstance(field.get("items"), dict) else {}
            if "properties" in entry:
                texts.append(f"### [[{path}.{name}]]\n\n{entry['description']}\n\n{make_table(entry)}")
        return "\n".join(texts)

    def _write_common_kinds(self, slot: str, shown: Iterable[str]) -> str:
        kinds = self.read_kinds(slot)
        tables = [f'`kind = "{kind}"`: {kinds[kind]["description"]}\n\n{make_table(kinds[kind])}' for kind in shown]
        return "\n".join([*tables, f"[All kinds and their settings](parts/{slot}.md).\n"])

    def _write_slot(self, slot: str, about: str, where: list[str]) -> str:
        kinds = [
            f"## {kind}\n\n{entry['description']}\n"
            + (f"\n{table}" if (table := make_table(entry, base="../")) else "")
            for kind, entry in self.read_kinds(slot).items()
        ]
        place = f"In a run file: {name_places(where)}. " if where else ""
        head = f"# {slot}: kinds and settings\n\n{WRITTEN}\n\n{about}\n\n{place}"
        own = "A class of your own needs these [methods](../../howto/extending/slots.md).\n"
        return "\n".join([head + own, *kinds])

    def read_kinds(self, slot: str) -> dict[str, Schema]:
        """The definition of each kind of a slot."""
        found = [self._find(choice) for choice in self._definitions[f"slot_{slot}"]["oneOf"]]
        return {entry["properties"]["kind"]["enum"][0]: entry for entry in found if entry}

    def _find(self, field: Schema) -> Schema:
        """The definition that a field refers to; empty if it refers to none."""
        for place in (*field.get("allOf", ()), *field.get("anyOf", ()), field):
            if "$ref" in place:
                definition: Schema = self._definitions[place["$ref"].rpartition("/")[2]]
                return definition
        return {}


def make_table(entry: Schema, *, base: str = "") -> str:
    """The fields of a section or part.

    Args:
        entry: its definition.
        base: the path from the page to docs/reference, for links.
    """
    required = entry.get("required") or entry.get("anyOf", [{}])[0].get("required", ())
    rows = [
        f"| `{name}` | {takes(field, base)} | {_default(field, name in required)} | {_cell(field)} |\n"
        for name, field in entry.get("properties", {}).items()
        if name != "kind"
    ]
    return f"| field | takes | default | meaning |\n|---|---|---|---|\n{''.join(rows)}" if rows else ""


def takes(entry: Schema, base: str = "") -> str:
    """The type of a field, as text."""
    for place in (*entry.get("allOf", ()), entry):
        if "$ref" in place:
            return _describe_reference(place["$ref"].rpartition("/")[2], base)
    if "enum" in entry:
        return " or ".join(f"`{_plain(value)}`" for value in entry["enum"])
    if "anyOf" in entry:
        return " or ".join(takes(each, base) for each in entry["anyOf"])
    if entry.get("type") == "array":
        items = entry.get("items", {})
        each = takes(items[0] if isinstance(items, list) else items, base)
        return f"list of {len(items)}: {each}" if isinstance(items, list) else f"list: {each}"
    words = {"integer": "integer", "number": "number", "string": "text", "boolean": "true or false"}
    words |= {"string": "path"} if entry.get("format") == "path" else {}
    bounds = {
        "minimum": "{} or more",
        "exclusiveMinimum": "above {}",
        "maximum": "at most {}",
        "exclusiveMaximum": "below {}",
    }
    limits = [text.format(_plain(entry[key])) for key, text in bounds.items() if key in entry]
    return ", ".join([words.get(entry.get("type", ""), "table"), *limits])


def link_slot(slot: str, base: str = "") -> str:
    """A slot, with a link to its kinds."""
    return f"[{slot}]({base}{'environments' if slot == 'env' else f'parts/{slot}'}.md)"


def _cell(field: Schema) -> str:
    return str(field.get("description", "")).replace("|", "\\|")


def _describe_reference(definition: str, base: str) -> str:
    if not definition.startswith("slot_"):
        return "section"
    slot = definition.removeprefix("slot_")
    return f"{'an' if slot[0] in 'aeiou' else 'a'} {link_slot(slot, base)}"


def _default(field: Schema, required: bool) -> str:
    if required:
        return "**required**"
    if "default" not in field:
        return "none"
    default = field["default"]
    if isinstance(default, dict):
        return f"`{default['kind']}`" if "kind" in default else ""
    return f"`{_plain(default)}`"


def _plain(value: Any) -> str:
    is_one_line = isinstance(value, str) and value and "\n" not in value
    return value if is_one_line else json.dumps(value, ensure_ascii=False)


def _list(kinds: Iterable[str]) -> str:
    return ", ".join(f"`{kind}`" for kind in kinds)


def write_pages() -> dict[Path, str]:
    """Every page and its text."""
    return Settings().write_pages()


def main() -> None:
    """Write the pages; with --check, report whether one is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with status 1 if a page is out of date")
    pages = write_pages()
    if parser.parse_args().check:
        sys.exit(any(not path.exists() or path.read_text(encoding="utf-8") != text for path, text in pages.items()))
    PARTS.mkdir(exist_ok=True)
    for path, text in pages.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
