"""BFCL's multi-turn tasks as the `bfcl-eval` package ships them: requests, answers, and the functions' documents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from groupwise.core.errors import ConfigError
from groupwise.envs.kit.packages import report_missing_package

ENV = "bfcl"
PACKAGE = "bfcl_eval"
SIMULATORS = f"{PACKAGE}.eval_checker.multi_turn_eval.func_source_code"
FILES = "BFCL_v4_multi_turn_{}.json"
Category = Literal["base", "miss_func", "miss_param", "long_context"]
"""The plain tasks; a function that comes too late; a value that comes too late; results that are very long."""
MODULES = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}
"""The simulated services, and the files that their code and documents are in."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversation:
    """A task of BFCL.

    Worked example: id "multi_turn_base_0", number 0, requests ("Move 'final_report.pdf' ...", ...), answers
    (("cd(folder='document')", ...), ...), classes ("TwitterAPI", "GorillaFileSystem").
    """

    id: str
    """Its name in the package."""
    number: int
    """Its number: tasks of the same number tell one story in each category."""
    requests: tuple[str, ...]
    """What the user asks, turn by turn; empty in a turn that only brings functions."""
    answers: tuple[tuple[str, ...], ...]
    """The calls that do it, turn by turn; none where it cannot be done yet."""
    classes: tuple[str, ...]
    """The services it takes."""
    scenario: Mapping[str, Any]
    """What each service begins with."""
    is_long: bool
    """Whether the services answer at great length."""
    functions: tuple[Mapping[str, Any], ...]
    """Documents of the functions that there are from the beginning."""
    late: Mapping[int, tuple[Mapping[str, Any], ...]]
    """Documents of the functions that come in a later turn."""
    digest: str
    """Fingerprint of all of it, and of the services' code."""


@cache
def read_conversations(category: Category) -> dict[str, Conversation]:
    """The tasks of a category, by their id."""
    folder = find_package_folder() / "data"
    name = FILES.format(category)
    answers = {row["id"]: row["ground_truth"] for row in _read_rows(folder / "possible_answer" / name)}
    return {row["id"]: _make_conversation(row, answers[row["id"]], category) for row in _read_rows(folder / name)}


@cache
def find_package_folder() -> Path:
    """Where the package is; its absence gives one sentence with what to install."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations or find_spec("mpmath") is None:
        raise report_missing_package(ENV, then="pip install --no-deps bfcl-eval")
    return Path(next(iter(spec.submodule_search_locations)))


@cache
def read_source(name: str) -> str:
    """The code of a service, or of what it is made longer with."""
    path = find_package_folder().joinpath(*SIMULATORS.split(".")[1:], f"{name}.py")
    return path.read_text(encoding="utf-8")


@cache
def read_documents(name: str) -> tuple[Mapping[str, Any], ...]:
    """The documents of a service's functions."""
    return tuple(_read_rows(find_package_folder() / "data" / "multi_turn_func_doc" / f"{MODULES[name]}.json"))


def _make_conversation(row: Mapping[str, Any], answers: list[list[str]], category: Category) -> Conversation:
    known = {document["name"]: document for name in row["involved_classes"] for document in read_documents(name)}
    late = {
        int(turn): tuple(known.pop(name) for name in names if name in known)
        for turn, names in row.get("missed_function", {}).items()
    }
    for name in row.get("excluded_function", ()):
        known.pop(name, None)
    code = [read_source(MODULES[name]) for name in row["involved_classes"]]
    content = json.dumps([row, answers, *known.values(), *late.values(), *code], sort_keys=True)
    return Conversation(
        id=str(row["id"]),
        number=int(str(row["id"]).rpartition("_")[2]),
        requests=tuple("\n".join(message["content"] for message in turn) for turn in row["question"]),
        answers=tuple(tuple(turn) for turn in answers),
        classes=tuple(row["involved_classes"]),
        scenario=row["initial_config"],
        is_long=category == "long_context",
        functions=tuple(known.values()),
        late=late,
        digest=sha256(content.encode()).hexdigest()[:16],
    )


def _read_rows(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"bfcl: the installed bfcl-eval has no file {path.name}; pip install --no-deps bfcl-eval==2026.3.23"
        ) from None
    return [json.loads(line) for line in text.splitlines() if line.strip()]
