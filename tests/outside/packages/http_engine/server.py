"""The server: a model, a lock, and a sampler of its own, which reads the whole prompt for every token."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import torch
from safetensors.torch import load


class Sampler:
    """Samples from and scores with a causal language model, one sequence at a time."""

    def __init__(self, model: Any) -> None:
        self._model = model.eval()
        self._version = 0
        self._lock = threading.Lock()

    def generate(self, asked: dict[str, Any]) -> dict[str, Any]:
        ids: list[int] = []
        logps: list[float] = []
        with self._lock:
            while len(ids) < asked["max_tokens"] and not set(ids) & set(asked["stops"]):
                logp = self._log_probs([*asked["prompt"], *ids], asked["temperature"] or 1.0)[-1]
                chance = float(np.random.default_rng([asked["seed"], len(ids)]).random())
                cumulated = logp.double().exp().cumsum(0)
                token = int(torch.searchsorted(cumulated, chance * cumulated[-1]))
                ids.append(int(logp.argmax()) if asked["temperature"] == 0 else token)
                logps.append(float(logp[ids[-1]]))
            return {"ids": ids, "logp": logps, "stopped": ids[-1] in asked["stops"], "version": self._version}

    def score(self, asked: dict[str, Any]) -> list[list[float]]:
        with self._lock:
            return [self._score(prompt, response, asked["temperature"]) for prompt, response in asked["pairs"]]

    def take(self, weights: bytes, version: int) -> int:
        with self._lock, torch.no_grad():
            own = dict(self._model.named_parameters())
            for name, value in load(weights).items():
                own[name].copy_(value)
            self._version = version
            return version

    def _score(self, prompt: list[int], response: list[int], temperature: float) -> list[float]:
        logp = self._log_probs([*prompt, *response], temperature)[len(prompt) - 1 : -1]
        return logp.gather(1, torch.tensor(response)[:, None])[:, 0].tolist()

    @torch.no_grad()
    def _log_probs(self, ids: list[int], temperature: float) -> torch.Tensor:
        return (self._model(torch.tensor([ids]), use_cache=False).logits[0].float() / temperature).log_softmax(-1)


class Server:
    """Answers on a free port of this machine until it is closed."""

    def __init__(self, model: Any) -> None:
        sampler = Sampler(model)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                what, _, version = self.path.strip("/").partition("/")
                try:
                    said = sampler.take(body, int(version)) if what == "weights" else _ask(sampler, what, body)
                    self._say(200, said)
                except Exception as error:
                    self._say(500, f"{type(error).__name__}: {error}")

            def _say(self, status: int, said: Any) -> None:
                text = json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: Any) -> None:
                """Keep quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _ask(sampler: Sampler, what: str, body: bytes) -> Any:
    return {"generate": sampler.generate, "score": sampler.score}[what](json.loads(body))
