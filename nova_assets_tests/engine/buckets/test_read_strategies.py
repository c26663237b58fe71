"""A read gives the same rows whichever way it is carried out: in memory, cell by cell, or by Spark's joins."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nova_assets as nova
from nova_assets.engine.buckets import spark_jobs
from nova_assets.engine.read.read_executor import ReadExecutor
from nova_assets.engine.rows.spark_versions import frame_from_arrow
from nova_assets.engine.spark_engine import SparkEngine
from nova_assets.model.read_strategy import ReadStrategy
from nova_assets.model.reads import ChangeUnion, DeltaChain, Read, Snapshot, SnapshotAsInserts, SnapshotDiff
from nova_assets.plan import merge_units as size
from nova_assets.plan.read_strategy import estimate_strategies
from nova_assets.store.store import Store
from nova_assets_tests.effort import long_except

pytestmark = pytest.mark.spark

DDL = "p string, k bigint, v bigint, x double, price decimal(9,2), note string, pair struct<a: string, b: double>"
PRICE = {"v": "sum", "x": "max"}
CHANNELS = {
    "upsert": nova.Channel("c", merge=nova.Upsert(key="k"), schema=DDL),
    "two-columns": nova.Channel("c", merge=nova.Upsert(key=["note", "k"]), schema=DDL),
    "order": nova.Channel("c", merge=nova.Upsert(key="k", order_by=["x", "v"]), schema=DDL),
    "keyed": nova.Channel("c", merge=nova.Keyed(key="k", combine=PRICE), schema=DDL),
    "partitioned": nova.Channel("c", merge=nova.Upsert(key=["p", "k"]), schema=DDL, partitions=nova.dynamic("p")),
    "clustered": nova.Channel("c", merge=nova.Upsert(key=["note", "k"]), schema=DDL, cluster_by="note"),
}


@pytest.fixture(autouse=True)
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size, "BUCKET_BYTES", 3000)
    monkeypatch.setattr(size, "MAX_BUCKET_BYTES", 3000)
    monkeypatch.setattr("nova_assets.engine.read.read_executor.MIN_LOOKUP_SNAPSHOT_BYTES", 0)
    monkeypatch.setattr(spark_jobs, "TARGET_BUCKET_ROWS_OF_RUN", 8)
    monkeypatch.setattr("nova_assets.engine.read.merge_unit_reader.MAX_UNIT_BYTES", 8000)


@pytest.fixture(params=long_except(sorted(CHANNELS), "keyed", "order", "partitioned"))
def store(request: pytest.FixtureRequest, tmp_path: Path, spark: Any) -> Any:
    """Bases, deltas and what compaction made of them; and a base that shares files with the one before."""
    rng = random.Random(request.param)
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=spark) as store:
        store.register(CHANNELS[request.param])
        store.insert("c", given(rng, 200), kind="base")
        for n in (30, 1, 40):
            store.insert("c", given(rng, n, deletes=True))
        store.compact("c")
        store.insert("c", given(rng, 20, deletes=True))
        store.insert("c", store.read("c").to_arrow().slice(3), kind="base")
        store.insert("c", given(rng, 20, deletes=True))
        store.restore("c", 6)
        yield store


def test_every_way_gives_the_same_rows(store: Store) -> None:
    head = store.catalog.histories.of("c").head
    plans = [store.read("c", at=n).plan for n in (1, 3, 5, head)]
    plans += [store.read("c", since=a, at=b).plan for a, b in ((0, 4), (1, 4), (4, 5), (3, 6), (6, 7), (1, head))]
    kinds: Counter[type] = Counter()
    led: Counter[ReadStrategy] = Counter()
    for plan in plans:
        expected = multiset(rows(store, plan, "spark"))
        for way in (e.strategy for e in estimate_strategies(plan)):
            assert multiset(rows(store, plan, way)) == expected, (way, plan)
            led[way] += 1
        table = forced(store, "arrow").read_without_spark(plan)
        assert table is not None and multiset(table) == expected
        kinds[type(plan)] += 1
    assert kinds.keys() >= {Snapshot, DeltaChain, SnapshotAsInserts} and (kinds[SnapshotDiff] or kinds[ChangeUnion])
    assert led["buckets"] >= 3 and led["spark"] == len(plans)


def test_keys_are_found_without_reading_everything(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = store.read("c").plan
    everything = store.engine.frames.to_arrow(store.engine.reader.read(plan))
    key = list(store.catalog.histories.of("c").merge.key)
    some = everything.select(key).slice(5, 90)
    strange = some.slice(0, 3).set_column(key.index("k"), "k", pa.array([-1, 10**9, None], pa.int64()))
    asked = pa.concat_tables([some, some.slice(0, 1), strange])
    expected = multiset(
        store.engine.frames.to_arrow(store.engine.reader.filter_by_keys(store.engine.reader.read(plan), asked, key))
    )
    assert sum(expected.values()) == 90
    for here in (True, False):
        for here_bytes in (0, 2**40):
            monkeypatch.setattr("nova_assets.engine.read.read_executor.MAX_LOCAL_LOOKUP_BYTES", here_bytes)
            frame = frame_from_arrow(store.engine.session, asked)
            for keys in (asked, frame):
                found = forced(store, None).look_up_keys(plan, keys, as_table=here)
                assert found is not None and isinstance(found, pa.Table) == (here or here_bytes > 0)
                assert multiset(store.engine.frames.to_arrow(found)) == expected
    assert not isinstance(store.engine.reader.filter_by_keys(plan, asked, key), pa.Table)
    assert isinstance(store.engine.reader.filter_by_keys(plan, asked, key, may_be_table=True), pa.Table)
    assert store.read("c", keys=asked.slice(0, 0)).to_arrow().num_rows == 0


def rows(store: Store, plan: Read, way: ReadStrategy) -> pa.Table:
    return store.engine.frames.to_arrow(forced(store, way).read(plan))


def forced(store: Store, way: ReadStrategy | None) -> ReadExecutor:
    assert isinstance(store.engine, SparkEngine)
    return ReadExecutor(store.engine._session, store.engine.warehouse, store.engine.frames, way)


def given(rng: random.Random, size: int, *, deletes: bool = False) -> list[dict[str, Any]]:
    found = []
    for k in rng.sample(range(300), size):
        row: dict[str, Any] = {"p": "ab"[k % 2], "k": k, "v": rng.randint(0, 3), "note": f"é{k % 3}"}
        row["x"] = rng.choice([None, 0.0, -0.0, 1.5, float("nan")])
        row["price"] = rng.choice([None, 1, 2])
        row["pair"] = rng.choice([None, {"a": None, "b": float("nan")}, {"a": "x", "b": 1.0}])
        found.append({**row, "_deleted": rng.random() < 0.2} if deletes else row)
    return found


def multiset(table: pa.Table) -> Counter[str]:
    return Counter(str(sorted(r.items())).replace("-0.0", "0.0") for r in table.to_pylist())
