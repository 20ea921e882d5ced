"""The household's expert: knows where everything is, and takes a shortest way to the task's end.

A plan fetches the things it needs one after the other, treats them where the task says so, and brings them to their
target. Every place is one command away, so the shortest of these plans is a shortest plan at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from groupwise.envs.household.home_state import NOWHERE, HomeState
from groupwise.envs.household.layout import LAMP, TREATMENTS, Home
from groupwise.envs.household.tasks import FAMILIES


def find_shortest_plan(home: Home, state: HomeState) -> list[str]:
    """The commands of a shortest way to solve the task from here."""
    plans = _make_lamp_plans if FAMILIES[home.family].is_seen_by_lamp else _make_target_plans
    return min((walk.commands for walk in plans(home, state)), key=len)


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
        """Go to a place and open it where it is closed."""
        self.go(place)
        if not (self._state.is_open(place) or place in self._opened):
            self.commands.append(f"open {self._home.places[place]}")
            self._opened.add(place)

    def fetch(self, thing: int) -> None:
        """Take a thing; what is carried is put down where the thing lies, which must be open anyway."""
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
        place = self._home.place_of(TREATMENTS[treatment])
        self.go(place)
        self.commands.append(f"{treatment} {self._home.things[self._held]} with {self._home.places[place]}")

    def light(self) -> None:
        self.go(self._home.lamp)
        if not self._state.lamp_on:
            self.commands.append(f"use {LAMP}")


def _make_lamp_plans(home: Home, state: HomeState) -> Iterator[_Walk]:
    for thing in _find_wanted_things(home):
        walk = _Walk(home, state)
        walk.fetch(thing)
        walk.light()
        yield walk


def _make_target_plans(home: Home, state: HomeState) -> Iterator[_Walk]:
    """For each target and each choice and order of things that it lacks: treat them and bring them there."""
    family, things = FAMILIES[home.family], _find_wanted_things(home)
    for target in (place for place, kind in enumerate(home.place_kinds) if kind == home.target):
        done = [t for t in things if state.where[t] == target and state.is_treated(t, family.treatment)]
        lacking = [thing for thing in things if thing not in done]
        for order in permutations(lacking, family.num_needed - len(done)):
            walk = _Walk(home, state)
            for thing in order:
                walk.fetch(thing)
                if not state.is_treated(thing, family.treatment):
                    walk.treat(family.treatment)
                walk.put(target)
            yield walk


def _find_wanted_things(home: Home) -> list[int]:
    return [thing for thing, kind in enumerate(home.thing_kinds) if kind == home.thing]
