"""A column that arrives with nothing but nulls has no type yet: no type is made up for it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nova_assets as nova
from nova_assets.store.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh") as store:
        yield store


def rows(store: Store, **how: Any) -> list[dict[str, Any]]:
    return sorted(store.read("c", **how).to_arrow().to_pylist(), key=lambda r: r["k"])


def only_nulls(kind: str, tmp_path: Path) -> Any:
    data = [{"k": 2, "new": None}]
    if kind == "dicts":
        return data
    if kind == "pandas":
        return pd.DataFrame({"k": [2], "new": [None]})
    if kind == "arrow":
        return pa.table({"k": [2], "new": pa.nulls(1)})
    path = tmp_path / f"rows.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table({"k": [2], "new": pa.nulls(1)}), path)
    elif kind == "csv":
        path.write_text("k,new\n2,\n")
    else:
        path.write_text('{"k": 2, "new": null}\n')
    return path


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dicts", "pandas", "arrow", "parquet", "csv", "jsonl"])
def test_a_new_column_of_nulls_waits_for_its_first_value(kind: str, store: Store, tmp_path: Path) -> None:
    store.register(nova.Channel("c", nova.Upsert(key="k"), "k bigint", on_schema_change="evolve", retain="1d"))
    store.insert("c", [{"k": 1}])
    store.insert("c", only_nulls(kind, tmp_path))
    assert rows(store) == [{"k": 1}, {"k": 2}], "nothing is known of the column yet"
    store.insert("c", [{"k": 3, "new": 2.5}])
    assert rows(store) == [{"k": 1, "new": None}, {"k": 2, "new": None}, {"k": 3, "new": 2.5}]
    assert store.compact("c") is not None and math.isclose(rows(store)[2]["new"], 2.5)
    assert rows(store, at=2) == [{"k": 1}, {"k": 2}]


def test_the_first_data_of_a_channel_makes_up_no_type_either(store: Store) -> None:
    store.register(nova.Channel("c", nova.Upsert(key="k"), on_schema_change="evolve"))
    store.insert("c", [{"k": 1, "new": None}])
    store.insert("c", [{"k": 2, "new": 2.5}])
    assert rows(store) == [{"k": 1, "new": None}, {"k": 2, "new": 2.5}]
    store.register(nova.Channel("d"))
    with pytest.raises(nova.SchemaMismatch, match="only nulls in new") as caught:
        store.insert("d", [{"k": 1, "new": None}])
    assert 'schema="..., new TYPE"' in str(caught.value)
    assert store.catalog.definitions.channel("d").head == 0


def test_a_key_of_nulls_is_refused(store: Store) -> None:
    store.register(nova.Channel("c", nova.Upsert(key="k"), on_schema_change="evolve"))
    with pytest.raises(nova.NovaError, match="'k'"):
        store.insert("c", [{"k": None, "v": 1}])


@pytest.mark.parametrize("value", [{"a": 1, "b": None}, [], [None], [{"a": None}]])
def test_a_part_of_unknown_type_is_refused_with_the_way_to_declare_it(value: Any, store: Store) -> None:
    store.register(nova.Channel("c", schema="k bigint", on_schema_change="evolve"))
    with pytest.raises(nova.SchemaMismatch, match="has a part without a type") as caught:
        store.insert("c", [{"k": 1, "new": value}])
    assert 'schema="..., new TYPE"' in str(caught.value)


def test_a_declared_column_takes_nulls_as_ever(store: Store) -> None:
    store.register(nova.Channel("c", schema="k bigint, s struct<a:int,b:double>, l array<string>, v double"))
    store.insert("c", [{"k": 1, "s": {"a": 1, "b": None}, "l": [], "v": None}])
    assert rows(store) == [{"k": 1, "s": {"a": 1, "b": None}, "l": [], "v": None}]


def test_a_number_beyond_bigint_needs_a_declared_type(store: Store, tmp_path: Path) -> None:
    store.register(nova.Channel("c"))
    store.register(nova.Channel("wide", schema="k decimal(38,0)"))
    (tmp_path / "rows.json").write_text('{"k": 99999999999999999999}\n')
    for data in ([{"k": 99999999999999999999}], tmp_path / "rows.json"):
        with pytest.raises(nova.SchemaMismatch, match="'k' has a number that no bigint can hold") as error:
            store.insert("c", data)
        assert error.value.next is not None and "k decimal(38,0)" in error.value.next
        store.insert("wide", data)
    assert {int(r["k"]) for r in store.read("wide").to_arrow().to_pylist()} == {99999999999999999999}
    table = pa.table({"k": pa.array([2**64 - 1], pa.uint64())})
    with pytest.raises(nova.SchemaMismatch, match="declare the column as decimal\\(20,0\\), or cast it"):
        store.insert("c", table)
    store.register(nova.Channel("unsigned", schema="k decimal(20,0)"))
    store.insert("unsigned", table)
    assert [int(r["k"]) for r in store.read("unsigned").to_arrow().to_pylist()] == [2**64 - 1]
