"""A text home in ALFWorld's protocol: six task categories, in pure Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import permutations
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args

from pydantic import Field, model_validator

from groupwise.data.records import Task
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.kit.draws import Draws
from groupwise.envs.kit.progress import SteppedEnvironment
from groupwise.envs.kit.task_set import (
    DISTINCT,
    Proposal,
    TaskSets,
    TaskSetSizes,
    check_env,
    choose_split,
    draw_task_sets,
    interleave,
)
from groupwise.envs.kit.words import NOTHING_HAPPENS, prepend_goal, vocabulary_of
from groupwise.parts.part import Part
from groupwise.system.errors import RecordError

ENV = "household"
FamilyName = Literal["pick", "two", "clean", "heat", "cool", "examine"]
RoomName = Literal["kitchen", "bathroom", "bedroom", "livingroom"]
MAX_NUMBER = 12
"""The largest number of receptacles or things, and so the largest number in a name."""
SENTENCES = (
    "Task: You arrive at. The is closed. You open the. The is open. In it, you see a, and nothing. On the, you see",
    "You close the. You pick up the from the. You move to the. You using the. You turn on the. This is a clean hot",
    "In the room, you are facing the. You carry nothing. Nothing happens. with examine look inventory use take go to",
)
"""Every word of the sentences and commands, except names."""


class Household(Part, slot="env", self_contained=True):
    """Chores in a text home: find things, clean, heat or cool them, put them where they belong.

    The commands, sentences and six task categories are ALFWorld's (Shridhar et al. 2021, arXiv:2010.03768): pick and
    place, pick two, clean, heat, or cool then place, and look at a thing under the desklamp. An impossible command is
    invalid and gets "Nothing happens." Success ends the rollout with `success_reward`.

    Choices: homes are small and sentences short, so a tiny model learns in minutes. The list of receptacles and the
    answer to `open` have fewer words than ALFWorld's. `look` lists what is here; ALFWorld's says "nothing". Each
    observation also says what the agent carries (`show_carried`). A command must be written exactly as listed.

    `state_key` is the visible situation as canonical text: the place, whether it is open, the things there and their
    condition, whether the lamp is on, what is carried. It does not depend on the way here: arriving at an open drawer
    and opening it give one key, and an invalid command keeps the key. It leaves out what lies elsewhere, because the
    agent cannot see it; history levels tell such steps apart.
    """

    categories: Annotated[tuple[FamilyName, ...], Field(min_length=1), DISTINCT] = get_args(FamilyName)
    """The task categories to use."""
    rooms: Annotated[tuple[RoomName, ...], Field(min_length=1), DISTINCT] = get_args(RoomName)
    """The rooms to draw homes from; fewer rooms have fewer words to learn."""
    num_receptacles: Annotated[int, Field(ge=3, le=MAX_NUMBER)] = 6
    """Receptacles in a home."""
    num_objects: Annotated[int, Field(ge=2, le=MAX_NUMBER)] = 5
    """Things in a home, without the desklamp."""
    max_steps: Annotated[int, Field(ge=1)] = 20
    """Steps before a rollout is truncated; the expert needs 11 at most."""
    success_reward: float = 1.0
    """Reward of the step that solves the task; every other step gets 0."""
    show_carried: bool = True
    """Whether observations say what the agent carries."""
    goal_in_text: bool = False
    """Whether each text begins with the task; for prompts that do not say `Observation.goal` themselves."""

    @model_validator(mode="after")
    def _each_family_has_a_room(self) -> Household:
        for family in self.categories:
            if not set(CATEGORIES[family].rooms) & set(self.rooms):
                needed = " or ".join(CATEGORIES[family].rooms)
                raise ValueError(f"the family {family!r} needs a {needed}; add that room, or remove the family")
        return self

    def task_set(self, split: str) -> tuple[Task, ...]:
        return choose_split(
            build_household_task_sets(self.categories, self.rooms, self.num_receptacles, self.num_objects), split
        )

    def open(self, task: Task) -> HouseholdEnvironment:
        check_env(task, ENV)
        return HouseholdEnvironment(task, self)

    def vocabulary(self) -> tuple[str, ...]:
        rooms = [ROOMS[name] for name in self.rooms]
        names = [name for room in rooms for name in (*room.receptacles, *room.things)]
        numbers = [str(number) for number in range(1, MAX_NUMBER + 1)]
        goals = [family.goal.format(thing="", target="") for family in CATEGORIES.values()]
        return vocabulary_of((self.instruction(), *SENTENCES, *CATEGORIES, *goals, *names, *numbers, LAMP))

    def instruction(self) -> str:
        return "Do the task in the home, one command at a time."


class HouseholdEnvironment(SteppedEnvironment):
    """One rollout of a chore."""

    def __init__(self, task: Task, part: Household) -> None:
        super().__init__(task, part.max_steps)
        self._part, self._home = part, Home.of(task)
        self._goal = CATEGORIES[self._home.family].goal.format(thing=self._home.thing, target=self._home.target)
        self._state = HomeState(self._home)
        self._refusal: Observation | None = None
        """The observation after an invalid command; the same until a valid one."""
        self._possible = self._state.list_commands()
        self._progress.observation = self._observe(self._state.tell_room())

    def act(self, action: str) -> Outcome:
        self._progress.step()
        possible = self._possible.get(action)
        if possible is None:
            self._refusal = self._refusal or self._observe(NOTHING_HAPPENS)
            return self._progress.outcome(self._refusal, accepted=False)
        sentence = self._state.carry_out(possible)
        self._refusal, self._possible = None, self._state.list_commands()
        seen = self._observe(sentence, names_carried=possible.thing == self._state.held)
        if self._state.is_solved():
            return self._progress.outcome(seen, success=True, reward=self._part.success_reward)
        return self._progress.outcome(seen)

    def fork(self) -> Self:
        twin = super().fork()
        twin._state = self._state.fork()
        return twin

    def expert(self) -> str | None:
        return None if self._progress.ended else find_shortest_plan(self._home, self._state)[0]

    def _observe(self, sentence: str, *, names_carried: bool = False) -> Observation:
        state = self._state
        tells_carried = self._part.show_carried and state.held != NOWHERE and not names_carried
        text = f"{sentence} {state.tell_carried()}" if tells_carried else sentence
        return Observation(
            text=prepend_goal(self._goal, text) if self._part.goal_in_text else text,
            state_key=state.make_key(),
            admissible=tuple(self._possible),
            goal=self._goal,
        )


# The state of a home during a rollout: the possible commands, their effects, what is visible.

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
LAMP = "desklamp 1"

TREATMENTS = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}
"""What a thing can be treated with: the command, and the receptacle that does it."""
TREATABLE = {
    "clean": frozenset({"apple", "cloth", "cup", "egg", "knife", "mug", "pan", "plate", "potato", "soapbar", "tomato"}),
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
    # Rounded up, so that the task set is not smaller if the number of categories does not divide its size.
    sizes = TaskSetSizes(*(-(-size // len(categories)) for size in SIZES))
    size_of_home = num_receptacles, num_objects
    return interleave([draw_task_sets(ENV, draw, family, rooms, *size_of_home, sizes=sizes) for family in categories])


def draw(family: str, rooms: tuple[str, ...], num_receptacles: int, num_objects: int, index: int) -> Proposal:
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
        # Things of the wanted kind are not in a target yet.
        "things": {
            name: draws.pick([place for place in places if (name.split()[0], place.split()[0]) != (thing, target)])
            for name in things
        },
    }
    if rules.is_seen_by_lamp:
        payload["lamp"] = f"{tool} 1"
    return Proposal(payload=payload, tags=(family,))


def _number_names(kinds: Sequence[str]) -> list[str]:
    return [f"{kind} {number}" for kind in sorted(set(kinds)) for number in range(1, kinds.count(kind) + 1)]


# The household's expert: knows where everything is, and takes a shortest way to the task's end.
#
# A plan fetches the things it needs one after the other, treats them where the task says so, and brings them to their
# target. Every place is one command away, so the shortest of these plans is a shortest plan at all.


def find_shortest_plan(home: Home, state: HomeState) -> list[str]:
    """The commands of a shortest way to solve the task from here."""
    family = CATEGORIES[home.family]
    wanted = [thing for thing, kind in enumerate(home.thing_kinds) if kind == home.thing]
    walks: list[_Walk] = []
    if family.is_seen_by_lamp:
        for thing in wanted:
            walks.append(_Walk(home, state))
            walks[-1].fetch(thing)
            walks[-1].light()
    # For each target and each choice and order of things that it lacks: treat them and bring them there.
    for target in (place for place, kind in enumerate(home.place_kinds) if kind == home.target):
        done = [t for t in wanted if state.where[t] == target and state.is_treated(t, family.treatment)]
        lacking = [thing for thing in wanted if thing not in done]
        for order in permutations(lacking, family.num_needed - len(done)):
            walks.append(_Walk(home, state))
            for thing in order:
                walks[-1].fetch(thing)
                if not state.is_treated(thing, family.treatment):
                    walks[-1].treat(family.treatment)
                walks[-1].put(target)
    return min((walk.commands for walk in walks), key=len)


class _Walk:
    """A plan in the making: the commands so far, and what they will have changed."""

    def __init__(self, home: Home, state: HomeState) -> None:
        self._home, self._state = home, state
        self._where, self._location, self._held = state.where[:], state.location, state.held
        self._opened: set[int] = set()
        self.commands: list[str] = []

    def go(self, place: int) -> None:
        if self._location != place:
            self.commands.append(f"go to {self._home.places[place]}")
            self._location = place

    def reach(self, place: int) -> None:
        self.go(place)
        if not (self._state.opened[place] or place in self._opened):
            self.commands.append(f"open {self._home.places[place]}")
            self._opened.add(place)

    def fetch(self, thing: int) -> None:
        """Take a thing; the carried one is put down at the same place, which is open then."""
        if self._held == thing:
            return
        place = self._where[thing]
        self.reach(place)
        if self._held != NOWHERE:
            self.put(place)
        self.commands.append(f"take {self._home.things[thing]} from {self._home.places[place]}")
        self._held, self._where[thing] = thing, NOWHERE

    def put(self, place: int) -> None:
        self.reach(place)
        self.commands.append(f"move {self._home.things[self._held]} to {self._home.places[place]}")
        self._where[self._held], self._held = place, NOWHERE

    def treat(self, treatment: str) -> None:
        place = self._home.place_kinds.index(TREATMENTS[treatment])
        self.go(place)
        self.commands.append(f"{treatment} {self._home.things[self._held]} with {self._home.places[place]}")

    def light(self) -> None:
        self.go(self._home.lamp)
        if not self._state.lamp_on:
            self.commands.append(f"use {LAMP}")
