"""A block made out of blocks holds the same rows whichever way it was made: in memory, cell by cell, or as a frame."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nova_assets as nova
from nova_assets.engine.buckets import spark_jobs
from nova_assets.engine.read.read_executor import ReadExecutor
from nova_assets.engine.rows import spark_versions
from nova_assets.engine.spark_engine import SparkEngine
from nova_assets.engine.write.block_rewriter import BlockRewriter
from nova_assets.model.block import Kind, Manifest, StagedBlock
from nova_assets.model.key_layout import HashBuckets, KeyRange
from nova_assets.model.read_strategy import READ_STRATEGIES, ReadStrategy
from nova_assets.model.reads import DeltaChain, Snapshot
from nova_assets.plan import merge_units as size
from nova_assets.plan import modes
from nova_assets.store.store import Store
from nova_assets_tests.effort import long_except

pytestmark = pytest.mark.spark

DDL = "p string, k bigint, v bigint, note string, pair struct<a: string, b: array<int>>"
CHANNELS = {
    "upsert": nova.Channel("c", merge=nova.Upsert(key="k"), schema=DDL, on_schema_change="evolve"),
    "two-columns": nova.Channel("c", merge=nova.Upsert(key=["note", "k"]), schema=DDL, on_schema_change="evolve"),
    "order": nova.Channel("c", merge=nova.Upsert(key="k", order_by="v"), schema=DDL, on_schema_change="evolve"),
    "keyed": nova.Channel("c", merge=nova.Keyed(key="k", combine={"v": "sum"}), schema=DDL, on_schema_change="evolve"),
    "partitioned": nova.Channel(
        "c", merge=nova.Upsert(key=["p", "k"]), schema=DDL, partitions=nova.dynamic("p"), on_schema_change="evolve"
    ),
    "clustered": nova.Channel("c", merge=nova.Upsert(key="k"), schema=DDL, cluster_by="k", on_schema_change="evolve"),
    "clustered-two": nova.Channel(
        "c", merge=nova.Upsert(key=["k", "note"]), schema=DDL, cluster_by="note", on_schema_change="evolve"
    ),
    "clustered-partitioned": nova.Channel(
        "c", merge=nova.Upsert(key=["p", "k"]), schema=DDL, partitions=nova.dynamic("p"), cluster_by="k"
    ),
}


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some rows make a bucket, and every task cuts what it has into several."""
    monkeypatch.setattr(size, "BUCKET_BYTES", 2500)
    monkeypatch.setattr(size, "MAX_BUCKET_BYTES", 2500)
    monkeypatch.setattr(spark_jobs, "TARGET_BUCKET_ROWS_OF_RUN", 8)


@pytest.mark.parametrize("name", long_except(sorted(CHANNELS), "keyed", "order", "clustered-partitioned"))
def test_three_ways_to_one_base(name: str, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, channel = random.Random(name), CHANNELS[name]
    monkeypatch.setattr("nova_assets.engine.write.block_file_writer.MAX_LOCAL_RUN_BYTES", rng.choice([0, 2**30]))
    monkeypatch.setattr("nova_assets.engine.write.block_rewriter._MAX_TARGET_SIZES_PER_UNIT", rng.choice([1, 4]))
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=spark) as store:
        store.register(channel)
        store.insert("c", frame_of(given(rng, 300, None), spark, rng), kind="base")
        for n in range(5):
            store.insert("c", frame_of(given(rng, rng.choice([1, 20, 60]), n), spark, rng))
            if n == 2:
                store.compact("c")  # what follows is merged into what was merged
        check(store, channel)
        check_chain(store, channel)


@pytest.mark.core
@pytest.mark.parametrize(
    "name",
    long_except(["upsert", "clustered", "clustered-two", "clustered-partitioned"], "upsert", "clustered-partitioned"),
)
def test_a_base_that_is_small_beside_its_deltas(name: str, tmp_path: Path, spark: Any) -> None:
    rng, channel = random.Random(name), CHANNELS[name]
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=spark) as store:
        store.register(channel)
        store.insert("c", given(rng, 3, None), kind="base")
        for n in range(3):
            store.insert("c", frame_of(given(rng, 300, n), spark, rng))
        check(store, channel)


def check(store: Store, channel: nova.Channel) -> None:
    engine, snapshot = store.engine, modes.snapshot(store.catalog.histories.of("c"))
    assert isinstance(engine, SparkEngine) and snapshot.schema is not None
    expected = multiset(engine.frames.to_arrow(engine.reader.read(snapshot)))
    places = set()
    for way in READ_STRATEGIES:
        written = rewritten(engine, way, snapshot, "base", channel)
        rows = rows_of(engine, written)
        assert multiset(rows) == expected, way
        assert written.layout is not None and written.rows == len(rows)
        in_files(engine, written, channel)
        places |= {type(f.key_placement) for f in written.files}
    assert places == {KeyRange if channel.cluster_by else HashBuckets}


def check_chain(store: Store, channel: nova.Channel) -> None:
    engine, chain = store.engine, store.read("c", since=1).plan
    assert isinstance(engine, SparkEngine) and isinstance(chain, DeltaChain) and chain.schema is not None
    expected = multiset(engine.frames.to_arrow(reader(engine, "spark").read(chain)))
    for way in READ_STRATEGIES:
        written = rewritten(engine, way, chain, "delta", channel)
        rows = rows_of(engine, written)
        assert multiset(rows) == expected, way
        assert written.layout is not None and written.deletes == sum(rows["_deleted"].to_pylist()) > 0
        seen = [f.key_placement.bucket_count for f in written.files if isinstance(f.key_placement, HashBuckets)]
        assert channel.cluster_by or way != "buckets" or max(seen) > 1, "by several tasks"


def reader(engine: SparkEngine, way: ReadStrategy) -> ReadExecutor:
    return ReadExecutor(engine._session, engine.warehouse, engine.frames, way)


def rewritten(
    engine: SparkEngine, way: ReadStrategy, read: Snapshot | DeltaChain, kind: Kind, channel: nova.Channel
) -> Manifest:
    rewriter = BlockRewriter(reader(engine, way), engine.writer)
    block = uuid.uuid4().hex
    assert read.schema is not None
    staged = StagedBlock(block, "e", "c", "c", kind, f"blocks/{block}", 1)
    written, went = rewriter.rewrite(read, staged, channel, read.schema)
    assert went == way
    return written


def in_files(engine: SparkEngine, manifest: Manifest, channel: nova.Channel) -> None:
    """Each file has what the catalog says of it: one partition, one bucket, sorted."""
    assert manifest.layout is not None
    order = list(manifest.layout.order)
    for file in manifest.files:
        rows = pq.read_table(engine.warehouse.root / file.path).select(order).to_pylist()
        keys = [tuple(r.values()) for r in rows]
        assert keys == sorted(keys) and len(keys) == len(set(keys)) == file.rows
        if isinstance(file.key_placement, KeyRange):
            assert (file.key_placement.least, file.key_placement.greatest) == (keys[0], keys[-1])
    if channel.partitions:
        assert {f.partition for f in manifest.files} == {f"p={p}" for p in "ab"}


def given(rng: random.Random, size: int, n: int | None) -> list[dict[str, Any]]:
    """Rows of different keys; later ones have a column more, and some are deletions."""
    rows = []
    for k in rng.sample(range(400), size):
        row: dict[str, Any] = {"p": rng.choice("ab"), "k": k, "v": rng.randint(0, 9), "note": f"é{k % 3}"}
        row["pair"] = rng.choice([None, {"a": f"x{k}", "b": [1, None]}])
        row |= {"_deleted": rng.random() < 0.2} if n is not None else {}
        rows.append(row)
    return rows


def frame_of(rows: list[dict[str, Any]], spark: Any, rng: random.Random) -> Any:
    """In memory, or as a frame of several tasks."""
    if rng.random() < 0.3:
        return rows
    types = [("p", pa.string()), ("k", pa.int64()), ("v", pa.int64()), ("note", pa.string())]
    pair = pa.struct([("a", pa.string()), ("b", pa.list_(pa.field("element", pa.int32())))])
    schema = pa.schema([*types, ("pair", pair), *([("_deleted", pa.bool_())] if "_deleted" in rows[0] else [])])
    return spark_versions.frame_from_arrow(spark, pa.Table.from_pylist(rows, schema=schema)).repartition(
        rng.choice([1, 3])
    )


def rows_of(engine: SparkEngine, manifest: Manifest) -> pa.Table:
    files = [pq.read_table(engine.warehouse.root / f.path) for f in manifest.files]
    return pa.concat_tables(files, promote_options="permissive")


def multiset(table: pa.Table) -> Counter[str]:
    return Counter(str(sorted(r.items())) for r in table.to_pylist())
