"""Names of partition folders in Hive layout."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nova_assets as nova
from nova_assets.model.published_version import PublishedContent
from nova_assets.model.schema import Schema
from nova_assets.publish.edition_folder import hive_partition_path
from nova_assets.publish.iceberg import default_iceberg_catalog
from nova_assets_tests.publish.shop import Shop


def test_hours_are_named_in_utc(tmp_path: Path) -> None:
    hours = nova.hourly("at", start="2024-01-01", tz="America/New_York")
    channel = nova.Channel("h", schema="at timestamp, n bigint", partitions=hours, publish=nova.hive("x/h"))
    store = Shop(tmp_path).store
    store.insert(channel, [{"at": datetime(2024, 3, 1, 17, tzinfo=UTC), "n": 1}])
    store.publish(channel)
    [folder] = (tmp_path / "x/h").glob("at=*")
    assert folder.name == "at=2024-03-01 17%3A00%3A00"


def test_an_empty_value_is_no_folder(tmp_path: Path) -> None:
    where = [nova.hive("x/e"), nova.iceberg("x.e")]
    channel = nova.Channel("e", schema="p string", partitions=nova.dynamic("p"), publish=where)
    store = Shop(tmp_path).store
    store.insert(channel, [{"p": ""}])
    with pytest.raises(nova.NotSupported, match="p is empty"):
        store.publish(channel)
    assert default_iceberg_catalog(tmp_path / ".nova/iceberg").load_table("x.e").scan().to_arrow().num_rows == 1


def test_an_unpartitioned_channel(tmp_path: Path) -> None:
    plain = nova.Channel("plain", schema="id bigint, p string", publish=[nova.hive("x/plain"), nova.iceberg("x.plain")])
    shop = Shop(tmp_path)
    shop.store.insert(plain, [{"id": n, "p": None} for n in range(3)])
    assert [e.files for e in shop.store.publish(plain)] == [1, 1]
    assert default_iceberg_catalog(tmp_path / ".nova/iceberg").load_table("x.plain").scan().to_arrow().num_rows == 3
    assert len(list((tmp_path / "x/plain").glob("*.parquet"))) == 1


def test_a_partition_without_a_value(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    ddl, where = "id bigint, p string", [nova.hive("x/nulls"), nova.iceberg("x.nulls")]
    nulls = nova.Channel("nulls", schema=ddl, partitions=nova.dynamic("p"), publish=where)
    shop.store.insert(nulls, [{"id": 1, "p": None}, {"id": 2, "p": "b"}])
    assert [e.files for e in shop.store.publish(nulls)] == [2, 2]
    table = default_iceberg_catalog(tmp_path / ".nova/iceberg").load_table("x.nulls")
    assert table.scan(row_filter="p is null").to_arrow().column("id").to_pylist() == [1]
    assert {p.name for p in (tmp_path / "x/nulls").glob("p=*")} == {"p=__HIVE_DEFAULT_PARTITION__", "p=b"}


def test_a_text_that_readers_take_for_null_is_refused(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    texts = nova.Channel("t", schema="id int, p string", partitions=nova.dynamic("p"), publish=nova.hive("x/t"))
    shop.store.insert(texts, [{"id": 1, "p": "__HIVE_DEFAULT_PARTITION__"}, {"id": 2, "p": None}])
    with pytest.raises(nova.NotSupported, match="p is '__HIVE_DEFAULT_PARTITION__'"):
        shop.store.publish(texts)
    assert not (tmp_path / "x/t").exists()


@settings(deadline=None)
@given(st.lists(st.text(min_size=1), min_size=1, max_size=3, unique=True), st.text(max_size=60) | st.none())
def test_a_partition_is_a_plain_folder_whatever_is_in_its_name(columns: list[str], value: str | None) -> None:
    from urllib.parse import unquote

    from nova_assets.errors import NotSupported
    from nova_assets.model.partitions import partition_name

    content = PublishedContent("c", 1, Schema(()), tuple(map(nova.dynamic, columns)), ())
    try:
        name = partition_name(columns, dict.fromkeys(columns, value))
        folder = hive_partition_path(name, content)
    except (NotSupported, nova.PartitionError, UnicodeEncodeError):
        return
    parts = folder.split("/")
    assert len(parts) == len(columns) and not {".", ".."} & set(parts)
    shown = "__HIVE_DEFAULT_PARTITION__" if value is None else value
    assert [tuple(map(unquote, p.split("=", 1))) for p in parts] == [(c, shown) for c in columns]
