"""A server that does what a test tells it: it speaks vLLM's routes, answers by seed, and fails as it is asked to."""

from __future__ import annotations

import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from safetensors.numpy import load_file

from tests.unit.engines.toy_model import VOCABULARY, ToyModel, make_weights

GENERATE = ("/inference/v1/generate", "/groupwise/v1/generate")
Trouble = Callable[["ScriptedServer", "Handler", Any], Any]
"""What happens instead of an answer: it is given the answer, and gives another one or None."""


class ScriptedServer:
    """A server on a free port of this machine, with switches for what may go wrong.

    `troubles` has, by route, what happens to the calls of it in turn: None = nothing. What is left over answers.
    """

    def __init__(self, *, takes_batches: bool = False, seed: int = 0, **info: Any) -> None:
        self.takes_batches, self._seed = takes_batches, seed
        self.info = {"model": "policy", "max_model_len": 96, "dtype": "float32", "vocabulary": VOCABULARY} | info
        self.troubles: dict[str, list[Trouble | None]] = {}
        self.takes_weights, self.forgets_prefixes, self.says_versions = True, True, True
        self.calls: Counter[str] = Counter()
        self.questions: list[tuple[str, Any]] = []
        self.max_under_way = 0
        self.released = threading.Event()
        """Set, lets go whoever was described to hang."""
        self.lock = threading.Lock()
        self._called = threading.Condition(self.lock)
        self._under_way = 0
        self._sockets: set[socket.socket] = set()
        self._server: ThreadingHTTPServer | None = None
        self.start(0)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def is_up(self) -> bool:
        return self._server is not None

    def start(self, port: int | None = None) -> None:
        """Listen, with the weights that it came with; again, on the same port, after it was killed."""
        self.model, self.label, self.pending = (
            ToyModel(make_weights(self._seed)),
            "0" if self.takes_batches else "default",
            "",
        )
        self.is_paused, self.is_updating = False, False
        self.adapters: dict[str, ToyModel] = {}
        handler = type("BoundHandler", (Handler,), {"owner": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port if port is None else port), handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def kill(self) -> None:
        """End at once: nobody listens, and every connection breaks."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
        with self.lock:
            sockets, self._sockets = self._sockets, set()
        for connection in sockets:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.released.set()

    def trouble(self, route: str, *troubles: Trouble | None) -> None:
        """Let the next calls of a route go wrong, in turn."""
        self.troubles.setdefault(route, []).extend(troubles)

    def wait_for_calls(self, path: str, num: int) -> None:
        """Wait until a route was called so often."""
        with self.lock:
            assert self._called.wait_for(lambda: self.calls[path] >= num, timeout=20), (
                f"{path}: {self.calls[path]} calls"
            )

    @contextmanager
    def _count(self, path: str, question: Any) -> Iterator[None]:
        with self.lock:
            self.calls[path] += 1
            self._called.notify_all()
            self.questions.append((path, question))
            self._under_way += path in GENERATE
            self.max_under_way = max(self.max_under_way, self._under_way)
        yield
        with self.lock:
            self._under_way -= path in GENERATE

    def answer(self, handler: Handler, method: str, url: str, question: Any) -> Any:
        """The answer to a call: a status and JSON; None = the connection is gone."""
        path = urlsplit(url).path
        with self._count(path, question):
            answer = self._answer(path, url, question)
            with self.lock:
                turns = self.troubles.get(path, [])
                trouble = turns.pop(0) if turns else None
            return answer if trouble is None else trouble(self, handler, answer)

    def _answer(self, path: str, url: str, question: Any) -> tuple[int, Any]:
        with self.lock:
            if path == "/health":
                return 200, None
            if path == "/v1/models":
                card = {"id": self.info["model"], "max_model_len": self.info["max_model_len"], "parent": None}
                return 200, {"data": [card]}
            if path == "/server_info" and not self.takes_batches:
                described = {"dtype": f"torch.{self.info['dtype']}", "logprobs_mode": "processed_logprobs"}
                return 200, {"vllm_config": {"model_config": described}}
            if path == "/is_paused":
                return 200, {"is_paused": self.is_paused}
            if path == "/weight_info":
                return 200, {"weight_version": self.label}
            if path.startswith("/groupwise/") and self.takes_batches:
                return self._answer_batch(path, question)
            if path == "/inference/v1/generate" and not self.takes_batches:
                return self._answer_single(question)
            return self._take_weights(path, url, question)

    def _answer_batch(self, path: str, question: Any) -> tuple[int, Any]:
        if path.endswith("info"):
            gives = ["entropy", "scores", "truncation", "versions"]
            about = {"vocabulary": self.info["vocabulary"], "context": self.info["max_model_len"]}
            return 200, {**about, "precision": self.info["dtype"], "gives": gives}
        if path.endswith("score"):
            temperature = question["temperature"]
            return 200, {"scores": [self.model.score(*pair, temperature) for pair in question["sequences"]]}
        rows = []
        for asked in question["requests"]:
            ids, logps, entropies = self.model.sample(
                asked["prompt_ids"],
                asked["seed"],
                asked["max_tokens"],
                asked["temperature"],
                asked["stop_ids"],
                top_p=asked["top_p"],
                top_k=asked["top_k"],
            )
            spans = [[int(self.label), len(ids)]]
            stopped = ids[-1] in asked["stop_ids"]
            rows.append(
                {"response_ids": ids, "logp": logps, "entropy": entropies, "stopped": stopped, "versions": spans}
            )
        return 200, {"generations": rows}

    def _answer_single(self, question: Any) -> tuple[int, Any]:
        sampling, prompt = question["sampling_params"], question["token_ids"]
        model = {self.info["model"]: self.model, **self.adapters}.get(question["model"])
        if model is None:
            return 404, {"error": "no such model"}
        if any(int(token) >= self.info["vocabulary"] for token in sampling.get("logit_bias", {})):
            return 400, {"error": "out-of-vocab"}
        if len(prompt) + sampling["max_tokens"] > self.info["max_model_len"]:
            return 400, {"error": "longer than the context"}
        temperature = sampling["temperature"]
        ids, logps, _ = model.sample(
            prompt,
            sampling["seed"],
            sampling["max_tokens"],
            temperature,
            sampling.get("stop_token_ids", ()),
            top_p=sampling["top_p"],
            top_k=sampling["top_k"],
        )
        content: list[dict[str, Any]] = [
            {"token_id": token, "logprob": logp} for token, logp in zip(ids, logps, strict=True)
        ]
        for token in sampling.get("logprob_token_ids", ())[:1]:
            logp = float(model.predict(prompt, temperature)[token])
            content[0]["top_logprobs"] = [content[0], {"token_id": token, "logprob": logp}]
            content[0] = {**content[0], "top_logprobs": [{"token_id": token, "logprob": logp}]}
        stopped = ids[-1] in sampling.get("stop_token_ids", ())
        choice: dict[str, Any] = {"token_ids": ids, "logprobs": {"content": content}}
        choice["finish_reason"] = "stop" if stopped else "length"
        if self.says_versions:
            choice["weight_versions"] = [{"version": self.label, "start": 0, "end": len(ids)}]
        answer: dict[str, Any] = {"choices": [choice]}
        if "prompt_logprobs" in sampling:
            scores = model.score(prompt[:1], prompt[1:])
            rows = [{str(token): {"logprob": logp}} for token, logp in zip(prompt[1:], scores, strict=True)]
            answer["prompt_logprobs"] = [None, *rows]
        return 200, answer

    def _take_weights(self, path: str, url: str, question: Any) -> tuple[int, Any]:
        if path == "/update_weights":
            self.pending = question["update_info"]["path"]
        elif path in ("/start_weight_update", "/finish_weight_update"):
            if self.is_updating == (path == "/start_weight_update"):
                return 500, {"error": f"{path} out of turn"}
            self.is_updating = not self.is_updating
            self._finish_update(path, question)
        elif path == "/reset_prefix_cache":
            if self.forgets_prefixes:
                self.model.kept.clear()
            return 200, {"success": True}
        elif path == "/v1/load_lora_adapter":
            self._take_adapter(question["lora_name"], question["lora_path"])
        elif path == "/v1/unload_lora_adapter":
            self.adapters.pop(question["lora_name"], None)
        elif path in ("/pause", "/resume"):
            self.is_paused = path == "/pause"
        elif path != "/init_weight_transfer_engine":
            return 404, {"detail": "Not Found"}
        return 200, {"message": "done"}

    def _finish_update(self, path: str, question: Any) -> None:
        if path == "/finish_weight_update":
            self.label = question["weight_version"]
            if self.takes_weights and self.pending:
                self.model.load(self.pending)

    def _take_adapter(self, name: str, folder: str) -> None:
        """Take an adapter: beside the model, or, as servers of ours do, in its place and under its own label."""
        [path] = Path(folder).iterdir()
        if self.takes_batches:
            self.model.load(str(path))
            self.label = name.rpartition("-")[2]
        else:
            self.adapters[name] = ToyModel(load_file(path))

    def remember(self, connection: socket.socket) -> None:
        with self.lock:
            self._sockets.add(connection)


class Handler(BaseHTTPRequestHandler):
    """Reads a call and writes what its server answers."""

    protocol_version = "HTTP/1.1"
    owner: ScriptedServer

    def setup(self) -> None:
        super().setup()
        self.owner.remember(self.connection)

    def do_GET(self) -> None:
        self._handle("GET", None)

    def do_POST(self) -> None:
        self._handle("POST", json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"null"))

    def _handle(self, method: str, question: Any) -> None:
        with suppress(OSError):
            answer = self.owner.answer(self, method, self.path, question)
            if answer is None:
                self.close_connection = True
                return
            status, content = answer
            text = content if isinstance(content, bytes) else b"" if content is None else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        """Keep quiet."""


def die(server: ScriptedServer, handler: Handler, answer: Any) -> None:
    """The server ends while it answers."""
    server.kill()


def hang(server: ScriptedServer, handler: Handler, answer: Any) -> None:
    """No answer comes until the test lets go."""
    server.released.wait(30)


def break_off(server: ScriptedServer, handler: Handler, answer: Any) -> None:
    """The connection is lost half-way through the answer."""
    text = json.dumps(answer[1]).encode()
    handler.send_response(answer[0])
    handler.send_header("Content-Length", str(len(text)))
    handler.end_headers()
    handler.wfile.write(text[: len(text) // 2])
    handler.wfile.flush()
    handler.connection.shutdown(socket.SHUT_RDWR)


def say(content: Any, status: int = 200) -> Trouble:
    """Something else is said: bytes as they are, anything else as JSON."""
    return lambda server, handler, answer: (status, content)


def change(edit: Callable[[Any], None]) -> Trouble:
    """The answer is changed on its way."""

    def trouble(server: ScriptedServer, handler: Handler, answer: Any) -> Any:
        edit(answer[1])
        return answer

    return trouble
