"""Doors that ask for the colours of lamps seen before: the same text hides 0 to 3 bits that earlier steps revealed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, model_validator

from groupwise.data.records import Task
from groupwise.envs.environment import Observation, Outcome
from groupwise.envs.kit.draws import Draws, draw_uniform
from groupwise.envs.kit.progress import SteppedEnvironment
from groupwise.envs.kit.task_set import Proposal, TaskSetSizes, check_env, choose_split, draw_task_sets
from groupwise.envs.kit.words import NOTHING_HAPPENS, prepend_goal, vocabulary_of
from groupwise.parts.part import Part

# The rules of a corridor of switches, passages and doors: where an agent stands, and where an action leads.

ENV = "aliased"
COLOURS = ("red", "blue", "green", "white", "black", "yellow")
"""The actions: everywhere an agent says a colour."""
LAMP_NAMES = tuple(range(1, 10))


class Corridor(NamedTuple):
    """What never changes in a rollout: rooms in a row, first the switches, then the passages, then the doors.

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
    doors: tuple[str | int, ...]
    """What each door asks for: a colour, or the place of a lamp whose colour it wants."""
    noise: float
    seed: int
    """Decides which actions have no effect."""

    @classmethod
    def read(cls, payload: Mapping[str, Any], seed: int) -> Corridor:
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


class Stand(NamedTuple):
    """The state during a rollout, without the step number."""

    room: int = 0
    """The agent's room; the number of rooms = it is out."""
    lit: tuple[int, ...] = ()
    """Which of its two colours each lamp shows that was lit so far."""
    is_stuck: bool = False
    """Whether the last action had no effect."""


def advance(corridor: Corridor, stand: Stand, action: str) -> Stand:
    door = stand.room - len(corridor.lamps) - corridor.passages
    if stand.room < len(corridor.lamps):
        bit = corridor.wiring[stand.room][corridor.colours.index(action)]
        return Stand(stand.room + 1, (*stand.lit, bit))
    if door >= 0 and action != find_wanted_colour(corridor, stand, door):
        return stay(stand)
    return Stand(stand.room + 1, stand.lit)


def stay(stand: Stand) -> Stand:
    return stand._replace(is_stuck=True)


def comes_to_nothing(corridor: Corridor, stand: Stand, action: str, step: int) -> bool:
    """Whether noise cancels an action; it depends on the seed, the step, the room and the action."""
    return draw_uniform(ENV, corridor.seed, step, stand.room, action) < corridor.noise


def find_wanted_colour(corridor: Corridor, stand: Stand, door: int) -> str:
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
    return stand.room == len(corridor.lamps) + corridor.passages + len(corridor.doors)


def tell_text(corridor: Corridor, stand: Stand, *, one_reply: bool) -> str:
    """The observation: the room, and on arrival the lamp that was just lit; never an earlier lamp."""
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


SIZES = TaskSetSizes(train=1000, validation=100, test=200)
MAX_ROOMS = 12
GOAL = "get out."


class Aliased(Part, slot="env", self_contained=True):
    """A corridor of switches, passages and doors; each switch lights a lamp, and doors ask for the lamps' colours.

    The agent's word at a switch decides which of two colours its lamp gets. Only the next text shows it. So the text at
    a door hides one bit per lamp, and rollouts at the same door may need different colours. Three settings decide how
    much of the past matters: `hidden_bits` (how much is hidden), `passages` (how long ago it was shown) and `one_reply`
    (whether the position is hidden after a mistake). With 0 hidden bits doors name their colour, and the text is the
    state.

    A wrong colour, and with probability `noise` any colour, has no effect and costs a step. Chance depends on the
    task's seed, the step number, the room and the action only, so forks and replays are exact.

    Choices: this environment was made to compare advantages with the true ones; every colour is admissible everywhere.
    The expert knows the lamps, and the task sets contain only tasks that it solves in time. `state_key` is the whole
    state (room, lamps, whether the last action had an effect); `key = "observation"` is the text alone.
    """

    hidden_bits: Annotated[int, Field(ge=0, le=3)] = 1
    """Lamps; the text at a door hides one bit per lamp."""
    passages: Annotated[int, Field(ge=0, le=6)] = 1
    """Rooms between the last switch and the first door, where any colour leads on: how long ago the lamps were seen."""
    num_doors: Annotated[int, Field(ge=1, le=8)] = 4
    """Doors; each opens to one colour."""
    num_colours: Annotated[int, Field(ge=2, le=len(COLOURS))] = 4
    """Colours, and so actions."""
    noise: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Probability that an action has no effect."""
    one_reply: bool = False
    """Whether an action without effect shows only "Nothing happens."; otherwise the room is shown too."""
    max_steps: Annotated[int, Field(ge=1)] = 12
    """Steps before a rollout is truncated."""
    success_reward: float = 1.0
    """Reward of the step through the last door."""
    key: Literal["situation", "observation"] = "situation"
    """The state key: the whole state, or the text."""
    goal_in_text: bool = False
    """Whether each text begins with the task; for prompts that do not say `Observation.goal` themselves."""

    @model_validator(mode="after")
    def _passable_in_time(self) -> Aliased:
        rooms = self.hidden_bits + self.passages + self.num_doors
        if rooms > min(self.max_steps, MAX_ROOMS):
            raise ValueError(
                f"hidden_bits, passages and num_doors make {rooms} rooms, more than "
                + (f"{MAX_ROOMS}; take fewer" if rooms > MAX_ROOMS else f"max_steps, {self.max_steps}; raise max_steps")
            )
        return self

    def task_set(self, split: str) -> tuple[Task, ...]:
        shape = self.hidden_bits, self.passages, self.num_doors, self.num_colours
        return choose_split(draw_task_sets(ENV, _draw, shape, self.noise, self.max_steps, sizes=SIZES), split)

    def open(self, task: Task) -> AliasedEnvironment:
        check_env(task, ENV)
        return AliasedEnvironment(task, self)

    def vocabulary(self) -> tuple[str, ...]:
        sentences = "Task: get out. Switch. Passage. Door asks for lamp. Lamp is. You are out. Nothing happens."
        numbers = (str(number) for number in range(1, MAX_ROOMS + 1))
        return vocabulary_of((self.instruction(), sentences, *COLOURS, *numbers))

    def instruction(self) -> str:
        return "Get out: say the colour that each door asks for, and remember the lamps."


class AliasedEnvironment(SteppedEnvironment):
    """One rollout to get out of a corridor."""

    def __init__(self, task: Task, part: Aliased) -> None:
        super().__init__(task, part.max_steps)
        self._part, self._corridor, self._stand = part, Corridor.read(task.payload, task.seed), Stand()
        self._progress.observation = self._observe()

    def act(self, action: str) -> Outcome:
        step = self._progress.step()
        is_known = action in self._corridor.colours
        if is_known and not comes_to_nothing(self._corridor, self._stand, action, step):
            self._stand = advance(self._corridor, self._stand, action)
        else:
            self._stand = stay(self._stand)
        if is_out(self._corridor, self._stand):
            return self._progress.outcome(self._observe(), success=True, reward=self._part.success_reward)
        return self._progress.outcome(self._observe(), accepted=is_known)

    def expert(self) -> str | None:
        return None if self._progress.ended else find_way(self._corridor, self._stand)

    def _observe(self) -> Observation:
        text = tell_text(self._corridor, self._stand, one_reply=self._part.one_reply)
        situation = tell_situation(self._corridor, self._stand)
        return Observation(
            text=prepend_goal(GOAL, text) if self._part.goal_in_text else text,
            state_key=situation if self._part.key == "situation" else text,
            admissible=self._corridor.colours,
            goal=GOAL,
        )


def _draw(shape: tuple[int, int, int, int], noise: float, max_steps: int, index: int) -> Proposal | None:
    """A corridor whose lamps, wiring and doors are drawn, if the expert gets out of it in time."""
    hidden_bits, passages, num_doors, num_colours = shape
    draws = Draws(ENV, *shape, index)
    colours = COLOURS[:num_colours]
    lamps = [draws.sample(colours, 2) for _ in range(hidden_bits)]
    names = draws.sample(LAMP_NAMES, hidden_bits)
    # Each switch lights both of its lamp's colours for half of the actions each, or nearly.
    wiring = [draws.sample([action % 2 for action in range(num_colours)], num_colours) for _ in lamps]
    # Doors ask for colours where nothing is hidden, else for every lamp in turn, in random order.
    doors: Sequence[str | int] = (
        draws.sample([door % hidden_bits for door in range(num_doors)], num_doors)
        if hidden_bits
        else [draws.pick(colours) for _ in range(num_doors)]
    )
    payload: dict[str, Any] = {
        "colours": list(colours),
        "lamps": lamps,
        "names": names,
        "wiring": wiring,
        "passages": passages,
        "doors": doors,
        "noise": noise,
    }
    seed = draws.below(2**31) if noise else 0
    return Proposal(payload=payload, seed=seed) if _arrives(payload, seed, max_steps) else None


def _arrives(payload: dict[str, Any], seed: int, max_steps: int) -> bool:
    corridor, stand = Corridor.read(payload, seed), Stand()
    for step in range(max_steps):
        action = find_way(corridor, stand)
        stuck = comes_to_nothing(corridor, stand, action, step)
        stand = stay(stand) if stuck else advance(corridor, stand, action)
        if is_out(corridor, stand):
            return True
    return False
