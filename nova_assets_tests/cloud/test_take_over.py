"""A folder in an object store that other tools have filled and read: a channel takes over its rows and the form of its
files, at another address. Readers of the folder are not disturbed."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import nova_assets as nova
from nova_assets.settings import Settings
from nova_assets.store.store import Store
from nova_assets_tests.cli.conftest import CommandOutput
from nova_assets_tests.cloud.faulty_s3 import Fault, FaultyS3, Kind
from nova_assets_tests.cloud.test_published_folder import bucket, keys
from nova_assets_tests.effort import long_except
from nova_assets_tests.forked import run_python

pytestmark = pytest.mark.slow

OLD = "s3://lake/exports/actions"
NEW = "s3://lake/exports/actions_v2"
DDL = (
    "dt date NOT NULL, action string NOT NULL, id bigint NOT NULL, small bigint, price decimal(10,2), at timestamp, "
    "tags array<string>"
)
TYPES = pa.schema(
    [
        ("price", pa.decimal128(10, 2)),
        ("id", pa.int64()),
        ("small", pa.int32()),
        ("tags", pa.list_(pa.large_string())),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
ROWS = {
    "dt=2024-01-01/action=a%2Fb": [(Decimal("1.50"), 1, 10, ["x", None], datetime(2024, 1, 1, 12, tzinfo=UTC))],
    "dt=2024-01-01/action=view": [(None, 2, None, [], None)],
    "dt=2024-01-02/action=view": [
        (Decimal("-7.25"), 3, 30, None, datetime(1969, 7, 20, 20, 17, tzinfo=UTC)),
        (Decimal("0.00"), 4, 40, ["y"], datetime(2024, 1, 2, tzinfo=UTC)),
    ],
}
LATER = {"dt": date(2024, 1, 3), "action": "view", "id": 5, "small": 50, "price": None, "at": None, "tags": ["z"]}
INT96 = {"use_deprecated_int96_timestamps": True, "store_schema": False}


def put(key: str, body: bytes) -> None:
    boto3.client("s3").put_object(Bucket="lake", Key=key, Body=body)


def fill(schema: pa.Schema = TYPES, **options: Any) -> None:
    """As other tools leave it: partition columns in the names alone, and a column order of its own."""
    for folder, rows in ROWS.items():
        table = pa.Table.from_pylist([dict(zip(TYPES.names, r, strict=True)) for r in rows], TYPES)
        put_table(folder, table.cast(schema), **options)
    put("exports/actions/_SUCCESS", b"")


def put_table(folder: str, table: pa.Table, name: str = "part-0.snappy.parquet", **options: Any) -> None:
    data = io.BytesIO()
    pq.write_table(table, data, **options)
    put(f"exports/actions/{folder}/{name}", data.getvalue())


def opened(root: Path, *tables: Any, **channel: Any) -> Store:
    declared = nova.Channel(
        "actions",
        schema=DDL,
        partitions=[nova.daily("dt", start="2024-01-01"), nova.dynamic("action")],
        publish=list(tables or (nova.hive(NEW),)),
        **{"merge": nova.Append(), **channel},
    )
    settings = Settings(f"sqlite:///{root}/c.db", "s3://lake/wh", root=root, throttle_budget=0.5)
    return nova.open(nova.Project(channels=[declared]), settings=settings)


def listed() -> pa.Table:
    """The old folder, as its readers find it: by listing."""
    found = ds.dataset(OLD.removeprefix("s3://"), filesystem=bucket(), partitioning="hive").to_table()
    return found.sort_by("id")


def edition() -> dict[str, Any]:
    body = boto3.client("s3").get_object(Bucket="lake", Key="exports/actions_v2/_edition.json")["Body"].read()
    return json.loads(body)["partitions"]  # type: ignore[no-any-return]


def by_manifests() -> pa.Table:
    """The new table, as Hive and Trino find it: the files of each partition's manifest, and the folder's values."""
    tables = []
    for partition, (_, files) in edition().items():
        with bucket().open_input_stream(f"lake/exports/actions_v2/{partition}/manifest") as stream:
            assert stream.read().decode().splitlines() == files
        values = dict(part.split("=", 1) for part in partition.split("/"))
        for file in files:
            rows = pq.read_table(file.removeprefix("s3://"), filesystem=bucket(), partitioning=None)
            for column, value in values.items():
                rows = rows.append_column(column, pa.array([value.replace("%2F", "/")] * len(rows)))
            tables.append(rows)
    return pa.concat_tables(tables).sort_by("id")


def without_folders(table: pa.Table) -> pa.Schema:
    return table.schema.remove_metadata().remove(len(table.schema) - 1).remove(len(table.schema) - 2)


FOLDERS: dict[str, tuple[pa.Schema, dict[str, Any]]] = {
    "Arrow's": (TYPES, {}),
    "Spark's": (TYPES.set(3, pa.field("tags", pa.list_(pa.string()))), {"store_schema": False}),
    "Hive's, INT96": (TYPES.set(4, pa.field("at", pa.timestamp("ns"))), INT96),
}


@pytest.mark.parametrize("kind", long_except(FOLDERS, "Hive's, INT96"))
def test_rows_and_types_are_taken_over_and_the_folder_stays(kind: str, faulty: FaultyS3, tmp_path: Path) -> None:
    schema, options = FOLDERS[kind]
    fill(schema, **options)
    before, objects = listed(), keys("exports/actions/")

    store = opened(tmp_path)
    [version] = store.publish("actions", take_over_from=OLD)
    assert (version.rows, version.seq) == (4, 1)

    new = by_manifests()
    assert new.drop_columns(["dt", "action"]).to_pylist() == before.drop_columns(["dt", "action"]).to_pylist()
    assert new.column("dt").to_pylist() == [str(d) for d in before.column("dt").to_pylist()]
    assert new.column("action").to_pylist() == before.column("action").to_pylist()
    assert without_folders(new) == without_folders(before), "columns, their order and their types"
    [codec] = {pq.read_metadata(f.removeprefix("s3://"), filesystem=bucket()).row_group(0).column(0).compression
               for _, files in edition().values() for f in files}  # fmt: skip
    assert codec == "SNAPPY"
    assert listed().equals(before) and keys("exports/actions/") == objects, "nothing of the folder is touched"
    assert store.publish("actions", take_over_from=OLD) == [], "to type it again changes nothing"

    kept = edition()["dt=2024-01-02/action=view"]
    store.insert("actions", [LATER])
    assert [v.rows for v in store.publish("actions")] == [5]
    assert without_folders(by_manifests()) == without_folders(before), "later editions keep the form"
    assert edition()["dt=2024-01-02/action=view"] == kept and by_manifests().num_rows == 5
    assert listed().equals(before)

    store.unpublish("actions")
    assert keys("exports/") == objects, "nothing of nova is left, and all of theirs"


def test_a_take_over_that_fails_is_completed(faulty: FaultyS3, tmp_path: Path) -> None:
    fill()
    before = listed()

    def deny_editions(kind: Kind, path: str) -> Fault | None:
        return "denied" if kind == "PUT" and "/actions_v2/dt=2024-01-02" in path else None

    store = opened(tmp_path)
    faulty.choose = deny_editions
    with pytest.raises(nova.TableUnavailable):
        store.publish("actions", take_over_from=OLD)
    assert "exports/actions_v2/_edition.json" not in keys()
    faulty.choose = lambda kind, path: None
    assert [v.seq for v in store.publish("actions", take_over_from=OLD)] == [1], "the rows are not inserted twice"
    assert by_manifests().num_rows == store.read("actions").to_arrow().num_rows == 4
    assert listed().equals(before)


def test_files_that_appear_meanwhile_are_not_forgotten(faulty: FaultyS3, tmp_path: Path) -> None:
    fill()
    late = TYPES.empty_table()
    done = []

    def write_late(kind: Kind, path: str) -> Fault | None:
        if kind == "PUT" and "/wh/blocks/" in path and not done:
            done.append(path)
            put_table("dt=2024-01-02/action=view", late, "late.parquet")
        return None

    store = opened(tmp_path)
    faulty.choose = write_late
    with pytest.raises(nova.SchemaMismatch, match="is not taken over") as caught:
        store.publish("actions", take_over_from=OLD)
    assert done and "stop the programs that write into the folder" in str(caught.value)
    assert "exports/actions_v2/_edition.json" not in keys()


PROJECT = f"""
import nova_assets as nova
days = [nova.daily("dt", start="2024-01-01"), nova.dynamic("action")]
project = nova.Project(channels=[
    nova.Channel("actions", schema="{DDL}", partitions=days, publish=nova.hive("{NEW}")),
    nova.Channel("unpartitioned", schema="{DDL}", publish=nova.hive("{NEW}_u")),
])
"""
SETTINGS = '[tool.nova]\nproject = "pipeline:project"\nwarehouse = "s3://lake/wh"\n'


@pytest.fixture
def shell(faulty: FaultyS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., CommandOutput]:
    """``nova publish``, in a process of its own, in a project whose folder was filled by others."""
    fill()
    (tmp_path / "pipeline.py").write_text(PROJECT)
    (tmp_path / "pyproject.toml").write_text(SETTINGS)
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, **environment: str) -> CommandOutput:
        done = run_python(["-m", "nova_assets.cli", "publish", *arguments], environment)
        return CommandOutput(done.returncode, done.stdout, done.stderr)

    return call


def test_in_the_shell(shell: Callable[..., CommandOutput]) -> None:
    refused = shell("unpartitioned", "--take-over-from", OLD)
    assert refused.code == 1
    assert "declare the channel with these partitions, in this order: dt, action" in refused.err
    [published] = shell("actions", "--take-over-from", OLD, "--json").json["editions"]
    assert (published["table"], published["seq"], published["rows"]) == (f"hive:{NEW}", 1, 4)
    assert by_manifests().num_rows == 4


POINTS = ["commit.before", "commit.after", "edition.opened", "edition.made", "edition.exchanging", "edition.shown"]


@pytest.mark.crash
@pytest.mark.parametrize("point", long_except(POINTS, "commit.after", "edition.exchanging"))
def test_killed_on_the_way(point: str, shell: Callable[..., CommandOutput]) -> None:
    before, objects = listed(), keys("exports/actions/")
    assert shell("actions", "--take-over-from", OLD, NOVA_CRASH_AT=point).code == -9, "it was killed there"
    assert listed().equals(before) and keys("exports/actions/") == objects
    if "exports/actions_v2/_edition.json" in keys():
        assert by_manifests().num_rows == 4
    output = shell("actions", "--take-over-from", OLD)
    assert output.code == 0, output.err
    rows = by_manifests()
    assert without_folders(rows) == without_folders(before) and rows.num_rows == 4, "the rows once, in the old form"
    assert listed().equals(before) and keys("exports/actions/") == objects


def test_what_is_refused_changes_nothing(faulty: FaultyS3, tmp_path: Path) -> None:
    fill()
    objects = keys("exports/")

    def refused(error: type[nova.NovaError], text: str, store: Store, address: str = OLD) -> str:
        with pytest.raises(error, match=text) as caught:
            store.publish("actions", take_over_from=address)
        assert keys("exports/") == objects
        return str(caught.value)

    with opened(tmp_path / "here", nova.hive(OLD)) as store:
        for take_over in (False, True):
            with pytest.raises(nova.NovaError, match="would find old and new files together") as caught:
                store.publish("actions", take_over=take_over)
            assert f"nova publish CHANNEL --take-over-from {OLD}" in str(caught.value)
            assert f'nova.hive("{OLD}_v2")' in str(caught.value)
        refused(nova.TableTaken, "another address", store)
    with opened(tmp_path / "within", nova.hive(f"{OLD}/v2")) as store:
        refused(nova.TableTaken, "another address", store)
    with opened(tmp_path / "disk", nova.hive("exports")) as store:
        assert f'publish=nova.hive("{OLD}_v2")' in refused(nova.DefinitionError, "no table", store)
    with opened(tmp_path / "a") as store:
        assert "--take-over" in refused(nova.DefinitionError, "not an address", store, "exports/actions")
        refused(nova.SourceUnavailable, "cannot be listed", store, "s3://nowhere/actions")
        assert store.catalog.definitions.channel("actions").head == 0
        store.insert("actions", [LATER])
        assert "nova publish actions" in refused(nova.DefinitionError, "has data already", store)
    with opened(tmp_path / "b") as store:
        for key, error, text in (
            ("loose.parquet", nova.TableTaken, "folders of different depth"),
            ("dt=2024-01-01/action=view/notes.txt", nova.BadRecord, "cannot be read as Parquet"),
            ("_delta_log/00000000000000000000.json", nova.NotSupported, "table of Delta Lake"),
        ):
            put(f"exports/actions/{key}", b"theirs")
            objects = keys("exports/")
            assert "nothing was changed" in (message := refused(error, text, store)) or "_delta_log" in key, message
            boto3.client("s3").delete_object(Bucket="lake", Key=f"exports/actions/{key}")
        assert store.catalog.definitions.channel("actions").head == 0
