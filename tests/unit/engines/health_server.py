"""A server that is healthy and nothing else, as a script of its own: `python health_server.py PORT [HOW]`.

How: `fails` = it says why and ends; `sleeps` = it never answers; `child` = it has started a process of its own, whose
number it writes into its log.
"""

from __future__ import annotations

import http.server
import subprocess
import sys
import time


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    port, how = int(sys.argv[1]), "".join(sys.argv[2:])
    if how == "fails":
        sys.exit("loading\nRuntimeError: CUDA out of memory: tried to allocate 2 GiB")
    if how == "child":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        sys.stdout.write(f"child {child.pid}\n")
        sys.stdout.flush()
    if how == "sleeps":
        time.sleep(600)
    http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
