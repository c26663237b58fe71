"""A channel in tables that others read: whole editions, never a file copied, never one deleted that is listed."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nova_assets as nova
from nova_assets.model.published_version import PublishedContent
from nova_assets.model.schema import Schema
from nova_assets.publish.hive import HiveFolder, hive_partition_path
from nova_assets.publish.iceberg import default_iceberg_catalog
from nova_assets_tests.publish.shop import Shop, rows

FIRST = [("2024-01-01", "login", 1, 10), ("2024-01-01", "view", 2, 20), ("2024-01-02", "login", 3, 30)]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


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


def test_a_dropped_partition_is_gone_from_the_tables(shop: Shop) -> None:
    shop.insert(*FIRST)
    shop.publish()
    shop.store.drop("actions", "dt=2024-01-01")
    assert shop.publish() == [("hive", 2, 2), ("iceberg", 2, 2)]
    assert shop.in_folder() == shop.in_iceberg() == FIRST[2:]


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
        if store.catalog.channel("n").head == 0:
            store.insert(channel, [{"id": 1, "c": "secret"}])
        store.publish(channel)
    table = default_iceberg_catalog(tmp_path / ".nova/iceberg").load_table("x.n")
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "c": None}] == store.read("n").to_arrow().to_pylist()


def test_a_column_that_was_widened_is_written_anew_under_a_number_of_its_own(tmp_path: Path) -> None:
    store, where = Shop(tmp_path).store, nova.hive("x/w")
    for schema in ("id bigint, v int, gone string", "id bigint, v bigint"):
        channel = nova.Channel("w", nova.Upsert(key="id"), schema, publish=where, retain="1d")
        store.register(channel, replace=True)
        if store.catalog.channel("w").head == 0:
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


def test_what_is_somebody_elses_is_left_alone(shop: Shop) -> None:
    shop.insert(*FIRST)
    shop.folder.mkdir(parents=True)
    (shop.folder / "precious.parquet").write_bytes(b"theirs")
    with pytest.raises(nova.TableTaken, match="is there already") as caught:
        shop.publish()
    assert "--take-over" in str(caught.value)
    assert (shop.folder / "precious.parquet").read_bytes() == b"theirs"
    assert shop.in_iceberg() == FIRST, "the other table is shown all the same"


def test_two_deployments_cannot_publish_in_one_place(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> None:
    shop.insert(*FIRST)
    shop.publish()
    other = Shop(tmp_path_factory.mktemp("other"), publish=nova.hive(str(shop.folder)))
    other.insert(*FIRST[:1])
    with pytest.raises(nova.TableTaken, match="not of this channel"):
        other.publish()
    assert shop.in_folder() == FIRST


@pytest.mark.parametrize("place", ["wh/blocks/x", "wh", "."])
def test_not_in_the_warehouse(tmp_path: Path, place: str) -> None:
    shop = Shop(tmp_path, publish=nova.hive(str(tmp_path / place)))
    shop.insert(*FIRST)
    with pytest.raises(nova.TableTaken):
        shop.publish()
    assert shop.in_channel() == FIRST


def test_a_folder_that_cannot_be_written(shop: Shop) -> None:
    shop.insert(*FIRST)
    (shop.root / "exports").write_text("a file is here")
    with pytest.raises(nova.TableUnavailable, match="cannot be published in"):
        shop.publish()
    (shop.root / "exports").unlink()
    assert [kind for kind, _, _ in shop.publish()] == ["hive"]
    assert shop.in_folder() == FIRST


def test_a_link_that_somebody_removed_is_made_again(shop: Shop) -> None:
    shop.insert(*FIRST)
    shop.publish()
    shop.folder.unlink()
    assert shop.publish() == [("hive", 2, 1)]
    assert shop.in_folder() == FIRST


@pytest.mark.parametrize("name", [".nova", "nova", "wh", "github"])
def test_nothing_of_anybody_is_taken_for_editions(tmp_path: Path, name: str) -> None:
    shop = Shop(tmp_path, publish=nova.hive(name))
    shop.insert(*FIRST)
    theirs = [tmp_path / f".{name}.editions" / "precious", tmp_path / ".github" / "workflow"]
    for path in theirs:
        path.parent.mkdir(exist_ok=True)
        path.write_text("theirs")
    with pytest.raises(nova.TableTaken):
        shop.publish()
    with pytest.raises(nova.TableTaken):
        shop.store.unpublish("actions")
    assert all(path.read_text() == "theirs" for path in theirs) and shop.in_channel() == FIRST


def test_a_link_is_never_taken_over(shop: Shop) -> None:
    shop.insert(*FIRST)
    (shop.root / "elsewhere").mkdir()
    shop.folder.parent.mkdir()
    shop.folder.symlink_to(shop.root / "elsewhere")
    with pytest.raises(nova.TableTaken, match="a link to"):
        shop.publish(take_over=True)
    assert shop.folder.resolve() == shop.root / "elsewhere"


def test_a_late_process_turns_nobody_back(shop: Shop) -> None:
    """It has slept through its lease, with its edition made and not shown."""
    shop.insert(*FIRST)
    shop.publish()
    late = HiveFolder(
        shop.folder, (), json.loads((shop.folder.parent / ".actions.editions/.nova.json").read_text())["of"]
    )
    content = PublishedContent("actions", 1, shop.store.catalog.channel("actions").schema, (), ())  # type: ignore[arg-type]
    shop.insert(("2024-01-02", "view", 4, 40))
    shop.publish()
    for number in (1, 2):
        with pytest.raises(nova.CommitConflict, match="a later edition"):
            late.publish(number, content, [])
    assert len(shop.in_folder()) == 4
    shop.store.catalog.delete_published_versions(
        "actions", "hive:exports/actions", [1, 2]
    )  # as of a catalog from a backup
    assert ("hive", 3, 2) in shop.publish()


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


def test_hours_are_named_in_utc(tmp_path: Path) -> None:
    hours = nova.hourly("at", start="2024-01-01", tz="America/New_York")
    channel = nova.Channel("h", schema="at timestamp, n bigint", partitions=hours, publish=nova.hive("x/h"))
    store = Shop(tmp_path).store
    store.insert(channel, [{"at": datetime(2024, 3, 1, 17, tzinfo=UTC), "n": 1}])
    store.publish(channel)
    [folder] = (tmp_path / "x/h").glob("at=*")
    assert folder.name == "at=2024-03-01 17%3A00%3A00"


def test_an_empty_value_is_no_folder(tmp_path: Path) -> None:
    where = [nova.hive("x/e"), nova.iceberg("x.e")]
    channel = nova.Channel("e", schema="p string", partitions=nova.dynamic("p"), publish=where)
    store = Shop(tmp_path).store
    store.insert(channel, [{"p": ""}])
    with pytest.raises(nova.NotSupported, match="p is empty"):
        store.publish(channel)
    assert default_iceberg_catalog(tmp_path / ".nova/iceberg").load_table("x.e").scan().to_arrow().num_rows == 1


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


def test_what_died_before_it_signed_is_nobodys(shop: Shop) -> None:
    shop.insert(*FIRST)
    shop.folder.with_name(".actions.editions").mkdir(parents=True)
    shop.publish()
    assert shop.in_folder() == FIRST


def test_an_unpartitioned_channel(tmp_path: Path) -> None:
    plain = nova.Channel("plain", schema="id bigint, p string", publish=[nova.hive("x/plain"), nova.iceberg("x.plain")])
    shop = Shop(tmp_path)
    shop.store.insert(plain, [{"id": n, "p": None} for n in range(3)])
    assert [e.files for e in shop.store.publish(plain)] == [1, 1]
    assert default_iceberg_catalog(tmp_path / ".nova/iceberg").load_table("x.plain").scan().to_arrow().num_rows == 3
    assert len(list((tmp_path / "x/plain").glob("*.parquet"))) == 1


def test_a_partition_without_a_value(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    ddl, where = "id bigint, p string", [nova.hive("x/nulls"), nova.iceberg("x.nulls")]
    nulls = nova.Channel("nulls", schema=ddl, partitions=nova.dynamic("p"), publish=where)
    shop.store.insert(nulls, [{"id": 1, "p": None}, {"id": 2, "p": "b"}])
    assert [e.files for e in shop.store.publish(nulls)] == [2, 2]
    table = default_iceberg_catalog(tmp_path / ".nova/iceberg").load_table("x.nulls")
    assert table.scan(row_filter="p is null").to_arrow().column("id").to_pylist() == [1]
    assert {p.name for p in (tmp_path / "x/nulls").glob("p=*")} == {"p=__HIVE_DEFAULT_PARTITION__", "p=b"}


def test_withdrawn_is_gone_and_nothing_else_is(shop: Shop) -> None:
    shop.insert(*FIRST)
    shop.publish()
    assert shop.store.unpublish("actions", "hive:exports/actions") == ["hive:exports/actions"]
    assert list((shop.root / "exports").iterdir()) == []
    assert shop.in_iceberg() == shop.in_channel() == FIRST
    shop.store.unpublish("actions")
    assert not [p for p in (shop.root / ".nova/iceberg/tables").rglob("*") if p.is_file()]
    assert shop.store.published("actions") == [] and shop.in_channel() == FIRST
    with pytest.raises(nova.DefinitionError, match="not published in"):
        shop.store.unpublish("actions", "hive:elsewhere")
    assert shop.publish() == [("hive", 1, 1), ("iceberg", 1, 1)]


def test_a_channel_that_is_not_published_says_how(tmp_path: Path) -> None:
    shop = Shop(tmp_path, publish=())
    with pytest.raises(nova.DefinitionError, match="not published anywhere"):
        shop.publish()


def test_an_empty_channel_is_an_empty_table(shop: Shop) -> None:
    assert shop.publish() == [("hive", 1, 0), ("iceberg", 1, 0)]
    assert shop.in_iceberg() == [] and shop.in_folder() == []


def test_a_text_that_readers_take_for_null_is_refused(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    texts = nova.Channel("t", schema="id int, p string", partitions=nova.dynamic("p"), publish=nova.hive("x/t"))
    shop.store.insert(texts, [{"id": 1, "p": "__HIVE_DEFAULT_PARTITION__"}, {"id": 2, "p": None}])
    with pytest.raises(nova.NotSupported, match="p is '__HIVE_DEFAULT_PARTITION__'"):
        shop.store.publish(texts)
    assert not (tmp_path / "x/t").exists()


def test_definitions_that_cannot_be() -> None:
    with pytest.raises(nova.DefinitionError, match="expected a folder"):
        nova.hive("s3://bucket/actions")
    with pytest.raises(nova.DefinitionError, match="expected NAMESPACE"):
        nova.iceberg("actions")
    with pytest.raises(nova.DefinitionError, match="every='soon'"):
        nova.hive("exports/actions", every="soon")
    with pytest.raises(nova.DefinitionError, match="published twice"):
        nova.Channel("a", publish=[nova.hive("x"), nova.hive("x")])
    with pytest.raises(nova.DefinitionError, match="two channels are published in hive:x"):
        nova.Project(channels=[nova.Channel(n, publish=nova.hive("x")) for n in "ab"])


@settings(deadline=None)
@given(st.lists(st.text(min_size=1), min_size=1, max_size=3, unique=True), st.text(max_size=60) | st.none())
def test_a_partition_is_a_plain_folder_whatever_is_in_its_name(columns: list[str], value: str | None) -> None:
    from urllib.parse import unquote

    from nova_assets.errors import NotSupported
    from nova_assets.model.partitions import partition_name

    content = PublishedContent("c", 1, Schema(()), tuple(map(nova.dynamic, columns)), ())
    try:
        name = partition_name(columns, dict.fromkeys(columns, value))
        folder = hive_partition_path(name, content)
    except (NotSupported, nova.PartitionError, UnicodeEncodeError):
        return
    parts = folder.split("/")
    assert len(parts) == len(columns) and not {".", ".."} & set(parts)
    shown = "__HIVE_DEFAULT_PARTITION__" if value is None else value
    assert [tuple(map(unquote, p.split("=", 1))) for p in parts] == [(c, shown) for c in columns]
