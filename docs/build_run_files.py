"""Write docs/reference/settings.md: every section, field and kind of a run file, from the schema that editors use.

python docs/build_run_files.py [--check]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from groupwise.parts.part import CATALOGUES
from groupwise.training.config.schema import make_run_schema

PAGE = Path(__file__).parent / "reference" / "settings.md"
ALGORITHM = (
    *("estimator", "grouper", "signal", "baseline", "scale", "token_credit", "filter"),
    *("scorer", "judge"),
    *("loss", "pairing", "ratio", "surrogate", "correction", "penalty", "aggregate"),
)
"""Slots that the parts of an algorithm fill; the others belong to the run."""

HEAD = """# Run files

<!-- Written by docs/build_run_files.py from the models. Do not edit by hand. -->

A run is a TOML file: an algorithm, an environment, a model, and how they are used. This is a whole one:

```toml
seed = 0

[algorithm]
method = "hgpo"          # a method by name, with its options
depth = 4

[env]
kind = "household"       # a part by its kind, with its fields

[model]
kind = "tiny"

[rollout]
history = "full"          # a kind alone: all its defaults
group_size = 8

[training]
updates = 40
```

`groupwise train FILE` runs it. Settings that you leave out have default values. The run's folder gets `config.toml`:
all settings, spelled out, and loadable as a run file itself. Unknown keys, wrong values and impossible combinations
stop the command before a model loads. The error names the key, what was found and the nearest valid name.
`groupwise doctor FILE` says how large a run would be.

**On the command line.** `--set training.updates=80` sets a setting, and overrides the file, which overrides the method.
`--unset training.learner` takes a setting or a section out of the file, so that its default counts; it comes before
every `--set`. With `--set algorithm.method=grpo`, options of the file that the method `grpo` does not have are left
out, and a note names them. Every command that reads a run file takes both.

**One file on top of another.** A run file may extend another one, and says only what is different:

```toml
extends = "base.toml"    # relative to this file

[algorithm]
method = "grpo"

[training]
updates = 80
```

Tables are merged key by key. A table with another `kind`, or an `[algorithm]` with another `method`, replaces the table
of `base.toml`; so does a list. `base.toml` cannot extend a third file. Its paths are relative to itself. The order is:
the method's defaults, the extended file, the file, `--unset`, `--set`. An error names the file in which the key stands.

**Paths.** A path in a run file is relative to the file: data, task set files, reward functions (`rewards.py:score`),
prompts, models. A path after `--set`, or in settings that Python hands in, is relative to the working directory. `~` is
your home folder. The run's `config.toml` holds absolute paths, so that the run resumes from any folder. `model.path` is
looked for beside the run file, then in the working directory, then on the hub. What is named by its module
(`package.module:name`) must be installed, or on Python's path.

**Editors.** `groupwise schema --out groupwise.schema.json` writes a JSON schema. With Taplo (Even Better TOML), a run
file whose first line is `#:schema ./groupwise.schema.json` is completed and checked as you type.

**Parts.** Where a table says *a memory*, *an env* and so on, give the kind alone (`history = "full"`), a table with its
`kind` and fields (`history = { kind = "window", steps = 3 }`), or a class of your own by its place
(`kind = "my_package.memories:Replay"`). The kinds are listed below.

**Algorithms.** `[algorithm]` takes a `method` with its options ([the methods](methods.md)), or the parts
themselves, as `groupwise methods --show NAME` prints them. A run's `config.toml` has the parts in `[algorithm]`, which
are what is run. `[made_by]` keeps the method and its options as they were written, which is what reports call the run.
"""


class Page:
    """The page, from the schema's definitions."""

    def __init__(self) -> None:
        self._schema = make_run_schema()
        self._definitions: dict[str, Any] = self._schema["definitions"]

    def text(self) -> str:
        """The whole page."""
        own = [slot for slot in CATALOGUES if slot not in ALGORITHM]
        parts = [HEAD, "## Sections\n", self._fields(self._schema), *self._sections()]
        parts += ["## Kinds\n", *(self._slot(slot) for slot in own)]
        parts += ["## Parts of an algorithm\n", *(self._slot(slot) for slot in ALGORITHM)]
        return "\n".join(parts)

    def _sections(self) -> list[str]:
        sections = []
        for name, entry in self._schema["properties"].items():
            inner = self._definition(entry)
            if inner is not None and "properties" in inner:
                sections += [f"### [{name}]\n", f"{inner['description']}\n", self._fields(inner)]
                sections += self._subsections(name, inner)
        algorithm = self._definitions["Algorithm"]
        spelled = algorithm["oneOf"][-1]
        return [
            f"### [algorithm]\n\n{algorithm['description']} Without a `method`:\n",
            self._fields(spelled),
            *sections,
        ]

    def _subsections(self, path: str, section: dict[str, Any]) -> list[str]:
        sections = []
        for name, entry in section["properties"].items():
            inner = self._definition(entry)
            if inner is not None and "properties" in inner:
                sections += [f"### [{path}.{name}]\n", f"{inner['description']}\n", self._fields(inner)]
        return sections

    def _definition(self, entry: dict[str, Any]) -> dict[str, Any] | None:
        for place in (*entry.get("allOf", ()), *entry.get("anyOf", ()), entry):
            if "$ref" in place:
                definition: dict[str, Any] = self._definitions[place["$ref"].rpartition("/")[2]]
                return definition
        return None

    def _fields(self, entry: dict[str, Any]) -> str:
        required = entry.get("required") or entry.get("anyOf", [{}])[0].get("required", ())
        rows = [
            f"| `{name}` | {takes(field)} | {_default(field, name in required)} | {_cell(field)} |"
            for name, field in entry.get("properties", {}).items()
            if name != "kind"
        ]
        if not rows:
            return ""
        table = "\n".join(["| field | takes | default | what it is |", "|---|---|---|---|", *rows])
        return table + "\n"

    def _slot(self, slot: str) -> str:
        parts = [f"### {slot}\n"]
        for choice in self._definitions[f"slot_{slot}"]["oneOf"]:
            entry = self._definition(choice)
            if entry is not None:
                [kind] = entry["properties"]["kind"]["enum"]
                parts += [f"**`{kind}`** {entry['description']}\n", self._fields(entry)]
        return "\n".join(part for part in parts if part)


def takes(entry: dict[str, Any]) -> str:
    """The type of a field, as text."""
    for place in (*entry.get("allOf", ()), entry):
        if "$ref" in place:
            return _describe_reference(place["$ref"].rpartition("/")[2])
    if "enum" in entry:
        return " or ".join(f"`{_plain(value)}`" for value in entry["enum"])
    if "anyOf" in entry:
        return " or ".join(takes(each) for each in entry["anyOf"])
    if entry.get("type") == "array":
        items = entry.get("items", {})
        each = takes(items[0] if isinstance(items, list) else items)
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


def _cell(field: dict[str, Any]) -> str:
    return str(field.get("description", "")).replace("|", "\\|")


def _describe_reference(definition: str) -> str:
    if not definition.startswith("slot_"):
        return "section"
    slot = definition.removeprefix("slot_")
    return f"{'an' if slot[0] in 'aeiou' else 'a'} [{slot}](#{slot})"


def _default(field: dict[str, Any], required: bool) -> str:
    if required:
        return "**required**"
    if "default" not in field:
        return "none"
    default = field["default"]
    if isinstance(default, dict):
        return f"`{default['kind']}`" if "kind" in default else ""
    return f"`{_plain(default)}`"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def page() -> str:
    """The whole page."""
    return Page().text()


def main() -> None:
    """Write the page; with --check, report whether it is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with status 1 where the page is out of date")
    if parser.parse_args().check:
        sys.exit(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page())
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
