"""An engine that speaks to a server over HTTP: the run file's part, and the client that it opens.

The server is the package's own (`http_engine.server`), started on a free port of this machine; of groupwise the package
uses the protocol and nothing that samples.
"""

from __future__ import annotations

import http.client
import json
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar

from safetensors.torch import save

from groupwise.extend import EngineFault, Generation, ModelSource, Part, Request, VersionSpan
from http_engine.server import Server


class HttpEngine(Part, slot="engine"):
    """Asks a server, several requests at a time."""

    gives: ClassVar[frozenset[str]] = frozenset({"scores", "versions"})
    precision: ClassVar[str] = "float32"

    connections: int = 4
    """Requests that are under way at a time."""

    def check_device(self, device: str) -> None:
        """The server computes on a CPU, wherever the learner does."""

    def open(self, source: ModelSource) -> Client:
        server = Server(source.copy_model().cpu())
        context = int(source.model.config.max_position_embeddings)
        client = Client(server.port, connections=self.connections, context=context)
        weakref.finalize(client, server.close)
        return client


class Client:
    """The engine: each request is a call of its own, and is answered when the server is done with it."""

    gives = HttpEngine.gives

    def __init__(self, port: int, *, connections: int, context: int) -> None:
        self.version, self.context = 0, context
        self._port = port
        self._threads = ThreadPoolExecutor(connections)

    def submit(self, requests: Sequence[Request]) -> list[Future[Generation]]:
        return [self._threads.submit(self._generate, request) for request in requests]

    def generate(self, requests: Sequence[Request]) -> list[Generation]:
        return [future.result() for future in self.submit(requests)]

    def score(self, sequences: Sequence[tuple[Any, Any]], *, temperature: float = 1.0) -> list[tuple[float, ...]]:
        pairs = [[list(prompt), list(response)] for prompt, response in sequences]
        return [tuple(each) for each in self._ask("score", {"pairs": pairs, "temperature": temperature})]

    def load(self, weights: Mapping[str, Any], *, version: int) -> None:
        body = save({name: value.detach().cpu().contiguous() for name, value in weights.items()})
        self.version = int(self._call(f"weights/{version}", body))

    def _generate(self, request: Request) -> Generation:
        said = self._ask(
            "generate",
            {
                "prompt": request.prompt_ids,
                "seed": request.seed,
                "max_tokens": request.max_tokens,
                "temperature": request.temperature,
                "stops": request.stop_ids,
            },
        )
        return Generation(
            response_ids=tuple(said["ids"]),
            logp=tuple(said["logp"]),
            entropy=(),
            stopped=said["stopped"],
            versions=(VersionSpan(said["version"], len(said["ids"])),),
        )

    def _ask(self, what: str, question: Mapping[str, Any]) -> Any:
        return self._call(what, json.dumps(question).encode())

    def _call(self, what: str, body: bytes) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request("POST", f"/{what}", body)
            answer = connection.getresponse()
            said = json.loads(answer.read())
        except OSError as error:
            raise EngineFault(f"the server at port {self._port} does not answer ({error}); start it again") from None
        finally:
            connection.close()
        if answer.status != 200:
            raise EngineFault(f"the server at port {self._port} could not {what} ({said}); see its log")
        return said
