"""A published folder in an object store: no rename, partitions switch by their manifests, and old readers finish."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

import nova_assets as nova
from nova_assets.nova_error import NovaError
from nova_assets.settings import Settings
from nova_assets.store.store import Store
from nova_assets_tests.cloud.faulty_s3 import Fault, FaultyS3, Kind

pytestmark = pytest.mark.slow

DDL = "dt date NOT NULL, action string NOT NULL, id bigint NOT NULL, n bigint"
DAYS = [nova.daily("dt", start="2024-01-01"), nova.dynamic("action")]
FOLDER = "s3://lake/exports/actions"


def opened(root: Path, table: Any, *, warehouse: str = "s3://lake/wh", **channel: Any) -> Store:
    declared = nova.Channel(
        "actions",
        **{"merge": nova.Upsert(key=["dt", "action", "id"]), **channel},
        schema=DDL,
        partitions=DAYS,
        publish=table,
    )
    settings = Settings(f"sqlite:///{root}/c.db", warehouse, root=root, gc_grace=0.001, throttle_budget=0.5)
    return nova.open(nova.Project(channels=[declared]), settings=settings)


def insert(store: Store, n: int, *days: int, action: str = "view") -> None:
    rows = [{"dt": date(2024, 1, day), "action": action, "id": i, "n": n} for day in days for i in range(3)]
    store.insert("actions", rows)


def bucket() -> fs.S3FileSystem:
    import os

    return fs.S3FileSystem(endpoint_override=os.environ["AWS_ENDPOINT_URL"].removeprefix("http://"), scheme="http")


def files_of(partition: str) -> list[str]:
    """Files of a partition, by its manifest alone, as Hive and Trino find them."""
    with bucket().open_input_stream(f"{FOLDER.removeprefix('s3://')}/{partition}/manifest") as stream:
        return stream.read().decode().splitlines()


def numbers(files: list[str]) -> list[int]:
    """Column ``n`` of some files, by Arrow."""
    tables = [pq.read_table(f.removeprefix("s3://"), filesystem=bucket(), partitioning=None) for f in files]
    return sorted(pa.concat_tables([t.select(["n"]) for t in tables]).column("n").to_pylist())


def keys(prefix: str = "exports/") -> set[str]:
    found = boto3.client("s3").list_objects_v2(Bucket="lake", Prefix=prefix).get("Contents", [])
    return {o["Key"] for o in found if not o["Key"].endswith("/")}


TABLES: dict[str, Callable[[], Any]] = {
    "the channel's files": lambda: nova.hive(FOLDER),
    "converted files": lambda: nova.hive_table(FOLDER),
}


@pytest.mark.parametrize("kind", TABLES)
def test_partitions_switch_and_old_readers_finish(kind: str, faulty: FaultyS3, tmp_path: Path) -> None:
    store = opened(tmp_path, TABLES[kind]())
    insert(store, 1, 1, 2)
    store.publish("actions")
    first = {day: files_of(f"dt=2024-01-0{day}/action=view") for day in (1, 2)}
    assert numbers(first[1]) == [1, 1, 1] and len(first[1]) == 1
    columns = set(pq.read_schema(first[1][0].removeprefix("s3://"), filesystem=bucket()).names)
    assert columns == ({"id", "n"} if kind == "converted files" else {"dt", "action", "id", "n"})

    insert(store, 2, 2)
    store._publishing.publisher.superseded_delay = 3600.0
    store.publish("actions")
    store.collect_garbage("actions")
    store._retention.deletion_delay = 0.0
    store.delete_collected()
    assert files_of("dt=2024-01-01/action=view") == first[1], "an unchanged partition keeps its files"
    assert numbers(files_of("dt=2024-01-02/action=view")) == [2, 2, 2]
    assert numbers(first[2]) == [1, 1, 1], "a reader of the old edition finishes"
    edition = json.loads(
        boto3.client("s3").get_object(Bucket="lake", Key="exports/actions/_edition.json")["Body"].read()
    )
    assert (edition["edition"], edition["seq"]) == (2, 2)
    assert edition["partitions"]["dt=2024-01-02/action=view"][1] == files_of("dt=2024-01-02/action=view")

    insert(store, 3, 1)
    store._publishing.publisher.superseded_delay = 0.0
    store.publish("actions")
    store.publish("actions")
    store.collect_garbage("actions")
    store.delete_collected()
    assert numbers(files_of("dt=2024-01-01/action=view")) == [3, 3, 3]
    assert numbers(files_of("dt=2024-01-02/action=view")) == [2, 2, 2]
    old = {f.removeprefix("s3://lake/") for f in first[2]}
    assert not old & keys(""), "the files of an old edition go, after its readers"
    assert faulty.copies == 0, "nothing is renamed"

    store.unpublish("actions")
    assert keys() == set()
    assert store.read("actions").to_arrow().num_rows == 6


def test_a_day_is_marked_last_and_a_failed_switch_is_completed(faulty: FaultyS3, tmp_path: Path) -> None:
    store = opened(tmp_path, nova.hive_table(FOLDER), seal=nova.seal("dt"))
    insert(store, 1, 1, 2)
    store.seal("actions")
    order: list[str] = []

    def note(kind: Kind, path: str) -> Fault | None:
        if kind == "PUT" and path.startswith("/lake/exports/actions/"):
            order.append(path.removeprefix("/lake/exports/actions/"))
        return None

    faulty.choose = note
    store.publish("actions")
    assert order.index("dt=2024-01-01/_SUCCESS") > order.index("dt=2024-01-02/action=view/manifest")
    assert order[-2:] == ["_edition.json", "_SUCCESS"]

    insert(store, 2, 1, 2)
    store.seal("actions")
    faulty.choose = lambda kind, path: (
        "denied" if kind == "PUT" and path.endswith("01-02/action=view/manifest") else None
    )
    with pytest.raises(NovaError, match="cannot be published in"):
        store.publish("actions")
    for day in (1, 2):
        assert numbers(files_of(f"dt=2024-01-0{day}/action=view")) in ([1, 1, 1], [2, 2, 2]), "each is whole"
    faulty.choose = lambda kind, path: None
    store.publish("actions")
    for day in (1, 2):
        assert numbers(files_of(f"dt=2024-01-0{day}/action=view")) == [2, 2, 2]
    assert store.publish("actions") == []


def test_what_is_refused(faulty: FaultyS3, tmp_path: Path) -> None:
    boto3.client("s3").put_object(Bucket="lake", Key="exports/actions/dt=2024-01-01/theirs.parquet", Body=b"x")
    store = opened(tmp_path, nova.hive(FOLDER))
    insert(store, 1, 1)
    with pytest.raises(nova.TableTaken, match="does not belong to this channel"):
        store.publish("actions")
    with pytest.raises(nova.NotSupported, match="old and new files together"):
        store.publish("actions", take_over=True)
    assert keys() == {"exports/actions/dt=2024-01-01/theirs.parquet"}
    with pytest.raises(nova.TableTaken, match="belongs to the deployment itself"):
        opened(tmp_path / "b", nova.hive("s3://lake/wh/blocks")).publish("actions")
    with pytest.raises(nova.DefinitionError, match="s3://lake/exports/actions"):
        nova.hive("ftp://lake/x")


@pytest.mark.core
def test_converted_files_from_another_place(faulty: FaultyS3, tmp_path: Path) -> None:
    store = opened(tmp_path, [nova.hive(FOLDER), nova.hive_table("here")], warehouse=str(tmp_path / "wh"))
    insert(store, 1, 1)
    store.publish("actions")
    assert numbers(files_of("dt=2024-01-01/action=view")) == [1, 1, 1], "a local warehouse, and a table in S3"
    assert pq.read_table(tmp_path / "here").column("n").to_pylist() == [1, 1, 1]
    (tmp_path / "s3").mkdir()
    remote = opened(tmp_path / "s3", nova.hive_table("there"))
    insert(remote, 1, 1)
    remote.publish("actions")
    assert pq.read_table(tmp_path / "s3" / "there").column("n").to_pylist() == [1, 1, 1], "and the other way round"
