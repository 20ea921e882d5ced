"""The state of an ALFWorld game: the commands that are possible now, what they do, and what the game then says.

The rules and sentences are those of the game files (their `pddl_domain` and `grammar`), written out in Python: the
stock interpreter translates the rules anew for each game and lists all facts for each possible command. A test compares
transcripts letter by letter. Its oddities are kept: `look` in the middle of the room sees nothing, only a thing in hand
can be examined, one behind a closed door may be used or sliced, one that lies in two receptacles can be taken twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from groupwise.envs.alfworld.game_file import Game

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
class Command:
    """A possible command: a verb, and what it is done to."""

    verb: str
    """What to do."""
    thing: int = NOWHERE
    """The thing it is done to."""
    place: int = NOWHERE
    """The receptacle it is done with or to."""

    @property
    def changes_nothing(self) -> bool:
        """Whether it only tells something."""
        return self.verb in ("look", "inventory", "help", "examine", "examine place")


class GameState:
    """The state of a game, and what may be done in it."""

    __slots__ = (
        "clean",
        "cool",
        "game",
        "held",
        "hot",
        "lies_at",
        "lies_in",
        "opened",
        "sliced",
        "spot",
        "taken",
        "used",
    )

    def __init__(self, game: Game) -> None:
        self.game = game
        self.spot = game.start
        """Where the agent is."""
        self.held: int = NOWHERE
        """The thing it carries."""
        self.lies_in, self.lies_at = set(game.lies_in), set(game.lies_at)
        self.opened: set[int] = set()
        self.taken: set[tuple[int, int]] = set()
        """Things and the receptacles they were taken from, until they come back; `look` lists those nearby."""
        self.clean, self.hot, self.cool = set[int](), set[int](), set(game.cool)
        self.sliced, self.used = set[int](), set[int]()

    def fork(self) -> GameState:
        """An independent copy."""
        twin = GameState.__new__(GameState)
        for name in GameState.__slots__:
            value = getattr(self, name)
            setattr(twin, name, value.copy() if isinstance(value, set) else value)
        return twin

    def is_open(self, place: int) -> bool:
        """Whether things can be put into or taken from a receptacle."""
        return place in self.opened or place not in self.game.openable

    def list_things_in(self, place: int) -> list[int]:
        """The things in a receptacle, in the game's order."""
        return sorted(thing for thing, where in self.lies_in if where == place)

    def is_treated(self, thing: int, treatment: str) -> bool:
        """Whether a thing has the condition that a treatment gives."""
        return not treatment or thing in {"clean": self.clean, "heat": self.hot, "cool": self.cool}[treatment]

    def is_won(self) -> bool:
        """Whether the task is done."""
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

    def list_commands(self) -> dict[str, Command]:
        """The possible commands in words, in alphabetical order."""
        game, here = self.game, self.game.places_at.get(self.spot, ())
        commands = {"look": Command("look"), "inventory": Command("inventory"), "help": Command("help")}
        for place, name in enumerate(game.places):
            if game.spot_of[place] != self.spot:
                commands[f"go to {name}"] = Command("go", place=place)
        for place in here:
            commands |= self._list_commands_at(place, game.places[place])
        if self.held != NOWHERE:
            commands |= self._list_commands_with(self.held, game.things[self.held], here)
        return dict(sorted(commands.items()))

    def _list_commands_at(self, place: int, where: str) -> dict[str, Command]:
        game = self.game
        commands = {f"examine {where}": Command("examine place", place=place)}
        if place in game.openable:
            verb = "close" if place in self.opened else "open"
            commands[f"{verb} {where}"] = Command(verb, place=place)
        can_take = self.held == NOWHERE and self.is_open(place)
        for thing in self.list_things_in(place):
            name = game.things[thing]
            if thing in game.able["toggleable"]:
                commands[f"use {name}"] = Command("use", thing)
            if can_take and thing in game.able["pickupable"]:
                commands[f"take {name} from {where}"] = Command("take", thing, place)
        return commands

    def _list_commands_with(self, held: int, name: str, here: Sequence[int]) -> dict[str, Command]:
        game = self.game
        commands = {f"examine {name}": Command("examine", held)}
        for place in here:
            where, kind = game.places[place], game.place_kinds[place]
            if self.is_open(place) and (kind, game.thing_kinds[held]) in game.can_contain:
                commands[f"move {name} to {where}"] = Command("move", held, place)
            for treatment, (able, kinds) in TREATMENTS.items():
                if kind in kinds and held in game.able[able]:
                    commands[f"{treatment} {name} with {where}"] = Command(treatment, held, place)
        if game.thing_kinds[held] in KNIVES:
            for thing in game.able["sliceable"]:
                if (thing, self.spot) in self.lies_at:
                    commands[f"slice {game.things[thing]} with {name}"] = Command("slice", thing)
        return commands

    def make_key(self) -> str:
        """What the agent has before it, as canonical text: the receptacles here, what is in them, what is carried."""
        here = self.game.places_at.get(self.spot, ())
        visible = [f"{self.game.places[place]}: {self._describe_contents(place)}" for place in here]
        carried = "nothing" if self.held == NOWHERE else self._describe_thing(self.held)
        return "; ".join([*(visible or ["middle of the room"]), f"carrying {carried}"])

    def _describe_contents(self, place: int) -> str:
        if not self.is_open(place):
            return "closed"
        return ", ".join(self._describe_thing(thing) for thing in self.list_things_in(place)) or "nothing"

    def _describe_thing(self, thing: int) -> str:
        conditions = {"clean": self.clean, "hot": self.hot, "cool": self.cool, "sliced": self.sliced, "used": self.used}
        return " ".join([*(word for word, things in conditions.items() if thing in things), self.game.things[thing]])

    def carry_out(self, command: Command) -> str:
        """Do what a possible command says, and return what the game says."""
        return _EFFECTS[command.verb](self, command)

    def introduce(self) -> str:
        """What the game says at its start, the task aside."""
        seen = [f"a {name}" for name in self.game.places]
        return f"You are in the middle of a room. Looking quickly around you, you see {_join_names(seen)}."

    def tell_surroundings(self) -> str:
        """What the game says to `look`."""
        here = self.game.places_at.get(self.spot, ())
        if not here:
            return "You are in the middle of a room. Looking quickly around you, you see nothing."
        facing = _join_names([self.game.places[place] for place in here])
        # A thing counts as next to a receptacle that it was taken from, even where it now lies in another one there.
        nearby = sorted(thing for thing, spot in self.lies_at if spot == self.spot)
        beside = [f"a {self.game.things[t]}" for t in nearby for place in here if (t, place) in self.taken]
        return f"You are facing the {facing}. Next to it, you see {_join_names(beside)}."

    def tell_place(self, place: int) -> str:
        """What the game says of a receptacle."""
        name = self.game.places[place]
        seen = _join_names([f"a {self.game.things[thing]}" for thing in self.list_things_in(place)])
        if place not in self.game.openable:
            return f"On the {name}, you see {seen}."
        return f"The {name} is open. In it, you see {seen}." if place in self.opened else f"The {name} is closed."

    def tell_thing(self, thing: int) -> str:
        """What the game says of a thing."""
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


def _go(now: GameState, command: Command) -> str:
    now.spot = now.game.spot_of[command.place]
    return f"You arrive at {now.game.places[command.place]}. {now.tell_place(command.place)}"


def _open(now: GameState, command: Command) -> str:
    now.opened.add(command.place)
    return f"You open the {now.game.places[command.place]}. {now.tell_place(command.place)}"


def _close(now: GameState, command: Command) -> str:
    now.opened.discard(command.place)
    return f"You close the {now.game.places[command.place]}."


def _take(now: GameState, command: Command) -> str:
    thing, place = command.thing, command.place
    now.lies_in.discard((thing, place))
    now.lies_at.discard((thing, now.spot))
    now.taken.add((thing, place))
    now.held = thing
    return f"You pick up the {now.game.things[thing]} from the {now.game.places[place]}."


def _move(now: GameState, command: Command) -> str:
    thing, place = command.thing, command.place
    now.lies_in.add((thing, place))
    now.lies_at.add((thing, now.spot))
    now.taken.discard((thing, place))
    now.held = NOWHERE
    return f"You move the {now.game.things[thing]} to the {now.game.places[place]}."


def _use(now: GameState, command: Command) -> str:
    now.used.add(command.thing)  # it stays used: the rules do not count how often
    return f"You turn on the {now.game.things[command.thing]}."


def _slice(now: GameState, command: Command) -> str:
    now.sliced.add(command.thing)
    return f"You sliced the {now.game.things[command.thing]} with the {now.game.things[now.held]}."


def _treat(now: GameState, command: Command) -> str:
    if command.verb == "clean":
        now.clean.add(command.thing)
    else:
        gained, lost = (now.hot, now.cool) if command.verb == "heat" else (now.cool, now.hot)
        gained.add(command.thing)
        lost.discard(command.thing)
    return f"You {command.verb} the {now.game.things[command.thing]} using the {now.game.places[command.place]}."


def _inventory(now: GameState, command: Command) -> str:
    carried = "" if now.held == NOWHERE else now.game.things[now.held]
    return f"You are carrying: a {carried}." if carried else "You are not carrying anything."


_EFFECTS: dict[str, Callable[[GameState, Command], str]] = {
    "look": lambda now, command: now.tell_surroundings(),
    "inventory": _inventory,
    "help": lambda now, command: HELP,
    "examine place": lambda now, command: now.tell_place(command.place),
    "examine": lambda now, command: now.tell_thing(command.thing),
    "go": _go,
    "open": _open,
    "close": _close,
    "take": _take,
    "move": _move,
    "use": _use,
    "slice": _slice,
    "clean": _treat,
    "heat": _treat,
    "cool": _treat,
}


def _join_names(names: Iterable[str]) -> str:
    *before, last = [*names] or ["nothing"]
    return f"{', '.join(before)}, and {last}" if before else last
