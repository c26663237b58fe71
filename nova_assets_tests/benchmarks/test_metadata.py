"""The benchmark of the catalog: that what it fills one with is what the catalog of today holds."""

from __future__ import annotations

from pathlib import Path

from benchmarks import catalogs
from benchmarks.metadata import HELD, World


def test_a_catalog_that_was_filled_is_one(tmp_path: Path) -> None:
    size = catalogs.Size(channels=12, blocks=400, lengths=(10, 20), days=3)
    world = World(f"sqlite:///{tmp_path / 'catalog.db'}", tmp_path, size)
    world.round(10, counts=True)
    assert world.filled["nova_blocks"] >= 300
    assert set(HELD) <= set(world.times)
    world.store.close()
