"""Backups as the catalog sees them: what they hold, and the copy of a SQLite catalog."""

from __future__ import annotations

import json
import shlex
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

import nova_assets as nova
from nova_assets.catalog.catalog import Catalog
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.model.block import DataFile, Kind, Manifest
from nova_assets_tests import postgres
from nova_assets_tests.catalog.commit_requests import SCHEMA, begin_execution, build_commit_request, channel

HOUR, DAY = 3600.0, 86400.0


class Clock:
    """The catalog's clock, which the test sets."""

    def __init__(self, catalog: Catalog) -> None:
        self.now = datetime(2024, 1, 1, tzinfo=UTC)
        catalog.database.clock = lambda: self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def add(catalog: Catalog, *paths: str, kind: Kind = "delta") -> None:
    """A commit of one block with ten bytes in each file."""
    request = build_commit_request(begin_execution(catalog))
    manifest = Manifest(tuple(DataFile(path, 1, 10) for path in paths), SCHEMA)
    catalog.commits.commit(
        replace(request, added_blocks=(replace(request.added_blocks[0], kind=kind, manifest=manifest),))
    )


def deletable(catalog: Catalog) -> list[str]:
    return [path for _, path in catalog.garbage.deletable_files(HOUR)]


def test_a_backup_holds_what_was_not_collected_until_it_is_released(catalog: Catalog) -> None:
    clock = Clock(catalog)
    add(catalog, "blocks/old/0")
    add(catalog, "blocks/base/0", kind="base")
    assert len(catalog.garbage.collect("c").blocks) == 1
    clock.advance(2 * HOUR)
    backup = catalog.backups.record("/backups/monday", 7 * DAY)
    assert (backup.folder, backup.made_at, backup.held_until - backup.made_at) == (
        "/backups/monday",
        clock.now,
        timedelta(days=7),
    )
    assert catalog.backups.all() == [backup] and catalog.backups.content().paths == ("blocks/base/0",)
    assert deletable(catalog) == ["blocks/old/0"], "the backup does not list it"

    add(catalog, "blocks/new/0", kind="base")
    assert len(catalog.garbage.collect("c").blocks) == 1
    clock.advance(3 * DAY)
    assert deletable(catalog) == ["blocks/old/0"]
    assert catalog.backups.delete(backup.id) and not catalog.backups.delete(backup.id)
    assert deletable(catalog) == ["blocks/base/0", "blocks/old/0"]


def test_a_hold_ends_by_itself(catalog: Catalog) -> None:
    clock = Clock(catalog)
    add(catalog, "blocks/a/0")
    catalog.backups.record("/backups/monday", 7 * DAY)
    clock.advance(HOUR)
    add(catalog, "blocks/b/0", kind="base")
    catalog.garbage.collect("c")
    clock.advance(7 * DAY - HOUR - 1)
    assert deletable(catalog) == []
    clock.advance(1)
    assert deletable(catalog) == ["blocks/a/0"]
    later = catalog.backups.record("/backups/sunday", DAY)
    assert catalog.backups.all() == [later], "the next backup removes the record of the one that has ended"


def test_the_oldest_backup_that_holds_decides(catalog: Catalog) -> None:
    clock = Clock(catalog)
    add(catalog, "blocks/a/0")
    first = catalog.backups.record("/backups/first", 30 * DAY)
    clock.advance(HOUR)
    add(catalog, "blocks/b/0", kind="base")
    catalog.garbage.collect("c")
    clock.advance(HOUR)
    second = catalog.backups.record("/backups/second", 7 * DAY)
    clock.advance(HOUR)
    add(catalog, "blocks/c/0", kind="base")
    catalog.garbage.collect("c")
    clock.advance(2 * HOUR)
    assert [b.folder for b in catalog.backups.all()] == ["/backups/second", "/backups/first"]
    assert deletable(catalog) == []
    catalog.backups.delete(first.id)
    assert deletable(catalog) == ["blocks/a/0"]
    catalog.backups.delete(second.id)
    assert deletable(catalog) == ["blocks/a/0", "blocks/b/0"]


def test_a_file_of_two_blocks_is_held_if_one_of_them_is_in_the_backup(catalog: Catalog) -> None:
    clock = Clock(catalog)
    add(catalog, "blocks/a/0", "blocks/a/1")
    add(catalog, "blocks/a/0", kind="base")
    catalog.garbage.collect("c")
    clock.advance(HOUR)
    catalog.backups.record("/backups/monday", 7 * DAY)
    clock.advance(HOUR)
    add(catalog, "blocks/b/0", kind="base")
    catalog.garbage.collect("c")
    clock.advance(2 * HOUR)
    assert deletable(catalog) == ["blocks/a/1"]


def test_files_outside_the_warehouse_are_not_listed(catalog: Catalog) -> None:
    add(catalog, "blocks/a/0", "file:///data/outside.parquet", "s3://bucket/outside.parquet")
    content = catalog.backups.content()
    assert (content.paths, content.bytes) == (("blocks/a/0",), 10)


def test_a_copy_is_one_sound_file_that_says_what_it_is(tmp_path: Path) -> None:
    catalog = open_catalog(f"sqlite:///{tmp_path}/catalog.db")
    catalog.definitions.register([channel])
    add(catalog, "blocks/a/0")
    backup = catalog.backups.record(str(tmp_path / "backup"), DAY)
    (tmp_path / "catalog.db").chmod(0o640)
    copy = tmp_path / "copy with # and ?.db"
    assert catalog.backups.copy(copy, backup.made_at).paths == ("blocks/a/0",)
    assert {p.name for p in tmp_path.glob("copy*")} == {copy.name}
    assert copy.stat().st_mode & 0o777 == 0o640
    with closing(sqlite3.connect(copy)) as opened:
        assert opened.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert opened.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        (place,) = opened.execute("SELECT place FROM nova_identity").fetchone()
        assert opened.execute("SELECT id, folder FROM nova_backups").fetchall() == [(backup.id, backup.folder)]
    assert json.loads(place)["made_at"] == backup.made_at.isoformat() and "backup_of" in json.loads(place)
    assert catalog.database.read(lambda c: c.exec_driver_sql("PRAGMA journal_mode").scalar()) == "wal"
    catalog.close()


def test_a_copy_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    catalog = open_catalog(f"sqlite:///{tmp_path}/catalog.db")
    with pytest.raises(OSError):
        catalog.backups.copy(tmp_path / "missing" / "catalog.db", catalog.now())
    assert catalog.definitions.channels() == []
    catalog.close()


def test_a_catalog_in_memory_is_not_supported() -> None:
    catalog = open_catalog("sqlite://")
    with pytest.raises(nova.NotSupported, match="in memory"):
        catalog.backups.dump_command(Path("catalog.dump"))
    catalog.close()


@pytest.mark.postgres
def test_the_command_for_postgres_copies_the_catalog_and_contains_no_password(
    postgres_catalog_url: str, tmp_path: Path
) -> None:
    url = make_url(postgres_catalog_url)
    catalog = open_catalog(postgres_catalog_url)
    backup = catalog.backups.record("/backups/monday", DAY)
    command = catalog.backups.dump_command(tmp_path / "a dump")
    assert command is not None and (url.password is None or url.password not in command)
    shown = open_catalog(url.update_query_dict({"application_name": "nova"}).render_as_string(hide_password=False))
    assert "application_name=nova" in str(shown.backups.dump_command(tmp_path / "a dump"))
    for opened in (catalog, shown):
        opened.close()
    programs = postgres.find_programs()
    if programs is None or not (programs / "pg_dump").exists() or url.password is not None:
        return
    program, *arguments = shlex.split(command)
    subprocess.run([programs / program, *arguments], check=True)
    options = ["--data-only", "--table=nova_backups", "--file=-", f"{tmp_path}/a dump"]
    restored = subprocess.run([programs / "pg_restore", *options], check=True, capture_output=True, text=True)
    assert backup.id in restored.stdout
