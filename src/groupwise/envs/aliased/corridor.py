"""The rules of a corridor of switches, passages and doors: where an agent stands, and where an action leads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from groupwise.envs.kit.keyed_draws import draw_uniform
from groupwise.envs.kit.words import NOTHING_HAPPENS

ENV = "aliased"
COLOURS = ("red", "blue", "green", "white", "black", "yellow")
"""The actions: everywhere an agent says a colour."""
LAMP_NAMES = tuple(range(1, 10))


class Corridor(NamedTuple):
    """What never changes in an attempt: rooms in a row, first the switches, then the passages, then the doors.

    Worked example: one lamp, red or blue, one passage, and a door that asks for it: three rooms.
    """

    colours: tuple[str, ...]
    """What can be said, in order."""
    lamps: tuple[tuple[str, str], ...]
    """The two colours of each lamp; one lamp for each hidden bit."""
    names: tuple[int, ...]
    """The number by which each lamp and its switch are called."""
    wiring: tuple[tuple[int, ...], ...]
    """For each switch, which of its lamp's two colours each action lights."""
    passages: int
    """Rooms between the switches and the doors."""
    doors: tuple[str | int, ...]
    """What each door asks for: a colour, or the place of a lamp whose colour it wants."""
    noise: float
    """Probability that an action comes to nothing."""
    seed: int
    """Decides which actions come to nothing."""

    @classmethod
    def read(cls, payload: Mapping[str, Any], seed: int) -> Corridor:
        """A corridor from a task's payload and seed."""
        return cls(
            colours=tuple(payload["colours"]),
            lamps=tuple((first, second) for first, second in payload["lamps"]),
            names=tuple(payload["names"]),
            wiring=tuple(tuple(bits) for bits in payload["wiring"]),
            passages=int(payload["passages"]),
            doors=tuple(payload["doors"]),
            noise=float(payload["noise"]),
            seed=seed,
        )

    @property
    def num_rooms(self) -> int:
        """Rooms up to the way out, which is the room after the last."""
        return len(self.lamps) + self.passages + len(self.doors)


class Stand(NamedTuple):
    """All there is to know in the middle of an attempt, the number of the step aside."""

    room: int = 0
    """Where the agent is; as many as there are rooms = it is out."""
    lit: tuple[int, ...] = ()
    """Which of its two colours each lamp shows that was lit so far."""
    is_stuck: bool = False
    """Whether the last action came to nothing."""


def advance(corridor: Corridor, stand: Stand, action: str) -> Stand:
    """Where a colour leads if it does not come to nothing by chance."""
    door = stand.room - len(corridor.lamps) - corridor.passages
    if stand.room < len(corridor.lamps):
        bit = corridor.wiring[stand.room][corridor.colours.index(action)]
        return Stand(stand.room + 1, (*stand.lit, bit))
    if door >= 0 and action != find_wanted_colour(corridor, stand, door):
        return stay(stand)
    return Stand(stand.room + 1, stand.lit)


def stay(stand: Stand) -> Stand:
    """The same place after an action that came to nothing."""
    return stand._replace(is_stuck=True)


def comes_to_nothing(corridor: Corridor, stand: Stand, action: str, step: int) -> bool:
    """Whether chance takes an action away: it belongs to the seed, the step, the room and the action."""
    return draw_uniform(ENV, corridor.seed, step, stand.room, action) < corridor.noise


def find_wanted_colour(corridor: Corridor, stand: Stand, door: int) -> str:
    """The colour that opens a door, as the lamps are lit."""
    asked = corridor.doors[door]
    return asked if isinstance(asked, str) else corridor.lamps[asked][stand.lit[asked]]


def find_way(corridor: Corridor, stand: Stand) -> str:
    """A colour that leads on: at a switch the first that lights its lamp's first colour, at a door what it wants."""
    door = stand.room - len(corridor.lamps) - corridor.passages
    if door >= 0:
        return find_wanted_colour(corridor, stand, door)
    is_switch = stand.room < len(corridor.lamps)
    return corridor.colours[corridor.wiring[stand.room].index(0) if is_switch else 0]


def is_out(corridor: Corridor, stand: Stand) -> bool:
    """Whether the last room lies behind."""
    return stand.room == corridor.num_rooms


def tell_text(corridor: Corridor, stand: Stand, *, one_reply: bool) -> str:
    """What is shown: the room, and on arrival the lamp that was just lit; never a lamp that was lit before."""
    if stand.is_stuck and one_reply:
        return NOTHING_HAPPENS
    room = _tell_room(corridor, stand.room)
    if stand.is_stuck:
        return f"{NOTHING_HAPPENS} {room}"
    if 0 < stand.room <= len(corridor.lamps):
        return f"{_tell_lamp(corridor, stand, stand.room - 1)} {room}"
    return room


def tell_situation(corridor: Corridor, stand: Stand) -> str:
    """The whole state as canonical text: the room, every lamp, and whether nothing happened just now."""
    lamps = " ".join(_tell_lamp(corridor, stand, lamp) for lamp in range(len(stand.lit)))
    news = NOTHING_HAPPENS if stand.is_stuck else ""
    return " ".join(part for part in (_tell_room(corridor, stand.room), lamps, news) if part)


def _tell_room(corridor: Corridor, room: int) -> str:
    door = room - len(corridor.lamps) - corridor.passages
    if room < len(corridor.lamps):
        return f"Switch {corridor.names[room]}."
    if door < 0:
        return f"Passage {room - len(corridor.lamps) + 1}."
    if door == len(corridor.doors):
        return "You are out."
    asked = corridor.doors[door]
    return f"Door {door + 1} asks for {asked if isinstance(asked, str) else f'lamp {corridor.names[asked]}'}."


def _tell_lamp(corridor: Corridor, stand: Stand, lamp: int) -> str:
    return f"Lamp {corridor.names[lamp]} is {corridor.lamps[lamp][stand.lit[lamp]]}."
