"""Write what the code knows into the pages of environments: lists, settings, transcripts, records, rules, step info.

python docs/build_environments.py [--check]

A page of docs/reference/envs/ has the name of its kind. Below `<!-- settings -->` is the table of its fields. Below
`<!-- transcript -->` the expert solves the first test task; `<!-- transcript: ACTION | ACTION -->` gives the actions.
A TOML block above it has the settings, and a block of JSON Lines the file that `path` names. If a package is not
installed, its transcript is kept. All other words are written by hand.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from build_run_files import Settings, make_table
from build_slots import signatures

from groupwise import ConfigError
from groupwise.envs import SPLITS
from groupwise.envs.checker import RULES
from groupwise.parts.part import load_catalogue

FOLDER = Path(__file__).parent / "reference"
ENVS = FOLDER / "envs"
INDEX, PROTOCOL, STEP_INFO = FOLDER / "environments.md", FOLDER / "env_protocol.md", ENVS / "step_info.md"
SOURCE = Path(__file__).parents[1] / "src" / "groupwise" / "envs" / "environment.py"
GROUPS = {
    "text games and grids": ("household", "gridworld", "boxes", "aliased", "identity"),
    "questions and answers": ("countdown", "worked_sums", "ranked_lists", "lookup", "search_qa", "storefront"),
    "published games and benchmarks": (
        *("alfworld", "textworld", "textworld_express", "scienceworld", "babyai", "sokoban", "webshop", "bfcl"),
        *("textarena", "gem"),
    ),
    "published questions": ("reasoning_gym", "math"),
    "your own data, servers and mixtures": ("data_set", "gymnasium", "openenv", "mixture"),
}
SIZED = (*GROUPS["text games and grids"], *GROUPS["questions and answers"])
"""Kinds whose tasks come with groupwise."""
BLOCK = re.compile(r"(<!-- (\w+): begin -->\n).*?(<!-- \2: end -->\n)", re.DOTALL)
SETTINGS = re.compile(r"(<!-- settings -->\n)(?:\|.*\n)*")
TRANSCRIPT = re.compile(r"(<!-- transcript(?:: (.*?))? -->\n```text\n).*?(^```$)", re.DOTALL | re.MULTILINE)
NOT_INSTALLED = ("needs a package that is not installed", "no folder of games is set")
"""Errors of environments whose package or games are not there."""

NUMBER = "an integer from 0 upwards"
INFO: dict[str, tuple[str, str, str]] = {
    "answer": (
        "text",
        "the answer, in the form in which answers are compared; a right answer is equal to `gold_answer`",
        "steps that answer; in worked_sums every step (empty without a total)",
    ),
    "gold_answer": ("text", "a right answer; the first one if there are several", "every step"),
    "exact": ("true or false", "whether the whole answer is right", "steps that answer"),
    "graded_match": ("a number from 0 to 1", "how much of the answer is right", "steps that answer"),
    "match_parts": (
        "numbers from 0 to 1 by name",
        "how much of each requested property is right; properties that were not requested are absent",
        "steps that answer",
    ),
    "calls": (
        "a list of `{name, arguments}`",
        "the tool calls in the action, carried out or not; an answer or a purchase is no tool call",
        "every step",
    ),
    "num_calls": (NUMBER, "number of these calls", "every step"),
    "gold_calls": (
        "a list of `{name, arguments}`",
        "calls that solve the task, in order; with several turns, those of the current turn",
        "every step",
    ),
    "gold_entities": (
        "a list of texts",
        "the people and things on the way to the answer: with the answer, without those that the question names",
        "every step; in search_qa if the question names its documents",
    ),
    "entities": ("a list of texts", "those of `gold_entities` that the action names", "steps with `gold_entities`"),
    "documents": ("a list of texts", "titles of the documents that were shown, best first", "steps that search"),
    "gold_documents": (
        "a list of texts",
        "titles of the documents that lead to the answer, in order",
        "every step, if the question names its documents",
    ),
    "turn": (NUMBER, "the user request that the step belongs to", "every step"),
    "num_turns": (NUMBER, "number of user requests of the task", "every step"),
    "turns_passed": (NUMBER, "number of turns that have passed their checks", "steps that end a turn"),
    "checks": (
        "true or false by stage",
        "`read`: the action could be parsed; `fits`: its content is allowed; `right`: it is correct. A stage that was "
        "not reached, or is not checked yet, is absent",
        "every step",
    ),
    "expression": ("text", "the parsed expression, with single spaces", "steps with an expression that can be parsed"),
    "lines_right": ("a list of true or false", "whether each line of the answer is right by itself", "every step"),
    "lines_on_track": (
        "a list of true or false",
        "whether each line's result is the correct sum of the numbers so far",
        "every step",
    ),
    "line_ends": ("a list of integers", "words up to the end of each line", "every step"),
    "items": (
        "a list of texts",
        "what each item of the list names, in order; empty if it names nothing that was offered",
        "every step",
    ),
    "item_relevance": (
        "a list of integers",
        "relevance of each item; 0 if it was not offered or was named before",
        "every step",
    ),
    "items_exact": (
        "a list of true or false",
        "whether each item, up to the last rank, is as relevant as the item of the best list at this rank",
        "every step",
    ),
    "item_spans": (
        "a list of pairs of integers",
        "start and end of each item in the action, in characters, with the sign that ends it",
        "every step",
    ),
    "best_relevance": ("a list of integers", "relevance by rank in the best list", "every step"),
    "list_length": (NUMBER, "number of items to name", "every step"),
}
"""Type, meaning and steps of each value of step info, by name."""


def list_environments() -> str:
    """Kinds by group: what they are, what to install, and how many tasks they have."""
    parts = load_catalogue("env")
    assert {kind for kinds in GROUPS.values() for kind in kinds} == set(parts)
    about = {kind: entry["description"] for kind, entry in Settings().read_kinds("env").items()}
    tables = []
    for group, kinds in GROUPS.items():
        rows = [f"| [{kind}](envs/{kind}.md) | {about[kind]} | {_name_extra(kind)} |\n" for kind in kinds]
        tables.append(f"**{group.capitalize()}**\n\n| kind | what it is | extra |\n|---|---|---|\n{''.join(rows)}")
    return "\n".join(tables)


def _name_extra(kind: str) -> str:
    extra = re.search(r"groupwise\[(\w+)\]", (ENVS / f"{kind}.md").read_text(encoding="utf-8"))
    return f"`{extra[1]}`" if extra else ""


def list_task_sets() -> str:
    """Tasks by split of the kinds that come with their tasks."""
    parts: Any = load_catalogue("env")
    rows = [
        f"| {kind} | {' | '.join(f'{len(parts[kind]().task_set(split)):,}' for split in SPLITS)} |" for kind in SIZED
    ]
    return "\n".join([f"| kind | {' | '.join(SPLITS)} |", "|---|---:|---:|---:|", *rows, ""])


def list_settings(kind: str) -> str:
    """The fields of a kind."""
    return make_table(Settings().read_kinds("env")[kind], base="../")


def play(text: str, kind: str, actions: Sequence[str]) -> str:
    """What happens at the first test task.

    Args:
        text: the page up to the transcript.
        kind: the environment.
        actions: the actions; without them, the expert's.
    """
    blocks = [tomllib.loads(block) for block in re.findall(r"^```toml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)]
    settings = next((block["env"] for block in blocks if block.get("env", {}).get("kind") == kind), {})
    rows = re.search(r"^```jsonl\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        if rows:
            file = Path(settings["path"])
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(rows[1], encoding="utf-8")
        part: Any = load_catalogue("env")[kind](**{name: each for name, each in settings.items() if name != "kind"})
        return "\n".join(_play(part, actions))


def _play(part: Any, actions: Sequence[str]) -> Iterator[str]:
    environment = part.open(part.task_set("test")[0])
    first = environment.observe()
    if first.goal:
        yield f"(goal: {first.goal})"
    yield first.text
    for action in actions or iter(environment.expert, None):
        outcome = environment.act(action)
        yield f"> {action}"
        yield outcome.observation.text
        if outcome.ended:
            yield f"(reward {outcome.reward}, success {outcome.success})"
            return


def list_records() -> str:
    """What environments and their parts have, and the fields of observations and outcomes."""
    classes = {
        node.name: node for node in ast.parse(SOURCE.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)
    }
    tables = []
    for name in ("EnvironmentPart", "Environment", "Forkable", "Expert", "HasVocabulary"):
        members = [node for node in classes[name].body if isinstance(node, ast.FunctionDef)]
        rows = [
            f"| `{_make_cell(signature)}` | {_make_cell(ast.get_docstring(member) or '')} |\n"
            for signature, member in zip(signatures(classes[name]), members, strict=True)
        ]
        tables.append((name, rows))
    for name in ("Observation", "Outcome"):
        fields = [pair for pair in pairwise(classes[name].body) if isinstance(pair[0], ast.AnnAssign)]
        rows = [
            f"| `{_make_cell(ast.unparse(node))}` | {_make_cell(ast.literal_eval(below.value))} |\n"
            for node, below in fields
        ]
        tables.append((name, rows))
    return "\n".join(f"| `{name}` | |\n|---|---|\n{''.join(rows)}" for name, rows in tables)


def _make_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def list_rules() -> str:
    """The rules of `groupwise check env`, with their reasons."""
    return "".join(f"- `{rule.__name__}`: {' '.join((rule.__doc__ or '').split())}\n" for rule in RULES)


def list_info() -> str:
    """The step info of each environment, then its meaning."""
    writes: dict[str, frozenset[str]] = {
        kind: part.writes for kind, part in sorted(load_catalogue("env").items()) if hasattr(part, "writes")
    }
    assert INFO.keys() == frozenset().union(*writes.values())
    who = [
        f"| `{name}` | {' | '.join('yes' if name in names else '' for names in writes.values())} |\n" for name in INFO
    ]
    what = [f"| `{name}` | {' | '.join(cells)} |\n" for name, cells in INFO.items()]
    return (
        f"| name | {' | '.join(f'[{kind}]({kind}.md)' for kind in writes)} |\n|---|{'---|' * len(writes)}\n"
        f"{''.join(who)}\n"
        f"| name | type | meaning | on |\n|---|---|---|---|\n{''.join(what)}"
    )


BLOCKS = {
    "environments": list_environments,
    "task_sets": list_task_sets,
    "records": list_records,
    "rules": list_rules,
    "info": list_info,
}


def fill_blocks(text: str) -> str:
    """A page with current lists."""
    return BLOCK.sub(lambda match: f"{match[1]}\n{BLOCKS[match[2]]()}\n{match[3]}", text)


def fill_environment(text: str, kind: str) -> str:
    """The page of an environment, with current settings and transcript."""

    def write_transcript(match: re.Match[str]) -> str:
        try:
            played = play(match.string[: match.start()], kind, match[2].split(" | ") if match[2] else [])
        except ConfigError as error:
            if not any(text in str(error) for text in NOT_INSTALLED):
                raise
            return match[0]
        return f"{match[1]}{played}\n{match[3]}"

    text = SETTINGS.sub(lambda match: match[1] + list_settings(kind), text)
    return TRANSCRIPT.sub(write_transcript, text)


def write_pages() -> Iterator[tuple[Path, str]]:
    """Every page and its text."""
    for path in (INDEX, PROTOCOL, STEP_INFO):
        yield path, fill_blocks(path.read_text(encoding="utf-8"))
    for kind in load_catalogue("env"):
        path = ENVS / f"{kind}.md"
        yield path, fill_environment(path.read_text(encoding="utf-8"), kind)


def main() -> None:
    """Write the pages; with --check, report whether one is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with status 1 if a page is out of date"
    )
    is_check = parser.parse_args().check
    for path, text in write_pages():
        if path.read_text(encoding="utf-8") == text:
            continue
        if is_check:
            sys.exit(f"{os.path.relpath(path)} is out of date; run `python docs/build_environments.py`")
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
