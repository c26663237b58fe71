"""Rows in bulk into a catalog that was just made: no index is kept meanwhile, nothing is synced."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from typing import Any

from sqlalchemy import MetaData, create_engine, make_url, text

from nova_assets.catalog.tables import metadata

_ROWS = 200_000
"""Rows of all tables that are written in one go."""

# Every table comes after those that it refers to.
_TABLES = (
    "nova_channels",
    "nova_executions",
    "nova_pins",
    "nova_commits",
    "nova_numbers",
    "nova_blocks",
    "nova_files",
    "nova_cursors",
)


class Bulk:
    """Collects rows and writes them. SQLite, or a PostgreSQL database of which the user is a superuser."""

    def __init__(self, url: str) -> None:
        self.url = make_url(url)
        self.counts: Counter[str] = Counter()
        self.heads: dict[str, int] = {}
        self._rows: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        self._waiting = 0
        self._indexes("drop")
        self._to: Any = self._sqlite() if self.url.get_backend_name() == "sqlite" else self._postgresql()

    def add(self, table: str, row: tuple[Any, ...]) -> None:
        """A row with the first columns of its table, JSON as text. The other columns take their defaults."""
        self._rows[table].append(row)
        self.counts[table] += 1
        self._waiting += 1
        if self._waiting >= _ROWS:
            self.flush()

    def flush(self) -> None:
        for table in _TABLES:
            rows = self._rows.pop(table, [])
            width = len(rows[0]) if rows else 0
            columns = ", ".join(f'"{c.name}"' for c in list(metadata.tables[table].columns)[:width])
            if rows and isinstance(self._to, sqlite3.Connection):
                marks = ", ".join("?" * len(rows[0]))
                self._to.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", rows)
            elif rows:
                with self._to.cursor().copy(f"COPY {table} ({columns}) FROM STDIN") as copy:
                    for row in rows:
                        copy.write_row(row)
        self._to.commit()
        self._waiting = 0

    def close(self) -> None:
        """Set heads, and make the indexes again."""
        self.flush()
        mark = "?" if isinstance(self._to, sqlite3.Connection) else "%s"
        change = f"UPDATE nova_channels SET head = {mark}, news = {mark} WHERE name = {mark}"
        self._to.cursor().executemany(change, [(n, n, c) for c, n in self.heads.items()])
        self._to.commit()
        self._to.close()
        self._indexes("create")
        if self.url.get_backend_name() == "postgresql":  # as it does by itself, some time later
            with create_engine(self.url, isolation_level="AUTOCOMMIT").connect() as c:
                c.execute(text("VACUUM ANALYZE"))

    def _indexes(self, what: str) -> None:
        """Those that the migrations have made, not those that the code knows of."""
        engine = create_engine(self.url)
        if what == "drop":
            self._made = MetaData()
            self._made.reflect(engine, only=list(metadata.tables))
        with engine.begin() as c:
            for table in self._made.tables.values():
                for index in table.indexes:
                    getattr(index, what)(c)
        engine.dispose()

    def _sqlite(self) -> sqlite3.Connection:
        made = sqlite3.connect(str(self.url.database))
        for pragma in ("journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE", "cache_size=-1500000"):
            made.execute(f"PRAGMA {pragma}").close()
        return made

    def _postgresql(self) -> Any:
        import psycopg

        made = psycopg.connect(self.url.set(drivername="postgresql").render_as_string(hide_password=False))
        made.execute("SET session_replication_role = replica")  # without looking up every reference
        made.execute("SET synchronous_commit = off")
        made.commit()
        return made
