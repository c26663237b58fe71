"""Blocks in ORC, Avro, CSV and JSON lines, and files that are kept as they are (Nova 3.1): the same rows everywhere."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nova_assets as nova
from nova_assets.store.store import Store
from nova_assets.testing import World
from nova_assets_tests.effort import examples

FORMATS = ["parquet", "orc", "avro", "csv", "json"]
DDL = (
    "k bigint, b boolean, i int, f float, d double, m decimal(12,3), s string, x binary, day date, "
    "at timestamp, lo timestamp_ntz"
)
FULL: dict[str, Any] = {
    "b": True,
    "i": -(2**31),
    "f": 0.10000000149011612,
    "d": 1e300,
    "m": Decimal("-1.500"),
    "s": 'a,"b"\n',
    "x": b"xy",
    "day": date(1969, 12, 31),
    "at": datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    "lo": datetime(1900, 1, 2, 3, 4, 5, 6),
}
EMPTY: dict[str, Any] = {**dict.fromkeys(FULL), "s": ""}


@pytest.fixture
def store() -> Iterator[Store]:
    with World() as world:
        yield world


def by_key(table: pa.Table) -> dict[int, dict[str, Any]]:
    return {r["k"]: r for r in table.to_pylist()}


def formats_of(store: Store, channel: str = "t") -> list[str]:
    return [b.manifest.format for i in store.timeline(channel) for b in i.blocks]


def insert_one_block_of_each_format(store: Store) -> dict[int, dict[str, Any]]:
    expected: dict[int, dict[str, Any]] = {}
    for n, name in enumerate(FORMATS):
        rows = [{"k": 10 * n, **FULL, "i": n}, {"k": 10 * n + 1, **EMPTY}, {"k": 1000, **FULL, "i": n}]
        deleted = [{"k": 10 * n - 10, "_deleted": True}] if n else []
        store.insert("t", rows + deleted, format=name)  # type: ignore[arg-type]
        expected |= {r["k"]: r for r in rows}
        expected.pop(10 * n - 10, None)
    return expected


def test_one_snapshot_of_all_formats_in_every_mode_with_compaction_and_collection(store: Store) -> None:
    store.register(nova.Channel("t", merge=nova.Upsert(key="k"), schema=DDL, retain="0s"))
    expected = insert_one_block_of_each_format(store)
    assert formats_of(store) == FORMATS
    assert by_key(store.read("t").to_arrow()) == expected
    assert by_key(store.read("t", keys=[{"k": 21}]).to_arrow()) == {21: expected[21]}
    assert by_key(store.read("t", columns=["k", "s"]).to_arrow())[31] == {"k": 31, "s": ""}
    changes = {(r["k"], r["_deleted"]) for r in store.read("t", since=3, at=4).to_arrow().to_pylist()}
    assert changes == {(30, False), (31, False), (1000, False), (20, True)}
    batches = pa.Table.from_batches(store.read("t").to_batches())
    assert by_key(batches) == expected
    store.compact("t")
    store.collect_garbage("t")
    assert by_key(store.read("t").to_arrow()) == expected
    assert store.timeline("t")[-2].blocks[0].manifest.format == "parquet"


@pytest.mark.core
@pytest.mark.spark
def test_spark_reads_the_same_rows_as_this_process(store: Store) -> None:
    """Spark's own CSV and ORC readers are not used: its workers read the files as this process does."""
    store.register(nova.Channel("t", merge=nova.Upsert(key="k"), schema=DDL))
    expected = insert_one_block_of_each_format(store)
    engine: Any = store.engine
    assert by_key(engine.frames.to_arrow(store.read("t").to_spark())) == expected


@pytest.mark.spark
def test_a_task_writes_a_base_and_a_delta_in_a_format(spark: Any) -> None:
    name: Any = "orc"
    days = nova.Channel("days", schema="n int")
    top, log = (nova.Channel(n, schema="n int") for n in ("top", "log"))

    @nova.task(consumes=nova.new(days), produces=[nova.base(top, format=name), nova.delta(log, format=name)])
    def copy(days: Any) -> Any:
        return {"top": spark.createDataFrame([(1,)], "n int"), "log": spark.createDataFrame([(2,)], "n int")}

    with World(nova.Project([nova.bind(nova.Workflowette("w", [copy]))]), spark=spark) as store:
        store.insert("days", [{"n": 1}])
        store.run("w")
        store.insert("days", [{"n": 1}])
        store.run("w")
        assert [formats_of(store, c) for c in ("top", "log")] == [[name, name]] * 2
        assert store.read("top").to_arrow().to_pylist() == [{"n": 1}]
        assert store.read("log").to_arrow().to_pylist() == [{"n": 2}, {"n": 2}]
        store.compact("top")
        assert formats_of(store, "top")[-1] == "parquet", "a base of another format is compacted, too"
        assert store.read("top").to_arrow().to_pylist() == [{"n": 1}]


@pytest.mark.parametrize(
    ("name", "ddl", "row", "found"),
    [
        ("csv", "v array<int>", {"v": [1]}, "CSV has no nested types"),
        ("csv", "v struct<a: int>", {"v": {"a": 1}}, "CSV has no nested types"),
        ("avro", "v map<int, int>", {"v": [(1, 2)]}, "keys of Avro's maps are text"),
        ("avro", "`a-b` int", {"a-b": 1}, "a name that Avro does not allow"),
    ],
)
def test_types_that_a_format_cannot_hold_are_refused(store: Store, name: Any, ddl: str, row: Any, found: str) -> None:
    channel = nova.Channel("t", schema=ddl)
    store.register(channel)

    @nova.task(produces=nova.delta(channel, format=name))
    def writer() -> Any:
        return [row]

    with pytest.raises(nova.DefinitionError, match=found):
        store.insert("t", [row], format=name)
    with pytest.raises(nova.DefinitionError, match=found):
        nova.Project([nova.bind(nova.Workflowette("w", [writer]))])
    assert store.catalog.definitions.channel("t").head == 0


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("csv", {"x": b"\xff"}),
        ("json", {"x": b"\xff"}),
        ("orc", {"lo": datetime(1, 1, 1)}),
    ],
)
def test_values_that_a_format_cannot_hold_are_refused_and_leave_nothing(store: Store, name: Any, row: Any) -> None:
    store.register(nova.Channel("t", merge=nova.Upsert(key="k"), schema=DDL))
    with pytest.raises(nova.SchemaMismatch, match=f"a file of format {name} does not hold the rows"):
        store.insert("t", [{"k": 1, **FULL, **row}], format=name)
    assert store.catalog.definitions.channel("t").head == 0 and not any(store.engine.warehouse.list_block_entries())  # type: ignore[attr-defined]


def test_one_null_column_in_csv_would_be_an_empty_line(store: Store) -> None:
    store.register(nova.Channel("t", schema="s string"))
    with pytest.raises(nova.SchemaMismatch, match="does not hold the rows"):
        store.insert("t", [{"s": None}, {"s": "a"}], format="csv")
    store.insert("t", [{"s": ""}, {"s": "a"}], format="csv")
    assert store.read("t").to_arrow().to_pylist() == [{"s": ""}, {"s": "a"}]


values = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-(2**63), 2**63 - 1),
        "d": st.none() | st.floats(),
        "m": st.none() | st.decimals(-(10**9) + 1, 10**9 - 1, places=3),
        "s": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
        "x": st.none() | st.binary(max_size=4),
        "day": st.none() | st.dates(),
        "at": st.none() | st.datetimes(timezones=st.just(UTC)),
        "tags": st.none() | st.lists(st.none() | st.text("ab,\"'\n", max_size=3), max_size=3),
    }
)


def comparable(rows: list[dict[str, Any]]) -> list[str]:
    return [repr(sorted({**r, "at": r["at"] and r["at"].astimezone(UTC).isoformat()}.items())) for r in rows]


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS[1:])
def test_a_format_holds_any_rows_exactly_or_refuses_them(store: Store, name: Any) -> None:
    columns = "n bigint, d double, m decimal(12,3), s string, x binary, day date, at timestamp"
    tagged = name != "csv"
    channels = count()

    @settings(max_examples=examples(12, 60), deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(values, min_size=1, max_size=4))
    def check(drawn: list[dict[str, Any]]) -> None:
        rows = [r if tagged else {n: v for n, v in r.items() if n != "tags"} for r in drawn]
        channel = f"t{next(channels)}"
        store.register(nova.Channel(channel, schema=columns + (", tags array<string>" if tagged else "")))
        try:
            store.insert(channel, rows, format=name)
        except nova.SchemaMismatch as error:
            assert "does not hold the rows" in error.what
            return
        assert comparable(store.read(channel).to_arrow().to_pylist()) == comparable(rows)

    check()


# files that stay as they are


def write_file(path: Path, rows: list[dict[str, Any]]) -> Path:
    table = pa.Table.from_pylist(rows)
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".orc":
        pa.orc.write_table(table, str(path))
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    else:
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        content = text.getvalue().encode()
        compress = {".gz": gzip.compress, ".zstd": zstandard.ZstdCompressor().compress}.get(path.suffix, bytes)
        path.write_bytes(compress(content))
    return path


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.parquet", "a.orc", "a.csv", "a.csv.gz", "a.csv.zstd", "a.jsonl"])
def test_kept_files_are_copied_byte_for_byte(store: Store, tmp_path: Path, name: str) -> None:
    store.register(nova.Channel("t", merge=nova.Upsert(key="k"), schema="k bigint, s string"))
    files = [
        write_file(tmp_path / name, [{"k": 1, "s": "a"}, {"k": 2, "s": "b"}]),
        write_file(tmp_path / f"b{name}", [{"k": 3, "s": "c"}]),
    ]
    store.insert("t", [{"k": 2, "s": "older"}])
    commit = store.insert("t", [str(f) for f in files], keep_files=True)
    kept = commit.blocks[0].manifest.files
    assert [(f.rows, f.ranges["k"]) for f in kept] == [(2, (1, 2)), (1, (3, 3))]
    warehouse = Path(store.engine.warehouse.address)  # type: ignore[attr-defined]
    assert [digest(warehouse / f.path) for f in kept] == [digest(f) for f in files]
    assert by_key(store.read("t").to_arrow()) == {n: {"k": n, "s": s} for n, s in ((1, "a"), (2, "b"), (3, "c"))}
    store.compact("t")
    assert by_key(store.read("t").to_arrow())[3] == {"k": 3, "s": "c"}


def test_kept_files_that_would_have_to_change_are_refused(store: Store, tmp_path: Path) -> None:
    store.register(
        [
            nova.Channel("t", merge=nova.Upsert(key="k"), schema="k bigint, s string"),
            nova.Channel("p", schema="p string, n bigint", partitions=nova.dynamic("p")),
        ]
    )
    narrow = tmp_path / "narrow.parquet"
    pq.write_table(pa.table({"k": pa.array([1], pa.int32()), "s": ["a"]}), narrow)
    with pytest.raises(nova.SchemaMismatch, match="cannot be kept as it is") as met:
        store.insert("t", str(narrow), keep_files=True)
    assert "column 'k' as int32, not bigint" in met.value.found
    legacy = tmp_path / "legacy.parquet"
    pq.write_table(pa.table({"k": [1], "s": ["a"]}), legacy, use_deprecated_int96_timestamps=True)
    store.insert("t", str(legacy), keep_files=True)  # it has no times
    repeated = write_file(tmp_path / "r.csv", [{"k": 1, "s": "a"}, {"k": 1, "s": "b"}])
    with pytest.raises(nova.BadKey):
        store.insert("t", str(repeated), keep_files=True)
    mixed = write_file(tmp_path / "m.csv", [{"p": "a", "n": 1}, {"p": "b", "n": 2}])
    with pytest.raises(nova.PartitionError, match="a kept file belongs to one"):
        store.insert("p", str(mixed), keep_files=True)
    two = [write_file(tmp_path / f"{p}.csv", [{"p": p, "n": 1}]) for p in ("a", "b")]
    assert {b.partition for b in store.insert("p", [str(f) for f in two], keep_files=True).blocks} == {"p=a", "p=b"}
    with pytest.raises(nova.BadRecord, match="need one format"):
        store.insert("t", [str(repeated), str(narrow)], keep_files=True)
    with pytest.raises(nova.DefinitionError, match="keep_files= needs files"):
        store.insert("t", [{"k": 1, "s": "a"}], keep_files=True)
    with pytest.raises(nova.DefinitionError, match="keeps the format of the files"):
        store.insert("p", str(two[0]), keep_files=True, format="orc")
    assert store.catalog.definitions.channel("t").head == 1 and store.catalog.definitions.channel("p").head == 1


def test_a_changed_byte_is_found_before_its_rows_are_read(store: Store) -> None:
    store.register(nova.Channel("t", schema="n int"))
    store.insert("t", [{"n": 1}, {"n": 2}], format="csv")
    [file] = store.timeline("t")[-1].blocks[0].manifest.files
    path = Path(store.engine.warehouse.address) / file.path  # type: ignore[attr-defined]
    path.write_bytes(path.read_bytes().replace(b"2", b"3"))
    with pytest.raises(nova.FileAltered, match="was altered after it was committed"):
        store.read("t").to_arrow()


def test_schema_changes_reach_blocks_of_every_format(store: Store) -> None:
    def define(ddl: str, **renamed: str) -> nova.Channel:
        return nova.Channel("t", merge=nova.Upsert(key="k"), schema=ddl, renamed=renamed)

    store.register(define("k bigint, n int, s string"))
    for number, name in enumerate(FORMATS):
        store.insert("t", [{"k": number, "n": number, "s": name}], format=name)  # type: ignore[arg-type]
    store.register(define("k bigint, wide bigint, extra string", wide="n"), replace=True)
    store.insert("t", [{"k": 9, "wide": 2**40, "extra": "x"}], format="csv")
    expected = {n: {"k": n, "wide": n, "extra": None} for n in range(5)} | {9: {"k": 9, "wide": 2**40, "extra": "x"}}
    assert by_key(store.read("t").to_arrow()) == expected
    store.compact("t")
    assert by_key(store.read("t").to_arrow()) == expected
    assert by_key(store.read("t", at=5).to_arrow())[1] == {"k": 1, "n": 1, "s": "orc"}
