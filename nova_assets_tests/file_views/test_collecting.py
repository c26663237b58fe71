"""Collection that is planned from views: nothing is taken that somebody holds, and nothing is left for ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nova_assets.errors import StorageFailed
from nova_assets.file_views import view_edit
from nova_assets.file_views.query_handler import ViewQueryHandler
from nova_assets.file_views.storage import MemoryStorage
from nova_assets.file_views.timeline_follower import TimelineFollower
from nova_assets.file_views.viewed_catalog import catalog_through_views
from nova_assets.store.store import Store
from nova_assets_tests.file_views.conftest import put


@pytest.fixture
def desk(store: Store) -> ViewQueryHandler:
    return ViewQueryHandler(TimelineFollower(store.catalog, MemoryStorage()))


def taken(desk: ViewQueryHandler) -> set[str]:
    return {f"{b.range} {b.partition}" for b in desk.collect("t", 0.0).blocks}


def looked_at(desk: ViewQueryHandler, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Gives the partitions that the last collection has looked into."""
    seen: list[list[str]] = []
    real = desk.follower.ask

    def ask(channel: str, work: Any, *more: Any, **options: Any) -> Any:
        def watched(view: Any) -> Any:
            whole = view.history_of_partitions

            def history_of_partitions(partitions: list[str]) -> Any:
                seen.append(list(partitions))
                return whole(partitions)

            view.history_of_partitions = history_of_partitions
            return work(view)

        return real(channel, watched, *more, **options)

    monkeypatch.setattr(desk.follower, "ask", ask)
    return lambda: seen[-1]


def test_only_what_was_touched_since_the_oldest_retained_instant_is_looked_at(
    store: Store, desk: ViewQueryHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = looked_at(desk, monkeypatch)
    put(store, 0)
    put(store, 1)
    store.compact("t")
    assert len(taken(desk)) == 6 and looked() == ["p=a", "p=b", "p=c"]
    assert taken(desk) == set() and looked() == ["p=a", "p=b", "p=c"], "the collection has touched them"
    assert taken(desk) == set() and looked() == []
    put(store, 2, "b")
    store.compact("t")
    assert taken(desk) == {"Δ(2→3) p=b", "B2 p=b"} and looked() == ["p=b"]


def test_what_a_reader_holds_meanwhile_goes_when_it_has_read(store: Store, desk: ViewQueryHandler) -> None:
    """A pin that begins after the view was planned with, and before the catalog judges."""
    put(store, 0)
    put(store, 1)
    real = desk.follower.ask

    def ask(channel: str, work: Any, *more: Any, **options: Any) -> Any:
        found = real(channel, work, *more, **options)
        pins.append(store.pin("t", at=1))
        pins[-1].__enter__()
        return found

    pins: list[Any] = []
    store.compact("t")
    desk.follower.ask = ask  # type: ignore[method-assign]
    assert not any(block.startswith("Δ(0→1)") for block in taken(desk)), "it is read"
    desk.follower.ask = real  # type: ignore[method-assign]
    pins[0].__exit__(None, None, None)
    assert {block for block in taken(desk) if block.startswith("Δ(0→1)")} == {f"Δ(0→1) p={p}" for p in "abc"}


def test_a_channel_from_before_there_were_instants_is_collected(store: Store, desk: ViewQueryHandler) -> None:
    put(store, 0)
    put(store, 1)
    store.compact("t")
    with store.catalog.database.engine.begin() as c:  # type: ignore[attr-defined]
        c.exec_driver_sql("DELETE FROM nova_steps")
        c.exec_driver_sql("UPDATE nova_channels SET step = 0, prefix = ''")
    assert len(taken(desk)) == 6


def test_a_holder_that_is_longer_ago_than_instants_are_kept(
    store: Store, desk: ViewQueryHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_edit, "MAX_KEPT_INSTANTS", 5)
    put(store, 0)
    put(store, 1)
    desk.follower.ask("t", lambda view: None)
    with store.pin("t", at=1):
        for k in range(2, 12):
            put(store, k, "c")
        store.compact("t")
        taken(desk)
        taken(desk)
    assert {block for block in taken(desk) if "p=a" in block} == {"Δ(0→1) p=a"}


def test_a_disk_that_is_full_keeps_no_collection_from_its_end(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store, 0)
    put(store, 1)
    store.compact("t")
    storage = MemoryStorage()
    seen = catalog_through_views(store.catalog, ViewQueryHandler(TimelineFollower(store.catalog, storage)))
    seen.histories.of("t")
    real = storage.write

    def full(changes: Any, expect: Any = None) -> bool:
        if len(changes) == 1:
            raise StorageFailed("views could not be written", found="database or disk is full")
        return real(changes, expect)

    monkeypatch.setattr(storage, "write", full)
    assert len(seen.garbage.collect("t").blocks) == 6
