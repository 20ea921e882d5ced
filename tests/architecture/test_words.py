"""Functions are verbs, a local is called what it holds, and the glossary has every word once."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.measure_tree import functions_named_by_participles
from tests.architecture.sources import ROOT, name_of, python_files, tree_of

FOLDERS = ("src", "benchmarks", "conformance", "docs", "examples", "tests")

# How many there still are; a change may lower a number, never raise one. What is 0 stays 0.
PARTICIPLES_LEFT = {"src": 0, "benchmarks": 0, "conformance": 0, "docs": 0, "examples": 0, "tests": 0}
BANNED = {
    "max and min": re.compile(r"(?<!at_)(?<![a-z])(?:most|least)(?![a-z])"),
    "what it holds": re.compile(r"(?<![a-z])(?:found|told)(?![a-z])"),
    "what the element is": re.compile(r"^(?:one|each|heard)$"),
    "guidance": re.compile(r"help_text|(?<![a-z])helped(?![a-z])"),
    "observer": re.compile(r"(?<![a-z])watch(?:er|ers|ing)(?![a-z])"),
}
"""What to say instead, and the words that are not said: in names of functions, classes, arguments, locals, fields."""

BANNED_LEFT = {
    "src": {"max and min": 0, "what it holds": 4, "what the element is": 2, "guidance": 0, "observer": 0},
    "benchmarks": {"max and min": 0, "what it holds": 0, "what the element is": 55, "guidance": 0, "observer": 0},
    "conformance": {"max and min": 0, "what it holds": 0, "what the element is": 1, "guidance": 0, "observer": 0},
    "docs": {"max and min": 0, "what it holds": 0, "what the element is": 4, "guidance": 0, "observer": 0},
    "examples": {"max and min": 0, "what it holds": 0, "what the element is": 0, "guidance": 0, "observer": 0},
    "tests": {"max and min": 0, "what it holds": 0, "what the element is": 286, "guidance": 0, "observer": 0},
}

PARTICIPLES_THAT_STAY: dict[str, str] = {
    "src/groupwise/rollout/measures/tools.py:hidden": "a noun of the field; the need has the same name",
    "src/groupwise/rollout/measures/tools.py:hidden_states": "a noun of the field",
    "src/groupwise/training/collect/measuring.py:hidden": "as of the protocol in rollout/measures/tools.py",
    "src/groupwise/learner/local.py:hidden_states": "a noun of the field",
    "src/groupwise/learner/sharded.py:hidden_states": "a noun of the field",
    "src/groupwise/learner/sharded.py:hidden_states": "a noun of the field",
    "tests/unit/training/test_hidden_states.py:hidden": "as of the protocol in rollout/measures/tools.py",
    "tests/oracles/rewards.py:malformed_response": "an oracle has the name of the reward that it is the oracle of",
    "tests/oracles/rewards.py:refused_action": "an oracle has the name of the reward that it is the oracle of",
}
"""Functions that a participle names well ("path:name"), each with the reason."""


def participles(folder: str) -> list[str]:
    """Functions of a folder that are named by participles; pytest's fixtures are values."""
    named = [
        f"{name_of(path)}:{name}"
        for path in python_files(ROOT / folder)
        for tree in [tree_of(path)]
        for name, line in functions_named_by_participles(tree)
        if line not in fixture_lines(tree)
    ]
    return [place for place in named if place not in PARTICIPLES_THAT_STAY]


def fixture_lines(tree: ast.Module) -> set[int]:
    return {
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and any("fixture" in ast.unparse(mark) for mark in node.decorator_list)
    }


def names_given(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every name that a file gives to something, with its line; those of tests are sentences, and left out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if not node.name.startswith("test_"):
                yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs) and node.name:
            yield node.name, node.lineno
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname, node.lineno


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def find_banned_names(paths: list[Path]) -> dict[str, list[str]]:
    """The places of names with banned words, by what should be said instead."""
    places: dict[str, list[str]] = {instead: [] for instead in BANNED}
    for path in paths:
        for name, line in names_given(tree_of(path)):
            for instead, words in BANNED.items():
                if words.search(snake_case(name)):
                    places[instead].append(f"{name_of(path)}:{line} {name}")
    return places


@pytest.mark.parametrize("folder", FOLDERS)
def test_functions_are_not_named_by_participles(folder: str) -> None:
    assert python_files(ROOT / folder)
    places = participles(folder)
    assert len(places) <= PARTICIPLES_LEFT[folder], "\n".join(places)


def test_every_participle_that_stays_is_there() -> None:
    there = {f"{name_of(path)}:{name}" for path in python_files(ROOT) for name, _ in names_given(tree_of(path))}
    assert [place for place in PARTICIPLES_THAT_STAY if place not in there] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_names_hold_no_banned_words(folder: str) -> None:
    for instead, places in find_banned_names(python_files(ROOT / folder)).items():
        assert len(places) <= BANNED_LEFT[folder][instead], "\n".join([f"say {instead}:", *places])


def test_banned_words_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "riddles.py"
    path.write_text(
        "MOST_ROWS = 3\n"
        "class RunWatcher:\n    def at_least(self, help_text): self.told = 1\n"
        "def almost(foundation): found_rows = [found for found in foundation]\n"
        "def test_it_is_found(): return [each for each in rows]\n"
    )
    monkeypatch.setattr("tests.architecture.test_words.name_of", lambda path: path.name)
    places = find_banned_names([path])
    assert {instead: Counter(place.split()[-1] for place in names) for instead, names in places.items()} == {
        "max and min": {"MOST_ROWS": 1},
        "what it holds": {"told": 1, "found_rows": 1, "found": 1},
        "what the element is": {"each": 1},
        "guidance": {"help_text": 1},
        "observer": {"RunWatcher": 1},
    }


# the glossary

GLOSSARY = ROOT / "docs" / "glossary.md"
WORDS = re.split(
    r",\s+",
    """action rule, admission, advantage, algorithm, attempt, baseline, canary, catalogue, chain, channel, checkpoint,
    credit, curriculum, depth, engine, environment, estimator, evaluation, fact, fault, filter, first pass, forest,
    group, grouper, guidance, history, host, journal, judge, kind, lane, learner, loss, loss context, measure,
    memory, micro-batch, mini-batch, node, observation, observer, off-policy, pack, padded row, pair, panel, part,
    part state, past attempt, plan, policy, prompt, recipe, reference, replay, response, reward, rollouts file, run,
    run file, run folder, sample, seam, segment, shaper, signal, slot, split, state, step, step table, task,
    template, token credit, totals, trace, tracker, trajectory, update, verdict, verifier, version, warm start,
    weight transfer, worker""",
)


def glossary_words() -> list[str]:
    """Every word that the glossary explains: the first cells of its tables, which may hold several."""
    rows = re.findall(r"^\| ([^|]+) \|", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    return [word.strip(" `") for row in rows if row not in ("say", "---") for word in row.split(",")]


def test_the_glossary_has_every_word() -> None:
    assert sorted(set(WORDS) - set(glossary_words())) == []


def test_the_glossary_has_a_word_once() -> None:
    assert {word: count for word, count in Counter(glossary_words()).items() if count > 1} == {}


def test_the_glossary_is_in_alphabetical_order_within_its_sections() -> None:
    for section in GLOSSARY.read_text(encoding="utf-8").split("\n## "):
        rows = [
            row.lower() for row in re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE) if row not in ("say", "---")
        ]
        assert rows == sorted(rows)
