"""A deployment in a temporary folder, and comparable rows of its channels."""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from nova_assets.engine.session.shared_settings import temporary_settings
from nova_assets.model.project import Project
from nova_assets.model.schema import DELETED
from nova_assets.store.store import Store
from nova_assets.wiring.open_store import open as open_store

Rows = list[dict[str, Any]]


class World:
    """A deployment with its catalog and warehouse in a temporary folder. The folder is deleted when the ``with`` block
    ends.

    Args:
        project: bindings and channels, or None.
        spark: a session to use. By default, the local session of this process, which stays warm between worlds.
    """

    def __init__(self, project: Project | None = None, spark: Any = None) -> None:
        with ExitStack() as opened:
            root = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="nova-world-")))
            self.store: Store = open_store(project, f"sqlite:///{root / 'catalog.db'}", root / "warehouse", spark)
            opened.callback(self.store.close)
            if project is not None:
                self.store.register(project)
            self._opened = opened.pop_all()

    def __enter__(self) -> Store:
        return self.store

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()


_TINY_QUERY_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
}
"""Spark settings for queries over a few rows, whose main cost is compilation and distribution.

The results do not change.
"""


def for_tiny_queries(store: Store) -> AbstractContextManager[None]:
    """Context in which Spark plans for a few rows. Starts Spark if it is not running."""
    return temporary_settings(store.engine.session, _TINY_QUERY_SETTINGS)


def rows_of(store: Store, channel: str, at: int | None = None) -> Rows:
    """Snapshot of a channel as sorted rows, comparable with ``==``."""
    table = store.read(channel, at=at).to_arrow()
    rows: Rows = table.to_pylist()
    return canonical([{k: v for k, v in r.items() if k != DELETED} for r in rows])


def snapshot_frame(store: Store, channel: str, at: int) -> Any:
    """Snapshot of a channel as a frame that can be inserted."""
    return store.read(channel, at=at).to_arrow()


def canonical(rows: Rows) -> Rows:
    """Rows in a canonical order with rounded floats. Equal lists are equal multisets (R12)."""
    rounded: Rows = [{name: _round_floats(row[name]) for name in sorted(row)} for row in rows]
    return sorted(rounded, key=repr)


def _round_floats(value: Any) -> Any:
    """Value with floats rounded to nine digits, since floats compare within 1e-9 relative (R12)."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, list):
        return [_round_floats(v) for v in value]
    return {n: _round_floats(v) for n, v in value.items()} if isinstance(value, dict) else value


def difference(actual: Rows, expected: Rows) -> str:
    """Rows that only one of two canonical lists contains."""
    extra, missing = _count_rows(actual), _count_rows(expected)
    return f"extra {list((extra - missing).elements())[:5]}, missing {list((missing - extra).elements())[:5]}"


def _count_rows(rows: Rows) -> Counter[str]:
    return Counter(map(repr, rows))
