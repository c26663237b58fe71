"""Proxy in front of a real service that fails on demand."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

FAULTS = (
    "well",
    "dead",
    "slow",
    "dripping",
    "stale",
    "wrong hash",
    "other catalog",
    "garbage",
    "busy",
    "failing",
    "cut",
)


class FaultyProxy:
    """Proxy of a service. ``fault`` is the way in which it fails, ``request_count`` counts its requests."""

    def __init__(self, behind: str) -> None:
        self.upstream_url = behind
        self.fault = "well"
        self.request_count = 0
        self.first_body_by_path: dict[str, bytes] = {}
        self._server: ThreadingHTTPServer | None = None
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        owner = self

        class Handler(_Handler):
            faulty = owner

        self._server = _Server(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            for connection in list(self._server.connections):
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self._server = None

    def set_fault(self, how: str) -> None:
        """Fail in this way from now on."""
        assert how in FAULTS
        self.fault = how
        if how == "dead":
            self.stop()
        elif self._server is None:
            self.start()


class _Server(ThreadingHTTPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, *args: Any) -> None:
        self.connections: set[socket.socket] = set()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    faulty: FaultyProxy
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        f = self.faulty
        f.request_count += 1
        if f.fault == "slow":
            time.sleep(30)
        if f.fault in ("busy", "failing"):
            self._answer(429 if f.fault == "busy" else 500, b"{}", "")
            return
        status, body, catalog = self._fetch_from_upstream()
        f.first_body_by_path.setdefault(self.path.split("?")[0], body)
        if f.fault == "stale":
            body = f.first_body_by_path[self.path.split("?")[0]]
        elif f.fault == "wrong hash":
            body = re.sub(rb'("position":"\d+-)[0-9a-f]{8}', rb"\g<1>deadbeef", body)
        elif f.fault == "garbage":
            body = b'{"position": 7, "blocks": "none"}'
        self._answer(status, body, "another" if f.fault == "other catalog" else catalog)

    def _fetch_from_upstream(self) -> tuple[int, bytes, str]:
        passed = {name: self.headers[name] for name in ("Authorization",) if name in self.headers}
        try:
            with urlopen(Request(self.faulty.upstream_url + self.path, headers=passed), timeout=60) as found:
                return found.status, found.read(), found.headers.get("nova-catalog", "")
        except HTTPError as error:
            return error.code, error.read(), ""

    def _answer(self, status: int, body: bytes, catalog: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("nova-catalog", catalog)
        self.end_headers()
        with suppress(OSError):
            if self.faulty.fault == "dripping":
                for byte in body:
                    self.wfile.write(bytes([byte]))
                    self.wfile.flush()
                    time.sleep(0.3)
            elif self.faulty.fault == "cut":
                self.wfile.write(body[: len(body) // 2])
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
            else:
                self.wfile.write(body)


@contextmanager
def run_faulty_proxy(behind: str) -> Iterator[FaultyProxy]:
    made = FaultyProxy(behind)
    try:
        yield made
    finally:
        made.stop()
