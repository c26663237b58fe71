"""Snapshots whose few changes are merged while the other rows pass by."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import nova_assets as nova
from nova_assets.engine.read.touched_rows import TouchedRows
from nova_assets.plan import merge_units, read_strategy
from nova_assets.store.store import Store
from nova_assets_tests.engine.test_streaming import CHANNELS, given, multiset, never, streamed

pytestmark = pytest.mark.slow


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Without Spark."""
    with nova.open(catalog=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path / "wh", spark=never) as made:
        yield made


@pytest.mark.parametrize("name", CHANNELS)
def test_a_large_snapshot_with_few_changes_is_merged_without_spark(
    name: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(name)
    store.register(CHANNELS[name])
    monkeypatch.setattr(merge_units, "BUCKET_BYTES", 3000)
    store.insert("c", given(name, rng, 190, deletes=False), kind="base")
    for rows in (5, 1, 9):
        store.insert("c", given(name, rng, rows))
        in_memory = store.read("c").to_arrow()
        with monkeypatch.context() as smaller:
            smaller.setattr(read_strategy, "MEMORY_ROWS", 10)
            passed_by = store.read("c").to_arrow()
            assert passed_by.column("k").num_chunks == in_memory.column("k").num_chunks == 1
            assert passed_by.schema.equals(in_memory.schema) and multiset(passed_by) == multiset(in_memory)
            assert multiset(streamed(store.read("c"))) == multiset(in_memory)
            some = store.read("c", columns=["note"]).to_arrow()
            assert multiset(some) == multiset(in_memory.select(["note"]))
    if CHANNELS[name].merge.has_deletions:
        with monkeypatch.context() as units:
            units.setattr(read_strategy, "DELTA_MEMORY_FACTOR", 0)
            units.setattr(read_strategy, "MEMORY_ROWS", 10)
            assert multiset(store.read("c").to_arrow()) == multiset(in_memory)


@pytest.mark.parametrize("name", [n for n, c in CHANNELS.items() if c.merge.has_deletions])
def test_a_process_without_spark_compacts_more_than_fits_into_memory(
    name: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(name)
    store.register(CHANNELS[name])
    for limit in ("BUCKET_BYTES", "MAX_BUCKET_BYTES"):
        monkeypatch.setattr(merge_units, limit, 3000)
    store.insert("c", given(name, rng, 190, deletes=False), kind="base")
    for _ in range(3):
        store.insert("c", given(name, rng, 30))
    before = multiset(store.read("c").to_arrow())
    monkeypatch.setattr(read_strategy, "MEMORY_ROWS", 10)
    commit = store.compact("c", force=True)
    assert commit is not None and {b.kind for b in commit.blocks} == {"base"}
    assert multiset(store.read("c").to_arrow()) == before


def test_rows_that_were_added_under_an_append_model_stay_when_the_channel_gets_it(store: Store) -> None:
    ddl = "a int, b string"
    store.register(nova.Channel("c", nova.Multiset(), ddl))
    for n in range(3):
        store.insert("c", [{"a": n % 2, "b": "x"}], merge=nova.Append())
    store.register(nova.Channel("c", nova.Append(), ddl), replace=True)
    assert sorted(store.read("c").to_arrow().column("a").to_pylist()) == [0, 0, 1]
    assert store.read("c", since=1).to_arrow().num_rows == 2


def test_only_rows_with_a_key_of_the_deltas_are_kept_for_the_merge(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every value of either column is in a delta, and few of their pairs are."""
    store.register(nova.Channel("c", nova.Upsert(key=["a", "b"]), "a int, b string, v int"))
    grid = [{"a": a, "b": str(b), "v": 0} for a in range(30) for b in range(30)]
    store.insert("c", grid, kind="base")
    store.insert("c", [{"a": n, "b": str(n), "v": 1} for n in range(30)])
    monkeypatch.setattr(read_strategy, "MEMORY_ROWS", 10)
    kept = list[int]()
    merge = TouchedRows.merge

    def merge_counted(touched: TouchedRows) -> pa.Table:
        kept.append(sum(t.num_rows for t in touched._touched))
        return merge(touched)

    monkeypatch.setattr(TouchedRows, "merge", merge_counted)
    rows = store.read("c").to_arrow().to_pylist()
    assert kept == [30] and sum(r["v"] for r in rows) == 30 and len(rows) == 900


def test_equal_rows_of_a_multiset_are_counted(store: Store) -> None:
    store.register(nova.Channel("c", nova.Multiset(), "a int, b string"))
    store.insert("c", [{"a": a, "b": b} for a in (1, 2) for b in ("x", "y", None)] * 3, kind="base")
    store.insert("c", [{"a": 1, "b": "x", "_deleted": True}, {"a": 2, "b": None, "_deleted": True}])
    store.insert("c", [{"a": 2, "b": None}, {"a": 2, "b": None}, {"a": 3, "b": "x"}])
    counted = multiset(store.read("c").to_arrow())
    assert sorted(counted.values()) == [1, 2, 3, 3, 3, 3, 4]


@pytest.mark.parametrize("max_rows", [1_000_000, 5])
def test_the_mark_alone_is_read_for_each_row(max_rows: int, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_strategy, "MEMORY_ROWS", max_rows)
    store.register(nova.Channel("c", nova.Upsert(key="k"), "k int, v int"))
    store.insert("c", [{"k": k, "v": 0} for k in range(20)], kind="base")
    for head in (1, 2):
        marks = store.read("c", since=0, columns=["_deleted"])
        assert marks.to_arrow().column("_deleted").to_pylist() == [False] * 20, head
        assert streamed(marks).column_names == ["_deleted"] and streamed(marks).num_rows == 20
        store.insert("c", [{"k": 1, "v": 1}])
