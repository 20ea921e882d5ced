"""A real OpenEnv server for tests: the corridor of the examples, in which mischief can be asked for.

It is a process of its own on a free port of 127.0.0.1, and it ends with whoever started it: its standard input is a
pipe that nobody writes to, and at its end it goes.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.envs import Openenv

ROOT = Path(__file__).parents[3]
FIELDS: dict[str, Any] = {
    "world": "corridor",
    "text_field": "text",
    "goal_field": "aim",
    "admissible_field": "moves",
    "success_field": "solved",
    "accepted_field": "was_possible",
    "about": "Walk along the corridor.",
    "words": ("you stand at window the door opens a bell is near far find . west east 0 1 2 3 4 5 6",),
    "max_steps": 8,
}
"""What a run file would say of the corridor."""


@dataclass(frozen=True)
class Server:
    url: str
    process: subprocess.Popen[bytes]

    def part(self, **fields: Any) -> Openenv:
        return Openenv(**{"url": self.url, **FIELDS, **fields})


@contextmanager
def server(*, sessions: int = 16) -> Iterator[Server]:
    """A server that answers as soon as it is up: its socket listens before it does."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        port, descriptor = listening.getsockname()[1], listening.fileno()
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.envs.openenv_servers", str(descriptor), str(sessions)],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), *sys.path])},
            stdin=subprocess.PIPE,
            pass_fds=[descriptor],
        )
    try:
        yield Server(f"http://127.0.0.1:{port}", process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def serve(descriptor: int, sessions: int) -> None:
    """What the process does."""
    threading.Thread(target=_go_with_the_parent, daemon=True).start()
    import uvicorn
    from openenv.core.env_server.http_server import create_fastapi_app

    from examples.openenv_corridor import Corridor, CorridorAction, CorridorObservation

    class Mischief(Corridor):
        def step(self, action: Any, timeout_s: float | None = None, **rest: Any) -> Any:
            if action.message == "raise":
                raise RuntimeError("the roof fell in")
            if action.message == "sleep":
                time.sleep(3)
            if action.message == "die":
                os._exit(3)
            return super().step(action, timeout_s, **rest)

    app = create_fastapi_app(Mischief, CorridorAction, CorridorObservation, max_concurrent_envs=sessions)
    listening = socket.socket(fileno=descriptor)
    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[listening])


def _go_with_the_parent() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    serve(*map(int, sys.argv[1:]))
