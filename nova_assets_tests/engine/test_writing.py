"""How frames become blocks on real Spark: evaluated once, then checked on the files, whichever way these are read."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import nova_assets as nova
from nova_assets.engine.rows.spark_types import from_struct
from nova_assets.engine.write import repeated_keys
from nova_assets.model.arrow_types import to_arrow_schema
from nova_assets.model.schema import parse_ddl
from nova_assets.settings import load_settings
from nova_assets.store.store import Store

pytestmark = pytest.mark.spark

DDL = "k bigint, at bigint, n bigint, note string"
MODELS = {
    "upsert": nova.Upsert(key="k"),
    "ordered": nova.Upsert(key="k", order_by="at"),
    "keyed": nova.Keyed(key="k", combine={"n": "sum"}, order_by="at"),
}


@pytest.fixture
def store(tmp_path: Path, spark: Any) -> Any:
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=spark) as opened:
        for name, model in MODELS.items():
            opened.register(nova.Channel(name, merge=model, schema=DDL))
        yield opened


@pytest.fixture(params=["arrow", "spark"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Blocks of any size go the way of small ones, or that of large ones."""
    if request.param == "spark":
        for limit in ("MAX_ARROW_CHECK_ROWS", "MAX_ARROW_REWRITE_BYTES", "MAX_PYTHON_ROWS"):
            monkeypatch.setattr(repeated_keys, limit, 0)
    return str(request.param)


def row(k: int, at: int, n: int = 1, deleted: bool = False) -> dict[str, Any]:
    return {"k": k, "at": at, "n": n, "note": f"{k}@{at}", "_deleted": deleted}


def told(store: Store, channel: str) -> list[tuple[Any, ...]]:
    return sorted((r["k"], r["at"], r["n"], r["note"]) for r in store.read(channel).to_arrow().to_pylist())


def changes(store: Store, channel: str, since: int) -> list[tuple[Any, ...]]:
    rows = store.read(channel, since=since).to_arrow().to_pylist()
    return sorted((r["k"], r["at"], r["n"], r["_deleted"]) for r in rows)


@pytest.mark.parametrize("model", ["ordered", "keyed"])
def test_r11_rows_of_one_key_are_decided_by_order_by(model: str, way: str, store: Store, spark: Any) -> None:
    rng = random.Random(7)
    rows = [row(k, at, n=at) for k in range(30) for at in rng.sample(range(100), rng.randint(1, 4))]
    rng.shuffle(rows)
    expected = []
    for k in range(30):
        of_key = [r for r in rows if r["k"] == k]
        last = max(of_key, key=lambda r: int(r["at"]))
        n = sum(int(r["n"]) for r in of_key) if model == "keyed" else last["n"]
        expected.append((k, last["at"], n, last["note"]))
    store.insert(model, spark.createDataFrame(rows, f"{DDL}, _deleted boolean"))
    assert told(store, model) == expected
    assert store.timeline(model)[-1].blocks[0].rows == 30


@pytest.mark.parametrize("model", sorted(MODELS))
def test_r11_one_deletion_and_one_live_row_of_a_key(model: str, way: str, store: Store, spark: Any) -> None:
    store.insert(model, [row(1, 1, 10), row(2, 1, 10)])
    twice_gone = [row(1, 1, 10, True), row(1, 1, 10, True), row(1, 5, 3), row(2, 9, 0, True)]
    store.insert(model, spark.createDataFrame(twice_gone, f"{DDL}, _deleted boolean"))
    assert told(store, model) == [(1, 5, 3, "1@5")]
    found = changes(store, model, 1)
    assert (1, 5, 3, False) in found and (2, 9, 0, True) in found and len(found) <= 3


@pytest.mark.core
def test_r11_live_rows_that_nothing_decides_between_are_refused(way: str, store: Store, spark: Any) -> None:
    two = spark.createDataFrame([row(1, 1), row(1, 2), row(2, 1)], f"{DDL}, _deleted boolean")
    with pytest.raises(
        nova.BadKey, match=r"(?s)'upsert' has 2 live rows of one key.*merge model has no order_by.*k = 1"
    ) as met:
        store.insert("upsert", two)
    assert met.value.keys == 1 and met.value.rows == 2
    tie = spark.createDataFrame([row(1, 1), {**row(1, 1), "note": "other"}], f"{DDL}, _deleted boolean")
    with pytest.raises(nova.BadKey, match="at is equal in all of them"):
        store.insert("ordered", tie)
    assert [s.head for s in store.channels()] == [0, 0, 0]


def test_r11_null_keys_are_counted_and_shown(way: str, store: Store, spark: Any) -> None:
    with pytest.raises(nova.BadKey, match="key column 'k' is null in 2 rows"):
        store.insert("upsert", spark.createDataFrame([(None, 1, 1, "a"), (None, 2, 2, "b"), (1, 1, 1, "c")], DDL))
    assert store.catalog.definitions.channel("upsert").head == 0


@pytest.mark.core
def test_a_base_with_deletions_is_refused_and_leaves_no_file(store: Store, spark: Any, tmp_path: Path) -> None:
    with pytest.raises(nova.SchemaMismatch, match="a base has no deletions"):
        store.insert(
            "upsert", spark.createDataFrame([row(1, 1, deleted=True)], f"{DDL}, _deleted boolean"), kind="base"
        )
    assert list((tmp_path / "wh").rglob("*.parquet")) == []


def test_a_column_that_may_not_be_null_is_not(store: Store, spark: Any) -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string())])
    store.register(nova.Channel("strict", schema=schema))
    store.insert("strict", pa.table({"a": [1], "b": [None]}, schema=schema))
    with pytest.raises(nova.SchemaMismatch, match="column 'a' must not be null, but is null in 1 rows"):
        store.insert("strict", spark.createDataFrame([(1, "x"), (None, "y")], "a bigint, b string"))
    assert store.read("strict").to_arrow().to_pylist() == [{"a": 1, "b": None}]


@pytest.mark.skipif(os.environ.get("NOVA_TEST_SPARK") == "connect", reason="counted with an accumulator")
def test_r4_what_was_checked_is_what_was_written(store: Store, spark: Any) -> None:
    """A frame that gives something else at each evaluation is evaluated once."""
    seen = spark.sparkContext.accumulator(0)

    def count(k: int) -> int:
        seen.add(1)
        return k

    frame = spark.range(100).select(F.udf(count, "bigint")("id").alias("k"), F.lit(1).cast("bigint").alias("at"))
    frame = frame.withColumn("n", F.lit(1).cast("bigint")).withColumn("note", F.lit("x"))
    store.insert("ordered", frame)
    assert seen.value == 100


def test_many_deltas_are_put_in_order_by_a_join(store: Store, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from nova_assets.engine.read import block_reader, spark_reader

    monkeypatch.setattr(block_reader, "MAX_FILES_IN_QUERY_TEXT", 3)
    monkeypatch.setattr(spark_reader, "MAX_FILES_IN_QUERY_TEXT", 3)
    for n in range(6):
        store.insert("upsert", [row(n % 2, n, n)])
    assert told(store, "upsert") == [(0, 4, 4, "0@4"), (1, 5, 5, "1@5")]


def test_a_warehouse_may_have_any_name(tmp_path: Path, spark: Any) -> None:
    place = tmp_path / "a b%20c {x,y} [z] é"
    with nova.open(catalog=f"sqlite:///{tmp_path}/d.db", warehouse=place, spark=spark) as store:
        store.register(nova.Channel("t", merge=nova.Upsert(key="k"), schema=DDL))
        for n in range(3):
            store.insert("t", spark.createDataFrame([(1, n, n, "x")], DDL))
        assert told(store, "t") == [(1, 2, 2, "x")]


def test_columns_that_spark_has_names_for_itself(tmp_path: Path, spark: Any) -> None:
    with nova.open(catalog=f"sqlite:///{tmp_path}/d.db", warehouse=tmp_path / "w", spark=spark) as store:
        ddl = "`a.b` string, _metadata string, `Price/Earnings` double, `52 week low` date, `back``tick` int"
        store.register(nova.Channel("t", merge=nova.Upsert(key="a.b"), schema=ddl))
        for n in range(3):
            given = {
                "a.b": "x",
                "_metadata": f"m{n}",
                "Price/Earnings": 1.5,
                "52 week low": "2024-01-02",
                "back`tick": n,
            }
            store.insert("t", [given])
        (found,) = store.read("t").to_arrow().to_pylist()
        assert found["_metadata"] == "m2" and found["back`tick"] == 2
        (found,) = store.read("t", since=1, keys=pa.table({"a.b": ["x"]})).to_arrow().to_pylist()
        assert found["a.b"] == "x" and found["_deleted"] is False


def test_lists_of_nothing_but_nulls_can_be_transformed(way: str, tmp_path: Path, spark: Any) -> None:
    """Spark's vectorized reader fails on such a list in a file that keeps an empty dictionary for it."""
    types = ("int", "bigint", "float", "double", "date", "timestamp", "decimal(9,2)", "string", "array<int>")
    ddl = ", ".join(f"c{n} array<{t}>" for n, t in enumerate(types))
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=spark) as store:
        store.register(nova.Channel("lists", schema=f"id int, {ddl}"))
        store.insert("lists", [{"id": 1, **{f"c{n}": [None] for n in range(len(types))}}])
        store.insert("lists", [{"id": 2, **{f"c{n}": [None] for n in range(len(types) - 1)}, "c8": [[None]]}])
        store.compact("lists")
        rows = store.read("lists").to_spark()
    for n in range(len(types)):
        same = F.transform(f"c{n}", lambda e: e)
        assert [r["list"] for r in rows.where("id = 1").select(same.alias("list")).collect()] == [[None]]
        assert rows.groupBy(f"c{n}").count().count() == (2 if n == 8 else 1)


@pytest.mark.parametrize("strategy", ["arrow", "buckets", "spark"])
def test_rows_found_by_key_have_the_types_of_the_channel(strategy: str, tmp_path: Path, spark: Any) -> None:
    """In a table and in a frame."""
    ddl = "k timestamp_ntz, a timestamp, b array<timestamp_ntz>, c struct<x:date,y:timestamp_ntz>, d decimal(9,2)"
    settings = replace(load_settings(start_folder=tmp_path), strategy=strategy)
    with nova.open(
        catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=spark, settings=settings
    ) as store:
        channel = nova.Channel("c", merge=nova.Upsert(key="k"), schema=ddl)
        store.register(channel)
        moment = datetime(2024, 3, 10, 2, 30)
        values = {"a": moment.replace(tzinfo=UTC), "b": [moment], "c": {"x": moment.date(), "y": moment}, "d": None}
        store.insert("c", [{"k": moment, **values}, {"k": datetime(2025, 1, 1), **values}])
        for keys in ([{"k": moment}], [{"k": datetime(2023, 1, 1)}]):
            found = store.read("c", keys=keys)
            assert from_struct(found.to_spark().schema) == parse_ddl(ddl)
            assert found.to_arrow().schema == to_arrow_schema(parse_ddl(ddl))
            assert found.to_spark().toArrow().to_pylist() == found.to_arrow().to_pylist()


def test_a_frame_without_a_column_is_refused_unless_it_has_no_row(tmp_path: Path, spark: Any) -> None:
    """It would lose its rows: an Arrow table without a column has none."""
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=spark) as store:
        store.register(nova.Channel("open"))
        with pytest.raises(nova.EmptyInput, match=r"(?s)the rows to insert have no columns.*2 rows"):
            store.insert("open", spark.range(2).select())
        assert store.insert("open", spark.range(0).select()).seq == 0
