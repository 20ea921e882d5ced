"""A teacher that searches: walkthroughs know where things are, an agent has to look for them.

A walkthrough goes straight to what it fetches, which nobody can imitate who has not seen the place. The teacher looks
into other places first, in an order drawn from where walkthroughs of training games find things of the kind, and so
often that the wanted place comes when its turn comes: what an agent does that knows the habits of homes and not this
one. Then it goes on as the expert does.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any, NamedTuple

from groupwise.data.records import Task
from groupwise.data.samples import Sample
from groupwise.data.seeds import seed_of
from groupwise.envs.alfworld.environment import find_games_folder, find_shortest_plan, open_game
from groupwise.envs.alfworld.game import Game, GameState
from groupwise.system.errors import ConfigError

UNHEARD_OF = 0.02
"""Weight of a place where no walkthrough finds things of the kind, beside the shares of the others."""
MAX_DETOURS = 8
"""Places looked into before the right one; a search that would take longer is cut short."""

Habits = Mapping[str, Mapping[str, float]]
"""For each kind of thing, the share of walkthroughs that find it in each kind of receptacle."""


class Said(NamedTuple):
    """A command of the teacher's, and whether it is to be imitated: strays are not."""

    command: str
    is_learnt: bool


class _Errand(NamedTuple):
    """What a plan fetches or uses next, and where that is."""

    thing: str
    place: str


def habits_of(games: Iterable[Game]) -> Habits:
    """Where walkthroughs find what they fetch or use."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for game in games:
        left = list(game.walkthrough)
        while left:
            errand = _errand(left)
            if errand is not None:
                counts[_kind(errand.thing)][_kind(errand.place)] += 1
            left = left[next((i for i, said in enumerate(left) if _fetches(said)), len(left)) + 1 :]
    return {thing: {place: n / places.total() for place, n in places.items()} for thing, places in counts.items()}


def search(
    game: Game, habits: Habits, draws: Random, *, noise: float, max_steps: int, expert_noise: float = 0.0
) -> list[Said]:
    """The commands of a teacher that searches.

    Args:
        game: The game.
        habits: Where things of a kind are found.
        draws: Where it looks first, and where it strays.
        noise: Share of steps at which it strays, which nobody is to imitate.
        max_steps: When it stops.
        expert noise: How likely it is, at a step of its plan, to do anything possible instead, which is imitated.
    """
    walk = _Walk(GameState(game), habits, draws, noise, expert_noise)
    plan = list(game.walkthrough)
    while plan and len(walk.said) < max_steps and not walk.now.is_won():  # a stray may win
        errand = _errand(plan)
        if walk.strays() or (errand is not None and walk.looks_around_for(errand)):
            plan = find_shortest_plan(walk.now)
            settled = _errand(plan)
            if settled is not None:
                walk.looked_into.add(settled.place)
            continue
        walk.do(plan.pop(0))
    return walk.said[:max_steps]


class _Walk:
    """A search under way: what was said, what was looked into."""

    def __init__(self, now: GameState, habits: Habits, draws: Random, noise: float, expert_noise: float) -> None:
        self.now, self._habits, self._draws = now, habits, draws
        self._noise, self._expert_noise = noise, expert_noise
        self.said: list[Said] = []
        self.looked_into: set[str] = set()
        self._offered: dict[str, None] = {}

    def do(self, command: str, *, is_learnt: bool = True) -> bool:
        """Say a command and carry it out; whether it changed anything."""
        possible = self.now.list_commands()
        self._offered |= dict.fromkeys(possible)
        self.said.append(Said(command, is_learnt))
        meant = possible.get(command)
        if meant is not None:
            self.now.carry_out(meant)
            game = self.now.game
            here = game.places_at.get(self.now.spot, ())
            self.looked_into |= {game.places[place] for place in here if self.now.is_open(place)}
        return meant is not None and not meant.changes_nothing

    def strays(self) -> bool:
        """Now and then say something offered so far, possible now or not; or do anything; whether that led anywhere."""
        if self._offered and self._draws.random() < self._noise:
            return self.do(self._draws.choice(list(self._offered)), is_learnt=False)
        if self._expert_noise and self._draws.random() < self._expert_noise:
            return self.do(self._draws.choice(list(self.now.list_commands())))
        return False

    def looks_around_for(self, errand: _Errand) -> bool:
        """Look into the places whose turn comes before the right one, until a thing of the kind is seen."""
        if errand.place in self.looked_into:
            return False
        self.looked_into.add(errand.place)
        detours = self._detours(errand)
        for place in detours:
            for command in (f"go to {place}", f"open {place}"):  # a drawer of the desk here needs no going to
                if command in self.now.list_commands():
                    self.do(command)
            if self._sees(_kind(errand.thing)):
                break
        return bool(detours)

    def _detours(self, errand: _Errand) -> list[str]:
        """Draw places without replacement, each by its weight, until the right one is drawn."""
        game, shares = self.now.game, self._habits.get(_kind(errand.thing), {})
        number = Counter(_kind(name) for name in game.places)
        turn = {
            name: -math.log(1 - self._draws.random()) / (shares.get(_kind(name), 0) / number[_kind(name)] + UNHEARD_OF)
            for name, spot in zip(game.places, game.spot_of, strict=True)
            if spot != self.now.spot and (name == errand.place or name not in self.looked_into)
        }
        before = [name for name in turn if turn[name] < turn.get(errand.place, 0.0)]
        return sorted(before, key=turn.__getitem__)[:MAX_DETOURS]

    def _sees(self, kind: str) -> bool:
        now = self.now
        here = (place for place in now.game.places_at.get(now.spot, ()) if now.is_open(place))
        return any(_kind(now.game.things[thing]) == kind for place in here for thing in now.list_things_in(place))


def _errand(plan: Sequence[str]) -> _Errand | None:
    """What a plan goes somewhere to fetch or use first; None where it is already there, or treats or puts something."""
    place = ""
    for command in plan:
        verb, _, rest = command.partition(" ")
        if verb == "go":
            place = rest.removeprefix("to ")
        elif _fetches(command):
            return _Errand(rest.partition(" from ")[0], place) if place else None
        elif verb != "open":
            return None
    return None


def _fetches(command: str) -> bool:
    return command.startswith(("take ", "use "))


def _kind(name: str) -> str:
    return name.rpartition(" ")[0]


def teach(
    run: Any, tasks: Sequence[Task], *, noise: float, expert_noise: float = 0.0, searches: int = 1
) -> list[Sample]:
    """What the teacher says at every step of some rollouts at each task, put exactly as a rollout would put it."""
    folder = find_games_folder(run.config.env.path)
    games = {task.id: open_game(folder, str(task.payload["game"]), str(task.payload["sha256"])) for task in tasks}
    habits = habits_of(games.values())
    samples: list[Sample] = []
    for number, (again, task) in enumerate(product(range(searches), tasks)):
        draws = Random(seed_of(run.config.seed, "teacher", task.id, *([again] if again else [])))
        max_steps = run.config.env.max_steps
        said = search(games[task.id], habits, draws, noise=noise, max_steps=max_steps, expert_noise=expert_noise)
        samples += _samples(run, task, number, said)
    return samples


def _samples(run: Any, task: Task, number: int, said: Sequence[Said]) -> Iterator[Sample]:
    environment, prompter = run.config.env.open(task), run.prompter
    seen, past = environment.observe(), []
    opening = prompter.encode_opening(seen.goal)
    for index, (command, is_learnt) in enumerate(said):
        in_words = run.config.rollout.action_parser.say(command, admissible=seen.admissible)
        response = (*prompter.encode(in_words), prompter.frame.end_id)
        yield Sample(
            prompt_ids=prompter.prompt(opening, past, seen),
            response_ids=response,
            advantage=float(is_learnt),
            trajectory=number,
            step=index,
            group=number,
            trains=is_learnt,
        )
        outcome = environment.act(command)
        past.append(prompter.make_exchange(seen, response, command))
        seen = outcome.observation


def weigh_observations(samples: Sequence[Sample], weight: float) -> list[Sample]:
    """The same steps, each with the words it was shown last among those to be said, which count `weight` each.

    Prompts are whole dialogues, so that a prompt begins with the one before it and the response to that; of the first
    one all but its first token is said, the opening too, which a warm start's `observation_weight` leaves out.
    """
    weighed: list[Sample] = []
    before: Sample | None = None
    for sample in samples:
        said = () if before is None or before.trajectory != sample.trajectory else _join(before)
        if sample.prompt_ids[: len(said)] != said:
            where = f"step {sample.step} of rollout {sample.trajectory}"
            raise ConfigError(f"{where}: its prompt does not continue the one before; use history = full")
        seen = len(said) or 1
        shown, before = sample.prompt_ids[seen:], sample
        weighed.append(
            replace(
                sample,
                prompt_ids=sample.prompt_ids[:seen],
                response_ids=(*shown, *sample.response_ids),
                advantage=(*[weight] * len(shown), *[float(sample.trains)] * len(sample.response_ids)),
                trains=True,
            )
        )
    return weighed


def _join(sample: Sample) -> tuple[int, ...]:
    return (*sample.prompt_ids, *sample.response_ids)
