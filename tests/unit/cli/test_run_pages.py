"""The pages about runs: written from the models, and naming commands that exist."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")

from groupwise.cli.main import SECTIONS, make_app
from groupwise.parts.part import CATALOGUES, load_catalogue
from groupwise.training.config.run_config import RunConfig
from groupwise.training.config.run_file import load_run

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_run_files", DOCS / "build_run_files.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_of_settings_are_what_the_script_would_write(script: ModuleType) -> None:
    pages = script.write_pages()
    stale = [path for path, text in pages.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    assert stale == [], "run `python docs/build_run_files.py`"
    assert {path for path in script.PARTS.iterdir() if path not in pages} == set()


def test_the_pages_name_every_section_and_every_kind(script: ModuleType) -> None:
    pages = {path.stem: text for path, text in script.write_pages().items()}
    assert [name for name in RunConfig.model_fields if f"| `{name}` |" not in pages["settings"]] == []
    kinds = {(slot, kind) for slot in CATALOGUES if slot != "env" for kind in load_catalogue(slot)}
    assert {(slot, kind) for slot, kind in kinds if f"\n## {kind}\n" not in pages[slot]} == set()


def test_the_page_begins_with_a_run_file_that_decodes(script: ModuleType, tmp_path: Path) -> None:
    block = re.search(r"```toml\n(.*?)```", script.PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    (tmp_path / "run.toml").write_text(block[1])
    assert load_run(tmp_path / "run.toml").rollout.history.config() == {"kind": "full"}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"type": "integer", "minimum": 1}, "integer, 1 or more"),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 0.5}, "number, above 0, at most 0.5"),
        ({"enum": ["a", "b"]}, "`a` or `b`"),
        ({"allOf": [{"$ref": "#/definitions/slot_env"}]}, "an [env](environments.md)"),
        ({"type": "array", "items": [{"type": "number"}, {"type": "number"}]}, "list of 2: number"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "integer or text"),
    ],
)
def test_what_a_field_takes_in_words(script: ModuleType, entry: dict[str, object], words: str) -> None:
    assert script.takes(entry) == words


@pytest.mark.parametrize("page", ["learn/first_run.md", "reference/settings.md", "reference/metrics.md"])
def test_commands_and_links_of_the_pages_exist(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    known = {name for names in SECTIONS.values() for name in names}
    said = set(re.findall(r"(?:^|`|\$ )groupwise ([a-z]+)", text, re.MULTILINE))
    assert said
    assert said <= known
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    assert [link for link in links if not (DOCS / page).parent.joinpath(link).exists()] == []


def test_options_of_the_first_run_exist() -> None:
    text = (DOCS / "learn" / "first_run.md").read_text(encoding="utf-8")
    for name in ("train", "evaluate", "warmup"):
        [command] = [command for command in make_app().registered_commands if command.name == name]
        assert command.callback is not None
        taken = {"--" + key.rstrip("_").replace("_", "-") for key in command.callback.__annotations__}
        taken |= {"--from", "--json", "--set"}
        for line in re.findall(rf"^groupwise {name} .*$", text, re.MULTILINE):
            assert set(re.findall(r"--[a-z-]+", line)) <= taken, line
