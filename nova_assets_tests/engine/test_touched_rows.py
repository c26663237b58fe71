"""Snapshots whose few changes are merged while the other rows pass by."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import nova_assets as nova
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
