"""A warehouse in an object store, by Arrow alone; with Spark it is ``test_spark.py``."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.store.store import Store

pytestmark = pytest.mark.slow

DDL = "id bigint NOT NULL, dt date, n bigint"


@pytest.fixture
def bucket(s3: Any) -> Any:
    s3.create_bucket(Bucket="lake")
    return s3


@pytest.fixture
def store(bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.chdir(tmp_path)
    days = nova.daily("dt", start="2024-01-01")
    channels = [
        nova.Channel("logs", schema=DDL, partitions=days, publish=nova.iceberg("lake.logs")),
        nova.Channel("people", nova.Upsert(key="id"), DDL),
    ]
    with nova.open(nova.Project(channels=channels), warehouse="s3://lake/wh") as made:
        yield made


def keys(bucket: Any) -> list[str]:
    found = bucket.list_objects_v2(Bucket="lake").get("Contents", [])
    return sorted(o["Key"] for o in found if not o["Key"].endswith("/"))


def listed(store: Store) -> list[str]:
    return sorted(f"wh/{f.path}" for c in ("logs", "people") for b in store.catalog.histories.of(c).blocks
                  for f in b.manifest.files)  # fmt: skip


def row(id: int, n: int, day: int = 1) -> dict[str, Any]:
    return {"id": id, "dt": date(2024, 1, day), "n": n}


def rows(store: Store, channel: str, **how: Any) -> list[tuple[int, int]]:
    return sorted((r["id"], r["n"]) for r in store.read(channel, **how).to_arrow().to_pylist())


def test_a_channel_in_a_bucket(store: Store, bucket: Any) -> None:
    for n in range(4):
        store.insert("logs", [row(n, n), row(10 + n, n, day=2)])
    assert len(rows(store, "logs")) == 8 and rows(store, "logs", since=3) == [(3, 3), (13, 3)]
    assert rows(store, "logs", partition="dt=2024-01-02", at=2) == [(10, 0), (11, 1)]
    store.insert("people", [row(1, 1), row(2, 1), row(3, 1)])
    store.insert("people", [row(2, 2), {**row(3, 0), "_deleted": True}])
    assert rows(store, "people") == [(1, 1), (2, 2)] and rows(store, "people", at=1)[2] == (3, 1)
    assert rows(store, "people", keys=[{"id": 2}]) == [(2, 2)]
    assert [k for k in keys(bucket) if "/blocks/" in k] == listed(store)


def test_compacted_collected_and_deleted(store: Store, bucket: Any) -> None:
    for n in range(4):
        store.insert("logs", [row(n, n)])
        store.insert("people", [row(n + 1, n), row(0, n)])
    before = rows(store, "logs"), rows(store, "people")
    for channel in ("logs", "people"):
        assert store.compact(channel) is not None
        assert store.collect_garbage(channel).blocks
    store._retention.deletion_delay = 0.0
    assert store.delete_collected() > 0
    assert (rows(store, "logs"), rows(store, "people")) == before
    assert [k for k in keys(bucket) if "/blocks/" in k] == listed(store), "nothing else is left"


def test_published_as_an_iceberg_table(store: Store) -> None:
    store.insert("logs", [row(1, 1), row(2, 2, day=2)])
    [edition] = store.publish("logs")
    from nova_assets.publish.iceberg import default_iceberg_catalog

    table = default_iceberg_catalog(Path(".nova/iceberg")).load_table("lake.logs")
    assert all(f["file_path"].startswith("s3://lake/wh/blocks/") for f in table.inspect.files().to_pylist())
    assert table.scan().to_arrow().num_rows == 2 and edition.files == 2


def test_not_as_a_folder_of_links(bucket: Any, tmp_path: Path) -> None:
    channel = nova.Channel("a", schema="id bigint", publish=nova.hive(str(tmp_path / "a")))
    with nova.open(nova.Project(channels=[channel]), f"sqlite:///{tmp_path}/c.db", "s3://lake/wh") as store:
        store.insert("a", [{"id": 1}])
        with pytest.raises(nova.NotSupported, match="it has no links"):
            store.publish("a")


def test_what_is_missing_or_changed_is_told(store: Store, bucket: Any) -> None:
    store.insert("logs", [row(1, 1)])
    [key] = [k for k in keys(bucket) if "/blocks/" in k]
    bucket.put_object(Bucket="lake", Key=key, Body=b"short")
    with pytest.raises(nova.FileMissing, match="was changed after it was committed"):
        rows(store, "logs")
    bucket.delete_object(Bucket="lake", Key=key)
    with pytest.raises(nova.FileMissing, match="listed in the catalog and not in the warehouse"):
        rows(store, "logs")


def test_a_bucket_that_is_not_there_is_told_and_nothing_is_kept(bucket: Any, tmp_path: Path) -> None:
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse="s3://nowhere/wh") as store:
        store.register(nova.Channel("a", schema="id bigint"))
        with pytest.raises(nova.WarehouseUnavailable) as caught:
            store.insert("a", [{"id": 1}])
        assert "s3://nowhere/wh" in str(caught.value) and "AWS_ENDPOINT_URL" in str(caught.value)
        assert store.catalog.definitions.channel("a").head == 0
    with pytest.raises(nova.SettingsError, match="names no bucket"):
        nova.open(warehouse="s3://")


@pytest.mark.core
def test_orphans_are_found_and_set_aside(store: Store, bucket: Any) -> None:
    store.insert("logs", [row(1, 1)])
    bucket.put_object(Bucket="lake", Key="wh/blocks/lost/part-0.parquet", Body=b"x")
    entries = {e.path for e in store.engine.warehouse.list_block_entries()}
    assert "blocks/lost/part-0.parquet" in entries and "blocks/lost" in entries
    store.engine.warehouse.move_to_orphans("blocks/lost")
    assert "wh/orphans/lost/part-0.parquet" in keys(bucket)
    assert not [k for k in keys(bucket) if k.startswith("wh/blocks/lost")]
    assert rows(store, "logs") == [(1, 1)]
