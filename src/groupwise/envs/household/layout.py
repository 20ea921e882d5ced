"""What homes are made of: rooms, the receptacles and things in them, and the record of one home."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from groupwise.core.errors import RecordError
from groupwise.core.records import Task


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """A kind of room: which receptacles stand in it, at most how many of each, and which things lie about."""

    receptacles: Mapping[str, int]
    things: tuple[str, ...]


ROOMS = {
    "kitchen": Room(
        receptacles={
            "cabinet": 4,
            "countertop": 2,
            "diningtable": 1,
            "drawer": 3,
            "fridge": 1,
            "garbagecan": 1,
            "microwave": 1,
            "shelf": 2,
            "sinkbasin": 1,
            "stoveburner": 2,
        },
        things=("apple", "bread", "cup", "egg", "knife", "mug", "pan", "plate", "potato", "tomato"),
    ),
    "bathroom": Room(
        receptacles={
            "bathtub": 1,
            "cabinet": 4,
            "countertop": 2,
            "garbagecan": 1,
            "shelf": 2,
            "sinkbasin": 1,
            "toilet": 1,
        },
        things=("candle", "cloth", "cup", "soapbar", "spraybottle", "toiletpaper"),
    ),
    "bedroom": Room(
        receptacles={
            "bed": 1,
            "desk": 2,
            "drawer": 4,
            "dresser": 1,
            "garbagecan": 1,
            "shelf": 2,
            "sidetable": 2,
        },
        things=("alarmclock", "book", "cd", "cellphone", "laptop", "mug", "pencil", "pillow"),
    ),
    "livingroom": Room(
        receptacles={
            "armchair": 2,
            "coffeetable": 1,
            "desk": 1,
            "diningtable": 1,
            "drawer": 3,
            "shelf": 2,
            "sidetable": 2,
            "sofa": 1,
        },
        things=("book", "creditcard", "newspaper", "pillow", "remotecontrol", "statue", "vase"),
    ),
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


def kind_of(name: str) -> str:
    """The kind of a numbered thing: "mug" of "mug 2"."""
    return name.partition(" ")[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class Home:
    """One instance: the task to do, the receptacles, and where everything is at the start. Shared by all forks.

    Worked example: family "clean", thing "mug", target "shelf", places ("shelf 1", "sinkbasin 1", "cabinet 1"), things
    ("mug 1",), start (2,): the mug is in the cabinet; clean it and put it on the shelf.
    """

    family: str
    """The task family."""
    thing: str
    """The kind of thing the task is about."""
    target: str
    """The kind of receptacle it belongs in; "desklamp" where it is to be looked at."""
    places: tuple[str, ...]
    """The receptacles, by name and number."""
    place_kinds: tuple[str, ...]
    """The kind of each receptacle."""
    things: tuple[str, ...]
    """The things, by name and number."""
    thing_kinds: tuple[str, ...]
    """The kind of each thing."""
    start: tuple[int, ...]
    """The place of each thing at the start."""
    lamp: int
    """The place where the desklamp stands, -1 = there is none."""

    @classmethod
    def of(cls, task: Task) -> Home:
        """Read the home of a task."""
        payload: Mapping[str, Any] = task.payload
        try:
            places, things = tuple(payload["places"]), dict(payload["things"])
            return cls(
                family=payload["family"],
                thing=payload["thing"],
                target=payload["target"],
                places=places,
                place_kinds=tuple(kind_of(place) for place in places),
                things=tuple(things),
                thing_kinds=tuple(kind_of(thing) for thing in things),
                start=tuple(places.index(place) for place in things.values()),
                lamp=places.index(payload["lamp"]) if payload.get("lamp") else -1,
            )
        except (KeyError, ValueError) as error:
            raise RecordError(
                f"task {task.id}: its payload is not a home: {error}; take tasks from the panel"
            ) from None

    def place_of(self, wanted: str) -> int:
        """The first place of a kind."""
        return self.place_kinds.index(wanted)
