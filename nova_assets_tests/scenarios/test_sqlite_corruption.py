"""Sections 2 to 7 of SQLite's page "How To Corrupt An SQLite Database File" (https://sqlite.org/howtocorrupt.html).

Each test is called after the number of its section, and tries the section once with real processes. The table in
``docs/guides/catalog.md`` names these tests, those of section 1 in ``test_sqlite_mistaken_files.py``, and those of the
acts of operators. The guide lists all of their files.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import nova_assets as nova
from nova_assets.errors import CatalogUnavailable
from nova_assets.nova_error import NovaError
from nova_assets_tests.catalog_acts import (
    Deployment,
    StoreProcess,
    insert_row,
    open_store,
    read_head,
    read_rows,
    replaces_files,
    run_in_process,
)
from nova_assets_tests.catalog_service import deleted_files, run_service
from nova_assets_tests.conftest import ROOT, missing
from nova_assets_tests.effort import examples, long_except

pytestmark = [pytest.mark.slow, pytest.mark.crash]


# 2. File locking problems


def open_and_close(store: nova.Store) -> None:
    """As user code does in a process with an open store, such as a task that looks at the file."""
    path = store.catalog.database.engine.url.database
    with open(str(path), "rb") as opened:
        opened.read(16)


def open_with_another_sqlite(store: nova.Store, library: str) -> int:
    """Read the catalog with a second copy of SQLite in the same process. Returns SQLite's code of the query."""
    loaded = ctypes.CDLL(library)
    handle = ctypes.c_void_p()
    path = str(store.catalog.database.engine.url.database).encode()
    assert loaded.sqlite3_open(path, ctypes.byref(handle)) == 0
    code = loaded.sqlite3_exec(handle, b"SELECT count(*) FROM nova_channels", None, None, None)
    loaded.sqlite3_close(handle)
    return int(code)


def check_refused_after(deployment: Deployment, drop_locks: Callable[..., Any], *arguments: Any) -> None:
    """The next process that ends removes the log. From then on, the process without locks commits nothing."""
    process = StoreProcess(deployment)
    process.insert(2)
    process.call(drop_locks, *arguments)
    with open_store(deployment) as other:
        other.insert()
    assert deleted_files({process.pid}) != []
    with pytest.raises(CatalogUnavailable, match="log"):
        process.insert()
    process.kill()
    deployment.assert_acknowledged_once()


@replaces_files
def test_2_2_locks_that_user_code_drops_by_close_lose_no_acknowledged_row(deployment: Deployment) -> None:
    check_refused_after(deployment, open_and_close)


@replaces_files
@pytest.mark.skipif(sys.platform != "linux", reason="loads a copy of a shared library of Linux")
def test_2_2_1_a_second_sqlite_in_the_process_loses_no_acknowledged_row(deployment: Deployment, tmp_path: Path) -> None:
    libraries = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libsqlite3" in line}
    if not libraries:
        missing("Python's sqlite3 is not linked to a shared library", "use a Python that is")
    copied = tmp_path / "libanother.so"
    shutil.copyfile(libraries.pop(), copied)
    check_refused_after(deployment, open_with_another_sqlite, str(copied))


def write_with_protocol(catalog: str, options: str) -> str:
    """Write with another locking protocol. Returns SQLite's error, or an empty text."""
    with closing(sqlite3.connect(f"file:{catalog}?{options}", uri=True)) as connection:
        try:
            connection.execute("CREATE TABLE other (n)")
            connection.commit()
        except sqlite3.OperationalError as error:
            return str(error)
    return ""


@pytest.mark.parametrize("options", long_except(["vfs=unix-dotfile", "vfs=unix-none", "nolock=1"], "nolock=1"))
def test_2_3_sqlite_refuses_a_process_with_another_locking_protocol(deployment: Deployment, options: str) -> None:
    """A database with a log needs shared memory, which the other protocols lack."""
    with open_store(deployment) as store:
        store.insert(2)
        assert run_in_process(write_with_protocol, str(deployment.catalog), options) != ""
        store.insert(2)
    deployment.assert_acknowledged_once()


def fork_and_end(store: nova.Store, insert: bool) -> list[str]:
    """Fork a child that ends as programs do, perhaps after an insert. Returns what the child has acknowledged."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if insert:
                insert_row(store, f"of child {os.getpid()}")
                os.write(theirs, f"of child {os.getpid()}".encode())
            store.close()
            code = 0
        except NovaError as error:
            os.write(theirs, f"refused {error.code}".encode())
        finally:
            os._exit(code)
    os.close(theirs)
    with open(ours, encoding="utf-8") as answers:
        text = answers.read()
    os.waitpid(child, 0)
    return [text] if text else []


@pytest.mark.parametrize("insert", long_except([False, True], True))
def test_2_6_a_forked_child_harms_neither_the_file_nor_the_locks_of_its_parent(
    deployment: Deployment, insert: bool
) -> None:
    with open_store(deployment) as store:
        for _ in range(examples(2, 20)):
            store.insert()
            said = store.call(fork_and_end, insert)
            deployment.acknowledged += [row for row in said if not row.startswith("refused")]
            with open_store(deployment) as other:
                other.insert()
        store.insert()
        assert deleted_files({store.pid}) == []
    deployment.assert_acknowledged_once()


# 3. Failure to sync


def read_pragmas(store: nova.Store, names: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """Values of pragmas on connections of several threads at once."""
    rows: list[tuple[Any, ...]] = []
    ready = threading.Barrier(4)

    def ask() -> None:
        with store.catalog.database.engine.connect() as connection:
            ready.wait(30)
            rows.append(tuple(connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return rows


def test_3_2_every_connection_syncs_each_commit(deployment: Deployment) -> None:
    names = ("synchronous", "journal_mode", "locking_mode", "mmap_size", "writable_schema")
    with open_store(deployment) as store:
        store.insert(2)
        values = store.call(read_pragmas, names)
    full_sync = 2
    assert values == [(full_sync, "wal", "normal", 0, 0)] * 4


# 6. Other operating system problems


DAMAGE = """
import os, sys
with open(sys.argv[1], "r+b") as opened:
    opened.seek(2 * 4096)
    opened.write(os.urandom(os.path.getsize(sys.argv[1]) - 2 * 4096))
"""
"""Program that overwrites every page but the first two, as a damaged file system does."""


def test_6_3_a_damaged_file_is_named_and_takes_no_insert(deployment: Deployment) -> None:
    with open_store(deployment) as store:
        store.insert(2)
    subprocess.run([sys.executable, "-c", DAMAGE, str(deployment.catalog)], check=True)
    with pytest.raises(CatalogUnavailable, match=r"damaged|malformed"):
        StoreProcess(deployment).insert()
    checked = deployment.run_nova("doctor")
    assert checked.returncode == 1 and "damaged" in checked.stdout + checked.stderr, checked.stdout


@replaces_files
def test_6_3_a_service_whose_file_is_damaged_acknowledges_nothing_that_is_lost(
    deployment: Deployment, outside: Path
) -> None:
    with open_store(deployment) as store:
        store.insert(2)
    with run_service(deployment, outside) as service:
        subprocess.run([sys.executable, "-c", DAMAGE, str(deployment.catalog)], check=True)
        statuses = [service.try_insert().status_code for _ in range(3)]
        assert set(statuses) == {503} and service.probe("/readyz") == 503, statuses
        service.kill()


# 7. SQLite configuration errors


def test_7_this_sqlite_is_built_for_threads(deployment: Deployment) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        options = {row[0] for row in connection.execute("PRAGMA compile_options")}
    assert "THREADSAFE=0" not in options and sqlite3.threadsafety > 0
    with open_store(deployment) as store:
        store.insert(2)
        assert store.call(insert_from_threads, 4) == 12
        assert store.call(read_head) == 14


def insert_from_threads(store: nova.Store, count: int) -> int:
    threads = [
        threading.Thread(target=lambda n=n: [insert_row(store, f"thread-{n}-{i}") for i in range(3)])
        for n in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(row.startswith("thread-") for row in read_rows(store))


# The documentation.


def test_the_table_of_the_guide_names_tests_that_exist() -> None:
    guide = (ROOT / "docs" / "guides" / "catalog.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", guide))
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "nova_assets_tests").rglob("test_*.py")]
    defined = {name for text in sources for name in re.findall(r"^def (test_\w+)", text, re.MULTILINE)}
    assert len(named) > 10 and named <= defined, named - defined
