"""R18: structs, also in arrays and maps, get fields by declaration and by data. Old rows have null there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

import nova_assets as nova
from nova_assets.model.schema import parse_type
from nova_assets.model.schema_evolution import can_widen, common_type
from nova_assets.settings import Settings
from nova_assets.store.store import Store

NARROW = "k int, s struct<a:int>, l array<struct<a:int>>, m map<string,struct<a:int>>"
WIDE = (
    "k int, s struct<z:string,a:bigint,t:struct<u:int>>, l array<struct<a:int,b:array<int>>>, "
    "m map<string,struct<a:int,`b c`:date>>"
)
OLD = [
    {"k": 1, "s": {"a": 1}, "l": [{"a": 1}, None], "m": [("x", {"a": 1}), ("y", None)]},
    {"k": 2, "s": None, "l": None, "m": None},
    {"k": 3, "s": {"a": None}, "l": [], "m": []},
]
OLD_AS_WIDE = [
    {
        "k": 1,
        "s": {"z": None, "a": 1, "t": None},
        "l": [{"a": 1, "b": None}, None],
        "m": [("x", {"a": 1, "b c": None}), ("y", None)],
    },
    {"k": 2, "s": None, "l": None, "m": None},
    {"k": 3, "s": {"z": None, "a": None, "t": None}, "l": [], "m": []},
]
NEW = {
    "k": 2,
    "s": {"z": "new", "a": 2**40, "t": {"u": 1}},
    "l": [{"a": 2, "b": [1]}],
    "m": [("x", {"a": 2, "b c": None})],
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with nova.open(None, f"sqlite:///{tmp_path}/c.db", tmp_path / "wh") as opened:
        yield opened


def declare(store: Store, schema: str, **options: Any) -> None:
    store.register(nova.Channel("t", nova.Upsert(key="k"), schema, **options), replace=True)


def rows(store: Store, **how: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = store.read("t", **how).to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["k"])


@pytest.mark.core
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro", "json"])
def test_old_rows_have_null_in_the_new_fields(
    store: Store, file_format: Literal["parquet", "orc", "avro", "json"]
) -> None:
    declare(store, NARROW)
    store.insert("t", OLD, format=file_format)
    declare(store, WIDE)
    assert rows(store) == OLD_AS_WIDE
    store.insert("t", [NEW])
    assert rows(store) == [OLD_AS_WIDE[0], NEW, OLD_AS_WIDE[2]]
    assert rows(store, at=1) == OLD, "an older number has its own columns"
    assert rows(store, since=1) == [{**NEW, "_deleted": False}]
    store.compact("t")
    assert rows(store) == [OLD_AS_WIDE[0], NEW, OLD_AS_WIDE[2]]
    store.restore("t", 1)
    assert rows(store) == OLD_AS_WIDE


@pytest.mark.spark
def test_spark_reads_old_rows_with_null_in_the_new_fields(tmp_path: Path, spark: Any) -> None:
    for strategy in ("arrow", "buckets", "spark"):
        folder = tmp_path / strategy
        settings = Settings(f"sqlite:///{tmp_path}/{strategy}.db", str(folder), root=tmp_path, strategy=strategy)
        with nova.open(None, spark=spark, settings=settings) as store:
            declare(store, NARROW)
            store.insert("t", OLD[:1], format="avro")
            store.insert("t", spark.createDataFrame(pa.Table.from_pylist(OLD[1:], _arrow(NARROW))))
            declare(store, WIDE)
            frame = store.read("t").to_spark()
            assert frame.where("s IS NOT NULL AND s.z IS NULL").count() == 2
            assert sorted(frame.toArrow().to_pylist(), key=lambda row: row["k"]) == OLD_AS_WIDE
            store.insert("t", frame.where("k = 3").withColumn("k", frame.k + 1))
            store.insert("t", spark.createDataFrame(pa.Table.from_pylist(OLD[:1], _arrow(NARROW))))
            assert rows(store) == [*OLD_AS_WIDE, {**OLD_AS_WIDE[2], "k": 4}]


def _arrow(ddl: str) -> pa.Schema:
    from nova_assets.model.arrow_types import to_arrow_schema
    from nova_assets.model.schema import parse_ddl

    return to_arrow_schema(parse_ddl(ddl))


def test_data_may_bring_fields_and_leave_fields_out(store: Store) -> None:
    declare(store, "k int, s struct<a:int>", on_schema_change="evolve")
    store.insert("t", pa.table({"k": pa.array([1], pa.int32()), "s": [{"a": 1}]}))
    store.insert("t", pa.table({"k": pa.array([2], pa.int32()), "s": [{"b": "two"}]}))
    store.insert("t", pa.table({"k": pa.array([3], pa.int32()), "s": [{"c": 3.5, "a": 2**40}]}))
    assert str(store.catalog.definitions.channel("t").schema) == "k int, s struct<a:bigint,b:string,c:double>"
    assert [row["s"] for row in rows(store)] == [
        {"a": 1, "b": None, "c": None},
        {"a": None, "b": "two", "c": None},
        {"a": 2**40, "b": None, "c": 3.5},
    ]
    with pytest.raises(nova.SchemaMismatch, match="column s is struct<a:string>, not struct<a:bigint,b:string"):
        store.insert("t", pa.table({"k": pa.array([4], pa.int32()), "s": [{"a": "text"}]}))


@pytest.mark.parametrize(
    ("declared", "says"),
    [
        ("struct<b:int>", "column s is struct<a:int,b:int> and cannot become struct<b:int>"),
        ("struct<a:string,b:int>", "column s is struct<a:int,b:int> and cannot become struct<a:string,b:int>"),
        ("struct<a:int,A:int,b:int>", "column s is struct<a:int,b:int> and cannot become struct<a:int,A:int,b:int>"),
    ],
)
def test_fields_stay(store: Store, declared: str, says: str) -> None:
    declare(store, "k int, s struct<a:int,b:int>")
    store.insert("t", [{"k": 1, "s": {"a": 1, "b": 2}}])
    with pytest.raises(nova.DefinitionError, match=says):
        declare(store, f"k int, s {declared}")


@pytest.mark.parametrize(
    ("first", "second", "common"),
    [
        ("struct<a:int>", "struct<b:int>", "struct<a:int,b:int>"),
        ("struct<a:int,b:float>", "struct<b:double,a:bigint>", "struct<b:double,a:bigint>"),
        ("struct<a:int,c:int>", "struct<a:bigint,b:int>", "struct<a:bigint,c:int,b:int>"),
        (
            "array<struct<a:int>>",
            "array<struct<b:array<struct<c:int>>>>",
            "array<struct<a:int,b:array<struct<c:int>>>>",
        ),
        ("map<string,struct<a:int>>", "map<string,struct<b:int>>", "map<string,struct<a:int,b:int>>"),
        ("struct<a:int>", "struct<A:int>", None),
        ("struct<a:int>", "struct<a:string>", None),
        ("array<int>", "array<string>", None),
        ("int", "bigint", "bigint"),
        ("decimal(9,2)", "decimal(12,3)", "decimal(12,3)"),
        ("decimal(9,2)", "decimal(9,3)", None),
    ],
)
def test_the_common_type_of_two_types(first: str, second: str, common: str | None) -> None:
    types = parse_type(first), parse_type(second)
    found = common_type(*types)
    assert (None if found is None else str(found)) == common
    assert found is None or (can_widen(types[0], found) and can_widen(types[1], found))
