"""Published channels and external tables of a metastore, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import nova_assets as nova
from nova_assets.metastore.hive_tables import PARQUET_STORAGE
from nova_assets.store.store import Store
from nova_assets.testing import World
from nova_assets_tests.metastore import servers
from nova_assets_tests.publish.shop import Row, Shop

THEN: list[Row] = [("2024-01-02", "a/b", 4, 40), ("2024-01-03", "login", 5, 50)]


def published_shop(root: Path, metastore: str, name: str, **options: Any) -> Shop:
    table = nova.hive("exports/actions", metastore=metastore, table=f"shop.{name}", **options)
    return Shop(root, seal=nova.seal("dt"), publish=table)


def locations(metastore: str, name: str) -> dict[str, str]:
    """Partition -> its folder, as the metastore has it."""
    with servers.client(metastore) as client:
        return {"/".join(p.values): p.sd.location for p in client.get_partitions("shop", name, -1)}


def parameters(metastore: str, name: str) -> dict[str, str]:
    with servers.client(metastore) as client:
        found: dict[str, str] = client.get_table("shop", name).parameters
        return found


def tables(metastore: str) -> list[str]:
    with servers.client(metastore) as client:
        return list(client.get_all_tables("shop"))


def events(metastore: str, name: str) -> list[str]:
    """The kinds of all events of a table, in the order of the metastore's log."""
    from hive_metastore.ttypes import NotificationEventRequest

    with servers.client(metastore) as client:
        recorded = client.get_next_notification(NotificationEventRequest(lastEvent=0, maxEvents=100_000)).events
        return [e.eventType for e in recorded if e.tableName == name]


SCHEMA = "product string, price bigint, day string, shop string"


@contextmanager
def one_table(metastore: str, name: str, schema: str = SCHEMA, *dimensions: str, **external: Any) -> Iterator[Store]:
    """A store whose channel ``tickets`` is a table of the metastore."""
    channel = nova.Channel(
        "tickets",
        schema=schema,
        partitions=[nova.dynamic(d) for d in dimensions or ("day", "shop")],
        external=nova.external(f"{metastore}/shop.{name}", **external),
    )
    with World(nova.Project(channels=[channel])) as store:
        yield store


def prices(store: Store, **options: Any) -> list[tuple[int, str, str]]:
    rows = store.read("tickets", **options).to_arrow().to_pylist()
    return sorted((r["price"], r["day"], r["shop"]) for r in rows)


class Tills:
    """Another system: it writes files, and tells the metastore of its partitions alone."""

    def __init__(self, metastore: str, name: str, root: Path, keys: tuple[str, ...] = ("day", "shop")) -> None:
        from hive_metastore import ttypes

        self.metastore, self.name, self.root, self.keys = metastore, name, root, keys
        self.types = ttypes
        columns = [("product", "string"), ("price", "bigint")]
        self.columns = [ttypes.FieldSchema(name=n, type=t) for n, t in columns]
        with servers.client(metastore) as client:
            client.create_table(
                ttypes.Table(
                    tableName=name,
                    dbName="shop",
                    sd=self.storage(root),
                    partitionKeys=[ttypes.FieldSchema(name=k, type="string") for k in keys],
                    parameters={"EXTERNAL": "TRUE"},
                    tableType="EXTERNAL_TABLE",
                )
            )

    def storage(self, folder: Path) -> Any:
        input_format, output_format, serializer = PARQUET_STORAGE
        serde = self.types.SerDeInfo(serializationLib=serializer, parameters={})
        return self.types.StorageDescriptor(
            cols=self.columns, location=f"file:{folder}", inputFormat=input_format, outputFormat=output_format,
            serdeInfo=serde, bucketCols=[], sortCols=[], parameters={}, numBuckets=-1, compressed=False,
        )  # fmt: skip

    def folder(self, *values: str) -> Path:
        return self.root.joinpath(*(f"{k}={v}" for k, v in zip(self.keys, values, strict=True)))

    def sell(self, values: tuple[str, ...], *prices: int, folder: Path | None = None, name: str = "a.parquet") -> None:
        """Write a file, and add its partition unless the metastore has it."""
        folder = folder or self.folder(*values)
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"product": ["pen"] * len(prices), "price": pa.array(prices)}), folder / name)
        if values:
            self.add(values, folder)

    def add(self, values: tuple[str, ...], folder: Path) -> None:
        with servers.client(self.metastore) as client:
            partition = self.types.Partition(
                values=list(values), dbName="shop", tableName=self.name, sd=self.storage(folder), parameters={}
            )
            with suppress(self.types.AlreadyExistsException):
                client.add_partition(partition)

    def alter(self, *types: tuple[str, str | None]) -> None:
        """Add or retype columns; None drops one."""
        with servers.client(self.metastore) as client:
            table = client.get_table("shop", self.name)
            columns = {c.name: c.type for c in table.sd.cols} | dict(types)
            table.sd.cols = [self.types.FieldSchema(name=n, type=t) for n, t in columns.items() if t is not None]
            client.alter_table("shop", self.name, table)

    def drop(self, *values: str) -> None:
        with servers.client(self.metastore) as client:
            client.drop_partition("shop", self.name, list(values), False)

    def rename(self, values: tuple[str, ...], new_values: tuple[str, ...], folder: Path) -> None:
        with servers.client(self.metastore) as client:
            partition = client.get_partition("shop", self.name, list(values))
            partition.values, partition.sd.location = list(new_values), f"file:{folder}"
            client.rename_partition("shop", self.name, list(values), partition)
