"""vLLM's client for weight syncs, for several servers at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from groupwise.engines.http_client import ServerClient, ServerFault
from groupwise.system.text import describe_value


class ServerGroup:
    """Several servers with the interface of vLLM's `VLLMWeightSyncClient`.

    Worked example: two servers with two GPUs each. The trainer is rank 0 of a group of five. The first server's workers
    start at rank 1, the second's at rank 3.
    """

    def __init__(self, clients: Sequence[ServerClient], *, seconds: float) -> None:
        """`clients` are in the order of their ranks; `seconds` is the time-out of each step."""
        self._clients, self._seconds = tuple(clients), seconds
        self.label = ""
        """Label of the weights that are sent next."""
        self.world_sizes = [self._ask_world_size(client) for client in clients]
        """Number of workers per server."""

    def init_weight_transfer_engine(self, init_info: Mapping[str, Any]) -> None:
        """Let every server join the group at its own rank; all at once, because they wait for each other."""
        begin, questions = int(init_info["rank_offset"]), list[Any]()
        for size in self.world_sizes:
            questions.append({"init_info": {**init_info, "rank_offset": begin}})
            begin += size
        self._ask_all("/init_weight_transfer_engine", questions, "join the trainer's group")

    def start_weight_update(self) -> None:
        """Let every server start to load new weights."""
        self._ask_all("/start_weight_update", [{}] * len(self._clients), "start to load new weights")

    def update_weights(self, update_info: Any) -> None:
        """Let every server receive, while the trainer sends."""
        questions = [{"update_info": update_info}] * len(self._clients)
        self._ask_all("/update_weights", questions, "receive new weights")

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Let every server use what it received."""
        questions = [{"weight_version": weight_version or self.label}] * len(self._clients)
        self._ask_all("/finish_weight_update", questions, "finish loading new weights")

    def shutdown_weight_transfer_engine(self) -> None:
        """Let every server leave the group."""
        self._ask_all("/shutdown_weight_transfer_engine", [{}] * len(self._clients), "leave the trainer's group")

    def _ask_all(self, path: str, questions: Sequence[Any], what: str) -> None:
        """Ask all servers at once; the first fault is raised."""

        def ask(client: ServerClient, question: Any) -> None:
            client.post(path, question, what=what, timeout=self._seconds, is_fresh=True)

        with ThreadPoolExecutor(max_workers=len(self._clients)) as threads:
            list(threads.map(ask, self._clients, questions))

    def _ask_world_size(self, client: ServerClient) -> int:
        answer = client.get("/get_world_size", what="say how many workers it has", timeout=self._seconds)
        size = answer.get("world_size") if isinstance(answer, dict) else None
        if type(size) is not int or size < 1:
            raise ServerFault(
                f"the server {client.url} did not say how many workers it has ({describe_value(answer)}); is it vLLM?"
            )
        return size
