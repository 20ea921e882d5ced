"""The JSON schema of run files, with which editors complete and check them.

It is made from the models and their docstrings. A slot is a choice by `kind`, a method a choice by `method` with its
own options. The dialect is draft 7; tools for draft 4 (Taplo) understand all but the exclusive bounds.
"""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
from functools import cache
from typing import Any, get_type_hints

from pydantic import create_model
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from groupwise import methods
from groupwise.parts.part import CATALOGUES, DEFAULT_KINDS, Part, load_catalogue
from groupwise.training.config.run_config import RunConfig

DIALECT = "http://json-schema.org/draft-07/schema#"
TITLE = "groupwise run file"
REFERENCE = "#/definitions/{model}"
ABOUT_EXTENDS = "A run file, by its path from this one: what it says counts where this one does not say otherwise."
SLOT = "x-slot"
"""Stands for a part of a slot until all definitions are there."""


def make_run_schema() -> dict[str, Any]:
    kinds = {(slot, kind): part for slot in CATALOGUES for kind, part in load_catalogue(slot).items()}
    chosen: list[tuple[type[Any], JsonSchemaMode]] = [(RunConfig, "validation")]
    chosen += [(part, "validation") for part in dict.fromkeys(kinds.values())]
    places, content = models_json_schema(chosen, ref_template=REFERENCE, schema_generator=_Generator)
    definitions = content["$defs"]
    for part, mode in chosen:
        _describe(definitions[_read_name(places[part, mode])], part)
        for inner in _list_sections(part):
            _describe(definitions[inner.__name__], inner)
    for (slot, kind), part in kinds.items():
        entry = definitions[_read_name(places[part, "validation"])]
        entry["properties"] = {
            "kind": {"enum": [kind], "description": _read_sentence(part)},
            **entry.get("properties", {}),
        }
        if DEFAULT_KINDS.get(slot) != kind:
            entry["required"] = ["kind", *entry.get("required", [])]
        definitions.setdefault(f"slot_{slot}", _describe_slot(slot))["oneOf"].append(places[part, "validation"])
    definitions |= {f"method_{name}": _describe_method(name) for name in methods.names()}
    parts = definitions["Algorithm"]  # the section [algorithm]: a method by name, or its parts
    named = [{"$ref": REFERENCE.format(model=f"method_{name}")} for name in methods.names()]
    definitions["Algorithm"] = {"description": parts["description"], "oneOf": [*named, parts]}
    whole = definitions.pop("RunConfig")
    whole["properties"] = {"extends": {"type": "string", "description": ABOUT_EXTENDS}, **whole["properties"]}
    needed = whole.pop("required")
    whole["anyOf"] = [{"required": [*needed, player]} for player in ("env", "agent")] + [{"required": ["extends"]}]
    tidied: dict[str, Any] = _tidy({"$schema": DIALECT, **whole, "title": TITLE, "definitions": definitions})
    return tidied


@cache
def read_field_sentences(part: type[Part]) -> dict[str, str]:
    """The docstring of each field of a part, inherited fields included, in one line."""
    sentences: dict[str, str] = {}
    for owner in reversed(part.__mro__):
        if not (issubclass(owner, Part) and owner is not Part):
            continue
        [tree] = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        assert isinstance(tree, ast.ClassDef), "the source of a class is a class"
        for field, below in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(field.target, ast.Name):
                sentences[field.target.id] = " ".join(str(ast.literal_eval(below.value)).split())
    return sentences


class _Generator(GenerateJsonSchema):
    """Pydantic's generator, extended for slots and for parts as defaults."""

    def function_plain_schema(self, schema: core_schema.PlainValidatorFunctionSchema) -> JsonSchemaValue:
        """A field that a slot fills; there is no other plain validator in a part."""
        fill: Any = schema["function"]["function"]
        return {SLOT: fill.__self__.name}

    def encode_default(self, dft: Any) -> Any:
        if isinstance(dft, Part):
            return dft.config()
        if isinstance(dft, tuple):
            return [self.encode_default(entry) for entry in dft]
        return super().encode_default(dft)


def _read_name(place: JsonSchemaValue) -> str:
    return str(place["$ref"]).rpartition("/")[2]


def _describe(entry: dict[str, Any], part: type[Part]) -> None:
    entry["description"] = _read_sentence(part)
    sentences = read_field_sentences(part)
    for name, field in entry.get("properties", {}).items():
        if name in sentences:
            field["description"] = sentences[name]


def _read_sentence(part: type[Part]) -> str:
    return " ".join((inspect.getdoc(part) or "").partition("\n\n")[0].split())


def _list_sections(part: type[Part]) -> list[type[Part]]:
    """The parts without a slot that a part's fields hold by type, sections of a run file among them."""
    sections: list[type[Part]] = []
    waiting: list[Any] = [field.annotation for field in part.model_fields.values()]
    while waiting:
        hint = waiting.pop()
        waiting += getattr(hint, "__args__", ())
        if isinstance(hint, type) and issubclass(hint, Part):
            sections += [hint, *_list_sections(hint)]
    return sections


def _describe_slot(slot: str) -> dict[str, Any]:
    """The choices of a slot: a kind alone, a table of one kind, or an outside class."""
    plain = {
        "type": "string",
        "description": f"Kind of the {slot}, with its defaults.",
        "enum": sorted(load_catalogue(slot)),
    }
    elsewhere = {
        "type": "object",
        "description": f"A {slot} from another package, as package.module:Class.",
        "properties": {"kind": {"type": "string", "pattern": ":"}},
        "required": ["kind"],
    }
    named = {"type": "string", "description": "A class from another package.", "pattern": ":"}
    return {"oneOf": [plain, named, elsewhere]}


OVER: dict[str, Any] = {
    "advantage": {"type": "object", "description": "Fields of the method's estimator to change."},
    "filters": {"type": "array", "description": "Filters in place of the method's.", "items": {SLOT: "filter"}},
    "rollout_filters": {
        "type": "array",
        "description": "Which rollouts are compared.",
        "items": {SLOT: "rollout_filter"},
    },
    "shapers": {"type": "array", "description": "Shapers in place of the method's.", "items": {SLOT: "shaper"}},
    "replay": {"type": ["object", "string"], "description": "Fields of the method's replay to change, or another one."},
    "hint": {"type": ["object", "string"], "description": "Fields of the method's hint to change, or another."},
    "critic": {"type": ["object", "string"], "description": "Fields of the method's critic to change, or another one."},
    "channels": {
        "type": "object",
        "description": "Further advantages that the loss reads, an estimator by name.",
        "additionalProperties": {SLOT: "estimator"},
    },
    "scorers": {"type": "array", "description": "Measures in place of the method's.", "items": {SLOT: "scorer"}},
    "judge": {SLOT: "judge"},
    "pairing": {SLOT: "pairing"},
    "loss": {"type": "object", "description": "Fields of the method's loss to change."},
}
"""The parts of a method that a run file may change."""


def _describe_method(name: str) -> dict[str, Any]:
    function = inspect.unwrap(methods.METHODS[name])
    hints = get_type_hints(function, include_extras=True)
    options: Any = {key: (hints[key], value.default) for key, value in inspect.signature(function).parameters.items()}
    model: Any = create_model(name, **options)
    entry = model.model_json_schema(ref_template=REFERENCE, schema_generator=_Generator)
    assert "$defs" not in entry, "a method's options are plain values"
    summary = methods.summary(name)
    chosen = {"enum": [name], "description": f"{summary.sentence} ({summary.citation})"}
    return {
        "type": "object",
        "description": summary.sentence,
        "properties": {"method": chosen, **entry.get("properties", {}), **OVER},
        "required": ["method"],
        "additionalProperties": False,
    }


def _tidy(value: Any) -> Any:
    """Adapt the schema to draft 7 and TOML: slots as references, no field titles, no null, finite defaults."""
    if isinstance(value, list):
        return [_tidy(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    tidied = dict(value)
    if SLOT in tidied:
        tidied["$ref"] = REFERENCE.format(model=f"slot_{tidied.pop(SLOT)}")
    if isinstance(tidied.get("title"), str) and tidied["title"] != TITLE:
        del tidied["title"]
    if "prefixItems" in tidied:
        tidied["items"] = tidied.pop("prefixItems")
    if "const" in tidied:
        tidied["enum"] = [tidied.pop("const")]
    if {"type": "null"} in tidied.get("anyOf", []):
        tidied["anyOf"] = [entry for entry in tidied["anyOf"] if entry != {"type": "null"}]
    if "default" in tidied and tidied["default"] in (None, math.inf, -math.inf):
        del tidied["default"]
    if "$ref" in tidied and len(tidied) > 1:  # in draft 7 nothing beside a reference counts
        tidied["allOf"] = [{"$ref": tidied.pop("$ref")}]
    return {key: _tidy(entry) for key, entry in tidied.items()}
