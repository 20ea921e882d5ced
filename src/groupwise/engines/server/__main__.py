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
    """Serve until a signal comes; what keeps it from serving is one line and status 2."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    options = _read_options()
    try:
        check_can_serve()
        with app.take_port(options.host, options.port) as place:
            if options.host not in LOCAL:
                _say(
                    f"warning: whoever reaches {options.host} can use this model, change its weights, and have weights "
                    "read from any path: there is no authentication; let nobody in whom you do not trust"
                )
            _serve(place, options)
    except GroupwiseError as error:
        _say(f"error: {str(error).removeprefix('model.path: ')}")
        sys.exit(2)


def _serve(place: socket.socket, options: argparse.Namespace) -> None:
    """Load the model, listen, and answer until a signal comes."""
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
    os._exit(0)  # a response in the making is not waited for


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m groupwise.engines.server", description="Serve a model with groupwise's own engine."
    )
    parser.add_argument("model", help="a folder in the Hugging Face layout, an adapter's, or a name of the hub")
    parser.add_argument("--name", default="policy", help="what requests call the model")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen; there is no authentication")
    parser.add_argument("--port", type=int, default=0, help="0 = any that is free")
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1; auto = a GPU where there is one")
    parser.add_argument("--threads", type=int, default=0, help="threads that torch computes with; 0 = its own choice")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="of the loaded weights")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32", help="of the engine")
    parser.add_argument("--decoding", choices=("auto", "eager", "graphs"), default="auto")
    parser.add_argument("--rows", type=int, default=256, help="responses that decode at a time, with graphs")
    parser.add_argument("--memory", type=float, default=0.3, help="share of the GPU's memory for keys and values")
    parser.add_argument("--compile-parts", action=argparse.BooleanOptionalAction, default="auto")
    parser.add_argument("--batch-tokens", type=int, default=32768, help="tokens of a batch")
    parser.add_argument("--lora-rank", type=int, default=0, help="rank of an adapter that weights will come for")
    parser.add_argument("--lora-scale", type=float, default=2.0, help="what that adapter's part is multiplied by")
    parser.add_argument("--lora-targets", default="", help="layers that it sits on, by commas; none = all linear ones")
    return parser.parse_args()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
