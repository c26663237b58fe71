"""Faults that are known of the service that this one is made after, each by its name; and what comes of damage."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.errors import StorageFailed
from nova_assets.execution.warehouse_identity import claim_warehouse
from nova_assets.file_views.channel_view import ChannelView
from nova_assets.file_views.sqlite_storage import SqliteStorage, open_storage
from nova_assets.file_views.storage import Changes, ExpectedValue, Storage
from nova_assets.file_views.timeline_follower import TimelineFollower
from nova_assets.file_views.view_entries import channel_keyspace, partition_keyspace
from nova_assets.model.timeline import TimelinePosition
from nova_assets.settings import VIEW_STORAGES
from nova_assets.store.store import Store
from nova_assets_tests.conftest import ROOT
from nova_assets_tests.file_views.conftest import PARTITIONS, channel, opened, put

pytestmark = pytest.mark.slow

Make = Callable[[], Storage]


@pytest.fixture(params=VIEW_STORAGES)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    made = open_storage(request.param, tmp_path / "views", 2**14, "me")
    yield made
    made.close()


def listed(view: ChannelView) -> dict[str, list[int]]:
    """Partition -> the numbers of its blocks."""
    return {p.name: [k.block.hi for k in view.partition_blocks(p.name).blocks] for p in view.loaded_partitions()}


@pytest.mark.core
def test_catching_up_applies_what_views_lack_and_loads_nothing_else(store: Store, storage: Storage) -> None:
    put(store, 0)
    follower = TimelineFollower(store.catalog, storage)
    assert follower.catch_up(10.0) == 0 and follower.counts.loaded == 0, "nothing was asked for, so nothing is kept"
    follower.ask("t", listed)
    for k in range(1, 4):
        put(store, k)
    restarted = TimelineFollower(store.catalog, storage)
    assert restarted.catch_up(-1.0) == 1, "no time to apply anything"
    assert restarted.catch_up(10.0) == 0
    assert (restarted.counts.applied, restarted.counts.loaded) == (3, 0)
    newest = store.catalog.definitions.channel("t").position
    assert restarted.ask("t", lambda v: (v.position, listed(v)), known_position=newest, allow_stale=True) == (
        newest,
        {p: [1, 2, 3, 4] for p in PARTITIONS},
    )
    assert restarted.counts.met == 1, "the view was at the newest instant already"


def test_stale_view_after_a_sync_that_is_not_atomic(store: Store, storage: Storage) -> None:
    """Whoever asks while a view goes on sees one position of it, and at that position all of it."""
    follower, ended, wrong = TimelineFollower(store.catalog, storage), threading.Event(), []
    put(store, 0)

    def ask() -> None:
        while not ended.is_set():
            head, seen = follower.ask("t", lambda v: (v.header.head, listed(v)))
            if seen != {p: list(range(1, head + 1)) for p in PARTITIONS}:
                wrong.append((head, seen))

    askers = [threading.Thread(target=ask) for _ in range(4)]
    for asker in askers:
        asker.start()
    for k in range(1, 40):
        put(store, k)
    ended.set()
    for asker in askers:
        asker.join()
    assert not wrong


_FOLLOWS = """
import sys
from pathlib import Path
from nova_assets.file_views.timeline_follower import TimelineFollower
from nova_assets.file_views.sqlite_storage import SqliteStorage
from nova_assets_tests.file_views.conftest import opened, put
folder = Path(sys.argv[1])
with opened(folder, f"sqlite:///{folder}/catalog.db") as store:
    follower = TimelineFollower(store.catalog, SqliteStorage(folder / "views", "me"))
    for k in range(10_000):
        put(store, k)
        follower.ask("t", lambda view: None)
        print(k, flush=True)
"""


@pytest.mark.parametrize("delay", [0.2, 0.333, 0.41])
def test_a_sync_that_is_killed_leaves_a_view_of_one_position(store: Store, tmp_path: Path, delay: float) -> None:
    command = [sys.executable, "-c", _FOLLOWS, str(tmp_path)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert child.stdout is not None and child.stdout.readline()
    time.sleep(delay)
    child.kill()
    told = len(child.stdout.read().split())
    child.wait()
    storage = SqliteStorage(tmp_path / "views", "me")
    with storage.open_snapshot() as looked:
        view = ChannelView.load(looked, "t")
        assert view is not None and view.header.head > told
        assert listed(view) == {p: list(range(1, view.header.head + 1)) for p in PARTITIONS}
    storage.close()


def test_reload_at_every_later_instant(store: Store, storage: Storage) -> None:
    """A partition is loaded once. Whatever happens to it afterwards is applied, also once it had to be rebuilt."""
    follower = TimelineFollower(store.catalog, storage)
    put(store, 0)
    follower.ask("t", listed)
    loaded = follower.counts.loaded
    storage.write({partition_keyspace("t", "p=a"): None})  # part of the view is lost
    store.compact("t")
    store.collect_garbage("t")
    follower.ask("t", listed)
    put(store, 1)
    assert follower.ask("t", listed)["p=b"] == [1, 2]
    rebuilt = follower.counts.rebuilt
    for k in range(2, 12):
        put(store, k)
        store.compact("t")
        store.collect_garbage("t")
        assert follower.ask("t", listed) == {p: [k + 1] for p in PARTITIONS}
    assert follower.counts.rebuilt == rebuilt <= 1 and follower.counts.loaded == loaded + rebuilt
    assert follower.counts.applied >= 30


def test_an_increment_that_is_not_safe_rebuilds_its_partition(store: Store, storage: Storage) -> None:
    follower = TimelineFollower(store.catalog, storage)
    put(store, 0)
    follower.ask("t", listed)
    storage.write({partition_keyspace("t", "p=a"): None})
    put(store, 1)
    store.compact("t")
    store.collect_garbage("t")  # of p=a it takes a block that the view does not have
    assert follower.ask("t", listed) == {p: [2] for p in PARTITIONS}
    assert (follower.counts.rebuilt, follower.counts.loaded) == (1, len(PARTITIONS) + 1)


@pytest.mark.core
def test_bootstrap_loads_only_the_partitions_asked_for(store: Store, storage: Storage) -> None:
    follower = TimelineFollower(store.catalog, storage)
    put(store, 0)
    assert follower.ask("t", listed, ["p=b"]) == {"p=b": [1]}
    put(store, 1)
    assert follower.ask("t", listed, ["p=b"]) == {"p=b": [1, 2]} and follower.counts.loaded == 1


@pytest.mark.core
def test_a_partition_that_is_born_while_it_is_looked_for(
    store: Store, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not there when it is to be loaded, and is made before the instants are asked for."""
    follower = TimelineFollower(store.catalog, storage)
    put(store, 0, "a")
    follower.ask("t", listed, ["p=a"])
    real = store.catalog.timelines.head_and_full_history

    def bootstrap(name: str, partitions: Sequence[str]) -> Any:
        found = real(name, partitions)
        if not store.catalog.histories.of("t", scope="p=b").blocks:
            put(store, 1, "b")
        return found

    monkeypatch.setattr(store.catalog.timelines, "head_and_full_history", bootstrap)
    assert follower.ask("t", lambda v: (v.header.head, listed(v)), ["p=b"]) == (2, {"p=a": [1], "p=b": [2]})


def test_a_timeline_that_was_set_back_is_begun_anew(store: Store, storage: Storage, tmp_path: Path) -> None:
    """A catalog was restored from a backup: it has as many instants, and others."""
    follower = TimelineFollower(store.catalog, storage)
    put(store, 0)
    follower.ask("t", listed)
    backup = tmp_path / "backup.db"
    store.catalog.database.engine.raw_connection().execute(f"VACUUM INTO '{backup}'")  # type: ignore[attr-defined]
    put(store, 1, "a")
    known = store.catalog.definitions.channel("t").position
    follower.ask("t", listed)
    with opened(tmp_path, f"sqlite:///{backup}") as restored:
        claim_warehouse(restored.catalog, restored.engine)  # the original is gone
        put(restored, 2, "bc")
        follower = TimelineFollower(restored.catalog, storage)
        number = restored.catalog.definitions.channel("t").head  # the lost commit had number 2
        assert number > 1_000_000
        assert follower.ask("t", listed) == {"p=a": [1], "p=b": [1, number], "p=c": [1, number]}
        assert follower.counts.restarted == 1
        with pytest.raises(nova.TimelineDiffers):
            follower.ask("t", listed, known_position=known)


def test_server_killed_by_a_storage_error(store: Store, tmp_path: Path) -> None:
    """The disk is full: who asks is answered all the same, and the disk is tried again later."""
    now = [0.0]
    storage = _Failing(SqliteStorage(tmp_path / "views", "me"))
    follower = TimelineFollower(store.catalog, storage, clock=lambda: now[0])
    put(store, 0)
    storage.fails = True
    for k in range(1, 4):
        put(store, k)
        now[0] += 1
        assert follower.ask("t", listed) == {p: list(range(1, k + 2)) for p in PARTITIONS}
    assert follower.counts.failed == 1, "it is left alone for a while"
    storage.fails = False
    now[0] += 60
    put(store, 4)
    assert follower.ask("t", listed)["p=a"] == [1, 2, 3, 4, 5]
    with storage.open_snapshot() as looked:
        assert ChannelView.load(looked, "t") is not None


class _Failing:
    name = "failing"

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.fails = False

    def open_snapshot(self) -> object:
        return self._storage.open_snapshot()

    def write(self, changes: Changes, expected: ExpectedValue | None = None) -> bool:
        if self.fails:
            raise StorageFailed("views could not be written", found="No space left on device")
        return self._storage.write(changes, expected)


@pytest.mark.core
@pytest.mark.parametrize("damage", [b"", b"not json", b"{}", b"[1, 2]"])
def test_what_is_damaged_is_loaded_again(store: Store, storage: Storage, damage: bytes) -> None:
    follower = TimelineFollower(store.catalog, storage)
    put(store, 0)
    follower.ask("t", listed)
    with storage.open_snapshot() as looked:
        [(key, _)] = list(looked.scan(partition_keyspace("t", "p=b")))
    storage.write({partition_keyspace("t", "p=b"): {key: damage + b"\n[]"}})
    known = store.catalog.definitions.channel("t").position
    assert follower.ask("t", listed, known_position=known, allow_stale=True) == {p: [1] for p in PARTITIONS}
    storage.write({channel_keyspace("t"): {b"!": damage}})
    assert follower.ask("t", listed, known_position=known) == {p: [1] for p in PARTITIONS}


@pytest.mark.core
def test_a_position_of_another_channel_is_refused(store: Store, storage: Storage) -> None:
    store.register(channel("other"))
    put(store, 0)
    put(store, 0, name="other")
    follower = TimelineFollower(store.catalog, storage)
    with pytest.raises(nova.TimelineDiffers):
        follower.ask("t", listed, known_position=store.catalog.definitions.channel("other").position)
    with pytest.raises(nova.TimelineDiffers):
        follower.ask("t", listed, known_position=TimelinePosition(7, "0" * 64))


@pytest.mark.core
def test_an_asker_that_is_not_behind_costs_the_catalog_nothing(
    store: Store, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = TimelineFollower(store.catalog, storage)
    put(store, 0)
    follower.ask("t", listed)
    known = store.catalog.definitions.channel("t").position
    monkeypatch.setattr(follower, "catalog", None)
    monkeypatch.setattr(follower._updater, "_catalog", None)
    assert follower.ask("t", listed, known_position=known, allow_stale=True) == {p: [1] for p in PARTITIONS}
    assert follower.counts.met == 1


def test_two_followers_of_one_storage_go_on_together(store: Store, storage: Storage) -> None:
    one, two = TimelineFollower(store.catalog, storage), TimelineFollower(store.catalog, storage)
    for k in range(20):
        put(store, k)
        threads = [threading.Thread(target=f.ask, args=("t", listed)) for f in (one, two, one, two)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert one.ask("t", listed) == two.ask("t", listed) == {p: list(range(1, k + 2)) for p in PARTITIONS}
    assert one.counts.rebuilt == two.counts.rebuilt == 0


def test_a_channel_from_before_there_were_steps(store: Store, storage: Storage) -> None:
    """An older catalog was migrated: its channels have histories, and no instants yet."""
    put(store, 0)
    put(store, 1)
    store.compact("t")
    with store.catalog.database.engine.begin() as c:  # type: ignore[attr-defined]
        c.exec_driver_sql("DELETE FROM nova_steps")
        c.exec_driver_sql("UPDATE nova_channels SET step = 0, prefix = ''")
    follower = TimelineFollower(store.catalog, storage)
    assert follower.ask("t", listed, known_position=TimelinePosition()) == {p: [1, 2, 2] for p in PARTITIONS}
    store.collect_garbage("t")
    put(store, 2)
    assert follower.ask("t", listed) == {p: [2, 3] for p in PARTITIONS}
    assert follower.counts.applied == 2 and follower.ask("t", lambda v: v.position.step) == 2


def test_a_process_that_knows_no_instants_wrote_beside_this_one(store: Store, storage: Storage) -> None:
    """While versions are exchanged: its number has no instant, so the view is begun anew."""
    follower = TimelineFollower(store.catalog, storage)
    put(store, 0)
    follower.ask("t", listed)
    before = store.catalog.definitions.channel("t").position
    put(store, 1)
    with store.catalog.database.engine.begin() as c:  # type: ignore[attr-defined]
        c.exec_driver_sql("DELETE FROM nova_steps WHERE n = 2")
        c.exec_driver_sql(f"UPDATE nova_channels SET step = 1, prefix = '{before.prefix}'")
    assert follower.ask("t", listed) == {p: [1, 2] for p in PARTITIONS}
    put(store, 2)
    assert follower.ask("t", listed) == {p: [1, 2, 3] for p in PARTITIONS}


def test_partitions_that_are_not_there_are_not_kept(store: Store, storage: Storage) -> None:
    put(store, 0, "a")
    follower = TimelineFollower(store.catalog, storage)
    for n in range(50):
        assert follower.ask("t", listed, [f"p=made-up-{n}"]) == {}
    size = storage.size()
    assert follower.ask("t", listed, ["p=a"]) == {"p=a": [1]}
    with storage.open_snapshot() as looked:
        view = ChannelView.load(looked, "t")
        assert view is not None and [p.name for p in view.loaded_partitions()] == ["p=a"] and size < 100_000
    put(store, 1, "b")
    assert follower.ask("t", listed, ["p=b"])["p=b"] == [2]
