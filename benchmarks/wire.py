"""Time of one call of a remote engine: Starlette with uvicorn or http.server, our client or httpx.

python -m benchmarks.wire
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx

from benchmarks.result_file import write_result
from groupwise.engines import messages as wire
from groupwise.engines.engine import Request
from groupwise.engines.http_client import ServerClient, ServerFault
from groupwise.engines.scripted import ScriptedEngine
from groupwise.engines.server.app import generate_batch, make_app, make_server, take_port
from groupwise.engines.server.served_model import ModelCard, ServedModel

VOCABULARY = 152_000
PROMPT, RESPONSE = 400, 60
"""Tokens of a prompt and of a response, as in a turn of a household task."""
SIZES = (8, 128)
"""Requests of a call."""
STARLETTE, STANDARD = "Starlette and uvicorn", "http.server"
OURS, HTTPX = "our client", "httpx"
VARIANTS = ((STARLETTE, OURS), (STARLETTE, HTTPX), (STANDARD, OURS))


def answer(request: Request) -> range:
    """Token ids of several digits, computed at no cost."""
    return range(100_000 + request.seed, 100_000 + request.seed + request.max_tokens)


def serve(kind: str, place: socket.socket) -> None:
    """Serve a scripted engine until the process ends."""
    card = ModelCard(name="policy", root="nowhere", precision="float32", vocabulary=VOCABULARY)
    model = ServedModel(lambda: ScriptedEngine(answer), dict, card)
    if kind == STARLETTE:
        make_server(make_app(model)).run(sockets=[place])
        return

    class Handler(BaseHTTPRequestHandler):
        """Reads and writes the same messages."""

        runner = asyncio.Runner()  # there is one connection
        protocol_version = "HTTP/1.1"
        wbufsize = -1
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self.send(b"{}")

        def do_POST(self) -> None:
            question = wire.BatchQuestion.model_validate_json(self.rfile.read(int(self.headers["Content-Length"])))
            self.send(self.runner.run(generate_batch(model, question, {})).model_dump_json().encode())

        def send(self, payload: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, *_: object) -> None:
            pass

    port = place.getsockname()[1]
    place.close()
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


def make_call(client: str, url: str, requests: list[Request], stack: ExitStack) -> Callable[[], object]:
    """A call that requests a batch and reads the response."""
    question = wire.BatchQuestion(requests=tuple(requests))

    def read(text: bytes) -> list[wire.SampledResponse]:
        return wire.read_batch(text, requests, vocabulary=VOCABULARY)

    if client == OURS:
        ours = stack.enter_context(ServerClient(url))
        limit = wire.limit_bytes(len(requests) * RESPONSE)
        return lambda: ours.post(wire.BATCH_GENERATE, question, what="answer", timeout=60, max_bytes=limit, read=read)
    theirs, headers = stack.enter_context(httpx.Client(base_url=url)), {"Content-Type": "application/json"}

    def post() -> list[wire.SampledResponse]:
        payload = question.model_dump_json().encode()
        return read(theirs.post(wire.BATCH_GENERATE, content=payload, headers=headers, timeout=60).content)

    return post


def wait_for(url: str) -> None:
    """Wait until a server answers."""
    while True:
        try:
            return ServerClient(url).check_health()
        except ServerFault:
            time.sleep(0.1)


def measure(rounds: int) -> dict[str, dict[str, float]]:
    """Median milliseconds of a call, by variant and number of requests; the variants alternate."""
    medians: dict[str, dict[str, float]] = {}
    with ExitStack() as stack:
        urls = {}
        for kind in (STARLETTE, STANDARD):
            with take_port("127.0.0.1", 0) as place:
                port = place.getsockname()[1]
            process = subprocess.Popen([sys.executable, "-m", "benchmarks.wire", "--serve", kind, "--port", str(port)])
            stack.callback(process.wait)
            stack.callback(process.kill)
            urls[kind] = f"http://127.0.0.1:{port}"
        for url in urls.values():
            wait_for(url)
        for size in SIZES:
            requests = [
                Request(prompt_ids=tuple(range(100_000, 100_000 + PROMPT)), seed=seed, max_tokens=RESPONSE)
                for seed in range(size)
            ]
            calls = {f"{kind}, {client}": make_call(client, urls[kind], requests, stack) for kind, client in VARIANTS}
            seconds: dict[str, list[float]] = {name: [] for name in calls}
            for _ in range(rounds):
                for name, call in calls.items():
                    began = time.perf_counter()
                    call()
                    seconds[name].append(time.perf_counter() - began)
            for name, taken in seconds.items():
                medians.setdefault(name, {})[str(size)] = round(1000 * statistics.median(taken[rounds // 10 :]), 3)
    return medians


def main() -> None:
    """Measure, print and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--serve", help="be one of the servers")
    parser.add_argument("--port", type=int)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.serve:
        return serve(options.serve, take_port("127.0.0.1", options.port))
    medians = measure(options.rounds)
    for name, by_size in medians.items():
        print(name, by_size)
    write_result({"rounds": options.rounds, "median_ms": medians}, options.out)
    return None


if __name__ == "__main__":
    main()
