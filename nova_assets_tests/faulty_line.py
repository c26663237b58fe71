"""A TCP proxy to PostgreSQL that breaks its connections where it is told to."""

from __future__ import annotations

import random
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

from sqlalchemy.engine import make_url

Fault = Literal["cut", "lose", "hang", "delay", "stale"]
"""``cut``: what the client has sent does not arrive. ``lose``: it arrives, and its answer does not. ``hang``: nothing
more is forwarded, and no end is told. ``delay``: all is late. ``stale``: a new connection ends at a standby."""

Decide = Callable[[bytes], Fault | None]
"""Given what a client sends; for a new connection, nothing."""


class FaultyLine:
    """Listens on a port of this host and forwards to the server of a SQLAlchemy URL.

    Args:
        decide: asked for each message of a client.
        standby: the URL of the server at which connections end that are to be stale.
    """

    def __init__(self, url: str, decide: Decide = lambda data: None, standby: str | None = None) -> None:
        self.real = make_url(url)
        self.target = _target(url)
        self.standby = None if standby is None else _target(standby)
        self.decide = decide
        self.closed = False
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port: int = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """The catalog's URL by way of this line."""
        through = self.real.set(host="127.0.0.1", port=self.port, query={"sslmode": "disable"})
        return through.render_as_string(hide_password=False)

    def close(self) -> None:
        self.closed = True
        self.listener.close()

    def _accept(self) -> None:
        while not self.closed:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            fault = self.decide(b"")
            target = self.standby if fault == "stale" else None if fault is not None else self.target
            if target is None:
                client.close()
                continue
            server = socket.socket(socket.AF_UNIX if isinstance(target, str) else socket.AF_INET)
            try:
                server.connect(target)
            except OSError:
                client.close()
                continue
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError), client, server:
            while not self.closed:
                ready, _, _ = select.select([client, server], [], [])
                for end in ready:
                    data = end.recv(65536)
                    if not data:
                        return
                    fault = self.decide(data) if end is client else None
                    if fault == "cut":
                        return
                    if fault == "hang":
                        self._hang(client)
                        return
                    if fault == "delay":
                        time.sleep(0.2)
                    (server if end is client else client).sendall(data)
                    if fault == "lose":
                        server.settimeout(10)
                        server.recv(65536)
                        return

    def _hang(self, client: socket.socket) -> None:
        while client.recv(65536) and not self.closed:
            pass
        time.sleep(20)  # the server is not told that its client is gone


class AtCommit:
    """Breaks the line at one COMMIT, counted from the first."""

    def __init__(self, fault: Fault, number: int = 1) -> None:
        self.fault = fault
        self.number = number
        self.count = 0
        self.armed = True

    def __call__(self, data: bytes) -> Fault | None:
        if b"COMMIT\x00" not in data or not self.armed:
            return None
        self.count += 1
        return self.fault if self.count == self.number else None


class AtRandom:
    """Breaks the line now and then, each time in another way.

    Args:
        rate: of a hundred messages, how many go wrong.
    """

    def __init__(self, seed: int, rate: float) -> None:
        self.random = random.Random(seed)
        self.rate = rate / 100
        self.faults: Counter[Fault] = Counter()

    def __call__(self, data: bytes) -> Fault | None:
        if not data and self.random.random() < 0.05:
            fault: Fault = "stale"
        elif self.random.random() < self.rate:
            fault = self.random.choices(("cut", "lose", "hang", "delay"), (4, 4, 1, 2))[0]
        else:
            return None
        self.faults[fault] += 1
        return fault


def _target(url: str) -> str | tuple[str, int]:
    """The socket file or the address of a server."""
    parsed = make_url(url)
    host, port = str(parsed.query.get("host") or parsed.host or "127.0.0.1"), parsed.port or 5432
    return f"{host}/.s.PGSQL.{port}" if host.startswith("/") else (host, port)
