"""The state of a home during a rollout: the possible commands, their effects, what is visible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple

from groupwise.data.records import Task
from groupwise.envs.kit.draws import Draws
from groupwise.envs.kit.task_set import Proposal, TaskSets, TaskSetSizes, draw_task_sets, interleave
from groupwise.system.errors import RecordError

NOWHERE = -1
"""A place: the middle of the room, where the agent starts, and the agent's hand, for things. A thing: none."""
CLEAN, HOT, COOL = 1, 2, 4
CONDITIONS = ("", "clean ", "hot ", "clean hot ", "cool ", "clean cool ")
"""The words before a thing's name for its condition, a sum of CLEAN, HOT and COOL."""
TREATED = {"clean": CLEAN, "heat": HOT, "cool": COOL}


class HomeAction(NamedTuple):
    """A possible command: what to do, with which thing, at which place; NOWHERE = none."""

    verb: str
    thing: int = NOWHERE
    place: int = NOWHERE


class HomeState:
    """Where the agent and all things are, what is open, what is clean, hot or cool, and whether the lamp is on."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self.opened = [kind not in OPENABLE for kind in home.place_kinds]
        """Whether each place's content can be seen and reached."""
        self.conditions = [0] * len(home.things)
        """What each thing is: a sum of CLEAN, HOT and COOL."""
        self.where = list(home.start)
        """The place of each thing; NOWHERE = in the agent's hand."""
        self.location = NOWHERE
        """The place the agent stands at."""
        self.held = NOWHERE
        """The thing in the agent's hand; it carries one at a time."""
        self.lamp_on = False

    def fork(self) -> HomeState:
        twin = copy(self)
        twin.opened, twin.conditions, twin.where = self.opened[:], self.conditions[:], self.where[:]
        return twin

    def is_treated(self, thing: int, treatment: str) -> bool:
        """Whether a thing is clean, hot or cool, as the treatment makes it; every thing is for no treatment."""
        return not treatment or bool(self.conditions[thing] & TREATED[treatment])

    def is_solved(self) -> bool:
        home, family = self._home, CATEGORIES[self._home.family]
        if family.is_seen_by_lamp:
            in_light = self.lamp_on and self.location == home.lamp
            return in_light and self.held != NOWHERE and home.thing_kinds[self.held] == home.thing
        targets = [
            place
            for thing, place in enumerate(self.where)
            if place != NOWHERE
            and home.thing_kinds[thing] == home.thing
            and home.place_kinds[place] == home.target
            and self.is_treated(thing, family.treatment)
        ]
        return any(targets.count(place) >= family.num_needed for place in targets)

    def list_commands(self) -> dict[str, HomeAction]:
        home, here, held = self._home, self.location, self.held
        possible = dict(_list_ways(home.places, here))
        if here != NOWHERE:
            name, kind = home.places[here], home.place_kinds[here]
            if kind in OPENABLE:
                verb = "close" if self.opened[here] else "open"
                possible[f"{verb} {name}"] = HomeAction(verb, place=here)
            if self.opened[here] and held == NOWHERE:
                for thing in self._list_things_at(here):
                    possible[f"take {home.things[thing]} from {name}"] = HomeAction("take", thing, here)
            elif self.opened[here]:
                possible[f"move {home.things[held]} to {name}"] = HomeAction("move", held, here)
            for verb, tool in TREATMENTS.items() if held != NOWHERE else ():
                if tool == kind and home.thing_kinds[held] in TREATABLE[verb]:
                    possible[f"{verb} {home.things[held]} with {name}"] = HomeAction(verb, held, here)
            if here == home.lamp and not self.lamp_on:
                possible[f"use {LAMP}"] = HomeAction("use", place=here)
            possible[f"examine {name}"] = HomeAction("examine", place=here)
        if held != NOWHERE:
            possible[f"examine {home.things[held]}"] = HomeAction("examine", held)
        possible["look"] = HomeAction("look")
        possible["inventory"] = HomeAction("inventory", held)
        return possible

    def carry_out(self, action: HomeAction) -> str:
        """Do what a possible command means; return the sentence that tells of it."""
        verb, thing, place = action
        thing_name = self._home.things[thing] if thing != NOWHERE else ""
        place_name = self._home.places[place] if place != NOWHERE else ""
        match verb:
            case "go":
                self.location = place
                return f"You arrive at {place_name}. {self._tell_place(place)}"
            case "open":
                self.opened[place] = True
                return f"You open the {place_name}. In it, you see {_join_names(self._list_names_at(place))}."
            case "close":
                self.opened[place] = False
                return f"You close the {place_name}."
            case "take":
                self.held, self.where[thing] = thing, NOWHERE
                return f"You pick up the {thing_name} from the {place_name}."
            case "move":
                self.held, self.where[thing] = NOWHERE, place
                return f"You move the {thing_name} to the {place_name}."
            case "use":
                self.lamp_on = True
                return f"You turn on the {LAMP}."
            case "examine":
                return self._tell_place(place) if thing == NOWHERE else f"This is a {self._with_condition(thing)}."
            case "look":
                if self.location == NOWHERE:
                    return self.tell_room()
                return f"You are facing the {self._home.places[self.location]}. {self._tell_place(self.location)}"
            case "inventory":
                return self.tell_carried() or "You carry nothing."
        # To clean, to heat or to cool: what is hot is not cool, and stays as clean as it was.
        kept = self.conditions[thing] if verb == "clean" else self.conditions[thing] & CLEAN
        self.conditions[thing] = kept | TREATED[verb]
        return f"You {verb} the {thing_name} using the {place_name}."

    def tell_room(self) -> str:
        return f"In the room, you see {_join_names(self._home.places)}."

    def tell_carried(self) -> str:
        """The sentence about the carried thing; empty if there is none."""
        return "" if self.held == NOWHERE else f"You carry a {self._with_condition(self.held)}."

    def make_key(self) -> str:
        """The visible situation as canonical text: where, open or not, what is seen, the lamp, what is carried."""
        carried = "nothing" if self.held == NOWHERE else self._with_condition(self.held)
        if self.location == NOWHERE:
            return f"in the room; carrying {carried}"
        here = self.location
        seen = ["closed"]
        if self.opened[here]:
            seen = [self._with_condition(thing) for thing in self._list_things_at(here)]
        lamp = " in the light" if self.lamp_on and here == self._home.lamp else ""
        return f"{self._home.places[here]}{lamp}: {', '.join(seen) or 'nothing'}; carrying {carried}"

    def _with_condition(self, thing: int) -> str:
        return CONDITIONS[self.conditions[thing]] + self._home.things[thing]

    def _list_things_at(self, place: int) -> list[int]:
        return [thing for thing, where in enumerate(self.where) if where == place]

    def _list_names_at(self, place: int) -> list[str]:
        names = [self._home.things[thing] for thing in self._list_things_at(place)]
        return [*names, LAMP] if place == self._home.lamp else names

    def _tell_place(self, place: int) -> str:
        home = self._home
        name = home.places[place]
        if not self.opened[place]:
            return f"The {name} is closed."
        seen = self._list_names_at(place)
        if home.place_kinds[place] in OPENABLE:
            return f"The {name} is open. In it, you see {_join_names(seen)}."
        return f"On the {name}, you see {_join_names(seen)}."


@lru_cache(maxsize=4096)
def _list_ways(places: tuple[str, ...], here: int) -> dict[str, HomeAction]:
    """The commands that lead elsewhere; a third of a step's time, were they not kept."""
    return {f"go to {name}": HomeAction("go", place=place) for place, name in enumerate(places) if place != here}


def _join_names(names: list[str] | tuple[str, ...]) -> str:
    """Names as ALFWorld lists them: a mug 1, a plate 1, and a pan 1."""
    if not names:
        return "nothing"
    if len(names) == 1:
        return f"a {names[0]}"
    return f"a {', a '.join(names[:-1])}, and a {names[-1]}"


# What homes are made of: rooms, the receptacles and things in them, and the record of one home.


@dataclass(frozen=True, kw_only=True, slots=True)
class RoomKind:
    """A kind of room: the receptacles that may be in it, each as often as listed, and the things."""

    receptacles: tuple[str, ...]
    things: tuple[str, ...]


ROOMS = {
    name: RoomKind(receptacles=tuple(receptacles.split()), things=tuple(things.split()))
    for name, (receptacles, things) in {
        "kitchen": (
            "cabinet cabinet cabinet cabinet countertop countertop diningtable drawer drawer drawer fridge "
            "garbagecan microwave shelf shelf sinkbasin stoveburner stoveburner",
            "apple bread cup egg knife mug pan plate potato tomato",
        ),
        "bathroom": (
            "bathtub cabinet cabinet cabinet cabinet countertop countertop garbagecan shelf shelf sinkbasin toilet",
            "candle cloth cup soapbar spraybottle toiletpaper",
        ),
        "bedroom": (
            "bed desk desk drawer drawer drawer drawer dresser garbagecan shelf shelf sidetable sidetable",
            "alarmclock book cd cellphone laptop mug pencil pillow",
        ),
        "livingroom": (
            "armchair armchair coffeetable desk diningtable drawer drawer drawer shelf shelf sidetable sidetable sofa",
            "book creditcard newspaper pillow remotecontrol statue vase",
        ),
    }.items()
}

OPENABLE = frozenset({"cabinet", "drawer", "fridge", "microwave"})
"""Receptacles with a door; all are closed at the start."""
LAMP_STANDS = ("desk", "sidetable")
"""Receptacles a desklamp may stand on."""
LAMP = "desklamp 1"

TREATMENTS = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}
"""What a thing can be treated with: the command, and the receptacle that does it."""
TREATABLE = {
    "clean": frozenset(
        {"apple", "cloth", "cup", "egg", "knife", "mug", "pan", "plate", "potato", "soapbar", "tomato"},
    ),
    "heat": frozenset({"apple", "bread", "cup", "egg", "mug", "plate", "potato", "tomato"}),
    "cool": frozenset({"apple", "bread", "cup", "egg", "mug", "pan", "plate", "potato", "tomato"}),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Home:
    """One instance: the task to do, the receptacles, and where everything is at the start. Shared by all forks.

    Worked example: family "clean", thing "mug", target "shelf", places ("shelf 1", "sinkbasin 1", "cabinet 1"), things
    ("mug 1",), start (2,): the mug is in the cabinet; clean it and put it on the shelf.
    """

    family: str
    thing: str
    target: str
    """The kind of receptacle for the thing; "desklamp" if it must be looked at."""
    places: tuple[str, ...]
    place_kinds: tuple[str, ...]
    things: tuple[str, ...]
    thing_kinds: tuple[str, ...]
    start: tuple[int, ...]
    lamp: int
    """The place where the desklamp stands, -1 = there is none."""

    @classmethod
    def of(cls, task: Task) -> Home:
        """Read the home of a task."""
        payload: Mapping[str, Any] = task.payload
        try:
            places, things = tuple(payload["places"]), dict(payload["things"])
            place_kinds, _ = zip(*map(str.split, places), strict=True)
            thing_kinds, _ = zip(*map(str.split, things), strict=True)
            return cls(
                family=payload["family"],
                thing=payload["thing"],
                target=payload["target"],
                places=places,
                place_kinds=place_kinds,
                things=tuple(things),
                thing_kinds=thing_kinds,
                start=tuple(map(places.index, things.values())),
                lamp=places.index(payload["lamp"]) if payload.get("lamp") else NOWHERE,
            )
        except (KeyError, ValueError) as error:
            raise RecordError(
                f"task {task.id}: its payload is not a home: {error}; use tasks of the task set"
            ) from None


# The six task categories of the household: what they ask for, when they are solved, and how instances are drawn.

ENV = "household"
SIZES = TaskSetSizes(train=2400, validation=240, test=480)
"""Tasks in each task set, over all categories."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """A task category: the sentence that states it, and what an instance of it must contain."""

    goal: str
    rooms: tuple[str, ...]
    treatment: str = ""
    """The treatment the thing needs first: clean, heat, cool."""
    num_needed: int = 1
    """How many of the thing the target must hold."""
    is_seen_by_lamp: bool = False
    """Whether the thing is to be looked at under the desklamp, and not put anywhere."""


CATEGORIES: Mapping[str, Family] = {
    "pick": Family(goal="put a {thing} in {target}.", rooms=tuple(ROOMS)),
    "two": Family(goal="put two {thing} in {target}.", rooms=tuple(ROOMS), num_needed=2),
    "clean": Family(goal="put a clean {thing} in {target}.", rooms=("kitchen", "bathroom"), treatment="clean"),
    "heat": Family(goal="put a hot {thing} in {target}.", rooms=("kitchen",), treatment="heat"),
    "cool": Family(goal="put a cool {thing} in {target}.", rooms=("kitchen",), treatment="cool"),
    "examine": Family(
        goal="look at {thing} under the desklamp.", rooms=("bedroom", "livingroom"), is_seen_by_lamp=True
    ),
}


@cache
def build_household_task_sets(
    categories: tuple[str, ...], rooms: tuple[str, ...], num_receptacles: int, num_objects: int
) -> TaskSets:
    """The task sets for some categories, rooms and a size of home."""
    # Rounded up, so that the task set is not smaller if the number of categories does not divide its size.
    sizes = TaskSetSizes(*(-(-size // len(categories)) for size in SIZES))
    size_of_home = num_receptacles, num_objects
    return interleave([draw_task_sets(ENV, draw, family, rooms, *size_of_home, sizes=sizes) for family in categories])


def draw(family: str, rooms: tuple[str, ...], num_receptacles: int, num_objects: int, index: int) -> Proposal:
    """The instance of a category with an index."""
    rules = CATEGORIES[family]
    draws = Draws(ENV, family, num_receptacles, num_objects, index)
    room = ROOMS[draws.pick([room for room in rules.rooms if room in rooms])]
    able = TREATABLE.get(rules.treatment)
    thing = draws.pick([kind for kind in room.things if able is None or kind in able])
    tool = draws.pick(LAMP_STANDS) if rules.is_seen_by_lamp else TREATMENTS.get(rules.treatment, "")
    target = "desklamp"
    if not rules.is_seen_by_lamp:
        target = draws.pick([kind for kind in dict.fromkeys(room.receptacles) if kind != tool])
    # The kinds of the receptacles: what the task needs, a place to start from that is not its target, any others.
    needed = [kind for kind in (tool, target) if kind in room.receptacles]
    left = list(room.receptacles)
    for kind in needed:
        left.remove(kind)
    chosen = [*needed, draws.pick([kind for kind in left if kind not in needed])]
    left.remove(chosen[-1])
    places = _number_names(sorted(chosen + draws.sample(left, num_receptacles - len(chosen))))
    others = [draws.pick(room.things) for _ in range(num_objects - rules.num_needed)]
    things = _number_names([thing] * rules.num_needed + others)
    payload = {
        "family": family,
        "thing": thing,
        "target": target,
        "places": places,
        "things": {name: draws.pick(_list_starts(name, thing, target, places)) for name in things},
    }
    if rules.is_seen_by_lamp:
        payload["lamp"] = f"{tool} 1"
    return Proposal(payload=payload, tags=(family,))


def _number_names(kinds: Sequence[str]) -> list[str]:
    """Names in alphabetical order with a number within each kind: mug 1, mug 2."""
    return [f"{kind} {number}" for kind in sorted(set(kinds)) for number in range(1, kinds.count(kind) + 1)]


def _list_starts(name: str, thing: str, target: str, places: Sequence[str]) -> list[str]:
    """Where a thing may be at the start: things of the wanted kind are not in a target yet."""
    if not name.startswith(f"{thing} "):
        return list(places)
    return [place for place in places if not place.startswith(f"{target} ")]
