"""ALFWorld's expert for attempts that left the walkthrough that comes with a game: a short way that remains.

A plan fetches the things that the task needs, treats them where it says so, and brings them to their target or beside a
lamp; the shortest such plan is taken. It knows where everything is, as the walkthrough does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, permutations
from typing import NamedTuple

from groupwise.envs.alfworld.game import NOWHERE, TREATMENTS, GameState

MAX_PLANS = 400
"""Plans that are compared; homes with many drawers and many things of a kind have more."""


class _Errand(NamedTuple):
    """Things to fetch, and the receptacle to put them in or, with a lamp, the one where it stands."""

    things: tuple[int, ...]
    place: int
    lamp: int = NOWHERE


class _NoWayError(Exception):
    """A plan cannot be carried out: what is in hand fits nowhere, or there is no place to treat a thing."""


def find_shortest_plan(state: GameState) -> list[str]:
    """The commands of a short way to solve the task from here; empty where there is none."""
    errands = _list_lamp_errands if state.game.goal.is_seen_by_lamp else _list_target_errands
    plans = (_make_plan(state, errand) for errand in islice(errands(state), MAX_PLANS))
    return min((plan for plan in plans if plan is not None), key=len, default=[])


def _make_plan(state: GameState, errand: _Errand) -> list[str] | None:
    walk = _Walk(state)
    try:
        for thing in errand.things:
            walk.fetch(thing)
            walk.treat(state.game.goal.treatment)
            if errand.lamp == NOWHERE:
                walk.put(errand.place)
        if errand.lamp != NOWHERE:
            walk.use(errand.lamp, errand.place)
    except _NoWayError:
        return None
    return walk.commands


def _list_lamp_errands(state: GameState) -> Iterator[_Errand]:
    game = state.game
    for lamp, place in sorted(state.lies_in):
        if game.thing_kinds[lamp] == game.goal.target:
            yield from (_Errand((thing,), place, lamp) for thing in _find_wanted_things(state))


def _list_target_errands(state: GameState) -> Iterator[_Errand]:
    """For each target, each choice and order of things that it lacks."""
    game, goal, things = state.game, state.game.goal, _find_wanted_things(state)
    for target in (place for place, kind in enumerate(game.place_kinds) if kind == goal.target):
        lie_there = set(state.list_things_in(target))
        done = [t for t in things if t in lie_there and state.is_treated(t, goal.treatment)]
        lacking = [thing for thing in things if thing not in done]
        yield from (_Errand(order, target) for order in permutations(lacking, goal.num_needed - len(done)))


def _find_wanted_things(state: GameState) -> list[int]:
    """Things of the kind that is asked for that can be had; the carried one first, so that it is tried first."""
    game, goal = state.game, state.game.goal
    there = {thing for thing, _ in state.lies_in if thing in game.able["pickupable"]} | {state.held}
    able = game.able[TREATMENTS[goal.treatment][0]] if goal.treatment else there
    wanted = sorted(t for t in there & able if t != NOWHERE and game.thing_kinds[t] == goal.thing)
    return sorted(wanted, key=lambda thing: thing != state.held)


class _Walk:
    """A plan in the making: the commands so far, carried out in a copy of the situation."""

    def __init__(self, state: GameState) -> None:
        self._now, self._game = state.fork(), state.game
        self.commands: list[str] = []

    def go(self, place: int) -> None:
        if self._now.spot != self._game.spot_of[place]:
            self._do(f"go to {self._game.places[place]}")

    def reach(self, place: int) -> None:
        self.go(place)
        if not self._now.is_open(place):
            self._do(f"open {self._game.places[place]}")

    def fetch(self, thing: int) -> None:
        """Take a thing; what is carried is put down first."""
        if self._now.held == thing:
            return
        if self._now.held != NOWHERE:
            kind = self._game.thing_kinds[self._now.held]
            fits = [(kind_of_place, kind) in self._game.can_contain for kind_of_place in self._game.place_kinds]
            self.put(self._find_nearest(place for place, is_fit in enumerate(fits) if is_fit))
        place = self._find_nearest(place for other, place in self._now.lies_in if other == thing)
        self.reach(place)
        self._do(f"take {self._game.things[thing]} from {self._game.places[place]}")

    def put(self, place: int) -> None:
        self.reach(place)
        self._do(f"move {self._game.things[self._now.held]} to {self._game.places[place]}")

    def treat(self, treatment: str) -> None:
        if self._now.is_treated(self._now.held, treatment):
            return
        _, kinds = TREATMENTS[treatment]
        place = self._find_nearest(place for place, kind in enumerate(self._game.place_kinds) if kind in kinds)
        self.go(place)
        self._do(f"{treatment} {self._game.things[self._now.held]} with {self._game.places[place]}")

    def use(self, lamp: int, place: int) -> None:
        self.go(place)
        if lamp not in self._now.used:
            self._do(f"use {self._game.things[lamp]}")

    def _do(self, text: str) -> None:
        action = self._now.list_commands().get(text)
        if action is None:
            raise _NoWayError
        self.commands.append(text)
        self._now.carry_out(action)

    def _find_nearest(self, places: Iterable[int]) -> int:
        nearest = min(places, key=self._count_commands_to, default=NOWHERE)
        if nearest == NOWHERE:
            raise _NoWayError
        return nearest

    def _count_commands_to(self, place: int) -> tuple[int, int]:
        """Commands before a receptacle can be used; then its number, so that ties have one outcome."""
        return (self._game.spot_of[place] != self._now.spot) + (not self._now.is_open(place)), place
