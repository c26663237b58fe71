"""Reads as streams: the same rows and columns as all at once, in little memory, with no file left open."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import nova_assets as nova
from nova_assets.engine.read.streaming_reader import StreamingReader
from nova_assets.engine.write import block_rewriter
from nova_assets.errors import FileMissing, SchemaMismatch
from nova_assets.formats import record_batches
from nova_assets.model.reads import ChangeUnion, DeltaChain, EmptyRead, Snapshot, SnapshotAsInserts, SnapshotDiff
from nova_assets.plan import merge_units, partial_reads, read_strategy
from nova_assets.store.read import Selection
from nova_assets.store.store import Store
from nova_assets_tests.conftest import missing
from nova_assets_tests.listings import Listings, NoCounting

pytestmark = pytest.mark.slow

DDL = "p string, k bigint, v bigint, x double, note string, deep struct<a: string, b: double>"
BAG = DDL + ", many array<map<string, int>>"
COMBINED = {"v": "sum", "x": "max"}
CHANNELS = {
    "append": nova.Channel("c", schema=BAG),
    "append, partitioned": nova.Channel("c", schema=BAG, partitions=nova.dynamic("p")),
    "upsert": nova.Channel("c", merge=nova.Upsert(key="k"), schema=DDL),
    "upsert, ordered": nova.Channel("c", merge=nova.Upsert(key="k", order_by="v"), schema=DDL),
    "upsert, partitioned": nova.Channel(
        "c", merge=nova.Upsert(key=["p", "k"]), schema=DDL, partitions=nova.dynamic("p")
    ),
    "upsert, clustered": nova.Channel("c", merge=nova.Upsert(key=["k", "note"]), schema=DDL, cluster_by="k"),
    "keyed": nova.Channel("c", merge=nova.Keyed(key="k", combine=COMBINED), schema=DDL),
    "keyed, partitioned": nova.Channel(
        "c", merge=nova.Keyed(key=["p", "k"], combine=COMBINED), schema=DDL, partitions=nova.dynamic("p")
    ),
}


POOLS: list[pa.MemoryPool] = []
"""Kept to the end: what Arrow's threads hold longest goes back to where it is from."""


def never() -> Any:
    raise AssertionError("Spark was started")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Without Spark."""
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=never) as made:
        yield made


@pytest.fixture
def with_spark(tmp_path: Path, spark: Any) -> Iterator[Store]:
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=spark) as made:
        yield made


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several buckets, batches and portions of very little. Snapshots are streamed by merge units."""
    monkeypatch.setattr(read_strategy, "DELTA_MEMORY_FACTOR", 0)
    for limit in ("BUCKET_BYTES", "MAX_BUCKET_BYTES"):
        monkeypatch.setattr(merge_units, limit, 3000)
    monkeypatch.setattr(record_batches, "MAX_BATCH_ROWS", 7)
    monkeypatch.setattr(partial_reads, "MAX_PORTION_BYTES", 1)


def given(name: str, rng: random.Random, rows: int, *, deletes: bool = True) -> list[dict[str, Any]]:
    found = []
    keyed = CHANNELS[name].merge.has_deletions
    for k in rng.sample(range(200), rows):
        row = {"p": "ab"[k % 2], "k": k, "v": rng.randint(0, 3), "note": f"é{k % 3}", "x": rng.choice([None, 1.5, 2.0])}
        row["deep"] = rng.choice([None, {"a": None, "b": 0.5}, {"a": "x", "b": None}])
        if not keyed:
            row["many"] = rng.choice([None, [], [{"é": 1, "b": None}, None]])
        found.append({**row, "_deleted": rng.random() < 0.2} if deletes and keyed else row)
    return found


def multiset(table: pa.Table) -> Counter[str]:
    return Counter(str(sorted(r.items())) for r in table.to_pylist())


def streamed(selection: Selection) -> pa.Table:
    """All rows of a stream, every batch of which was looked at."""
    reader = selection.to_batches()
    found = list(reader)
    assert all(b.schema.equals(reader.schema) and 0 < b.num_rows <= record_batches.MAX_BATCH_ROWS for b in found)
    return pa.Table.from_batches(found, reader.schema)


def check(read: Callable[..., Selection]) -> pa.Table:
    """The same as all at once, of all columns and of some."""
    there = streamed(read())
    whole = read().to_arrow()
    assert there.schema.equals(whole.schema)
    assert multiset(there) == multiset(whole)
    for columns in (there.schema.names[::-2], there.schema.names[-1:]):
        some = streamed(read(columns=columns))
        assert some.schema.equals(read(columns=columns).to_arrow().schema)
        assert multiset(some) == multiset(whole.select(columns))
    return there


@pytest.mark.parametrize("name", CHANNELS)
def test_it_gives_the_rows_of_to_arrow_and_takes_no_spark(
    name: str, store: Store, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StreamingReader, "_fetch_each", None)
    keyed, rng = CHANNELS[name].merge.has_deletions, random.Random(name)
    store.register(CHANNELS[name])
    check(lambda **more: store.read("c", **more))
    store.insert("c", given(name, rng, 150, deletes=False))
    for rows in (30, 1, 40):
        store.insert("c", given(name, rng, rows))
        check(lambda **more: store.read("c", **more))
    store.compact("c", force=True)
    check(lambda **more: store.read("c", **more))
    store.insert("c", given(name, rng, 20))
    if keyed:
        store.insert("c", store.read("c").to_arrow().slice(3), kind="base")
        store.insert("c", given(name, rng, 20))
    head = store.catalog.histories.of("c").head
    kinds = set()
    for at, since in ((2, None), (head, None), (head, 0), (4, 1), (head, 1), (head, head - 1), (head, head)):
        kinds.add(type(store.read("c", at=at, since=since).plan))
        check(lambda at=at, since=since, **more: store.read("c", at=at, since=since, **more))
    assert kinds >= {Snapshot, SnapshotAsInserts, DeltaChain, EmptyRead}
    assert (kinds & {SnapshotDiff, ChangeUnion} != set()) == keyed
    if "partitioned" in name:
        check(lambda **more: store.read("c", partition="p=a", **more))


@pytest.mark.core
@pytest.mark.parametrize("name", ["upsert", "upsert, partitioned", "upsert, clustered", "keyed"])
def test_keys(name: str, store: Store, small: None) -> None:
    store.register(CHANNELS[name])
    rng = random.Random(name)
    for rows in (150, 40):
        store.insert("c", given(name, rng, rows, deletes=rows == 40))
    key = list(CHANNELS[name].merge.key)
    keys = store.read("c").to_arrow().select(key).slice(3, 50)
    assert check(lambda **more: store.read("c", keys=keys, **more)).num_rows == 50


@pytest.mark.parametrize("merge", [nova.Append(), nova.Upsert(key="k")])
def test_columns_that_came_were_renamed_and_are_wider_now(merge: Any, store: Store, small: None) -> None:
    def declare(schema: str, **renamed: str) -> None:
        store.register(nova.Channel("c", merge=merge, schema=schema, renamed=renamed), replace=True)

    declare("k int, prize int, note string")
    store.insert("c", [{"k": n, "prize": n, "note": "a"} for n in range(20)])
    declare("k bigint, price bigint, low double, note string", price="prize")
    check(lambda **more: store.read("c", **more))
    assert streamed(store.read("c", columns=["low"])).to_pylist() == [{"low": None}] * 20
    store.insert("c", [{"k": n, "price": 2**40, "low": 0.5, "note": None} for n in range(15, 25)])
    check(lambda **more: store.read("c", **more))
    check(lambda **more: store.read("c", since=1, **more))
    check(lambda **more: store.read("c", at=1, **more))
    store.compact("c", force=True)
    store.insert("c", [{"k": 3, "price": 1, "low": None, "note": "b"}])
    check(lambda **more: store.read("c", **more))


def test_columns_come_as_they_are_asked_for(store: Store) -> None:
    store.register(CHANNELS["upsert"])
    store.insert("c", given("upsert", random.Random(1), 20))
    check(lambda **more: store.read("c", since=0, **more))
    there = streamed(store.read("c", columns=["v", "k"]))
    assert there.schema.names == ["v", "k"]
    assert streamed(store.read("c", since=0, columns=["_deleted"])).to_pylist() == [{"_deleted": False}] * len(there)
    store.insert("c", [{"k": there["k"][0].as_py(), "_deleted": True}])
    for columns in (["v"], []):
        deletion = store.read("c", since=1, columns=columns)
        assert (
            deletion.to_arrow().to_pylist()
            == streamed(deletion).to_pylist()
            == [dict.fromkeys(columns) | {"_deleted": True}]
        )
    assert sum(b.num_rows for b in store.read("c", columns=[]).to_batches()) == len(store.read("c").to_arrow())
    with pytest.raises(SchemaMismatch, match="there are no columns 'w'"):
        store.read("c", columns=["k", "w"]).to_batches()


def test_batches_are_neither_large_nor_tiny(store: Store) -> None:
    store.register(nova.Channel("c", schema="k bigint, t string"))
    for n in range(5):
        store.insert("c", [{"k": n, "t": "x"}] * 10)
    store.insert("c", pa.table({"k": pa.array(range(150_000)), "t": pa.repeat("y" * 300, 150_000)}))
    there = list(store.read("c").to_batches())
    assert sum(b.num_rows for b in there) == 150_050
    assert all(b.num_rows <= 65_536 and b.nbytes <= 17 * 2**20 for b in there)
    assert there[0].num_rows == 50, "what is small goes together"


@pytest.mark.parametrize("merge", [nova.Append(), nova.Upsert(key="k")])
def test_files_that_are_gone_are_missed_before_the_first_row_or_when_they_are_read(
    merge: Any, store: Store, tmp_path: Path
) -> None:
    store.register(nova.Channel("c", merge=merge, schema="k bigint"))
    for n in range(2):
        store.insert("c", [{"k": n}])
    begun = store.read("c").to_batches()
    (tmp_path / "wh" / store.catalog.histories.of("c").blocks[-1].manifest.files[0].path).unlink()
    with pytest.raises(FileMissing, match="a file was deleted during the read"):
        list(begun)
    with pytest.raises(FileMissing, match="is listed in the catalog"):
        store.read("c").to_batches()


def open_files(root: Path) -> list[str]:
    links = [f"/proc/self/fd/{n}" for n in os.listdir("/proc/self/fd")]
    return [to for link in links if os.path.lexists(link) and (to := os.readlink(link)).startswith(str(root))]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="only Linux tells which files are open")
@pytest.mark.parametrize("name", ["append", "upsert"])
def test_no_file_is_open_while_nobody_reads(name: str, store: Store, tmp_path: Path, small: None) -> None:
    store.register(CHANNELS[name])
    rng = random.Random(7)
    for _ in range(3):
        store.insert("c", given(name, rng, 60, deletes=False))
    with store.read("c").to_batches() as reader:
        reader.read_next_batch()
        assert open_files(tmp_path / "wh") == []
    assert open_files(tmp_path / "wh") == []


@pytest.mark.parametrize("merge", [nova.Append(), nova.Upsert(key="k")])
def test_memory_is_that_of_a_row_group_or_a_cell(merge: Any, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_rewriter, "UNSORTED_ROW_GROUP_BYTES", 2**20)
    monkeypatch.setattr(merge_units, "BUCKET_BYTES", 2**20)
    monkeypatch.setattr(record_batches, "MAX_BATCH_ROWS", 10_000)
    store.register(nova.Channel("c", merge=merge, schema="k bigint, t string"))
    rng = random.Random(3)
    texts = [rng.randbytes(50).hex() for _ in range(10_000)]
    for n in range(40):
        store.insert("c", pa.table({"k": pa.array(range(n * 10_000, (n + 1) * 10_000)), "t": texts}))
    assert store.compact("c", force=True) is not None
    store.insert("c", pa.table({"k": pa.array(range(0, 400_000, 1000)), "t": texts[:400]}))
    there = store.read("c")
    whole = there.to_arrow().nbytes
    pool, before = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
    POOLS.append(pool)
    pa.set_memory_pool(pool)
    try:
        rows = sum(b.num_rows for b in there.to_batches())
    finally:
        pa.set_memory_pool(before)
    assert rows == 400_000 + (0 if merge.has_deletions else 400)
    assert pool.max_memory() < whole / 4, (pool.max_memory(), whole)


def test_nothing_is_listed(store: Store, tmp_path: Path) -> None:
    """R16."""
    for n, name in enumerate(("append, partitioned", "upsert, partitioned")):
        store.register(replace(CHANNELS[name], name=f"c{n}"))
        for _ in range(3):
            store.insert(f"c{n}", given(name, random.Random(n), 60, deletes=False))
    try:
        with Listings(tmp_path / "wh") as listings:
            for n in range(2):
                for how in ({}, {"at": 2}, {"since": 1}, {"since": 0}, {"partition": "p=a"}):
                    assert streamed(store.read(f"c{n}", **how)).num_rows
            assert not listings.seen()
    except NoCounting as reason:
        missing(f"folders that are read cannot be counted: {reason}", "run this on Linux")


def tickets(root: Path, format: str = "parquet") -> nova.Channel:
    """A table of somebody else's, in folders of days and shops."""
    write = orc.write_table if format == "orc" else pq.write_table
    for day in (1, 2):
        for shop in (7, 8):
            folder = root / f"Day=2024-01-0{day}" / f"shop={shop}"
            folder.mkdir(parents=True)
            columns = {"K": pa.array([10 * day + shop, 1]), "shop": pa.array([99, 99])}  # which the folder overrules
            write(pa.table(columns if shop == 7 else {"k": columns["K"], "t": ["a%b", None]}), folder / f"f.{format}")
    return nova.Channel(
        "tickets",
        schema="k bigint, t string, day date, shop int",
        partitions=[nova.dynamic("day"), nova.dynamic("shop")],
        external=nova.external(str(root), format=format),  # type: ignore[arg-type]
    )


def opened(channel: nova.Channel, root: Path, spark: Any) -> Store:
    return nova.open(nova.Project(channels=[channel]), f"sqlite:///{root}/c.db", root / "wh", spark)


@pytest.mark.spark
@pytest.mark.parametrize("format", ["parquet", "orc"])
def test_files_of_others_as_spark_reads_them(format: str, spark: Any, tmp_path: Path, small: None) -> None:
    with opened(tickets(tmp_path / "tickets", format), tmp_path, spark) as store:
        assert not store.refresh("tickets").needs_attention
        there = check(lambda **more: store.read("tickets", **more))
        assert there.num_rows == 8 and set(there["day"].to_pylist()) == {date(2024, 1, 1), date(2024, 1, 2)}
        assert streamed(store.read("tickets", columns=["shop"]))["shop"].to_pylist().count(7) == 4
        check(lambda **more: store.read("tickets", partition="day=2024-01-01", **more))


@pytest.mark.core
def test_files_of_others_without_spark(tmp_path: Path) -> None:
    with opened(tickets(tmp_path / "tickets"), tmp_path, never) as store:
        store.refresh("tickets")
        rows = sorted(streamed(store.read("tickets")).to_pylist(), key=str)
    assert len(rows) == 8 and rows[0] == {"k": 1, "t": None, "day": date(2024, 1, 1), "shop": 7}


@pytest.mark.core
@pytest.mark.spark
def test_files_of_others_that_only_spark_understands(spark: Any, tmp_path: Path) -> None:
    """Moments as old files have them."""
    (tmp_path / "old").mkdir()
    moments = pa.array([0, 1_700_000_000_123_456], pa.timestamp("us"))
    pq.write_table(pa.table({"t": moments}), tmp_path / "old" / "a.parquet", use_deprecated_int96_timestamps=True)
    pq.write_table(pa.table({"t": moments.cast(pa.timestamp("us", "UTC"))}), tmp_path / "old" / "b.parquet")
    channel = nova.Channel("old", schema="t timestamp", external=nova.external(str(tmp_path / "old")))
    with opened(channel, tmp_path, spark) as store:
        assert not store.refresh("old").needs_attention
        assert check(lambda **more: store.read("old", **more)).num_rows == 4


def both(a: Any, b: Any) -> Any:
    return a.unionByName(b)


def rest(a: Any, b: Any) -> Any:
    return b.exceptAll(a)


@pytest.mark.spark
def test_functions_of_the_users(with_spark: Store, small: None) -> None:
    with_spark.register(
        nova.Channel("c", merge=nova.Custom(merge=both, chain=both, diff=rest), schema="k int, v string")
    )
    check(lambda **more: with_spark.read("c", **more))
    for n in range(3):
        with_spark.insert("c", [{"k": n, "v": "x"}] * 5, kind="base" if n == 0 else "delta")
    for how in ({}, {"since": 0}, {"since": 1}, {"since": 3}, {"at": 1}):
        check(lambda how=how, **more: with_spark.read("c", **how, **more))


@pytest.mark.spark
@pytest.mark.parametrize("forced", [False, True])
def test_keys_that_only_spark_puts_together(forced: bool, with_spark: Store, small: None) -> None:
    """Partition by partition; or, where that way is forced, at once."""
    merge = nova.Upsert(key=["p", "x"])
    with_spark.register(
        nova.Channel("c", merge=merge, schema="p string, x double, v int", partitions=nova.dynamic("p"))
    )
    for n in range(3):
        rows = [{"p": p, "x": float(x), "v": n} for p in "abc" for x in range(n, 9)]
        with_spark.insert("c", rows, kind="base" if n == 0 else "delta")
    with_spark.insert("c", with_spark.read("c", partition="p=a").to_arrow().slice(2), kind="base", partition="p=a")
    with_spark.engine.reader.forced_strategy = "spark" if forced else None
    for how in ({}, {"since": 0}) if forced else ({}, {"since": 1}, {"at": 2}, {"partition": "p=b"}):
        check(lambda how=how, **more: with_spark.read("c", **how, **more))


@pytest.mark.spark
@pytest.mark.parametrize("strategy", [None, "spark"])
@pytest.mark.parametrize("merge", [nova.Append(), nova.Upsert(key="k"), nova.Multiset()])
def test_without_columns_the_rows_are_counted(merge: Any, strategy: Any, with_spark: Store) -> None:
    with_spark.register(nova.Channel("c", merge=merge, schema="k bigint, v int"))
    with_spark.insert("c", [{"k": 1, "v": 1}, {"k": 2, "v": 2}])
    with_spark.insert("c", [{"k": 3, "v": 1}, {"k": 1, "v": 5}])
    with_spark.engine.reader.forced_strategy = strategy
    for more in ({}, {"at": 1}, {"since": 0}, {"since": 1}):
        selection, rows = with_spark.read("c", columns=(), **more), with_spark.read("c", **more).to_arrow()
        for found in (selection.to_arrow(), streamed(selection), selection.to_pandas()):
            assert len(found) == len(rows) > 0, more
        assert selection.to_spark().count() == len(rows)
        mark = [name for name in rows.column_names if name == "_deleted"]
        assert selection.to_arrow().column_names == streamed(selection).column_names == mark
        assert selection.to_spark().columns == mark


@pytest.mark.spark
def test_bags_that_are_compared(with_spark: Store) -> None:
    with_spark.register(nova.Channel("c", schema="k int, v string"))
    with_spark.insert("c", [{"k": 1, "v": "a"}] * 3)
    with_spark.insert("c", [{"k": 1, "v": "a"}] * 4 + [{"k": 2, "v": "b"}], kind="base")
    assert isinstance(with_spark.read("c", since=1).plan, SnapshotDiff)
    assert check(lambda **more: with_spark.read("c", since=1, **more)).num_rows == 2
