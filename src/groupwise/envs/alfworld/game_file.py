"""An ALFWorld game file, read: what is where, what can be done with it, and what the task asks for.

All games of ALFWorld's release share one set of rules and one set of sentences; they differ in the home and the task. A
file whose rules or sentences are others is refused, because the game would not be the one that results are known for.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from groupwise.core.errors import RecordError

RULES_DIGEST = "095330b41d6659e74c6797f4a914b07923707bc33fa33984f278c9cb98edec5b"
"""Of the rules (`pddl_domain`) in the games of ALFWorld 0.4, blanks aside."""
SENTENCES_DIGEST = "6bd204b6a6c7a8dbe1ef88a951db473d6b14f86de02f087c6ea61c86cfb872c2"
"""Of its sentences (`grammar`), the task's own and blanks aside."""
TASK = re.compile(r'"rhs": "Your task is to: (.*?)"')
FACT = re.compile(r"\(([^()]*)\)")
DOWNLOAD_HINT = "; get the games of ALFWorld 0.4 with its command `alfworld-download`"

Facts = Mapping[str, Sequence[tuple[str, ...]]]
"""The arguments of each fact, by its name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WinCondition:
    """When a game is won: things of a kind in one receptacle of a kind, or one held beside a lamp that was used."""

    thing: str = ""
    """Kind of the thing."""
    target: str = ""
    """Kind of the receptacle, or of the lamp."""
    treatment: str = ""
    """What must have been done to the thing: clean, heat or cool."""
    num_needed: int = 1
    """How many of the thing the target must hold."""
    is_seen_by_lamp: bool = False
    """Whether the thing is to be held beside a used lamp, and not put anywhere."""


WIN_CONDITIONS: Mapping[str, WinCondition] = {
    "inreceptacle o r, objecttype o, receptacletype r": WinCondition(),
    "objecttype o1, receptacletype r, inreceptacle o1 r, = o1 o2, objecttype o2, receptacletype r, inreceptacle o2 r": (
        WinCondition(num_needed=2)
    ),
    "cleanable o, objecttype o, receptacletype r, isclean o, inreceptacle o r": WinCondition(treatment="clean"),
    "heatable o, objecttype o, receptacletype r, ishot o, inreceptacle o r": WinCondition(treatment="heat"),
    "coolable o, objecttype o, receptacletype r, iscool o, inreceptacle o r": WinCondition(treatment="cool"),
    "objecttype ot, toggleable ot, istoggled ot, receptacleatlocation r l, atlocation a l, inreceptacle ot r, "
    "objecttype o, holds a o": WinCondition(is_seen_by_lamp=True),
}
"""What a game file says of its goal, kinds and quantifiers aside, and what it means."""


@dataclass(frozen=True, kw_only=True)
class Game:
    """A home and a task. Things and receptacles are numbers in the order of the file's names, which lists follow."""

    task: str
    """The task in words."""
    goal: WinCondition
    """When it is done."""
    walkthrough: tuple[str, ...]
    """Commands that solve it."""
    places: tuple[str, ...]
    """Name of each receptacle, such as "drawer 2"."""
    place_kinds: tuple[str, ...]
    """Kind of each receptacle."""
    spot_of: tuple[str, ...]
    """Where each receptacle stands."""
    places_at: Mapping[str, tuple[int, ...]]
    """The receptacles at each spot; several may share one."""
    things: tuple[str, ...]
    """Name of each thing."""
    thing_kinds: tuple[str, ...]
    """Kind of each thing."""
    openable: frozenset[int]
    """Receptacles with a door."""
    able: Mapping[str, frozenset[int]]
    """Things that are pickupable, cleanable, heatable, coolable, sliceable, toggleable or isreceptacleobject."""
    inside: Mapping[int, tuple[int, ...]]
    """What lies in things that hold others; it stays there."""
    can_contain: frozenset[tuple[str, str]]
    """Kinds of receptacle, with the kinds of thing that may be put there."""
    start: str
    """The spot where the agent starts."""
    lies_in: frozenset[tuple[int, int]]
    """Things and the receptacles they lie in at the start; some lie in two."""
    lies_at: frozenset[tuple[int, str]]
    """Things and their spots at the start."""
    cool: frozenset[int]
    """Things that are cool at the start."""


ABILITIES = ("pickupable", "cleanable", "heatable", "coolable", "sliceable", "toggleable", "isreceptacleobject")


ABOUT_THINGS = ("objecttype", "inreceptacle", "objectatlocation", "inreceptacleobject", *ABILITIES)
"""Facts that begin with a thing."""


def read_game(content: bytes, where: str) -> Game:
    """Read the content of a `game.tw-pddl` file; `where` names it in errors."""
    fields = _read_fields(content, where)
    task = TASK.search(fields["grammar"])
    if _digest_text(fields["pddl_domain"]) != RULES_DIGEST or task is None:
        raise RecordError(f"{where}: the game has other rules than those of ALFWorld 0.4{DOWNLOAD_HINT}")
    if _digest_text(TASK.sub("", fields["grammar"])) != SENTENCES_DIGEST:
        raise RecordError(f"{where}: the game has other sentences than those of ALFWorld 0.4{DOWNLOAD_HINT}")
    facts, goal = _read_problem(fields["pddl_problem"], where)
    try:
        return _make_game(facts, task=task[1], goal=goal, walkthrough=tuple(map(str, fields["walkthrough"] or ())))
    except (KeyError, ValueError, IndexError) as error:
        raise RecordError(f"{where}: its facts do not fit together ({error!r}){DOWNLOAD_HINT}") from None


def _read_fields(content: bytes, where: str) -> dict[str, Any]:
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{where}: not a game file ({error}){DOWNLOAD_HINT}") from None
    if not isinstance(fields, dict):
        raise RecordError(f"{where}: not a game file, it holds a {type(fields).__name__}{DOWNLOAD_HINT}")
    missing = [name for name in ("pddl_domain", "grammar", "pddl_problem", "walkthrough") if name not in fields]
    if missing:
        raise RecordError(f"{where}: not a game file, it lacks {', '.join(missing)}{DOWNLOAD_HINT}")
    return fields


def _digest_text(text: str) -> str:
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()


def _read_problem(problem: str, where: str) -> tuple[Facts, WinCondition]:
    """The facts at the start, and the goal; names in lower case, as the planner reads them."""
    _, _, rest = problem.lower().partition("(:init")
    start, _, end = rest.partition("(:goal")
    facts: defaultdict[str, list[tuple[str, ...]]] = defaultdict(list)
    for fact in FACT.findall(start):
        name, *arguments = fact.split()
        facts[name].append(tuple(arguments))
    asked = [fact.replace("?", "").split() for fact in FACT.findall(end) if " - " not in fact]
    kinds = {(name, of): _strip_type(rest[0]) for name, of, *rest in asked if name in ("objecttype", "receptacletype")}
    shape = ", ".join(" ".join(words[:2] if words[0].endswith("type") else words) for words in asked)
    if shape not in WIN_CONDITIONS:
        raise RecordError(f"{where}: found the goal {shape!r}, which is none of ALFWorld's six{DOWNLOAD_HINT}")
    thing = kinds.get(("objecttype", "o")) or kinds["objecttype", "o1"]
    target = kinds.get(("receptacletype", "r")) or kinds["objecttype", "ot"]
    return facts, replace(WIN_CONDITIONS[shape], thing=thing, target=target)


def _make_game(facts: Facts, *, task: str, goal: WinCondition, walkthrough: tuple[str, ...]) -> Game:
    kind_of = {name: _strip_type(kind) for name, kind in (*facts["receptacletype"], *facts["objecttype"])}
    places = sorted({name for name, _ in facts["receptacletype"]})
    things = sorted({arguments[0] for about in ABOUT_THINGS for arguments in facts[about]})  # a cracked egg has no kind
    spoken = _name_things({name for instances in facts.values() for arguments in instances for name in arguments})
    place_number, thing_number = _number_names(places), _number_names(things)
    spots = {arguments[0]: arguments[1] for arguments in facts["receptacleatlocation"]}
    inside: defaultdict[int, set[int]] = defaultdict(set)
    for inner, outer in facts["inreceptacleobject"]:
        inside[thing_number[outer]].add(thing_number[inner])
    return Game(
        task=task,
        goal=goal,
        walkthrough=walkthrough,
        places=tuple(spoken[name] for name in places),
        place_kinds=tuple(kind_of[name] for name in places),
        spot_of=tuple(spots[name] for name in places),
        places_at={spot: tuple(place_number[n] for n in places if spots[n] == spot) for spot in spots.values()},
        things=tuple(spoken[name] for name in things),
        thing_kinds=tuple(kind_of.get(name, "") for name in things),
        openable=frozenset(place_number[name] for (name,) in facts["openable"]),
        able={able: frozenset(thing_number[name] for (name,) in facts[able]) for able in ABILITIES},
        inside={outer: tuple(sorted(inner)) for outer, inner in inside.items()},
        can_contain=frozenset((_strip_type(place), _strip_type(thing)) for place, thing in facts["cancontain"]),
        start=facts["atlocation"][0][1],
        lies_in=frozenset((thing_number[thing], place_number[place]) for thing, place in facts["inreceptacle"]),
        lies_at=frozenset((thing_number[thing], spot) for thing, spot in facts["objectatlocation"]),
        cool=frozenset(thing_number[name] for (name,) in facts["iscool"]),
    )


def _strip_type(name: str) -> str:
    return name.removesuffix("type")


def _number_names(names: Sequence[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}


def _name_things(ids: Iterable[str]) -> dict[str, str]:
    """What the game calls each thing: its kind and a number, counted down in the order of the file's names."""
    kinds = {name: _name_kind(name) for name in sorted(ids)}
    left = Counter(kinds.values())
    named = {}
    for name, kind in kinds.items():
        named[name] = f"{kind} {left[kind]}"
        left[kind] -= 1
    return named


def _name_kind(name: str) -> str:
    return name.partition("_bar_")[0] + ("basin" if "_bar_" in name and "basin" in name else "")
