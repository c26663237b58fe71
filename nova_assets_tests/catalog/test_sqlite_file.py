"""The file of a SQLite catalog: a process refuses to commit to a file that does not bear the catalog's name."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import nova_assets as nova
from nova_assets.catalog.catalog import Catalog
from nova_assets.catalog.database.sqlite_file import CatalogConnection
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets.errors import CatalogUnavailable, CommitOutcomeUnknown
from nova_assets_tests.catalog_guard import running_guard

CHANNELS = [nova.Channel(name, merge=nova.Append(), schema="id bigint") for name in ("a", "b", "c")]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home" / "c.db"


@pytest.fixture
def catalog(file: Path) -> Iterator[Catalog]:
    opened = open_catalog(f"sqlite:///{file}")
    opened.definitions.register(CHANNELS[:1])
    yield opened
    opened.close()


def log_of(file: Path) -> Path:
    return file.with_name(f"{file.name}-wal")


def replace(file: Path) -> Callable[[], None]:
    """Put a copy in place of the file, as ``rsync`` and restores do. Returns a function that puts the file back."""
    kept, copy = file.with_name("kept"), file.with_name("copy")
    os.link(file, kept)
    shutil.copy(file, copy)
    copy.rename(file)
    return lambda: [kept.rename(file), None][1]


def rename_file(file: Path) -> Callable[[], None]:
    moved = file.with_name("moved")
    subprocess.run(["mv", file, moved], check=True)  # as another process does
    return lambda: [moved.rename(file), None][1]


def rename_folder(file: Path) -> Callable[[], None]:
    moved = file.parent.rename(file.parent.with_name("moved"))
    return lambda: [moved.rename(file.parent), None][1]


def rename_log(file: Path) -> Callable[[], None]:
    moved = log_of(file).rename(file.with_name("moved"))
    return lambda: [moved.rename(log_of(file)), None][1]


def rename_index(file: Path) -> Callable[[], None]:
    index = file.with_name("c.db-shm")
    moved = index.rename(file.with_name("moved"))
    return lambda: [moved.rename(index), None][1]


def replace_log(file: Path) -> Callable[[], None]:
    moved = log_of(file).rename(file.with_name("moved"))
    log_of(file).touch()
    return lambda: [moved.rename(log_of(file)), None][1]


def add_hard_link(file: Path) -> Callable[[], None]:
    os.link(file, file.with_name("link"))
    return lambda: file.with_name("link").unlink()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("act", "problem"),
    [
        (replace, "its file c.db was replaced by another file"),
        (rename_file, "its file c.db is missing"),
        (rename_folder, "its file c.db is missing"),
        (rename_log, "its log c.db-wal is missing"),
        (rename_index, "its index c.db-shm is missing"),
        (replace_log, "its log c.db-wal was replaced by another file"),
        (add_hard_link, "its file c.db has 2 names (hard links), and each name has a log of its own"),
    ],
)
def test_nothing_is_stored_until_the_file_and_its_log_are_back(
    catalog: Catalog, file: Path, act: Callable[[Path], Callable[[], None]], problem: str
) -> None:
    put_back = act(file)
    for use in (lambda: catalog.definitions.register(CHANNELS[1:2]), catalog.definitions.channels):
        with pytest.raises(CatalogUnavailable) as refused:
            use()
        assert refused.value.found == problem
    assert catalog.identity.file_problem() == problem
    put_back()
    assert catalog.identity.file_problem() is None
    catalog.definitions.register(CHANNELS[2:])
    assert [s.channel.name for s in catalog.definitions.channels()] == ["a", "c"]


def test_a_file_that_is_replaced_during_commit_makes_the_outcome_unknown(file: Path) -> None:
    put_back: list[Callable[[], None]] = []
    catalog = open_catalog(f"sqlite:///{file}")
    catalog.definitions.register(CHANNELS[:1])

    def replace_before_commit() -> None:
        put_back.append(rename_file(file))

    with pytest.raises(CommitOutcomeUnknown):
        catalog.database.write(
            lambda c: c.exec_driver_sql('UPDATE nova_channels SET upkeep = \'{"retain": "9d"}\''),
            before_commit=replace_before_commit,
        )
    put_back[0]()
    assert catalog.definitions.channel("a").retain == "9d", "here it was stored"
    catalog.close()


OPEN = """
import sys
from nova_assets.catalog.open_catalog import open_catalog
from nova_assets_tests.catalog.test_sqlite_file import CHANNELS
catalog = open_catalog(sys.argv[1])
catalog.definitions.register(CHANNELS[:1])
print("open", flush=True)
sys.stdin.readline()
"""


OTHER_PROGRAM = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("CREATE TABLE other AS SELECT 7 AS n")
connection.commit()
os._exit(0)  # and its log stays
"""


@contextmanager
def other_process(file: Path, last_words: str = "") -> Iterator[Callable[[], None]]:
    """Another process that has a catalog open, and has registered channel ``a``. Yields a function that ends it."""
    command = [sys.executable, "-c", OPEN + last_words, f"sqlite:///{file}"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "open\n"

    def end() -> None:
        process.communicate("end\n", timeout=60)
        assert process.returncode == 0

    try:
        yield end
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("last_words", ["catalog.close()", ""], ids=["closed", "not closed"])
def test_a_process_whose_log_was_removed_leaves_the_log_of_the_others_alone(file: Path, last_words: str) -> None:
    """With the last connection to a file, SQLite writes the log into the file, and removes the log by its name."""
    open_catalog(f"sqlite:///{file}").close()
    with running_guard().expected_deleted_files(), other_process(file, last_words) as end_former:
        log_of(file).unlink()  # nova would not begin a new log now
        file.with_name("c.db-shm").unlink()
        subprocess.run([sys.executable, "-c", OTHER_PROGRAM, file], check=True)
        end_former()
    reopened = open_catalog(f"sqlite:///{file}")
    assert reopened.database.read(lambda c: c.exec_driver_sql("SELECT n FROM other").scalars().all()) == [7]
    reopened.close()


def test_the_last_commits_survive_the_removal_of_their_log(catalog: Catalog, file: Path) -> None:
    log_of(file).unlink()
    file.with_name("c.db-shm").unlink()
    with pytest.raises(CatalogUnavailable):
        catalog.definitions.register(CHANNELS)
    copy = file.with_name("copy.db")
    shutil.copy(file, copy)  # as after a kill of this process
    reopened = open_catalog(f"sqlite:///{copy}")
    assert [s.channel.name for s in reopened.definitions.channels()] == ["a"]
    reopened.close()


def test_a_store_that_is_opened_again_does_not_mix_a_removed_log_with_a_new_one(file: Path) -> None:
    """SQLite shares its state of a file in a process: a new connection would take the new log with the old index."""
    former = open_catalog(f"sqlite:///{file}")
    former.definitions.register(CHANNELS[:1])
    file.with_name("c.db-shm").unlink()
    with (
        running_guard().expected_deleted_files(),
        other_process(file, "catalog.definitions.register(CHANNELS)") as end_other,
    ):
        with pytest.raises(CatalogUnavailable, match="was replaced"):
            former.definitions.channels()
        former.close()
        with pytest.raises(CatalogUnavailable, match="this process still has the former one open"):
            open_catalog(f"sqlite:///{file}")
        end_other()


@pytest.mark.slow
@pytest.mark.parametrize("ending", [["-wal", "-shm"], ["-wal"]])
def test_another_process_does_not_begin_a_new_log_while_the_former_is_in_use(
    catalog: Catalog, file: Path, ending: list[str]
) -> None:
    for removed in ending:
        file.with_name(f"c.db{removed}").unlink()
    command = [sys.executable, "-c", OPEN, f"sqlite:///{file}"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "other processes have its file c.db open, but the log c.db-wal is not there" in refused.stderr
    with pytest.raises(CatalogUnavailable):
        catalog.definitions.channels()
    catalog.close()
    with running_guard().expected_deleted_files():
        reopened = open_catalog(f"sqlite:///{file}")
        assert [s.channel.name for s in reopened.definitions.channels()] == ["a"], "the removed log was saved"
        reopened.close()


def overwrite_in_place(backup: Path, file: Path) -> None:
    subprocess.run(["cp", backup, file], check=True)  # as an operator does, under a running process


def test_a_backup_that_is_copied_over_the_file_is_noticed_and_left_alone(file: Path) -> None:
    """Even if it is as large as the file, and even if its log was removed, as one does after a restore."""
    backup = file.with_name("backup.db")
    first = open_catalog(f"sqlite:///{file}")
    first.definitions.register(CHANNELS[:1])
    first.close()
    shutil.copy(file, backup)
    catalog = open_catalog(f"sqlite:///{file}")
    catalog.definitions.register(CHANNELS[1:2])
    catalog.database.backend.write_log_into_file()  # type: ignore[attr-defined]
    catalog.definitions.channels()
    with running_guard().expected_deleted_files():
        overwrite_in_place(backup, file)
        for removed in ("-wal", "-shm"):
            file.with_name(f"c.db{removed}").unlink()
        for _ in range(2):
            with pytest.raises(CatalogUnavailable, match="was overwritten"):
                catalog.definitions.register(CHANNELS)
        catalog.close()
    assert file.read_bytes() == backup.read_bytes()


def test_vacuum_by_another_program_is_no_harm(catalog: Catalog, file: Path) -> None:
    catalog.definitions.register(CHANNELS)
    catalog.database.write(lambda c: c.exec_driver_sql("CREATE TABLE filling AS SELECT randomblob(2000000) AS b"))
    catalog.database.write(lambda c: c.exec_driver_sql("DROP TABLE filling"))
    subprocess.run(
        [sys.executable, "-c", "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('VACUUM')", file], check=True
    )
    catalog.database.backend.write_log_into_file()  # type: ignore[attr-defined]
    assert [s.channel.name for s in catalog.definitions.channels()] == [
        "a",
        "b",
        "c",
    ] and file.stat().st_size < 1_000_000


def test_a_missing_or_empty_file_beside_its_log_is_not_created_anew(catalog: Catalog, file: Path) -> None:
    """SQLite would remove the log, and with it the last commits."""
    saved = file.with_name("saved")
    saved.mkdir()
    shutil.copy(log_of(file), saved / "c.db-wal")
    for make_file in (lambda: None, (saved / "c.db").touch):
        make_file()
        with pytest.raises(CatalogUnavailable, match="but the log c.db-wal is there".replace(".", r"\.")):
            open_catalog(f"sqlite:///{saved / 'c.db'}")
        assert (saved / "c.db-wal").stat().st_size == log_of(file).stat().st_size


def test_a_forked_process_uses_connections_of_its_own(catalog: Catalog, file: Path) -> None:
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            catalog.definitions.register(CHANNELS)
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert [s.channel.name for s in catalog.definitions.channels()] == ["a", "b", "c"] and log_of(file).exists()


@pytest.mark.slow
def test_closed_connections_are_freed(file: Path) -> None:
    for _ in range(5):
        open_catalog(f"sqlite:///{file}").close()
    gc.collect()
    connections = [o for o in gc.get_objects() if isinstance(o, CatalogConnection)]
    assert not [c for c in connections if c.opened_by is not None and c.opened_by.path == file]


def test_every_connection_waits_for_the_disk(catalog: Catalog) -> None:
    pragmas = catalog.database.read(
        lambda c: [c.exec_driver_sql(f"PRAGMA {p}").scalar() for p in ("synchronous", "journal_mode", "foreign_keys")]
    )
    assert pragmas == [2, "wal", 1]
