"""A server that forks its workers after it has opened the filter, as gunicorn does with --preload.

    python prefork_server.py [PORT]
    python prefork_server.py --demo

Each worker answers `POST` with 202 if the request's `Idempotency-Key` is new, and with 409 if any
worker has seen it in the last hour. The workers inherit the object of their parent, and open the
filter again at its first use; there is nothing to set up in them. In a gunicorn application it is
the same: open the filter where the module is imported.
"""

from __future__ import annotations

import http.client
import os
import signal
import socket
import sys
import tempfile
from collections import Counter
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import ebbtide

WORKERS = 4


def application(seen: ebbtide.Filter) -> type[BaseHTTPRequestHandler]:
    class Once(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            key = self.headers.get("Idempotency-Key", "")
            self.send_response(202 if seen.check_and_insert(key) else 409)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    return Once


def serve(listening: socket.socket, seen: ebbtide.Filter) -> None:
    """The work of a worker, until SIGTERM."""
    server = HTTPServer(listening.getsockname(), application(seen), bind_and_activate=False)
    server.socket.close()
    server.socket = listening
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        server.serve_forever()
    finally:
        seen.close()


def fork_workers(listening: socket.socket, seen: ebbtide.Filter) -> list[int]:
    workers = []
    for _ in range(WORKERS):
        worker = os.fork()
        if worker == 0:
            try:
                serve(listening, seen)
            finally:
                os._exit(0)
        workers.append(worker)
    return workers


def demo(port: int) -> None:
    """Sends each of 50 keys four times."""
    answers: Counter[int] = Counter()
    for number in range(200):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("POST", "/", headers={"Idempotency-Key": f"order {number % 50}"})
        answers[connection.getresponse().status] += 1
        connection.close()
    assert answers == {202: 50, 409: 150}, answers
    print("prefork_server: 50 of 200 requests to 4 workers were new")


def main() -> None:
    is_demo = sys.argv[1:] == ["--demo"]
    with tempfile.TemporaryDirectory() as home, socket.socket() as listening:
        state = Path(home) / "seen" if is_demo else Path("seen-requests")
        seen = ebbtide.open(state, ebbtide.Fingerprint(window="1h", fpr=1e-6))
        port = 0 if is_demo or len(sys.argv) < 2 else int(sys.argv[1])
        listening.bind(("127.0.0.1", port))
        listening.listen(64)
        workers = fork_workers(listening, seen)
        print(f"listening on port {listening.getsockname()[1]}", flush=True)
        try:
            if is_demo:
                demo(listening.getsockname()[1])
            else:
                signal.pause()
        except KeyboardInterrupt:
            pass
        finally:
            for worker in workers:
                os.kill(worker, signal.SIGTERM)
            for worker in workers:
                os.waitpid(worker, 0)
            seen.close()


if __name__ == "__main__":
    main()
