"""What several servers are asked, and what came to each."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from groupwise.engines.client import ServerEngine
from groupwise.engines.engine import Generation, Request, SubmittingEngine
from tests.unit.engines.scripted_server import ScriptedServer

STREAM, BATCH = "/inference/v1/generate", "/groupwise/v1/generate"
PATIENCE = 20.0
BOTH = pytest.mark.parametrize("takes_batches", [False, True], ids=["a request a call", "in batches"])


def make_requests(num: int, *, turn: int = 0) -> list[Request]:
    return [
        Request(prompt_ids=(1, number % 20), seed=100 * turn + number, max_tokens=4, session=f"rollout {number}")
        for number in range(num)
    ]


def submit(engine: ServerEngine, requests: list[Request]) -> list[Future[Generation]]:
    assert isinstance(engine, SubmittingEngine)
    return list(engine.submit(requests))


def list_prompts(server: ScriptedServer) -> set[int]:
    """The last tokens of the prompts that a server was asked to go on with."""
    asked = set()
    for path, question in server.questions:
        if path == BATCH:
            asked |= {row["prompt_ids"][-1] for row in question["requests"]}
        elif path == STREAM and "logit_bias" not in question["sampling_params"]:
            asked.add(question["token_ids"][-1])
    return asked
