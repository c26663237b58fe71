"""R18: schemas change by data and by declaration; each block is read by its own, each number by that of its time."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nova_assets as nova
from nova_assets.model.schema import DataType, Field, Schema
from nova_assets.store.store import Store

pytestmark = pytest.mark.spark


@pytest.fixture
def store(tmp_path: Path, spark: Any) -> Any:
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=spark) as opened:
        yield opened


def rows(store: Store, **how: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = store.read("t", **how).to_arrow().to_pylist()
    return sorted(found, key=str)


def declare(store: Store, schema: str, **more: Any) -> None:
    merge = more.pop("merge", nova.Upsert(key="k"))
    store.register(nova.Channel("t", merge=merge, schema=schema, **more), replace=True)


def test_columns_are_renamed_dropped_added_and_widened_by_declaration(store: Store) -> None:
    declare(store, "k int, prize int, note string")
    store.insert("t", [{"k": 1, "prize": 10, "note": "a"}, {"k": 2, "prize": 20, "note": "b"}])
    declare(store, "k bigint, price bigint, `52 week low` double", renamed={"price": "prize"})
    assert rows(store) == [
        {"k": 1, "price": 10, "52 week low": None},
        {"k": 2, "price": 20, "52 week low": None},
    ]
    store.insert("t", [{"k": 2, "price": 2**40, "52 week low": 0.5}])
    assert rows(store)[1] == {"k": 2, "price": 2**40, "52 week low": 0.5}
    assert rows(store, at=1)[0] == {"k": 1, "prize": 10, "note": "a"}, "its own number has its own columns"
    (change,) = rows(store, since=1)
    assert change == {"k": 2, "price": 2**40, "52 week low": 0.5, "_deleted": False}


def test_a_column_that_comes_again_is_another_one(store: Store) -> None:
    declare(store, "k int, note string")
    store.insert("t", [{"k": 1, "note": "old"}])
    declare(store, "k int")
    store.insert("t", [{"k": 2}])
    declare(store, "k int, note string")
    assert rows(store) == [{"k": 1, "note": None}, {"k": 2, "note": None}]
    store.insert("t", [{"k": 3, "note": "new"}])
    assert [r["note"] for r in rows(store)] == [None, None, "new"]
    store.insert("t", [{"k": 1, "note": None}, {"k": 3, "note": "new"}], kind="base")
    assert rows(store, since=3) == [{"k": 2, "note": None, "_deleted": True}], "nothing else has changed"


def test_names_that_change_places(store: Store) -> None:
    declare(store, "k int, a string, b string")
    store.insert("t", [{"k": 1, "a": "was a", "b": "was b"}])
    declare(store, "k int, b string, c string", renamed={"c": "a"})
    assert rows(store) == [{"k": 1, "b": "was b", "c": "was a"}]
    declare(store, "k int, a string, c string", renamed={"a": "b"})
    assert rows(store) == [{"k": 1, "a": "was b", "c": "was a"}]


@pytest.mark.core
def test_columns_exchange_shift_and_take_over_names_at_once(store: Store) -> None:
    declare(store, "k int, a int, b int")
    store.insert("t", [{"k": 1, "a": 1, "b": 2}])
    declare(store, "k int, a int, b int", renamed={"a": "b", "b": "a"})
    assert rows(store) == [{"k": 1, "a": 2, "b": 1}]
    declare(store, "k int, a int, b int, c int", renamed={"a": "b", "b": "a"})
    assert rows(store) == [{"k": 1, "a": 2, "b": 1, "c": None}], "the same renames are made once"
    declare(store, "k int, a int, b int, c int")
    declare(store, "k int, b int, c int, d int", renamed={"b": "a", "c": "b", "d": "c"})
    assert rows(store) == [{"k": 1, "b": 2, "c": 1, "d": None}]
    store.insert("t", [{"k": 2, "b": 5, "c": 6, "d": 7}])
    declare(store, "k int, b int, d int", renamed={"b": "c"})
    assert rows(store) == [{"k": 1, "b": 1, "d": None}, {"k": 2, "b": 6, "d": 7}], "b is dropped, and c takes its name"
    declare(store, "k int, x int, b int, d int", renamed={"x": "b"})
    store.compact("t", force=True)
    assert rows(store) == [{"k": 1, "x": 1, "b": None, "d": None}, {"k": 2, "x": 6, "b": None, "d": 7}]


@pytest.mark.core
@pytest.mark.parametrize(
    ("schema", "renamed", "says"),
    [
        (
            "k int, c int",
            {"c": "z"},
            r"renamed maps 'z' to 'c', but the channel has no column 'z' \(columns: k, x, b\)",
        ),
        ("k int, x int, b int", {"b": "z"}, "the channel has no column 'z'"),
        ("k int, a int, x int", {"x": "a", "a": "x"}, "as the registered definition does, and there is a column 'a'"),
    ],
)
def test_renames_that_nobody_can_make_are_refused(
    schema: str, renamed: dict[str, str], says: str, store: Store
) -> None:
    declare(store, "k int, a int, b int")
    store.insert("t", [{"k": 1, "a": 1, "b": 2}])
    declare(store, "k int, x int, b int", renamed={"x": "a"})
    if "as the registered" in says:
        declare(store, "k int, x int, b int, a int", renamed={"x": "a"})
    before = rows(store)
    with pytest.raises(nova.DefinitionError, match=says):
        declare(store, schema, renamed=renamed)
    assert rows(store) == before


def test_a_rename_may_join_one_that_is_made(store: Store) -> None:
    declare(store, "k int, a int, b int")
    store.insert("t", [{"k": 1, "a": 1, "b": 2}])
    declare(store, "k int, x int, b int", renamed={"x": "a"})
    declare(store, "k int, x int, b int, c int", renamed={"x": "a", "c": "b"})
    assert rows(store) == [{"k": 1, "x": 1, "b": None, "c": 2}]


def test_no_schema_has_two_columns_of_one_identity() -> None:
    with pytest.raises(nova.DefinitionError, match="two columns of a schema are the same column"):
        Schema((Field("price", DataType("int")), Field("cost", DataType("int"), id="price")))
    with pytest.raises(nova.DefinitionError, match="renamed gives the data of column 'x' to several columns"):
        nova.Channel("t", schema="a int, b int", renamed={"a": "x", "b": "x"})


@pytest.mark.core
@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("k int, v int", "column v is bigint and cannot become int"),
        ("k int, v string", "column v is bigint and cannot become string"),
        ("k int, v bigint, w int NOT NULL", "new column w may not be null"),
        ("k int, v bigint NOT NULL", "column v may be null in existing rows"),
    ],
)
def test_a_declaration_that_what_is_there_cannot_follow_is_refused(schema: str, says: str, store: Store) -> None:
    declare(store, "k int, v bigint")
    store.insert("t", [{"k": 1, "v": 1}])
    with pytest.raises(nova.DefinitionError, match=says):
        declare(store, schema)
    assert rows(store) == [{"k": 1, "v": 1}]
    with pytest.raises(nova.DefinitionError, match="'x' is not in the schema"):
        nova.Channel("t", schema="k int", renamed={"x": "k"})


@pytest.mark.core
def test_what_came_with_the_data_stays_under_a_new_declaration(store: Store) -> None:
    declare(store, "k int, v int", on_schema_change="evolve")
    store.insert("t", pa.table({"k": pa.array([1], pa.int32()), "v": pa.array([1], pa.int32()), "extra": ["x"]}))
    declare(store, "k int", on_schema_change="evolve")
    assert rows(store) == [{"k": 1, "extra": "x"}]


def test_blocks_of_another_format_are_read_beside_the_others(store: Store, spark: Any, tmp_path: Path) -> None:
    """A block says of what format its files are (R18): here one that was made elsewhere, as ORC."""
    from dataclasses import replace

    declare(store, "k int, v string")
    store.insert("t", [{"k": 1, "v": "parquet"}, {"k": 2, "v": "parquet"}])
    writer = store.engine.writer  # type: ignore[attr-defined]
    plain = writer.write

    def as_orc(frame: Any, staged: Any, channel: Any, schema: Any, **known: bool) -> Any:
        manifest = plain(frame, staged, channel, schema)
        (file,) = manifest.files
        here = tmp_path / "wh" / file.path
        spark.read.parquet(str(here)).coalesce(1).write.orc(str(tmp_path / "orc"))
        (made,) = (tmp_path / "orc").glob("*.orc")
        made.rename(here.with_suffix(".orc"))
        here.unlink()
        orc = here.with_suffix(".orc")
        path = file.path.replace(".parquet", ".orc")
        moved = replace(file, path=path, bytes=orc.stat().st_size, digest=None, footer_digest=None)
        return replace(manifest, files=(moved,), format="orc")

    writer.write = as_orc
    store.insert("t", [{"k": 2, "v": "orc"}])
    writer.write = plain
    store.insert("t", [{"k": 3, "v": "parquet"}])
    assert [r["v"] for r in rows(store)] == ["parquet", "orc", "parquet"]
    assert [(r["k"], r["v"]) for r in rows(store, since=1)] == [(2, "orc"), (3, "parquet")]


def test_nested_types_decimals_and_binary_go_through_a_keyed_channel(store: Store) -> None:
    declare(
        store,
        "k int, m map<string,array<int>>, s struct<a:int,`b c`:string>, d decimal(38,10), b binary, t timestamp_ntz",
    )
    first = {"k": 1, "m": {"x": [1, None]}, "s": {"a": 1, "b c": None}, "d": "12345678901234567890.0123456789"}
    first |= {"b": b"\x00\xff", "t": "2024-03-31T02:30:00"}
    store.insert("t", [first])
    store.insert("t", [{**first, "k": 2}])
    store.insert("t", [{**first, "m": None}])
    found = rows(store)
    assert [dict(r["m"]) if r["m"] else None for r in found] == [None, {"x": [1, None]}] or found[0]["m"] is None
    assert found[0]["d"] == Decimal("12345678901234567890.0123456789") and found[0]["b"] == b"\x00\xff"
    assert {r["t"].isoformat() for r in found} == {"2024-03-31T02:30:00"}
