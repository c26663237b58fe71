"""The file of a SQLite catalog: a process refuses to commit to a file that does not bear the catalog's name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import nova_assets as nova
from nova_assets.catalog.catalog import SqlCatalog, open_catalog
from nova_assets.errors import CatalogUnavailable, CommitOutcomeUnknown
from nova_assets_tests.catalog_guard import running_guard

CHANNELS = [nova.Channel(name, merge=nova.Append(), schema="id bigint") for name in ("a", "b", "c")]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home" / "c.db"


@pytest.fixture
def catalog(file: Path) -> Iterator[SqlCatalog]:
    opened = open_catalog(f"sqlite:///{file}")
    opened.register(CHANNELS[:1])
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
    catalog: SqlCatalog, file: Path, act: Callable[[Path], Callable[[], None]], problem: str
) -> None:
    put_back = act(file)
    for use in (lambda: catalog.register(CHANNELS[1:2]), catalog.channels):
        with pytest.raises(CatalogUnavailable) as refused:
            use()
        assert refused.value.found == problem
    assert catalog.catalog_file_problem() == problem
    put_back()
    assert catalog.catalog_file_problem() is None
    catalog.register(CHANNELS[2:])
    assert [s.channel.name for s in catalog.channels()] == ["a", "c"]


def test_a_file_that_is_replaced_during_commit_makes_the_outcome_unknown(file: Path) -> None:
    put_back: list[Callable[[], None]] = []
    catalog = open_catalog(f"sqlite:///{file}")
    catalog.register(CHANNELS[:1])

    def replace_before_commit() -> None:
        put_back.append(rename_file(file))

    with pytest.raises(CommitOutcomeUnknown):
        catalog.database.write(
            lambda c: c.exec_driver_sql('UPDATE nova_channels SET upkeep = \'{"retain": "9d"}\''),
            before_commit=replace_before_commit,
        )
    put_back[0]()
    assert catalog.channel("a").retain == "9d", "here it was stored"
    catalog.close()


OPEN = """
import sys
from nova_assets.catalog.catalog import open_catalog
from nova_assets_tests.catalog.test_sqlite_file import CHANNELS
catalog = open_catalog(sys.argv[1])
catalog.register(CHANNELS[:1])
print("open", flush=True)
sys.stdin.readline()
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


@pytest.mark.parametrize("last_words", ["catalog.close()", ""], ids=["closed", "not closed"])
def test_a_process_whose_log_was_removed_leaves_the_log_of_the_others_alone(file: Path, last_words: str) -> None:
    """With the last connection to a file, SQLite writes the log into the file, and removes the log by its name."""
    open_catalog(f"sqlite:///{file}").close()
    with running_guard().expected_deleted_files(), other_process(file, last_words) as end_former:
        log_of(file).unlink()
        file.with_name("c.db-shm").unlink()
        with other_process(file, "catalog.register(CHANNELS); import os; os._exit(0)") as end_writer:
            end_writer()
        end_former()
    reopened = open_catalog(f"sqlite:///{file}")
    assert [s.channel.name for s in reopened.channels()] == ["a", "b", "c"]
    reopened.close()


def test_the_last_commits_survive_the_removal_of_their_log(catalog: SqlCatalog, file: Path) -> None:
    log_of(file).unlink()
    file.with_name("c.db-shm").unlink()
    with pytest.raises(CatalogUnavailable):
        catalog.register(CHANNELS)
    copy = file.with_name("copy.db")
    shutil.copy(file, copy)  # as after a kill of this process
    reopened = open_catalog(f"sqlite:///{copy}")
    assert [s.channel.name for s in reopened.channels()] == ["a"]
    reopened.close()


def test_a_missing_or_empty_file_beside_its_log_is_not_created_anew(catalog: SqlCatalog, file: Path) -> None:
    """SQLite would remove the log, and with it the last commits."""
    saved = file.with_name("saved")
    saved.mkdir()
    shutil.copy(log_of(file), saved / "c.db-wal")
    for make_file in (lambda: None, (saved / "c.db").touch):
        make_file()
        with pytest.raises(CatalogUnavailable, match="but the log c.db-wal is there".replace(".", r"\.")):
            open_catalog(f"sqlite:///{saved / 'c.db'}")
        assert (saved / "c.db-wal").stat().st_size == log_of(file).stat().st_size


def test_a_forked_process_uses_connections_of_its_own(catalog: SqlCatalog, file: Path) -> None:
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            catalog.register(CHANNELS)
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert [s.channel.name for s in catalog.channels()] == ["a", "b", "c"] and log_of(file).exists()


def test_every_connection_waits_for_the_disk(catalog: SqlCatalog) -> None:
    pragmas = catalog.database.read(
        lambda c: [c.exec_driver_sql(f"PRAGMA {p}").scalar() for p in ("synchronous", "journal_mode", "foreign_keys")]
    )
    assert pragmas == [2, "wal", 1]
