"""The state of an ALFWorld game: its possible commands, their effects and their texts.

This is the game files' `pddl_domain` and `grammar` in Python, because the stock interpreter is slow. A test compares
transcripts letter by letter. Oddities are kept: `look` in the middle of the room sees nothing, only a thing in hand can
be examined, one behind a closed door may be used or sliced, one that lies in two receptacles can be taken twice.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace

from groupwise.system.errors import RecordError

NOWHERE = -1
SINKS = ("sink", "sinkbasin")
KNIVES = ("knife", "butterknife")
TREATMENTS = {"clean": ("cleanable", SINKS), "heat": ("heatable", ("microwave",)), "cool": ("coolable", ("fridge",))}
"""What a thing must be, and which kinds of receptacle do it."""
HELP = """\
Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object
"""


@dataclass(frozen=True, slots=True)
class GameAction:
    """What a possible command means: a verb, and what it is done to."""

    verb: str
    thing: int = NOWHERE
    place: int = NOWHERE

    @property
    def changes_nothing(self) -> bool:
        return self.verb in ("look", "inventory", "help", "examine", "examine place")


class GameState:
    """The state of a game, and what may be done in it."""

    def __init__(self, game: Game) -> None:
        self.game = game
        self.spot = game.start
        self.held: int = NOWHERE
        self.lies_in, self.lies_at = set(game.lies_in), set(game.lies_at)
        self.opened: set[int] = set()
        self.taken: set[tuple[int, int]] = set()
        """Things and the receptacles they were taken from, until they come back; `look` lists those nearby."""
        self.clean, self.hot, self.cool = set[int](), set[int](), set(game.cool)
        self.sliced, self.used = set[int](), set[int]()

    def fork(self) -> GameState:
        twin = copy(self)
        vars(twin).update({name: value.copy() for name, value in vars(self).items() if isinstance(value, set)})
        return twin

    def is_open(self, place: int) -> bool:
        return place in self.opened or place not in self.game.openable

    def list_things_in(self, place: int) -> list[int]:
        return sorted(thing for thing, where in self.lies_in if where == place)

    def is_treated(self, thing: int, treatment: str) -> bool:
        return not treatment or thing in {"clean": self.clean, "heat": self.hot, "cool": self.cool}[treatment]

    def is_won(self) -> bool:
        game, goal = self.game, self.game.goal
        if goal.is_seen_by_lamp:
            holds = self.held != NOWHERE and game.thing_kinds[self.held] == goal.thing
            return holds and any(
                lamp in self.used and game.thing_kinds[lamp] == goal.target and game.spot_of[place] == self.spot
                for lamp, place in self.lies_in
            )
        targets = [
            place
            for thing, place in self.lies_in
            if game.thing_kinds[thing] == goal.thing
            and game.place_kinds[place] == goal.target
            and self.is_treated(thing, goal.treatment)
        ]
        return any(targets.count(place) >= goal.num_needed for place in targets)

    def list_commands(self) -> dict[str, GameAction]:
        game, here, held = self.game, self.game.places_at.get(self.spot, ()), self.held
        commands = {"look": GameAction("look"), "inventory": GameAction("inventory"), "help": GameAction("help")}
        for place, where in enumerate(game.places):
            if game.spot_of[place] != self.spot:
                commands[f"go to {where}"] = GameAction("go", place=place)
        for place in here:
            where = game.places[place]
            commands[f"examine {where}"] = GameAction("examine place", place=place)
            if place in game.openable:
                verb = "close" if place in self.opened else "open"
                commands[f"{verb} {where}"] = GameAction(verb, place=place)
            can_take = held == NOWHERE and self.is_open(place)
            for thing in self.list_things_in(place):
                if thing in game.able["toggleable"]:
                    commands[f"use {game.things[thing]}"] = GameAction("use", thing)
                if can_take and thing in game.able["pickupable"]:
                    commands[f"take {game.things[thing]} from {where}"] = GameAction("take", thing, place)
        if held != NOWHERE:
            name, held_kind = game.things[held], game.thing_kinds[held]
            commands[f"examine {name}"] = GameAction("examine", held)
            for place in here:
                where, kind = game.places[place], game.place_kinds[place]
                if self.is_open(place) and (kind, held_kind) in game.can_contain:
                    commands[f"move {name} to {where}"] = GameAction("move", held, place)
                for treatment, (able, kinds) in TREATMENTS.items():
                    if kind in kinds and held in game.able[able]:
                        commands[f"{treatment} {name} with {where}"] = GameAction(treatment, held, place)
            for thing in game.able["sliceable"] if held_kind in KNIVES else ():
                if (thing, self.spot) in self.lies_at:
                    commands[f"slice {game.things[thing]} with {name}"] = GameAction("slice", thing)
        return dict(sorted(commands.items()))

    def make_key(self) -> str:
        """What the agent has before it, as canonical text: the receptacles here, what is in them, what is carried."""
        here = self.game.places_at.get(self.spot, ())
        visible = []
        for place in here:
            inside = ", ".join(self._describe_thing(thing) for thing in self.list_things_in(place)) or "nothing"
            visible.append(f"{self.game.places[place]}: {inside if self.is_open(place) else 'closed'}")
        carried = "nothing" if self.held == NOWHERE else self._describe_thing(self.held)
        return "; ".join([*(visible or ["middle of the room"]), f"carrying {carried}"])

    def _describe_thing(self, thing: int) -> str:
        conditions = {"clean": self.clean, "hot": self.hot, "cool": self.cool, "sliced": self.sliced, "used": self.used}
        return " ".join([*(word for word, things in conditions.items() if thing in things), self.game.things[thing]])

    def carry_out(self, action: GameAction) -> str:
        """Do what a possible command means, and return what the game says."""
        verb, thing, place = action.verb, action.thing, action.place
        thing_name = self.game.things[thing] if thing != NOWHERE else ""
        place_name = self.game.places[place] if place != NOWHERE else ""
        held_name = self.game.things[self.held] if self.held != NOWHERE else ""
        match verb:
            case "look":
                return self.tell_surroundings()
            case "inventory":
                return f"You are carrying: a {held_name}." if held_name else "You are not carrying anything."
            case "help":
                return HELP
            case "examine place":
                return self.tell_place(place)
            case "examine":
                return self.tell_thing(thing)
            case "go":
                self.spot = self.game.spot_of[place]
                return f"You arrive at {place_name}. {self.tell_place(place)}"
            case "open":
                self.opened.add(place)
                return f"You open the {place_name}. {self.tell_place(place)}"
            case "close":
                self.opened.discard(place)
                return f"You close the {place_name}."
            case "take":
                self.lies_in.discard((thing, place))
                self.lies_at.discard((thing, self.spot))
                self.taken.add((thing, place))
                self.held = thing
                return f"You pick up the {thing_name} from the {place_name}."
            case "move":
                self.lies_in.add((thing, place))
                self.lies_at.add((thing, self.spot))
                self.taken.discard((thing, place))
                self.held = NOWHERE
                return f"You move the {thing_name} to the {place_name}."
            case "use":
                self.used.add(thing)  # it stays used: the rules do not count how often
                return f"You turn on the {thing_name}."
            case "slice":
                self.sliced.add(thing)
                return f"You sliced the {thing_name} with the {held_name}."
            case "clean":
                self.clean.add(thing)
            case "heat" | "cool":
                gained, lost = (self.hot, self.cool) if verb == "heat" else (self.cool, self.hot)
                gained.add(thing)
                lost.discard(thing)
        return f"You {verb} the {thing_name} using the {place_name}."

    def introduce(self) -> str:
        seen = [f"a {name}" for name in self.game.places]
        return f"You are in the middle of a room. Looking quickly around you, you see {_join_names(seen)}."

    def tell_surroundings(self) -> str:
        here = self.game.places_at.get(self.spot, ())
        if not here:
            return "You are in the middle of a room. Looking quickly around you, you see nothing."
        facing = _join_names([self.game.places[place] for place in here])
        # A thing counts as next to a receptacle that it was taken from, even where it now lies in another one there.
        nearby = sorted(thing for thing, spot in self.lies_at if spot == self.spot)
        beside = [f"a {self.game.things[t]}" for t in nearby for place in here if (t, place) in self.taken]
        return f"You are facing the {facing}. Next to it, you see {_join_names(beside)}."

    def tell_place(self, place: int) -> str:
        name = self.game.places[place]
        seen = _join_names([f"a {self.game.things[thing]}" for thing in self.list_things_in(place)])
        if place not in self.game.openable:
            return f"On the {name}, you see {seen}."
        return f"The {name} is open. In it, you see {seen}." if place in self.opened else f"The {name} is closed."

    def tell_thing(self, thing: int) -> str:
        name = self.game.things[thing]
        if thing in self.game.able["isreceptacleobject"]:
            inside = _join_names([f"a {self.game.things[inner]}" for inner in self.game.inside.get(thing, ())])
            return f"This is a normal {name}. In it, you see {inside}."
        is_sliced, is_clean = thing in self.sliced, thing in self.clean
        heat = "hot" if thing in self.hot else "cool" if thing in self.cool else ""
        if heat == "cool" and not (is_clean or is_sliced):
            heat = "cold"
        condition = " and ".join(word for word in (heat, "clean" if is_clean else "") if word)
        if condition:
            return f"This is a {condition}{' sliced' if is_sliced else ''} {name}."
        if thing in self.used:
            return f"This {name} is on."
        return f"This is a sliced {name}." if is_sliced else f"There's nothing special about {name}."


def _join_names(names: Iterable[str]) -> str:
    *before, last = [*names] or ["nothing"]
    return f"{', '.join(before)}, and {last}" if before else last


# An ALFWorld game file, read: what is where, what can be done with it, and what the task asks for.
#
# All games of ALFWorld's release share one set of rules and one set of sentences; they differ in the home and the task.
# A file with other rules or sentences is rejected, because its results are not comparable with published ones.

RULES_DIGEST = "095330b41d6659e74c6797f4a914b07923707bc33fa33984f278c9cb98edec5b"
"""Of the rules (`pddl_domain`) in the games of ALFWorld 0.4, blanks aside."""
SENTENCES_DIGEST = "6bd204b6a6c7a8dbe1ef88a951db473d6b14f86de02f087c6ea61c86cfb872c2"
"""Of its sentences (`grammar`), the task's own and blanks aside."""
TASK = re.compile(r'"rhs": "Your task is to: (.*?)"')
ATOM = re.compile(r"\(([^()]*)\)")
DOWNLOAD_HINT = "; get the games of ALFWorld 0.4 with its command `alfworld-download`"

Atoms = Mapping[str, Sequence[tuple[str, ...]]]
"""The arguments of each atom, by its name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WinCondition:
    """When a game is won: things of a kind are in one receptacle of a kind, or one is held beside a used lamp."""

    thing: str = ""
    target: str = ""
    """Kind of the receptacle, or of the lamp."""
    treatment: str = ""
    """What must have been done to the thing: clean, heat or cool."""
    num_needed: int = 1
    """How many of the thing the target must hold."""
    is_seen_by_lamp: bool = False
    """Whether the thing must be held beside a used lamp instead."""


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
"""The goals in game files, without kinds and quantifiers, and their meaning."""


@dataclass(frozen=True, kw_only=True)
class Game:
    """A home and a task. Things and receptacles are numbers in the order of the file's names, which lists follow."""

    task: str
    goal: WinCondition
    walkthrough: tuple[str, ...]
    """Commands that solve it."""
    places: tuple[str, ...]
    """Name of each receptacle, such as "drawer 2"."""
    place_kinds: tuple[str, ...]
    spot_of: tuple[str, ...]
    places_at: Mapping[str, tuple[int, ...]]
    """The receptacles at each spot; several may share one."""
    things: tuple[str, ...]
    thing_kinds: tuple[str, ...]
    openable: frozenset[int]
    """Receptacles with a door."""
    able: Mapping[str, frozenset[int]]
    """Things that are pickupable, cleanable, heatable, coolable, sliceable, toggleable or isreceptacleobject."""
    inside: Mapping[int, tuple[int, ...]]
    """What lies in things that hold others; it stays there."""
    can_contain: frozenset[tuple[str, str]]
    """Kinds of receptacle, with the kinds of thing that may be put there."""
    start: str
    lies_in: frozenset[tuple[int, int]]
    """Things and the receptacles they lie in at the start; some lie in two."""
    lies_at: frozenset[tuple[int, str]]
    """Things and their spots at the start."""
    cool: frozenset[int]
    """Things that are cool at the start."""


ABILITIES = ("pickupable", "cleanable", "heatable", "coolable", "sliceable", "toggleable", "isreceptacleobject")
ABOUT_THINGS = ("objecttype", "inreceptacle", "objectatlocation", "inreceptacleobject", *ABILITIES)
"""Atoms that begin with a thing."""


def read_game(content: bytes, where: str) -> Game:
    """Read the content of a `game.tw-pddl` file; `where` names it in errors."""
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{where}: not a game file ({error}){DOWNLOAD_HINT}") from None
    if not isinstance(fields, dict):
        raise RecordError(f"{where}: not a game file, it holds a {type(fields).__name__}{DOWNLOAD_HINT}")
    missing = [name for name in ("pddl_domain", "grammar", "pddl_problem", "walkthrough") if name not in fields]
    if missing:
        raise RecordError(f"{where}: not a game file, it lacks {', '.join(missing)}{DOWNLOAD_HINT}")
    task = TASK.search(fields["grammar"])
    if _digest_text(fields["pddl_domain"]) != RULES_DIGEST or task is None:
        raise RecordError(f"{where}: the rules of the game are not those of ALFWorld 0.4{DOWNLOAD_HINT}")
    if _digest_text(TASK.sub("", fields["grammar"])) != SENTENCES_DIGEST:
        raise RecordError(f"{where}: the sentences of the game are not those of ALFWorld 0.4{DOWNLOAD_HINT}")
    atoms, goal = _read_problem(fields["pddl_problem"], where)
    try:
        return _make_game(atoms, task=task[1], goal=goal, walkthrough=tuple(map(str, fields["walkthrough"] or ())))
    except (KeyError, ValueError, IndexError) as error:
        raise RecordError(f"{where}: its atoms contradict each other ({error!r}){DOWNLOAD_HINT}") from None


def _digest_text(text: str) -> str:
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()


def _read_problem(problem: str, where: str) -> tuple[Atoms, WinCondition]:
    """The atoms at the start, and the goal; names in lower case, as the planner reads them."""
    _, _, rest = problem.lower().partition("(:init")
    start, _, end = rest.partition("(:goal")
    atoms: defaultdict[str, list[tuple[str, ...]]] = defaultdict(list)
    for atom in ATOM.findall(start):
        name, *arguments = atom.split()
        atoms[name].append(tuple(arguments))
    asked = [atom.replace("?", "").split() for atom in ATOM.findall(end) if " - " not in atom]
    kinds = {(name, of): _strip_type(rest[0]) for name, of, *rest in asked if name in ("objecttype", "receptacletype")}
    shape = ", ".join(" ".join(words[:2] if words[0].endswith("type") else words) for words in asked)
    if shape not in WIN_CONDITIONS:
        raise RecordError(f"{where}: the goal {shape!r} is not one of ALFWorld's six{DOWNLOAD_HINT}")
    thing = kinds.get(("objecttype", "o")) or kinds["objecttype", "o1"]
    target = kinds.get(("receptacletype", "r")) or kinds["objecttype", "ot"]
    return atoms, replace(WIN_CONDITIONS[shape], thing=thing, target=target)


def _make_game(atoms: Atoms, *, task: str, goal: WinCondition, walkthrough: tuple[str, ...]) -> Game:
    kind_of = {name: _strip_type(kind) for name, kind in (*atoms["receptacletype"], *atoms["objecttype"])}
    places = sorted({name for name, _ in atoms["receptacletype"]})
    things = sorted({arguments[0] for about in ABOUT_THINGS for arguments in atoms[about]})  # a cracked egg has no kind
    spoken = _name_things({name for instances in atoms.values() for arguments in instances for name in arguments})
    place_number, thing_number = ({name: i for i, name in enumerate(names)} for names in (places, things))
    spots = {arguments[0]: arguments[1] for arguments in atoms["receptacleatlocation"]}
    inside: defaultdict[int, set[int]] = defaultdict(set)
    for inner, outer in atoms["inreceptacleobject"]:
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
        openable=frozenset(place_number[name] for (name,) in atoms["openable"]),
        able={able: frozenset(thing_number[name] for (name,) in atoms[able]) for able in ABILITIES},
        inside={outer: tuple(sorted(inner)) for outer, inner in inside.items()},
        can_contain=frozenset((_strip_type(place), _strip_type(thing)) for place, thing in atoms["cancontain"]),
        start=atoms["atlocation"][0][1],
        lies_in=frozenset((thing_number[thing], place_number[place]) for thing, place in atoms["inreceptacle"]),
        lies_at=frozenset((thing_number[thing], spot) for thing, spot in atoms["objectatlocation"]),
        cool=frozenset(thing_number[name] for (name,) in atoms["iscool"]),
    )


def _strip_type(name: str) -> str:
    return name.removesuffix("type")


def _name_things(ids: Iterable[str]) -> dict[str, str]:
    """What the game calls each thing: its kind and a number, counted down in the order of the file's names."""
    kinds = {
        name: name.partition("_bar_")[0] + ("basin" if "_bar_" in name and "basin" in name else "")
        for name in sorted(ids)
    }
    left = Counter(kinds.values())
    named = {}
    for name, kind in kinds.items():
        named[name] = f"{kind} {left[kind]}"
        left[kind] -= 1
    return named
