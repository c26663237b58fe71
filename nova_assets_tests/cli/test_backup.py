"""``nova backup``: made, listed, released; wrong use; a dry run changes nothing."""

from __future__ import annotations

import shlex
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from nova_assets.store.store import Store
from nova_assets_tests.cli.conftest import Nova


@pytest.fixture
def shop_with_stock(stub_store: Store) -> Store:
    stub_store.register(stub_store.project)
    stub_store.insert("stock", [{"item": "tea", "count": 3}])
    return stub_store


def test_a_backup_is_made_listed_and_released(nova: Nova, folder: Path, shop_with_stock: Store) -> None:
    made = nova("backup", "monday", "--hold", "30d")
    assert made.code == 0 and f"The backup in {folder}/monday holds 2 files" in made.out
    assert f"rsync -a --files-from={folder}/monday/files.txt" in made.out and "nova backup --release" in made.out
    with closing(sqlite3.connect(folder / "monday" / "catalog.db")) as copy:
        assert copy.execute("SELECT head FROM nova_channels WHERE name = 'stock'").fetchone() == (1,)
    listed = nova("backup")
    assert listed.code == 0 and f"{folder}/monday" in listed.out
    assert "would be released" in nova("backup", "--release", "monday", "--dry-run").out
    released = nova("backup", "--release", "monday")
    assert released.code == 0 and "is released. Its folder stays as it is." in released.out
    assert "No backup holds files." in nova("backup").out and (folder / "monday" / "catalog.db").exists()
    again = nova("backup", "--release", "monday")
    assert again.code == 1 and "NOVA-ARGUMENT" in again.err and "nova backup lists" in again.err


def test_the_printed_command_copies_the_files(nova: Nova, folder: Path, shop_with_stock: Store) -> None:
    [command] = [line for line in nova("backup", "a backup").out.splitlines() if line.startswith("  rsync")]
    _, archive, file_list, source, target = shlex.split(command)
    assert (archive, file_list) == ("-a", f"--files-from={folder}/a backup/files.txt")
    listed = (folder / "a backup" / "files.txt").read_text().splitlines()
    assert len(listed) == 2 and all((Path(source) / path).is_file() for path in listed)
    if shutil.which("rsync") is not None:
        subprocess.run(shlex.split(command), check=True)
        assert all((Path(target) / path).is_file() for path in listed)


def test_the_same_for_programs(nova: Nova, folder: Path, shop_with_stock: Store) -> None:
    made = nova("backup", "monday", "--json").json
    common = {name: made[name] for name in ("id", "folder", "made_at", "held_until")}
    assert common["folder"] == f"{folder}/monday" and made["catalog_file"] == f"{folder}/monday/catalog.db"
    assert (made["files"], made["dry_run"], made["dump_command"]) == (2, False, None)
    assert nova("backup", "--json").json == {"backups": [common]}
    assert nova("backup", "--release", made["id"][:8], "--json").json == {
        "dry_run": False,
        "released": True,
        **common,
    }
    assert nova("backup", "--json").json == {"backups": []}


def test_a_dry_run_changes_nothing(nova: Nova, folder: Path, shop_with_stock: Store) -> None:
    output = nova("backup", "monday", "--dry-run")
    assert output.code == 0 and f"The backup in {folder}/monday would hold 2 files" in output.out
    planned = nova("backup", "monday", "--dry-run", "--json").json
    assert planned["id"] is None and planned["dry_run"] and planned["bytes"] > 0
    assert not (folder / "monday").exists() and nova("backup", "--json").json == {"backups": []}


@pytest.mark.slow
def test_a_hold_that_has_ended_is_said_to_have_ended(nova: Nova, folder: Path, shop_with_stock: Store) -> None:
    nova("backup", "monday", "--hold", "1s")
    while nova("backup", "--json").json["backups"]:
        pass
    released = nova("backup", "--release", "monday")
    assert released.code == 0 and "held no files any more: its hold ended at" in released.out
    assert nova("backup", "--release", "monday", "--json").json["released"] is False


def test_without_a_catalog_there_is_nothing_to_back_up(nova: Nova, folder: Path) -> None:
    for arguments in (["monday"], ["monday", "--dry-run"], ["--release", "monday"]):
        output = nova("backup", *arguments)
        assert output.code == 1 and "NOVA-CATALOG-UNAVAILABLE" in output.err and "no catalog" in output.err
    assert "No backup holds files." in nova("backup").out and list(folder.iterdir()) == []


@pytest.mark.parametrize("arguments", [["--release"], ["--dry-run"], ["--hold", "3d"], ["x", "--release", "--hold=1d"]])
def test_wrong_use(nova: Nova, arguments: list[str]) -> None:
    output = nova("backup", *arguments)
    assert output.code == 2 and "Usage: nova backup" in output.err


def test_a_folder_that_is_not_empty_is_refused(nova: Nova, folder: Path, shop_with_stock: Store) -> None:
    (folder / "monday").mkdir()
    (folder / "monday" / "notes").touch()
    output = nova("backup", "monday")
    assert output.code == 1 and "NOVA-ARGUMENT" in output.err and "contains notes" in output.err
    assert nova("backup", "--json").json == {"backups": []}
