"""What the catalog's tables say, asked in SQL: the tests' own view of them, which shares no code with the catalog."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from sqlalchemy import Engine, create_engine, text

from nova_assets_tests.soak.recompute import Read


class Records:
    """The catalog, read from outside."""

    def __init__(self, url: str) -> None:
        self._engine: Engine = create_engine(url)

    def rows(self, query: str, **values: Any) -> list[Mapping[str, Any]]:
        """The rows of a query."""
        with closing(self._engine.connect()) as connection:
            return [dict(row) for row in connection.execute(text(query), values).mappings()]

    def column(self, query: str, **values: Any) -> list[Any]:
        """The first column of a query."""
        return [next(iter(row.values())) for row in self.rows(query, **values)]

    def json_column(self, query: str, **values: Any) -> list[Any]:
        """The first column of a query, which is JSON: some databases' drivers have read it already."""
        return [json.loads(v) if isinstance(v, str) else v for v in self.column(query, **values)]

    def heads(self) -> dict[str, int]:
        """Channel -> its head."""
        return {r["name"]: r["head"] for r in self.rows("SELECT name, head FROM nova_channels")}

    def reads(self) -> list[Read]:
        """What committed executions of bindings have read and written, in the order of their commits."""
        numbers: dict[str, dict[str, int]] = {}
        for row in self.rows("SELECT commit_id, channel, seq FROM nova_numbers"):
            numbers.setdefault(row["commit_id"], {})[row["channel"]] = row["seq"]
        found = self.rows("SELECT id, binding, consumed FROM nova_commits WHERE binding IS NOT NULL ORDER BY at")
        return [Read(r["binding"], _consumed(r["consumed"]), numbers.get(r["id"], {})) for r in found]

    def inserted(self, channel: str) -> dict[str, int]:
        """Idempotency key -> the number that its batch took."""
        query = (
            "SELECT k.key, n.seq FROM nova_keys k JOIN nova_numbers n"
            " ON n.commit_id = k.commit_id AND n.channel = k.channel WHERE k.channel = :channel"
        )
        return {r["key"]: r["seq"] for r in self.rows(query, channel=channel)}


def _consumed(value: Any) -> dict[str, tuple[int | None, int]]:
    found = json.loads(value) if isinstance(value, str) else value
    return {channel: (read[0], read[1]) for channel, read in found.items()}
