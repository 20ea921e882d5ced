"""A text home in ALFWorld's protocol: six task categories, in pure Python."""

from __future__ import annotations

from itertools import permutations
from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from groupwise.data.records import Task
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.household.home import (
    CATEGORIES,
    ENV,
    LAMP,
    NOWHERE,
    ROOMS,
    TREATMENTS,
    Home,
    HomeState,
    build_household_task_sets,
)
from groupwise.envs.kit.progress import SteppedEnvironment
from groupwise.envs.kit.task_set import DISTINCT, check_env, choose_split
from groupwise.envs.kit.words import NOTHING_HAPPENS, prepend_goal, vocabulary_of
from groupwise.parts.part import Part

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
