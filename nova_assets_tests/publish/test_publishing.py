"""A channel in tables that others read: whole editions, never a file copied, never one deleted that is listed."""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

import nova_assets as nova
from nova_assets_tests.publish.shop import FIRST, Shop, rows


def test_both_tables_show_the_channel_and_no_byte_is_copied(shop: Shop) -> None:
    shop.insert(*FIRST)
    assert shop.publish() == [("hive", 1, 1), ("iceberg", 1, 1)]
    assert shop.in_folder() == shop.in_iceberg() == FIRST
    held = {p.stat().st_ino for p in (shop.root / "wh").rglob("*.parquet")}
    assert {p.stat().st_ino for p in shop.resolved.rglob("*.parquet")} == held, "the very same files"
    assert all("/wh/blocks/" in f["file_path"] for f in shop.iceberg().inspect.files().to_pylist())
    assert sorted(p.relative_to(shop.resolved).as_posix() for p in shop.resolved.rglob("action=*")) == [
        "dt=2024-01-01/action=login",
        "dt=2024-01-01/action=view",
        "dt=2024-01-02/action=login",
    ]
    assert (shop.resolved / "_SUCCESS").exists()


def test_what_is_shown_already_is_not_shown_again(shop: Shop) -> None:
    shop.insert(*FIRST)
    assert [p.number for p in shop.store.publishable("actions")] == [1, 1]
    shop.publish()
    assert shop.publish() == []
    assert [p.number for p in shop.store.publishable("actions")] == [None, None]


@pytest.mark.slow
def test_what_somebody_has_deleted_is_shown_again(shop: Shop) -> None:
    shop.insert(*FIRST)
    shop.publish()
    shutil.rmtree(shop.resolved)
    assert shop.publish() == [("hive", 2, 1)]
    assert shop.in_folder() == FIRST


def test_each_edition_is_a_commit_and_the_one_before_stays_for_who_reads_it(shop: Shop) -> None:
    shop.insert(*FIRST)
    shop.publish()
    before, snapshot = shop.resolved, shop.iceberg().current_snapshot()
    shop.insert(("2024-01-02", "view", 4, 40))
    assert shop.in_folder() == FIRST, "published is what was published"
    assert shop.publish() == [("hive", 2, 2), ("iceberg", 2, 2)]
    assert shop.in_folder() == shop.in_iceberg() == shop.in_channel() and len(shop.in_channel()) == 4
    assert len(list(before.rglob("*.parquet"))) == 3
    assert snapshot is not None
    assert shop.iceberg().scan(snapshot_id=snapshot.snapshot_id).to_arrow().num_rows == 3
    assert [(e.number, e.superseded_at is None) for e in shop.store.published("actions")][::2] == [
        (2, True),
        (1, False),
    ]


def test_a_keyed_channel_is_compacted_to_be_shown(tmp_path: Path) -> None:
    shop = Shop(tmp_path, nova.Upsert(key=["dt", "action", "id"]))
    shop.insert(*FIRST)
    shop.insert(("2024-01-01", "login", 1, 11), ("2024-01-02", "view", 4, 40))
    assert next(p.compacts for p in shop.store.publishable("actions")) == (
        "dt=2024-01-01/action=login",
        "dt=2024-01-01/action=view",
        "dt=2024-01-02/action=login",
        "dt=2024-01-02/action=view",
    )
    assert shop.publish() == [("hive", 1, 2), ("iceberg", 1, 2)]
    assert shop.in_folder() == shop.in_iceberg() == shop.in_channel()
    assert ("2024-01-01", "login", 1, 11) in shop.in_folder() and len(shop.in_folder()) == 4


def test_compaction_is_shown_and_takes_no_file_from_who_still_reads(tmp_path: Path) -> None:
    shop = Shop(tmp_path, grace=0.001)
    for n in range(4):
        shop.insert(("2024-01-01", "login", n, n))
    shop.publish()
    listed = {f["file_path"].removeprefix("file://") for f in shop.iceberg().inspect.files().to_pylist()}
    shop.store.compact("actions")
    shop.store.collect_garbage("actions")
    shop.store.delete_collected()
    assert all(os.path.exists(path) for path in listed), "the tables list them"
    assert len(shop.in_iceberg()) == len(shop.in_folder()) == 4
    assert shop.publish() == [("hive", 2, 4), ("iceberg", 2, 4)]
    assert len(list(shop.resolved.rglob("*.parquet"))) == 1
    assert shop.store.publish("actions") == [], "which lets go of what nobody reads any more"
    shop.store.delete_collected()
    assert not any(os.path.exists(path) for path in listed)
    assert (
        len(shop.iceberg().snapshots()) == 1 and len(list(shop.folder.with_name(".actions.editions").glob("0*"))) == 1
    )
    assert len(shop.in_iceberg()) == len(shop.in_folder()) == 4


@pytest.mark.core
def test_an_edition_protects_the_files_that_it_lists_and_no_others(tmp_path: Path) -> None:
    """The channel is quiet after its publication, so no later edition ever replaces this one."""
    shop = Shop(tmp_path, nova.Upsert(key=["dt", "action", "id"]), grace=0.001)
    for n in range(5):
        shop.insert(("2024-01-01", "login", 1, n))
    before = set((tmp_path / "wh").rglob("*.parquet"))
    shop.publish()
    assert len(shop.store.collect_garbage("actions").blocks) == 5
    shop.store.delete_collected()
    assert not any(path.exists() for path in before)
    assert shop.in_folder() == shop.in_iceberg() == shop.in_channel() == [("2024-01-01", "login", 1, 4)]


def test_a_dropped_partition_is_gone_from_the_tables(shop: Shop) -> None:
    shop.insert(*FIRST)
    shop.publish()
    shop.store.drop("actions", "dt=2024-01-01")
    assert shop.publish() == [("hive", 2, 2), ("iceberg", 2, 2)]
    assert shop.in_folder() == shop.in_iceberg() == FIRST[2:]


def test_a_sealed_day_says_so_and_an_empty_one_too(tmp_path: Path) -> None:
    shop = Shop(tmp_path, seal=nova.seal("dt"))
    shop.insert(*FIRST)
    shop.publish()
    assert not list(shop.resolved.glob("dt=*/_SUCCESS"))
    assert {s.group for s in shop.store.seal("actions")} >= {"2024-01-01", "2024-01-02"}
    assert [kind for kind, _, _ in shop.publish()] == ["hive"], "nothing else has changed"
    assert {p.parent.name for p in shop.resolved.glob("dt=*/_SUCCESS")} >= {"dt=2024-01-01", "dt=2024-01-02"}
    shop.insert(("2024-01-02", "login", 5, 50))
    shop.publish()
    assert (shop.resolved / "dt=2024-01-01/_SUCCESS").exists()
    assert not (shop.resolved / "dt=2024-01-02/_SUCCESS").exists(), "it is open again"


def test_a_file_that_is_kept_from_block_to_block_is_not_deleted(tmp_path: Path) -> None:
    shop = Shop(tmp_path, grace=0.001, compaction=nova.Compaction(target=100))
    shop.insert(*[("2024-01-01", "login", n, n) for n in range(200)])
    shop.insert(("2024-01-01", "login", 900, 1))
    shop.store.compact("actions")
    shop.store.collect_garbage("actions")
    shop.store.delete_collected()
    shop.publish()
    listed = {f["file_path"].removeprefix("file://") for f in shop.iceberg().inspect.files().to_pylist()}
    before = shop.in_iceberg()
    shop.store.insert("actions", rows(("2024-01-01", "login", 1, 1)), kind="base")
    shop.store.collect_garbage("actions")
    shop.store.delete_collected()
    assert all(os.path.exists(path) for path in listed) and shop.in_iceberg() == before


def test_a_dropped_day_is_not_shown_as_complete(tmp_path: Path) -> None:
    shop = Shop(tmp_path, seal=nova.seal("dt"), publish=nova.hive("exports/actions"))
    shop.insert(*FIRST)
    shop.store.seal("actions")
    shop.store.drop("actions", "dt=2024-01-01")
    shop.publish()
    assert not (shop.resolved / "dt=2024-01-01").exists()
    assert (shop.resolved / "dt=2024-01-02/_SUCCESS").exists()


def test_what_is_no_longer_said_to_be_published_can_be_withdrawn(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.insert(*FIRST)
    shop.publish()
    later = Shop(tmp_path, publish=())
    assert later.store.unpublish("actions") == ["hive:exports/actions", "iceberg:lake.actions"]
    assert later.store.published("actions") == [] and not shop.folder.exists()


def test_a_table_is_due_when_it_is_behind_or_holds_what_nobody_reads(tmp_path: Path) -> None:
    shop = Shop(tmp_path, grace=30.0, publish=nova.hive("exports/actions"))
    shop.insert(*FIRST)
    database = shop.store.catalog.database  # type: ignore[attr-defined]
    now = database.clock

    def due(minutes: float) -> bool:
        database.clock = lambda: now() + timedelta(minutes=minutes)
        return bool(shop.store.to_publish("actions"))

    assert due(0)
    shop.publish()
    assert not due(2), "it shows the newest"
    shop.insert(("2024-01-02", "view", 4, 40))
    assert due(2)
    shop.publish()
    assert not due(2) and due(4), "the edition before can go"
    assert shop.publish() == [] and not due(4)
    assert len(shop.store.published("actions")) == 1


def test_a_channel_that_is_not_published_says_how(tmp_path: Path) -> None:
    shop = Shop(tmp_path, publish=())
    with pytest.raises(nova.DefinitionError, match="not published anywhere"):
        shop.publish()


def test_an_empty_channel_is_an_empty_table(shop: Shop) -> None:
    assert shop.publish() == [("hive", 1, 0), ("iceberg", 1, 0)]
    assert shop.in_iceberg() == [] and shop.in_folder() == []


def test_definitions_that_cannot_be() -> None:
    with pytest.raises(nova.DefinitionError, match="expected a folder"):
        nova.hive("ftp://host/actions")
    with pytest.raises(nova.DefinitionError, match="expected NAMESPACE"):
        nova.iceberg("actions")
    with pytest.raises(nova.DefinitionError, match="every='soon'"):
        nova.hive("exports/actions", every="soon")
    with pytest.raises(nova.DefinitionError, match="published twice"):
        nova.Channel("a", publish=[nova.hive("x"), nova.hive("x")])
    with pytest.raises(nova.DefinitionError, match="two channels are published in hive:x"):
        nova.Project(channels=[nova.Channel(n, publish=nova.hive("x")) for n in "ab"])
