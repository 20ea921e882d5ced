"""A BabyAI world in words: what is in view, which actions do something, what makes a situation."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

ACTIONS = ("turn left", "turn right", "go forward", "pick up", "drop", "toggle", "done")
"""The package's seven actions, in its order."""
COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
KINDS = ("box", "ball", "key", "door", "wall")
FACING = ("right", "down", "left", "up")
"""The package's four directions, in its order."""
LARGEST = 30
"""The largest number of steps or rows in words."""


def seen(world: Any) -> str:
    """What the agent sees and carries.

    Worked example: "You see a wall 3 steps forward, a red ball 1 step forward and 2 steps left. You carry a blue key."
    """
    grid, in_view = world.gen_obs_grid()
    width = world.agent_view_size
    things = ", ".join((*_walls(grid, in_view, width), *_things(grid, in_view, width)))
    carried = named(world.carrying) if world.carrying else "nothing"
    return f"You see {things or 'nothing'}. You carry {carried}."


def possible(world: Any) -> tuple[str, ...]:
    """The actions that do something, and `done`, which the package always takes and nothing comes of."""
    ahead = world.grid.get(*world.front_pos)
    does = {
        "go forward": ahead is None or ahead.can_overlap(),
        "pick up": ahead is not None and ahead.can_pickup() and world.carrying is None,
        "drop": ahead is None and world.carrying is not None,
        "toggle": ahead is not None and _opens(ahead, world.carrying),
    }
    return tuple(action for action in ACTIONS if does.get(action, True))


def situation(world: Any) -> str:
    """Where the agent is, what it carries, how everything else stands, and which parts of the mission are done."""
    column, row = (int(place) for place in world.agent_pos)
    facing = FACING[int(world.agent_dir)]
    carried = named(world.carrying) if world.carrying else "nothing"
    done = ", ".join(_done(world.instrs)) or "nothing"
    rest = fingerprint(world)
    return f"row {row} column {column} facing {facing}; carrying {carried}; done {done}; world {rest}"


def fingerprint(world: Any) -> str:
    """A digest of what stands where, and of what is in the boxes."""
    hidden = [named(cell.contains) for cell in world.grid.grid if getattr(cell, "contains", None)]
    return sha256(world.grid.encode().tobytes() + repr(hidden).encode()).hexdigest()[:16]


def named(thing: Any) -> str:
    """A thing in words, such as "an open red door"."""
    if thing.type == "wall":
        return "a wall"
    if thing.type != "door":
        return f"a {thing.color} {thing.type}"
    state = "an open" if thing.is_open else "a locked" if thing.is_locked else "a closed"
    return f"{state} {thing.color} door"


def away(forward: int, side: int) -> str:
    """How far something is, such as "2 steps forward and 1 step left"; sides are negative on the left."""
    parts = [_steps(forward, "forward")] if forward else []
    parts += [_steps(abs(side), "left" if side < 0 else "right")] if side else []
    return " and ".join(parts)


def _things(grid: Any, in_view: Any, width: int) -> Iterator[str]:
    """Everything in view but walls, the nearest first; the agent stands in the middle of the last row."""
    places = [(forward, side) for forward in range(width) for side in range(-(width // 2), width // 2 + 1)]
    for forward, side in sorted(places, key=lambda place: (place[0] + abs(place[1]), place)):
        column, row = side + width // 2, width - 1 - forward
        thing = grid.get(column, row)
        is_here = (forward, side) == (0, 0)  # where the package shows what is carried
        if thing is not None and thing.type != "wall" and in_view[column, row] and not is_here:
            yield f"{named(thing)} {away(forward, side)}"


def _walls(grid: Any, in_view: Any, width: int) -> Iterator[str]:
    """The nearest walls straight ahead and to the sides."""
    for ahead, aside in ((1, 0), (0, -1), (0, 1)):
        for steps in range(1, width):
            forward, side = ahead * steps, aside * steps
            column, row = side + width // 2, width - 1 - forward
            if not (0 <= column < width and in_view[column, row]):
                break
            thing = grid.get(column, row)
            if thing is not None and thing.type == "wall":
                yield f"a wall {away(forward, side)}"
                break


def _opens(thing: Any, carried: Any) -> bool:
    if thing.type == "box":
        return True
    if thing.type != "door":
        return False
    return not thing.is_locked or (carried is not None and carried.type == "key" and carried.color == thing.color)


def _done(instruction: Any, name: str = "") -> Iterator[str]:
    """The parts of a mission of several that are done, such as "a"."""
    for part in ("a", "b"):
        if getattr(instruction, f"{part}_done", False) == "success":
            yield f"{name}{part}"
        if hasattr(instruction, f"instr_{part}"):
            yield from _done(getattr(instruction, f"instr_{part}"), f"{name}{part}")


def _steps(number: int, where: str) -> str:
    return f"{number} step{'' if number == 1 else 's'} {where}"
