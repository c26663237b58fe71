"""SQL statements in a test process: each is compiled once, and not once for each catalog and each storage of Dagster.

SQLAlchemy keeps compiled statements for each engine. Most tests open a new catalog, and so a new engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, event

MAX_STATEMENTS = 10_000


class CompiledStatements(dict[Any, Any]):
    """Compiled statements by their key in SQLAlchemy, in which the class of the dialect replaces the dialect."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(_without_engine(key), default)

    def __setitem__(self, key: Any, compiled: Any) -> None:
        if len(self) >= MAX_STATEMENTS:
            self.clear()
        super().__setitem__(_without_engine(key), compiled)


def _without_engine(key: tuple[Any, ...]) -> tuple[Any, ...]:
    dialect, *statement = key
    return type(dialect), *statement


@contextmanager
def quick_statements() -> Iterator[None]:
    """While the block lasts, all engines of this process share their compiled statements."""
    statements = CompiledStatements()

    def share(connection: Connection) -> None:
        connection.execution_options(compiled_cache=statements)

    event.listen(Engine, "engine_connect", share)
    try:
        yield
    finally:
        event.remove(Engine, "engine_connect", share)
