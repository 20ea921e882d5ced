"""The JSON schema of run files: it takes what the decoder takes, and refuses what an editor should mark."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
jsonschema = pytest.importorskip("jsonschema")

from groupwise import methods
from groupwise.parts.part import CATALOGUES, load_catalogue
from groupwise.system.errors import ConfigError
from groupwise.training.config.run_config import RunConfig
from groupwise.training.config.run_file import decode_run, load_run, read_run_file
from groupwise.training.config.schema import make_run_schema, read_field_sentences
from tests.unit.cli.conftest import Run

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").rglob("*.toml"))
WHOLE = {
    "seed": 1,
    "algorithm": {"method": "hgpo", "depth": 4},
    "env": {"kind": "identity", "num_words": 4},
    "model": {"kind": "tiny", "hidden": 32},
    "rollout": {
        "history": {"kind": "anchored_window", "low": 1, "high": 3},
        "template": {"thoughts": True},
        "action_parser": "tagged",
    },
    "training": {"updates": 3, "learner": {"betas": [0.9, 0.99]}},
    "trackers": ["csv", {"kind": "wandb", "mode": "offline"}],
}


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return make_run_schema()


def match_one(validator: Any, choices: list[Any], instance: Any, _: Any) -> Iterator[Exception]:
    """The keyword `oneOf`, as an editor has it: a choice is left at its first fault, which mostly is its `kind`.

    The package's own lists every fault of every choice, and takes minutes for parts within parts within parts.
    """
    num_valid = sum(validator.evolve(schema=choice).is_valid(instance) for choice in choices)
    if num_valid != 1:
        yield jsonschema.ValidationError(f"{num_valid} of {len(choices)} choices match")


@pytest.fixture(scope="module")
def faults(schema: dict[str, Any]) -> Callable[[dict[str, Any]], list[str]]:
    validator = jsonschema.validators.extend(jsonschema.Draft7Validator, {"oneOf": match_one})(schema)
    return lambda content: [".".join(map(str, error.absolute_path)) for error in validator.iter_errors(content)]


def change_setting(path: str, value: Any) -> dict[str, Any]:
    content: Any = copy.deepcopy(WHOLE)
    *sections, key = path.split(".")
    inner = content
    for section in sections:
        inner = inner.setdefault(section, {})
    inner[key] = value
    return dict(content)


def test_the_schema_is_one(schema: dict[str, Any]) -> None:
    jsonschema.Draft7Validator.check_schema(schema)
    json.dumps(schema, allow_nan=False)
    assert schema["title"] == "groupwise run file"
    assert set(schema["properties"]) == {"extends", *RunConfig.model_fields}
    needed = ["algorithm", "model"]
    assert schema["anyOf"] == [
        {"required": [*needed, "env"]},
        {"required": [*needed, "agent"]},
        {"required": ["extends"]},
    ]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_valid_as_it_is_written_and_resolved(faults: Any, path: Path) -> None:
    assert faults(read_run_file(path).content) == []
    assert faults(load_run(path).config()) == []


def test_a_run_file_with_a_bit_of_everything_is_valid(faults: Any) -> None:
    assert faults(WHOLE) == []
    assert isinstance(decode_run(WHOLE), RunConfig)


@pytest.mark.parametrize("name", methods.names())
def test_every_method_is_valid_by_name_with_its_options_and_spelled_out(faults: Any, name: str) -> None:
    given = {key: value for key, value in methods.summary(name).options.items() if value is not None}
    options = json.loads(json.dumps(given))  # a file has lists where Python has tuples
    assert faults(change_setting("algorithm", {"method": name})) == []
    assert faults(change_setting("algorithm", {"method": name, **options})) == []
    assert faults(change_setting("algorithm", methods.build(name).config())) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("sead", 1),
        ("seed", "one"),
        ("algorithm.dpth", 4),
        ("algorithm.method", "hgop"),
        ("algorithm", {"advantage": {"kind": "relativ"}}),
        ("env.kind", "identiti"),
        ("env.num_word", 4),
        ("env.num_words", 1),
        ("env.num_words", 4.5),
        ("rollout.history.low", -1),
        ("rollout.history", {"steps": 2}),
        ("rollout.history", "windw"),
        ("rollout.temperature", 0),
        ("rollout.template.kind", "x"),
        ("training.learner.learning_rat", 1e-3),
        ("training.learner.betas", [0.9]),
        ("training.learner.betas", [0.9, 1.5]),
        ("rewards", []),
        ("trackers", ["cvs"]),
        ("warm_start", {"epochs": 0}),
    ],
)
def test_what_the_decoder_refuses_is_marked(faults: Any, path: str, value: Any) -> None:
    content = change_setting(path, value)
    with pytest.raises(ConfigError):
        decode_run(content)
    broken = faults(content)
    assert broken
    # It is marked in the section that it is in; an unknown section is marked at the top.
    assert all(where == "" or where.split(".")[0] == path.split(".")[0] for where in broken)


def test_parts_from_elsewhere_are_let_through(faults: Any) -> None:
    assert faults(change_setting("env", {"kind": "my_package.worlds:Maze", "size": 7})) == []
    assert faults(change_setting("rollout.history", "my_package:Replay")) == []


def test_every_kind_and_every_field_has_its_sentence(schema: dict[str, Any]) -> None:
    for slot in CATALOGUES:
        for kind, part in load_catalogue(slot).items():
            missing = set(part.model_fields) - set(read_field_sentences(part))
            assert not missing, f"{slot} {kind}: {missing}"
    names = [entry for entry in schema["definitions"] if "properties" in schema["definitions"][entry]]
    silent = [
        f"{name}.{field}"
        for name in names
        if not name.startswith("method_")
        for field, entry in schema["definitions"][name]["properties"].items()
        if "description" not in entry
    ]
    assert silent == []


def test_bounds_defaults_and_sentences_come_from_the_models(schema: dict[str, Any]) -> None:
    steps = schema["definitions"]["Window"]["properties"]["steps"]
    assert steps == {"type": "integer", "minimum": 0, "default": 2, "description": "How many past steps are shown."}
    history = schema["definitions"]["RolloutConfig"]["properties"]["history"]
    assert history["default"] == {"kind": "window", "steps": 2}


def test_the_command_prints_the_schema_or_writes_it(groupwise: Run, tmp_path: Path, schema: dict[str, Any]) -> None:
    assert json.loads(groupwise("schema").out) == schema
    ran = groupwise("schema", "--out", "run.schema.json")
    assert ran.status == 0
    assert ran.out.splitlines()[-1] == "#:schema run.schema.json"
    assert json.loads((tmp_path / "run.schema.json").read_text()) == schema
    assert groupwise("schema", "--out", "no/where.json").err == (
        "error: no/where.json cannot be written (No such file or directory); choose another place with --out\n"
    )
