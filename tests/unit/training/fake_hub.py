"""A hub on 127.0.0.1: it takes a repository and one commit of whole files, as the real one's interface does."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Hub:
    """What it was sent."""

    url: str = ""
    repositories: list[dict[str, Any]] = field(default_factory=list)
    """What repositories were asked for with."""
    files: dict[str, bytes] = field(default_factory=dict)
    """Content by path."""
    tokens: set[str] = field(default_factory=set)
    """What callers showed."""
    refuses: bool = False
    """Whether nobody may write."""

    def take(self, path: str, body: bytes) -> dict[str, Any]:
        """Answer one question of a caller who may write."""
        if path == "/api/repos/create":
            asked = json.loads(body)
            self.repositories.append(asked)
            name = f"{asked['organization']}/{asked['name']}"
            return {"url": f"{self.url}/{name}", "name": name, "id": name}
        if path == "/api/validate-yaml":
            return {"errors": [], "warnings": []}
        if "/preupload/" in path:
            named = json.loads(body)["files"]
            return {"files": [{"path": file["path"], "uploadMode": "regular", "shouldIgnore": False} for file in named]}
        assert "/commit/" in path, path
        for line in body.splitlines():
            entry = json.loads(line)
            if entry["key"] == "file":
                self.files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
        place = f"{self.url}/somebody/policy/commit/{'0' * 40}"
        return {"success": True, "commitOid": "0" * 40, "commitUrl": place, "hookOutput": ""}


@contextmanager
def open_hub() -> Iterator[Hub]:
    """A hub for as long as the context lasts."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            hub.tokens.add(self.headers.get("Authorization", ""))
            if hub.refuses:
                self._answer(403, {"error": "you may not write here"})
            else:
                self._answer(200, hub.take(self.path, body))

        def do_GET(self) -> None:
            hub.tokens.add(self.headers.get("Authorization", ""))
            self._answer(200, {"id": "somebody/policy", "sha": "0" * 40, "siblings": [], "private": True})

        def _answer(self, status: int, content: Any) -> None:
            sent = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *arguments: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
