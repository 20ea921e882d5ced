"""ALFWorld's expert for who has strayed from the walkthrough that comes with a game: a short way that is left.

A plan fetches the things that the task needs, treats them where it says so, and brings them to their target or beside a
lamp; the shortest such plan is taken. It knows where everything is, as the walkthrough does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, permutations
from typing import NamedTuple

from groupwise.envs.alfworld.game_state import NOWHERE, TREATMENTS, Situation

MOST_PLANS = 400
"""Plans that are compared; homes with many drawers and many things of a kind have more."""


class _Errand(NamedTuple):
    """Things to fetch, and the receptacle to put them in or, with a lamp, the one where it stands."""

    things: tuple[int, ...]
    place: int
    lamp: int = NOWHERE


class _NoWayError(Exception):
    """A plan cannot be carried out: what is in hand fits nowhere, or there is no place to treat a thing."""


def shortest_plan(situation: Situation) -> list[str]:
    """The commands of a short way to solve the task from here; empty where there is none."""
    errands = _lamp_errands if situation.game.goal.is_seen_by_lamp else _target_errands
    plans = (_plan(situation, errand) for errand in islice(errands(situation), MOST_PLANS))
    return min((plan for plan in plans if plan is not None), key=len, default=[])


def _plan(situation: Situation, errand: _Errand) -> list[str] | None:
    walk = _Walk(situation)
    try:
        for thing in errand.things:
            walk.fetch(thing)
            walk.treat(situation.game.goal.treatment)
            if errand.lamp == NOWHERE:
                walk.put(errand.place)
        if errand.lamp != NOWHERE:
            walk.use(errand.lamp, errand.place)
    except _NoWayError:
        return None
    return walk.commands


def _lamp_errands(situation: Situation) -> Iterator[_Errand]:
    game = situation.game
    for lamp, place in sorted(situation.lies_in):
        if game.thing_kinds[lamp] == game.goal.target:
            yield from (_Errand((thing,), place, lamp) for thing in _wanted(situation))


def _target_errands(situation: Situation) -> Iterator[_Errand]:
    """For each target, each choice and order of things that it lacks."""
    game, goal, things = situation.game, situation.game.goal, _wanted(situation)
    for target in (place for place, kind in enumerate(game.place_kinds) if kind == goal.target):
        lie_there = set(situation.things_in(target))
        done = [t for t in things if t in lie_there and situation.is_treated(t, goal.treatment)]
        lacking = [thing for thing in things if thing not in done]
        yield from (_Errand(order, target) for order in permutations(lacking, goal.num_needed - len(done)))


def _wanted(situation: Situation) -> list[int]:
    """Things of the kind that is asked for that can be had; the carried one first, so that it is tried first."""
    game, goal = situation.game, situation.game.goal
    there = {thing for thing, _ in situation.lies_in if thing in game.able["pickupable"]} | {situation.held}
    able = game.able[TREATMENTS[goal.treatment][0]] if goal.treatment else there
    found = sorted(t for t in there & able if t != NOWHERE and game.thing_kinds[t] == goal.thing)
    return sorted(found, key=lambda thing: thing != situation.held)


class _Walk:
    """A plan in the making: the commands so far, carried out in a copy of the situation."""

    def __init__(self, situation: Situation) -> None:
        self._now, self._game = situation.fork(), situation.game
        self.commands: list[str] = []

    def go(self, place: int) -> None:
        if self._now.spot != self._game.spot_of[place]:
            self._do(f"go to {self._game.places[place]}")

    def reach(self, place: int) -> None:
        """Go to a receptacle and open it where it is closed."""
        self.go(place)
        if not self._now.is_open(place):
            self._do(f"open {self._game.places[place]}")

    def fetch(self, thing: int) -> None:
        """Take a thing; what is carried is put down first."""
        if self._now.held == thing:
            return
        if self._now.held != NOWHERE:
            kind = self._game.thing_kinds[self._now.held]
            fits = [(of, kind) in self._game.can_contain for of in self._game.place_kinds]
            self.put(self._nearest(place for place, does in enumerate(fits) if does))
        place = self._nearest(its for each, its in self._now.lies_in if each == thing)
        self.reach(place)
        self._do(f"take {self._game.things[thing]} from {self._game.places[place]}")

    def put(self, place: int) -> None:
        self.reach(place)
        self._do(f"move {self._game.things[self._now.held]} to {self._game.places[place]}")

    def treat(self, treatment: str) -> None:
        if self._now.is_treated(self._now.held, treatment):
            return
        _, kinds = TREATMENTS[treatment]
        place = self._nearest(place for place, kind in enumerate(self._game.place_kinds) if kind in kinds)
        self.go(place)
        self._do(f"{treatment} {self._game.things[self._now.held]} with {self._game.places[place]}")

    def use(self, lamp: int, place: int) -> None:
        self.go(place)
        if lamp not in self._now.used:
            self._do(f"use {self._game.things[lamp]}")

    def _do(self, text: str) -> None:
        command = self._now.commands().get(text)
        if command is None:
            raise _NoWayError
        self.commands.append(text)
        self._now.carry_out(command)

    def _nearest(self, places: Iterable[int]) -> int:
        nearest = min(places, key=self._distance, default=NOWHERE)
        if nearest == NOWHERE:
            raise _NoWayError
        return nearest

    def _distance(self, place: int) -> tuple[int, int]:
        """Commands before a receptacle can be used; then its number, so that ties have one outcome."""
        return (self._game.spot_of[place] != self._now.spot) + (not self._now.is_open(place)), place
