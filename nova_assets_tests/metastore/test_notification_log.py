"""What events of a metastore say of a table, and what descriptions of tables mean."""

from __future__ import annotations

import base64
import gzip
import json
from types import SimpleNamespace
from typing import Any

import pytest

from nova_assets.errors import NotSupported
from nova_assets.metastore.hive_tables import hive_type, nova_address, unsupported_table_kind
from nova_assets.metastore.notification_log import changed_partitions
from nova_assets.model.external_table import MetastoreTable, parse_metastore_table
from nova_assets.model.schema import parse_type
from nova_assets.publish.registered_hive import partition_values_of_folder

KEYS = ("day", "shop")
ONE = {"day": "2022-03-30", "shop": "Paris"}
OBJECT = json.dumps({"1": {"lst": ["str", 2, "2022-03-31", "Oslo"]}, "2": {"str": "shop"}})


def event(kind: str, message: Any, table: str = "tickets", message_format: str = "json-0.2") -> Any:
    text = json.dumps(message)
    if message_format.startswith("gzip"):
        text = base64.b64encode(gzip.compress(text.encode())).decode()
    return SimpleNamespace(eventType=kind, dbName="Shop", tableName=table, message=text, messageFormat=message_format)


def changed(*events: Any, keys: tuple[str, ...] = KEYS) -> set[tuple[str, ...]] | None:
    return changed_partitions(events, "shop", "tickets", keys)


@pytest.mark.parametrize("message_format", ["json-0.2", "gzip(json-2.0)"])
def test_events_name_partitions(message_format: str) -> None:
    def of(kind: str, message: Any) -> Any:
        return changed(event(kind, message, message_format=message_format))

    assert of("ADD_PARTITION", {"partitions": [ONE, {**ONE, "shop": "Rome"}]}) == {
        ("2022-03-30", "Paris"),
        ("2022-03-30", "Rome"),
    }
    assert of("DROP_PARTITION", {"partitions": [{"DAY": "2022-03-30", "Shop": "a/b"}]}) == {("2022-03-30", "a/b")}
    renamed = of("ALTER_PARTITION", {"keyValues": ONE, "partitionObjAfterJson": OBJECT})
    assert renamed == {("2022-03-30", "Paris"), ("2022-03-31", "Oslo")}
    assert of("INSERT", {"ptnObjJson": OBJECT}) == {("2022-03-31", "Oslo")}


def test_other_tables_and_statistics_do_not_count() -> None:
    add = event("ADD_PARTITION", {"partitions": [ONE]}, table="others")
    assert changed(add, event("UPDATE_PARTITION_COLUMN_STAT", {})) == set()
    add.dbName, add.tableName = None, None
    assert changed(add) == set()


@pytest.mark.parametrize(
    "unknown",
    [
        event("ALTER_TABLE", {}),
        event("DROP_TABLE", {}),
        event("A_NEW_KIND", {"partitions": [ONE]}),
        event("ADD_PARTITION", {"partitions": []}),
        event("ADD_PARTITION", {"partitions": [{"day": "2022-03-30"}]}),
        event("ADD_PARTITION", ["no object"]),
        event("ALTER_PARTITION", {"keyValues": ONE}),
        event("INSERT", {"ptnObjJson": json.dumps({"1": {"lst": ["str", 1, "2022-03-31"]}})}),
        event("ADD_PARTITION", {"partitions": [ONE]}, message_format="protobuf"),
    ],
)
def test_an_event_that_is_not_understood_concerns_everything(unknown: Any) -> None:
    assert changed(event("ADD_PARTITION", {"partitions": [ONE]}), unknown) is None
    assert changed(event("INSERT", {"ptnObjJson": None}), keys=()) is None


def test_addresses() -> None:
    assert nova_address("file:/a/b/") == nova_address("file:///a/b") == "/a/b"
    assert nova_address("s3a://lake/t") == "s3://lake/t" and nova_address("hdfs://nn:8020/t") == "hdfs://nn:8020/t"
    assert nova_address("abfs://c@a/t") is None and nova_address("hdfs:///t") is None and nova_address("t") is None
    assert parse_metastore_table("thrift://Host:9083/Shop.T") == MetastoreTable("Host", 9083, "shop", "t")
    for bad in ("thrift://h:9083/t", "thrift://h:9083/a.b.c", "thrift://h:0/a.b", "thrift://h:1,thrift://i:1/a.b"):
        assert parse_metastore_table(bad) is None
    assert partition_values_of_folder("dt=2024-01-01/action=a%2Fb%3D") == ("2024-01-01", "a/b=")


def test_types_of_hive() -> None:
    nested = "struct<a:string,b:array<decimal(5,2)>,c:map<string,bigint>>"
    assert hive_type(parse_type(nested), "x") == nested
    for bad in ("timestamp_ntz", "array<timestamp_ntz>", "struct<`a b`:int>"):
        with pytest.raises(NotSupported, match="'x' cannot be registered"):
            hive_type(parse_type(bad), "x")


@pytest.mark.parametrize(
    ("parameters", "kind"),
    [
        ({"table_type": "ICEBERG"}, "an Iceberg table"),
        ({"transactional": "true"}, "a transactional table of Hive"),
        ({"spark.sql.sources.provider": "DELTA"}, "a table of delta"),
        ({"storage_handler": "org.apache.hive.Kudu"}, "a table of org.apache.hive.kudu"),
        ({"spark.sql.sources.provider": "parquet", "EXTERNAL": "TRUE"}, None),
    ],
)
def test_tables_whose_files_do_not_show_their_rows(parameters: dict[str, str], kind: str | None) -> None:
    storage = SimpleNamespace(cols=[SimpleNamespace(name="col", type="array<string>", comment=None)])
    table = SimpleNamespace(parameters=parameters, tableType="EXTERNAL_TABLE", sd=storage)
    assert unsupported_table_kind(table) == kind
    storage.cols[0].comment = "from deserializer"  # as Spark writes it where it keeps the columns elsewhere
    only_spark = "a table whose columns only Spark knows"
    assert unsupported_table_kind(table) == (
        only_spark if parameters.get("spark.sql.sources.provider") == "parquet" else kind
    )
