"""vLLM 0.24's server with what our client needs of later ones: a name for the weights, ids beside log-probs.

    python -m benchmarks.vllm_update.serve_older FLAGS OF VLLM

It runs in vLLM's environment and imports nothing of ours. The GPU that was measured on has a torch for which 0.24 is
the newest vLLM; from 0.32 on the server says all of this by itself, and this file is not used.
"""

from __future__ import annotations

import runpy
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse
from vllm.entrypoints.serve.dev.rlhf import api_router as sync
from vllm.entrypoints.serve.dev.server_info import api_router as server_info
from vllm.entrypoints.serve.disagg.serving import ServingTokens

HELD = {"weight_version": "default"}
"""What the server calls its weights."""
MARK = "token_id:"
"""What comes before an id where 0.24 writes it as text."""


async def show_weights() -> JSONResponse:
    """What the weights were called when they were handed over."""
    return JSONResponse(content=HELD)


async def finish_weight_update(raw_request: Request) -> JSONResponse:
    """Finish, and remember the name that the weights are given."""
    body = await raw_request.json()
    await sync.engine_client(raw_request).finish_weight_update()
    HELD["weight_version"] = body["weight_version"]
    return JSONResponse(content={"message": "Weight update finished"})


def name_ids(logprobs: Any) -> Any:
    """Put ids as numbers beside what is text."""
    for entry in logprobs.content or ():
        for named in (entry, *entry.top_logprobs):
            named.token_id = int(named.token.removeprefix(MARK))
    return logprobs


def add_what_is_missing() -> None:
    """Change vLLM before its server starts."""
    router = sync.router
    router.routes[:] = [route for route in router.routes if getattr(route, "path", "") != "/finish_weight_update"]
    router.add_api_route("/finish_weight_update", finish_weight_update, methods=["POST"])
    router.add_api_route("/weight_info", show_weights, methods=["GET"])
    server_info._get_system_env_info_cached = dict  # it would look around the machine for seconds
    create = ServingTokens._create_tokens_logprobs
    ServingTokens._create_tokens_logprobs = lambda *args, **kwargs: name_ids(create(*args, **kwargs))


if __name__ == "__main__":
    add_what_is_missing()
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
