"""Serve a model: `python -m groupwise.engines.server MODEL --port 8101`."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
import threading

from groupwise.engines.server import app
from groupwise.engines.server.served_model import open_served_model
from groupwise.engines.server_processes import check_can_serve
from groupwise.system.errors import GroupwiseError

LOCAL = ("127.0.0.1", "localhost", "::1")


def main() -> None:
    """Serve until a signal comes. An error is printed as one line; the exit status is then 2."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    options = _read_options()
    try:
        check_can_serve()
        with app.take_port(options.host, options.port) as place:
            if options.host not in LOCAL:
                _say(
                    f"warning: there is no authentication: any process that reaches {options.host} can use this model, "
                    "change its weights, and load weights from any path; allow only trusted machines"
                )
            _serve(place, options)
    except GroupwiseError as error:
        _say(f"error: {str(error).removeprefix('model.path: ')}")
        sys.exit(2)


def _serve(place: socket.socket, options: argparse.Namespace) -> None:
    model = open_served_model(options)
    server, end = app.make_server(app.make_app(model)), threading.Event()

    def serve() -> None:
        try:
            server.run(sockets=[place])
        finally:
            end.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: end.set())
    threading.Thread(target=serve, daemon=True).start()
    _say(f"{model.card.name} ({model.card.root}) at http://{options.host}:{place.getsockname()[1]}")
    end.wait()
    sys.stdout.flush()
    os._exit(0)  # without waiting for running requests


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m groupwise.engines.server", description="Serve a model with groupwise's own engine."
    )
    parser.add_argument("model", help="folder of a model or an adapter in the Hugging Face layout, or a hub name")
    parser.add_argument("--name", default="policy", help="name of the model in requests")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at; there is no authentication")
    parser.add_argument("--port", type=int, default=0, help="0 = any free port")
    parser.add_argument("--device", default="auto", help="cpu, cuda or cuda:1; auto = a GPU if there is one")
    parser.add_argument("--threads", type=int, default=0, help="number of torch threads; 0 = torch's default")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="of the loaded weights")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32", help="of the engine")
    parser.add_argument("--decoding", choices=("auto", "eager", "graphs"), default="auto")
    parser.add_argument("--rows", type=int, default=256, help="responses that decode at a time, with graphs")
    parser.add_argument("--memory", type=float, default=0.3, help="fraction of the GPU's memory for keys and values")
    parser.add_argument("--compile-parts", action=argparse.BooleanOptionalAction, default="auto")
    parser.add_argument("--batch-tokens", type=int, default=32768, help="maximum number of tokens per batch")
    parser.add_argument("--lora-rank", type=int, default=0, help="rank of the adapter of later weight syncs")
    parser.add_argument("--lora-scale", type=float, default=2.0, help="factor of that adapter's output")
    parser.add_argument("--lora-targets", default="", help="its layers, separated by commas; default: all linear ones")
    return parser.parse_args()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
