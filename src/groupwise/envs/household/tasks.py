"""The six task families of the household: what they ask for, when they are solved, and how instances are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

from groupwise.envs.household.layout import LAMP_STANDS, ROOMS, TREATABLE, TREATMENTS, Home, Room
from groupwise.envs.kit.keyed_draws import Draws
from groupwise.envs.kit.panel import Panels, Proposal, build_panels, interleave

ENV = "household"
SIZES = {"train": 2400, "validation": 240, "test": 480}
"""Tasks in each panel, over all families."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """A task family: the sentence that states it, and what an instance of it must contain."""

    goal: str
    rooms: tuple[str, ...]
    treatment: str = ""
    """The treatment the thing needs first: clean, heat, cool."""
    num_needed: int = 1
    """How many of the thing the target must hold."""
    is_seen_by_lamp: bool = False
    """Whether the thing is to be looked at under the desklamp, and not put anywhere."""


FAMILIES: Mapping[str, Family] = {
    "pick": Family(goal="put a {thing} in {target}.", rooms=tuple(ROOMS)),
    "two": Family(goal="put two {thing} in {target}.", rooms=tuple(ROOMS), num_needed=2),
    "clean": Family(goal="put a clean {thing} in {target}.", rooms=("kitchen", "bathroom"), treatment="clean"),
    "heat": Family(goal="put a hot {thing} in {target}.", rooms=("kitchen",), treatment="heat"),
    "cool": Family(goal="put a cool {thing} in {target}.", rooms=("kitchen",), treatment="cool"),
    "examine": Family(
        goal="look at {thing} under the desklamp.", rooms=("bedroom", "livingroom"), is_seen_by_lamp=True
    ),
}


def goal_of(home: Home) -> str:
    """The sentence that states a home's task."""
    return FAMILIES[home.family].goal.format(thing=home.thing, target=home.target)


@cache
def build_household_panels(
    families: tuple[str, ...], rooms: tuple[str, ...], num_receptacles: int, num_objects: int
) -> Panels:
    """The panels for some families, rooms and a size of home."""
    # Rounded up: a number of families that does not divide the size must not make the panel smaller.
    sizes = {split: -(-size // len(families)) for split, size in SIZES.items()}
    draws = [partial(draw, family, rooms, num_receptacles, num_objects) for family in families]
    return interleave([build_panels(ENV, propose, sizes=sizes) for propose in draws])


def draw(family: str, rooms: tuple[str, ...], num_receptacles: int, num_objects: int, index: int) -> Proposal:
    """The instance of a family that belongs to an index."""
    rules = FAMILIES[family]
    draws = Draws(ENV, family, num_receptacles, num_objects, index)
    room = ROOMS[draws.pick([room for room in rules.rooms if room in rooms])]
    able = TREATABLE.get(rules.treatment)
    thing = draws.pick([kind for kind in room.things if able is None or kind in able])
    tool = draws.pick(LAMP_STANDS) if rules.is_seen_by_lamp else TREATMENTS.get(rules.treatment, "")
    target = "desklamp" if rules.is_seen_by_lamp else draws.pick([kind for kind in room.receptacles if kind != tool])
    kinds = _draw_receptacles(
        draws, room, [kind for kind in (tool, target) if kind in room.receptacles], num_receptacles
    )
    places = _number_names(kinds)
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


def _draw_receptacles(draws: Draws, room: Room, needed: Sequence[str], count: int) -> list[str]:
    """The kinds of a home's receptacles: what the task needs, then anything the room has left."""
    left = [kind for kind, max_count in room.receptacles.items() for _ in range(max_count)]
    for kind in needed:
        left.remove(kind)
    elsewhere = [kind for kind in left if kind not in needed]
    chosen = [*needed, draws.pick(elsewhere)]  # a thing needs a place to start from that is not its target
    left.remove(chosen[-1])
    return sorted(chosen + draws.sample(left, count - len(chosen)))


def _number_names(kinds: Sequence[str]) -> list[str]:
    """Names in alphabetical order with a number within each kind: mug 1, mug 2."""
    return [f"{kind} {number}" for kind in sorted(set(kinds)) for number in range(1, kinds.count(kind) + 1)]


def _list_starts(name: str, thing: str, target: str, places: Sequence[str]) -> list[str]:
    """Where a thing may be at the start: nothing of the kind that is asked for lies in a target already."""
    if not name.startswith(f"{thing} "):
        return list(places)
    return [place for place in places if not place.startswith(f"{target} ")]
