"""R10, R11 and R18: what a block may change in its channel."""

from __future__ import annotations

import pytest

import nova_assets as nova
from nova_assets_tests.execution.conftest import Opener
from nova_assets_tests.execution.rule_channels import DDL, bound, dedup, fresh, keys, read, rows, source, table
from nova_assets_tests.stub_merge import Row, sorted_live_rows


def test_r10_a_base_that_drops_rows_from_an_append_channel_with_consumers_is_refused(opened: Opener) -> None:
    store = opened(bound(dedup))
    store.insert("source", rows(1, 2, 3))
    store.insert("source", rows(1, 2, 4), kind="base")  # nobody has read changes yet: nobody to tell
    store.run("w")
    with pytest.raises(nova.UnrepresentableChange, match="channel 'source' drops 2 rows") as met:
        store.insert("source", rows(1, 5), kind="base")
    assert met.value.dropped == 2
    assert store.insert("source", rows(1, 2, 4, 5), kind="base").seq == 3
    store.run("w")
    assert keys(read(store, "fresh")) == [1, 2, 4, 5]


def test_r11_insert_then_delete_of_a_key_before_the_first_read(opened: Opener) -> None:
    saw: list[list[Row]] = []

    @nova.task(consumes=nova.new(table), produces=nova.delta(fresh))
    def watch(table: list[Row]) -> list[Row]:
        saw.append(table)
        return []

    store = opened(bound(watch))
    store.insert("table", rows(1, 2))
    store.insert("table", [{"k": 1, "v": 0, "_deleted": True}])
    store.run("w")
    assert saw == [[{"k": 2, "v": 0, "_deleted": False}]]


def test_r11_deletion_and_new_row_of_one_key_in_one_keyed_delta(opened: Opener) -> None:
    sums = nova.Channel("sums", merge=nova.Keyed(key="k", combine={"v": "sum"}), schema=DDL)
    store = opened()
    store.register(sums)
    store.insert("sums", rows(1, v=10))
    store.insert("sums", [{"k": 1, "v": 0, "_deleted": True}, {"k": 1, "v": 5, "_deleted": False}])
    store.insert("sums", rows(1, v=2))
    assert read(store, "sums") == [{"k": 1, "v": 7, "_deleted": False}] or sorted_live_rows(read(store, "sums")) == [
        {"k": 1, "v": 7}
    ]
    change = read(store, "sums", since=1)
    assert sorted((r["_deleted"], r["v"]) for r in change) == [(False, 7), (True, 0)]


def test_r11_several_live_rows_of_one_key_are_refused_unless_order_by_decides(opened: Opener) -> None:
    store = opened()
    store.register(table)
    with pytest.raises(nova.BadKey):
        store.insert("table", rows(1) + rows(1, v=2))
    assert store.timeline("table") == []
    ordered = nova.Channel("ordered", merge=nova.Upsert(key="k", order_by="v"), schema=DDL)
    store.register(ordered)
    store.insert("ordered", rows(1, v=3) + rows(1, v=2))
    store.insert("ordered", rows(1, v=1))
    assert sorted_live_rows(read(store, "ordered")) == [{"k": 1, "v": 3}]


def test_r18_a_changed_merge_model_takes_effect_by_a_base(opened: Opener) -> None:
    store = opened()
    store.register(table)
    store.insert("table", rows(1))
    sums = nova.Channel("table", merge=nova.Keyed(key="k", combine={"v": "sum"}), schema=DDL)
    with pytest.raises(nova.DefinitionConflict):
        store.register(sums)
    store.register(sums, replace=True)
    with pytest.raises(nova.ModelChanged, match="was changed after version 1"):
        store.insert("table", rows(1, v=1))
    store.insert("table", rows(1, v=1), kind="base")
    store.insert("table", rows(1, v=1))
    assert sorted_live_rows(read(store, "table")) == [{"k": 1, "v": 2}]


def watching(channel: nova.Channel, saw: list[list[Row]]) -> nova.Project:
    """A consumer of the channel ``table``, as it is defined now."""

    @nova.task(consumes=nova.new(channel), produces=nova.delta(fresh))
    def watch(table: list[Row]) -> list[Row]:
        saw.append(table)
        return []

    return bound(watch)


BY_VALUE = nova.Channel("table", merge=nova.Upsert(key="v"), schema=DDL)


def test_r18_a_model_changes_after_lagging_consumers_have_run(opened: Opener) -> None:
    saw: list[list[Row]] = []
    store = opened(watching(table, saw))
    store.insert("table", rows(1, v=5) + rows(2, v=7))
    store.run("w")
    store.insert("table", rows(1, v=6))
    store.compact("table")
    assert store.collect_garbage("table").blocks
    store.register(BY_VALUE, replace=True)
    with pytest.raises(nova.UnrepresentableChange, match="cannot change yet") as met:
        store.insert("table", rows(1, v=6) + rows(2, v=8), kind="base")
    assert "nova cursors --channel table" in str(met.value)
    opened(watching(BY_VALUE, saw)).run("w")
    assert store.insert("table", rows(1, v=6) + rows(2, v=8), kind="base").seq == 3
    opened(watching(BY_VALUE, saw)).run("w")
    assert {(r["k"], r["v"]) for r in saw[-1] if not r["_deleted"]} == {(2, 8)}


def test_an_idempotency_key_gives_the_first_commit_back(opened: Opener) -> None:
    store = opened()
    store.register(source)
    first = store.insert("source", rows(1), idempotency_key="file-1")
    again = store.insert("source", rows(1), idempotency_key="file-1")
    assert (again.id, again.seq, again.repeated) == (first.id, 1, True)
    assert keys(read(store, "source")) == [1]
    assert store.insert("source", rows(2), idempotency_key="file-2").seq == 2
