"""Run where vLLM is: vLLM's own trainer side of NCCL, with the wire taken out, driven by our transfer.

Prints one line of JSON: what the servers were asked, and what was sent.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import torch
from vllm.distributed.weight_transfer import nccl_engine

from groupwise.learner.nccl import Nccl

ASKED: list[tuple[str, str, Any]] = []
SENT: list[tuple[str, list[int]]] = []


class Client:
    """A server that says yes to everything, with two workers."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **_: Any) -> Any:
        """How many workers it has."""
        return {"world_size": 2}

    def post(self, path: str, question: Any, **_: Any) -> Any:
        """Keep what was asked."""
        ASKED.append((self.url, path, question))
        return None


def send(iterator: Any, **_: Any) -> None:
    """In place of the packed broadcast."""
    SENT.extend((name, list(value.shape)) for name, value in iterator)


def main() -> None:
    """Send two versions to two servers, then one to the one that is left."""
    nccl_engine.open_trainer_endpoint = lambda info: SimpleNamespace(destroy=lambda: None)
    nccl_engine.packed_nccl_broadcast_producer = send
    nccl_engine.NCCLTrainerWeightTransferEngine._post_send_sync = lambda self: None
    transfer = Nccl(port=29500).open(None)
    servers: list[Any] = [SimpleNamespace(name=name, client=Client(name)) for name in ("a", "b")]
    weights = {"model.embed_tokens.weight": torch.zeros(4, 3), "model.norm.weight": torch.ones(3)}
    transfer._send(servers, "first", weights)
    transfer._send(servers, "second", weights)
    transfer._send(servers[1:], "third", weights)
    sys.stdout.write(json.dumps({"asked": ASKED, "sent": SENT}) + "\n")


if __name__ == "__main__":
    main()
