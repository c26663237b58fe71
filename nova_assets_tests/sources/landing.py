"""A folder in which files arrive, and a store with a channel that is fed from it."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import nova_assets as nova

DDL = "id bigint NOT NULL, action string, day date"


class Landing:
    """A folder in which files arrive, and a store with a channel that is fed from it."""

    def __init__(self, home: Path, **options: Any) -> None:
        self.home = home
        self.folder = home / "landing"
        self.folder.mkdir()
        self.partitions: Any = options.pop("partitions", ())
        self.seal: Any = options.pop("seal", None)
        self.options = {"min_age": "1s", **options}
        self.store = self.open()

    @property
    def channel(self) -> nova.Channel:
        source = nova.files(str(self.folder), **self.options)
        return nova.Channel("actions", schema=DDL, partitions=self.partitions, source=source, seal=self.seal)

    def open(self) -> nova.Store:
        project = nova.Project(channels=[self.channel])
        return nova.open(project, catalog=f"sqlite:///{self.home}/c.db", warehouse=self.home / "wh")

    def put(self, name: str, *rows: Any, old: int = 60, raw: bytes | None = None) -> Path:
        """A file that was last changed so many seconds ago."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = b"".join(r if isinstance(r, bytes) else json.dumps(r).encode() + b"\n" for r in rows)
        content = lines if raw is None else raw
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") and raw is None else content)
        when = path.stat().st_mtime - old
        os.utime(path, (when, when))
        return path

    def ids(self) -> list[int]:
        return sorted(self.store.read("actions").to_arrow().column("id").to_pylist())

    def quarantined(self) -> list[tuple[str, int, str]]:
        rows = self.store.read("actions_quarantine").to_arrow().to_pylist()
        return sorted((r["file"], r["line"], r["reason"]) for r in rows)

    def states(self) -> dict[str, str]:
        return {s.arrival.path: s.state for s in self.store.arrivals("actions")}


def row(n: int, **other: Any) -> dict[str, Any]:
    return {"id": n, "action": "view", "day": "2024-01-01", **other}
