"""A restarted server loads what came after its checkpoint, and no more: counted in rows and bytes of the catalog."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from nova_assets.catalog.catalog import Catalog
from nova_assets.file_views.sqlite_storage import open_storage
from nova_assets.model.block import Block
from nova_assets.plan import modes
from nova_assets.settings import VIEW_STORAGES
from nova_assets.store.store import Store
from nova_assets_tests.catalog.counted_reads import FetchedRows, counted_reads
from nova_assets_tests.file_views.conftest import PARTITIONS, put
from nova_assets_tests.service.test_fast_lookups import LookupService

COMMITS = 20


class Server:
    """A service whose views are kept in a folder."""

    def __init__(self, store: Store, kind: str, folder: Path) -> None:
        self._folder = folder
        self._lookups = LookupService(store, open_storage(kind, folder, 2**16, store.catalog.identity.get()))
        self.follower = self._lookups.query_handler.follower

    def files(self) -> dict[str, list[str]]:
        """Partition -> files, by one request for each partition."""
        return {
            name: [
                f["path"] for block in self._get(f"files?partition={name.replace('=', '%3D')}") for f in block["files"]
            ]
            for name in PARTITIONS
        }

    def _get(self, path: str) -> Any:
        return json.loads(self._lookups.get(f"/v1/channels/t/{path}", routes=True).content)["blocks"]

    def checkpoint(self, copy: Path) -> None:
        """Save, and copy the folder as a process leaves it that is killed right afterwards."""
        self.follower.save()
        shutil.copytree(self._folder, copy)


def fetched_by(store: Store, ask: Callable[[], dict[str, list[str]]]) -> FetchedRows:
    """What the catalog fetched for the answers, which must be right."""
    catalog = cast(Catalog, store.catalog)
    with counted_reads(catalog) as fetched:
        answer = ask()
    snapshots = {name: modes.snapshot(catalog.histories.of("t", scope=name)) for name in PARTITIONS}
    assert answer == {
        name: [f.path for b in (*s.bases, *s.deltas) if isinstance(b, Block) for f in b.manifest.files]
        for name, s in snapshots.items()
    }
    return fetched


@pytest.mark.slow
@pytest.mark.parametrize("kind", VIEW_STORAGES)
def test_a_restarted_server_loads_what_came_after_its_checkpoint(store: Store, tmp_path: Path, kind: str) -> None:
    for k in range(COMMITS):
        put(store, k)
    server = Server(store, kind, tmp_path / "views")
    cold = fetched_by(store, server.files)
    server.checkpoint(tmp_path / "idle")
    server.checkpoint(tmp_path / "behind")
    idle = Server(store, kind, tmp_path / "idle")
    nothing_new = fetched_by(store, idle.files)
    put(store, COMMITS, "a")
    store.compact("t")
    followed = fetched_by(store, server.files)
    restarted = Server(store, kind, tmp_path / "behind")
    loaded = fetched_by(store, restarted.files)
    assert loaded.rows <= followed.rows + 1, "as if it had kept running, but for the channel's definition"
    assert loaded.bytes < followed.bytes + 1_000
    assert nothing_new.rows == 1 + 3 * len(PARTITIONS), "the definition, and where the channel is, for each request"
    assert cold.rows > 6 * loaded.rows and cold.bytes > 5 * loaded.bytes
    for one in (server, idle, restarted):
        one.follower.close()
    assert (restarted.follower.counts.loaded, restarted.follower.counts.restarted) == (0, 0)
