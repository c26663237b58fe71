"""Published tables after a column was added, dropped, renamed or widened."""

from __future__ import annotations

from pathlib import Path

import pyarrow.dataset as ds
import pytest

import nova_assets as nova
from nova_assets.publish.iceberg import default_iceberg_catalog
from nova_assets_tests.publish.shop import FIRST, Shop, rows


@pytest.mark.slow
def test_a_column_that_comes_later_is_in_the_iceberg_table(tmp_path: Path) -> None:
    shop = Shop(tmp_path, on_schema_change="evolve")
    shop.insert(*FIRST)
    shop.publish()
    wider = rows(("2024-01-03", "login", 9, 90))
    shop.store.insert("actions", wider.append_column("note", [["new"]]))
    assert shop.publish() == [("hive", 2, 2), ("iceberg", 2, 2)]
    found = shop.iceberg().scan().to_arrow()
    assert sorted(found["note"].to_pylist(), key=str) == [None, None, None, "new"]


def test_a_keyed_channel_is_published_after_a_rename_too(tmp_path: Path) -> None:
    store, where = Shop(tmp_path).store, nova.iceberg("x.k")
    old = nova.Channel("k", nova.Upsert(key="id"), "id bigint, was string", publish=where)
    store.insert(old, [{"id": 1, "was": "a"}])
    store.publish(old)
    new = nova.Channel("k", nova.Upsert(key="id"), "id bigint, now string", renamed={"now": "was"}, publish=where)
    store.register(new, replace=True)
    assert [e.seq for e in store.publish(new)] == [1]
    found = default_iceberg_catalog(tmp_path / ".nova/iceberg").load_table("x.k").scan().to_arrow().to_pylist()
    assert found == [{"id": 1, "now": "a"}]


def test_a_name_that_is_used_again_is_another_column(tmp_path: Path) -> None:
    store, where = Shop(tmp_path).store, nova.iceberg("x.n")
    for schema in ("id bigint, c string", "id bigint", "id bigint, c string"):
        channel = nova.Channel("n", schema=schema, publish=where)
        store.register(channel, replace=True)
        if store.catalog.definitions.channel("n").head == 0:
            store.insert(channel, [{"id": 1, "c": "secret"}])
        store.publish(channel)
    table = default_iceberg_catalog(tmp_path / ".nova/iceberg").load_table("x.n")
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "c": None}] == store.read("n").to_arrow().to_pylist()


def test_a_column_that_was_widened_is_written_anew_under_a_number_of_its_own(tmp_path: Path) -> None:
    store, where = Shop(tmp_path).store, nova.hive("x/w")
    for schema in ("id bigint, v int, gone string", "id bigint, v bigint"):
        channel = nova.Channel("w", nova.Upsert(key="id"), schema, publish=where, retain="1d")
        store.register(channel, replace=True)
        if store.catalog.definitions.channel("w").head == 0:
            store.insert(channel, [{"id": 1, "v": 7, "gone": "x"}])
        store.publish(channel)
    assert ds.dataset((tmp_path / "x/w").resolve()).to_table().to_pylist() == [{"id": 1, "v": 7}]
    assert store.read("w", at=1).to_arrow().to_pylist() == [{"id": 1, "v": 7, "gone": "x"}]
    assert store.read("w", since=1).to_arrow().num_rows == 0


@pytest.mark.parametrize("several", [True, False], ids=["deltas", "one base"])
def test_a_column_that_was_renamed_is_written_anew(tmp_path: Path, several: bool) -> None:
    where = [nova.hive("x/c"), nova.iceberg("x.c")]
    store = Shop(tmp_path).store
    old = nova.Channel("c", schema="id bigint, was string", publish=where)
    store.insert(old, [{"id": 1, "was": "a"}], kind="delta" if several else "base")
    store.publish(old)
    new = nova.Channel("c", schema="id bigint, now string", renamed={"now": "was"}, publish=where)
    store.register(new, replace=True)
    if not several:
        with pytest.raises(nova.NotSupported, match="columns were renamed") as caught:
            store.publish(new)
        assert "nova restore c" in str(caught.value)
        store.restore(new, at=1)
    assert [e.files for e in store.publish(new)] == [1, 1]
    table = default_iceberg_catalog(tmp_path / ".nova/iceberg").load_table("x.c")
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "now": "a"}]
    assert ds.dataset((tmp_path / "x/c").resolve()).to_table().to_pylist() == [{"id": 1, "now": "a"}]


def test_structs_that_get_fields_have_null_there_in_published_tables(tmp_path: Path) -> None:
    store, targets = Shop(tmp_path).store, [nova.hive("x/s"), nova.iceberg("x.s")]
    for schema, row in (
        ("id bigint, s struct<a:int>, l array<struct<a:int>>", {"id": 1, "s": {"a": 1}, "l": [{"a": 1}]}),
        (
            "id bigint, s struct<z:int,a:int>, l array<struct<a:int,b:string>>",
            {"id": 2, "s": {"z": 2, "a": 2}, "l": [{"a": 2, "b": "new"}]},
        ),
    ):
        channel = nova.Channel("s", nova.Upsert(key="id"), schema, publish=targets)
        store.register(channel, replace=True)
        store.insert(channel, [row])
        store.publish(channel)
    iceberg = default_iceberg_catalog(tmp_path / ".nova/iceberg").load_table("x.s").scan().to_arrow()
    for table in (ds.dataset((tmp_path / "x/s").resolve()).to_table(), iceberg):
        assert sorted(table.to_pylist(), key=lambda r: r["id"]) == [
            {"id": 1, "s": {"z": None, "a": 1}, "l": [{"a": 1, "b": None}]},
            {"id": 2, "s": {"z": 2, "a": 2}, "l": [{"a": 2, "b": "new"}]},
        ]
