"""A channel that is published, for tests."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyiceberg.table import Table as Iceberg

import nova_assets as nova
from nova_assets.model.merge import MergeModel
from nova_assets.publish.iceberg import default_iceberg_catalog
from nova_assets.settings import Settings

DDL = "dt date NOT NULL, action string NOT NULL, id bigint NOT NULL, n bigint"
Row = tuple[str, str, int, int]


def rows(*given: Row) -> pa.Table:
    days, actions, ids, numbers = zip(*given, strict=True)
    columns = [[date.fromisoformat(d) for d in days], list(actions), list(ids), list(numbers)]
    schema = pa.schema([("dt", pa.date32()), ("action", pa.string()), ("id", pa.int64()), ("n", pa.int64())])
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


class Shop:
    """A store with one channel, ``actions``, by day and action, published as a folder and as an Iceberg table."""

    def __init__(
        self, root: Path, merge: MergeModel | None = None, *, grace: float = 3600.0, spark: Any = None, **channel: Any
    ) -> None:
        self.root = root
        self.channel = nova.Channel(
            "actions",
            merge or nova.Append(),
            DDL,
            [nova.daily("dt", start="2024-01-01"), nova.dynamic("action")],
            **{"publish": [nova.hive("exports/actions"), nova.iceberg("lake.actions")], **channel},
        )
        settings = Settings(f"sqlite:///{root}/c.db", str(root / "wh"), root=root, gc_grace=grace)
        self.store = nova.open(nova.Project(channels=[self.channel]), spark=spark, settings=settings)

    @property
    def folder(self) -> Path:
        """Where readers find it."""
        return self.root / "exports" / "actions"

    @property
    def resolved(self) -> Path:
        """The edition that it is now, as a reader should take it."""
        return Path(os.path.realpath(self.folder))

    def iceberg(self) -> Iceberg:
        return default_iceberg_catalog(self.root / ".nova" / "iceberg").load_table("lake.actions")

    def insert(self, *given: Row) -> nova.Commit:
        return self.store.insert("actions", rows(*given))

    def publish(self, **options: Any) -> list[tuple[str, int, int]]:
        """(kind of table, edition, number of the channel) of each new edition."""
        return [(e.table.split(":")[0], e.number, e.seq) for e in self.store.publish("actions", **options)]

    def in_folder(self) -> list[Row]:
        return plain(ds.dataset(self.resolved, partitioning=None).to_table().to_pylist())

    def in_iceberg(self) -> list[Row]:
        return plain(self.iceberg().scan().to_arrow().to_pylist())

    def in_channel(self, at: int | None = None) -> list[Row]:
        return plain(self.store.read("actions", at=at).to_arrow().to_pylist())


def plain(found: Iterable[dict[str, Any]]) -> list[Row]:
    return sorted((str(r["dt"])[:10], str(r["action"]), int(r["id"]), int(r["n"])) for r in found)


FIRST = [("2024-01-01", "login", 1, 10), ("2024-01-01", "view", 2, 20), ("2024-01-02", "login", 3, 30)]
