"""Rows and bytes that a catalog fetches from its database, counted at the driver's cursor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from nova_assets.catalog.catalog import Catalog


@dataclass
class FetchedRows:
    """What was fetched. A number counts 8 bytes, and a text or binary value its length."""

    rows: int = 0
    bytes: int = 0

    def add(self, rows: Sequence[Any]) -> None:
        self.rows += len(rows)
        self.bytes += sum(len(v) if isinstance(v, str | bytes) else 8 for row in rows for v in row if v is not None)


class _CountingCursor:
    def __init__(self, cursor: Any, fetched: FetchedRows) -> None:
        self._cursor = cursor
        self._fetched = fetched

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def fetchone(self) -> Any:
        row = self._cursor.fetchone()
        self._fetched.add([] if row is None else [row])
        return row

    def fetchmany(self, *size: int) -> Any:
        rows = self._cursor.fetchmany(*size)
        self._fetched.add(rows)
        return rows

    def fetchall(self) -> Any:
        rows = self._cursor.fetchall()
        self._fetched.add(rows)
        return rows


@contextmanager
def counted_reads(catalog: Catalog) -> Iterator[FetchedRows]:
    """Count what a catalog fetches inside the block."""
    fetched, dialect = FetchedRows(), catalog.database.engine.dialect
    plain_context: Any = dialect.execution_ctx_cls

    class CountingContext(plain_context):  # type: ignore[misc]
        def create_cursor(self) -> Any:
            return _CountingCursor(super().create_cursor(), fetched)

    dialect.execution_ctx_cls = CountingContext
    try:
        yield fetched
    finally:
        dialect.execution_ctx_cls = plain_context
