"""``nova serve``, as a process of its own."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlsplit

import orjson

from benchmarks.timeline.events import NAME

_ROOT = Path(__file__).parents[2]

_IDLE = 3.0
"""Seconds after which a connection is made anew: the service may have closed it."""


class Served:
    """A service that was just started.

    Args:
        views: its storage, ``disk`` or ``memory``; kept in ``views`` below the folder.
    """

    def __init__(self, catalog: str, warehouse: Path, folder: Path, views: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.views, self.log = folder / "views", folder / "log"
        nova = [sys.executable, "-m", "nova_assets.cli", "--catalog", catalog, "--warehouse", str(warehouse)]
        how = ["--port", "0", "--views", views, "--views-folder", str(self.views), "--request-seconds", "900"]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("NOVA_")}
        self.began = time.perf_counter()
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [*nova, "serve", *how], stdout=log, stderr=log, cwd=folder, env={**clean, "PYTHONPATH": str(_ROOT)}
            )
        self.pid = self._process.pid
        self.url = self._awaited()
        self._connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=900)
        self._asked = time.perf_counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *of: object) -> None:
        self.stop()

    def _awaited(self) -> str:
        while True:
            found = re.search(r"listening on (\S+)", self.log.read_text())
            if found:
                return found[1]
            if self._process.poll() is not None:
                raise RuntimeError(self.log.read_text())
            time.sleep(0.005)

    def ask(self, what: str, **given: Any) -> Any:
        """What the service answers of the channel."""
        if time.perf_counter() - self._asked > _IDLE:
            self._connection.close()
        self._connection.request("GET", path(what, **given))
        response = self._connection.getresponse()
        text = response.read()
        self._asked = time.perf_counter()
        if response.status != 200:
            raise RuntimeError(f"{what} {given}: {response.status} {text.decode()}")
        return orjson.loads(text)

    def files(self, partition: str, known: str | None = None) -> list[str]:
        """The paths of a partition's files: as they are now, or later than what is known of the timeline."""
        fresh = None if known is None else "false"
        found = self.ask("files", partition=partition, known=known, fresh=fresh)
        return [f["path"] for b in found["blocks"] for f in b["files"]]

    def load(self) -> str:
        """Have all of the channel loaded, and get a short answer, as of its beginning: the position of the view."""
        return str(self.ask("files", at=0)["position"])

    def on_disk(self) -> int:
        """Bytes that its folder takes; a file with holes counts as what it holds."""
        return sum(f.stat().st_blocks * 512 for f in self.views.rglob("*") if f.is_file())

    def stop(self) -> float:
        """Have it end in good order. Gives the seconds that it took."""
        began = time.perf_counter()
        self._connection.close()
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(120)
        return time.perf_counter() - began


def path(what: str, **given: Any) -> str:
    """Of a question about the channel, with its parameters."""
    query = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in given.items() if value is not None)
    return f"/v1/channels/{NAME}/{what}?{query}"
