"""The stored form of definitions and metadata: catalogs hold it, services send it, and later versions have to read it.

``stored_forms.json`` is the form as it was when this test was written. A change of it needs a migration of catalogs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import nova_assets as nova
from nova_assets.model.block import DataFile, Manifest
from nova_assets.model.channel import Channel
from nova_assets.model.database_table import DatabaseTable
from nova_assets.model.external_table import External
from nova_assets.model.file_source import ExternalFolder
from nova_assets.model.key_layout import HashBuckets, KeyLayout, KeyRange, key_placement_from_json
from nova_assets.model.merge import MergeModel
from nova_assets.model.notification import Notification
from nova_assets.model.partitions import Dimension
from nova_assets.model.provenance import ChannelRead
from nova_assets.model.published_version import TableFileLayout
from nova_assets.model.schema import DataType, Field, Schema, parse_ddl
from nova_assets.model.seal import Sealing
from nova_assets.model.timeline import RolledBackBlock

FORMS = Path(__file__).with_name("stored_forms.json")


def merged(*frames: Any) -> Any:
    return frames[0]


def copy_all(orders: Any, seen: Any) -> Any:
    return {"copies": orders, "seen": seen}


class Stored(NamedTuple):
    """An object, and what reads its stored form; None if nothing reads it back."""

    value: Any
    read: Callable[[Any], Any] | None


DDL = "id bigint NOT NULL, at timestamp, price decimal(12,2), deep struct<a: string, b: array<map<string, int>>>"
SCHEMA = Schema((*parse_ddl(DDL).fields, Field("later", DataType("string"), True, "later@3")))
HIDDEN = Schema(parse_ddl("id int").fields, parse_ddl("__nova_sum decimal(38,2)").fields)
FILE = DataFile(
    "blocks/ab/part-0.parquet",
    10,
    2048,
    {"id": (1, 9), "at": ("2024-01-01T00:00:00Z", None)},
    HashBuckets(8, 2, (3, 7)),
    "day=2024-01-01",
    2,
    "d1",
    "f1",
    9000,
)
MANIFEST = Manifest(
    (FILE, DataFile("s3://lake/x.parquet", 1, 9, {}, KeyRange((1, "a"), (2, None)))),
    SCHEMA,
    2,
    "parquet",
    True,
    KeyLayout(("id",), ("bigint",), True),
    ExternalFolder("s3://lake/x", "7", False),
    merge=nova.Upsert(key="id"),
)
MERGES = {
    "append": nova.Append(),
    "multiset": nova.Multiset(),
    "upsert": nova.Upsert(key=["id", "day"], order_by=["at", "n"]),
    "keyed": nova.Keyed(key="id", combine={"n": "sum", "seen": "max"}, order_by="at"),
    "custom": nova.Custom(merge=merged, chain=merged, diff=merged),
}
TABLE = DatabaseTable("postgresql://h/d", query="SELECT 1", password_env="P", split_by="id", splits=4, settle="5m")
COPY = nova.task(
    name="copy",
    consumes=[nova.new("orders"), nova.matching("seen", keys_of="orders")],
    produces=[nova.delta("copies"), nova.base("seen")],
    retries=2,
    skip_if_no_new=True,
)(copy_all)
TRIGGER = (nova.on_data("orders", rows=10) | nova.after("other", status="failed")) & nova.cron("0 6 * * *", tz="UTC")
BINDING = nova.bind(
    nova.Workflowette("w", [COPY]),
    channels={"orders": nova.Channel("orders", schema="id int"), "copies": nova.Channel("copies", schema="id int")}
    | {"seen": nova.Channel("seen", merge=nova.Upsert(key="id"), schema="id int")},
    when=TRIGGER,
    params={"k": 4},
    resources=nova.Resources(max_cores=2),
)
OBJECTS: Mapping[str, Stored] = {
    **{f"merge {name}": Stored(model, MergeModel.from_json) for name, model in MERGES.items()},
    "schema": Stored(SCHEMA, Schema.from_json),
    "schema with hidden columns": Stored(HIDDEN, Schema.from_json),
    "daily": Stored(nova.daily("dt", start="2024-01-01", tz="Europe/Paris"), Dimension.from_json),
    "hourly": Stored(nova.hourly("hour", start="2024-01-01T05"), Dimension.from_json),
    "static": Stored(nova.static("kind", ["a", "b"]), Dimension.from_json),
    "dynamic": Stored(nova.dynamic("site"), Dimension.from_json),
    "channel": Stored(
        nova.Channel("c", merge=MERGES["upsert"], schema="id int, day date, at int, n int", cluster_by="id"),
        Channel.from_json,
    ),
    "channel with renamed columns": Stored(
        nova.Channel("c", schema="a int, b int", renamed={"a": "z"}, on_schema_change="evolve"), Channel.from_json
    ),
    "partitioned channel": Stored(
        nova.Channel("c", schema="dt date, k int", partitions=[nova.daily("dt", start="2024-01-01")]),
        Channel.from_json,
    ),
    "external table": Stored(nova.external("s3://lake/x", format="orc", success_file="_DONE"), External.from_json),
    "database table": Stored(TABLE, DatabaseTable.from_json),
    "binding": Stored(BINDING, None),
    "sealing": Stored(Sealing("dt", "3h", "quarantine"), Sealing.from_json),
    "file": Stored(FILE, DataFile.from_json),
    "manifest": Stored(MANIFEST, Manifest.from_json),
    "buckets": Stored(FILE.key_placement, key_placement_from_json),
    "key range": Stored(KeyRange((1, "a"), (2, None)), key_placement_from_json),
    "read of a channel": Stored(ChannelRead("c", 3, 7, "p=1", True), lambda form: ChannelRead.from_json("c", form)),
    "rolled back block": Stored(RolledBackBlock("i", "p=1", "blocks/i", ("a", "b")), RolledBackBlock.from_json),
    "files of a published table": Stored(
        TableFileLayout("orc", ("dt",), ("id", "v"), "YQ==", True, "snappy", False, ".orc"), TableFileLayout.from_json
    ),
    "notification": Stored(
        Notification(
            "failed",
            datetime(2024, 1, 2, 3, tzinfo=UTC),
            "it failed",
            "b",
            "p=1",
            "c",
            "e",
            "r",
            {"n": 1},
            "i",
        ),
        Notification.from_json,
    ),
}


def stored_forms() -> dict[str, Any]:
    """The form of each object, as JSON has it."""
    found: dict[str, Any] = json.loads(json.dumps({name: stored.value.as_json() for name, stored in OBJECTS.items()}))
    return found


@pytest.mark.core
@pytest.mark.parametrize("name", OBJECTS)
def test_the_stored_form_stays(name: str) -> None:
    form = json.loads(FORMS.read_text())[name]
    assert stored_forms()[name] == form
    stored = OBJECTS[name]
    if stored.read is not None:
        assert stored.read(form) == stored.value
