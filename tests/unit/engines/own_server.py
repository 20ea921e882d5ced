"""Our own server in a thread of the test, over a small model, and an engine that speaks to it."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from groupwise.engines.client import ServerEngine, open_server_engine
from groupwise.engines.engine import Engine
from groupwise.engines.model_source import ModelSource
from groupwise.engines.server.app import make_app, make_server, take_port
from groupwise.engines.server.served_model import ModelCard, ServedModel
from groupwise.engines.transformers_engine import TransformersEngine
from tests.unit.engines.small_models import VOCABULARY, family


@contextmanager
def serve_model(model: Any = None, *, engine: Engine | None = None, vocabulary: int = VOCABULARY) -> Iterator[str]:
    """Serve a model, or an engine of the test's own, as long as the context lasts; its URL."""
    model = model or family("llama")
    card = ModelCard(name="policy", root="a/folder", precision="float32", vocabulary=vocabulary)
    served = ServedModel(lambda: engine or TransformersEngine(model), lambda: dict(model.named_parameters()), card)
    server = make_server(make_app(served))
    with take_port("127.0.0.1", 0) as place:
        url = f"http://127.0.0.1:{place.getsockname()[1]}"
        thread = threading.Thread(target=server.run, kwargs={"sockets": [place]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield url
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def open_client(url: str, model: Any = None, **settings: Any) -> Iterator[ServerEngine]:
    """An engine over one server, for the same model."""
    source = ModelSource(model=model or family("llama"), tokenizer=None, path=None)
    timeouts = {"request_timeout": 60.0, "sync_timeout": 60.0, "max_in_flight": 4}
    engine = open_server_engine([url], source=source, precision="float32", **timeouts | settings)
    try:
        yield engine
    finally:
        engine.close()


def call(url: str, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None) -> Any:
    """What a server answers: the status, and the JSON or the message of its error."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    try:
        payload = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
        connection.request(
            method, path, payload if method == "POST" else None, {"Content-Type": "application/json"} | (headers or {})
        )
        response = connection.getresponse()
        content = json.loads(response.read())
    finally:
        connection.close()
    return (response.status, content["error"]["message"] if "error" in content else content)


def move_weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Other weights of a model."""
    return {name: value.detach() + 0.05 * torch.sin(1000 * value.detach()) for name, value in model.named_parameters()}
