"""An OpenEnv server with a small environment, for openenv.toml: find the door in a dark corridor.

pip install openenv-core            # in an environment of its own, if you like
python examples/openenv_corridor.py --port 8000

It shows what a server looks like, and which of its fields openenv.toml names.
"""

from __future__ import annotations

import argparse
import random
from typing import Any

import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State

LENGTH = 7
MOVES = {"west": -1, "east": 1}
SESSIONS = 256


class CorridorAction(Action):
    message: str
    times: int = 1


class CorridorObservation(Observation):
    text: str
    aim: str
    moves: list[str]
    solved: bool = False
    was_possible: bool = True


class Corridor(Environment):
    """Walk until you find the door. A bell says whether it is near."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._at, self._door, self._steps = 0, 0, 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, **rest: Any) -> CorridorObservation:
        draws = random.Random(seed)
        self._at, self._door = draws.sample(range(LENGTH), 2)
        self._steps = 0
        return self._look()

    def step(self, action: CorridorAction, timeout_s: float | None = None, **rest: Any) -> CorridorObservation:
        self._steps += 1
        is_possible = action.message in self._look().moves
        if is_possible:
            self._at += MOVES[action.message] * action.times
        return self._look(was_possible=is_possible)

    @property
    def state(self) -> State:
        return State(step_count=self._steps)

    def _look(self, *, was_possible: bool = True) -> CorridorObservation:
        is_at_door = self._at == self._door
        bell = "near" if abs(self._at - self._door) == 1 else "far"
        return CorridorObservation(
            text=f"You stand at window {self._at}. " + ("The door opens." if is_at_door else f"A bell is {bell}."),
            aim="find the door.",
            moves=[name for name, way in MOVES.items() if 0 <= self._at + way < LENGTH],
            solved=is_at_door,
            was_possible=was_possible,
            done=is_at_door,
            reward=float(is_at_door),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    app = create_fastapi_app(Corridor, CorridorAction, CorridorObservation, max_concurrent_envs=SESSIONS)
    uvicorn.run(app, host="127.0.0.1", port=parser.parse_args().port, log_level="warning")


if __name__ == "__main__":
    main()
