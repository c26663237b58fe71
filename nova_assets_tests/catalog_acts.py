"""A deployment on SQLite with real processes around it, for tests of what an operator does to its files.

A test counts: each acknowledged row must be there once. Every process that opens the catalog is a child of the test.
The process of the test itself never opens the catalog, because its own ``open`` and ``close`` of a file would drop the
locks that SQLite holds there.
"""

from __future__ import annotations

import hashlib
import itertools
import multiprocessing
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

import nova_assets as nova
from nova_assets.errors import error_from_dict
from nova_assets.nova_error import NovaError
from nova_assets.settings import load_settings
from nova_assets_tests.forked import PRELOADED, run_python
from nova_assets_tests.service.watched_app import wait_until

T = TypeVar("T")

EVENTS = nova.Channel("events", merge=nova.Append(), schema="id string")
TIMEOUT = 90.0

replaces_files = pytest.mark.usefixtures("expected_deleted_files")
"""Mark of a test that replaces or removes files of an open catalog on purpose."""


@dataclass
class Deployment:
    """Catalog and warehouse in a project folder, and the rows that were acknowledged."""

    folder: Path
    catalog: Path
    warehouse: Path
    acknowledged: list[str] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def log(self) -> Path:
        """SQLite's write-ahead log."""
        return Path(f"{self.catalog}-wal")

    def next_row(self) -> str:
        return f"row-{next(self.numbers)}"

    def at(self, catalog: Path | None = None, warehouse: Path | None = None) -> Deployment:
        """The same rows behind other names of the catalog or the warehouse."""
        return replace(self, catalog=catalog or self.catalog, warehouse=warehouse or self.warehouse)

    def remove_log(self) -> None:
        """As the docs tell a person to do before a backup is opened."""
        for ending in ("-wal", "-shm"):
            Path(f"{self.catalog}{ending}").unlink(missing_ok=True)

    def run_nova(self, *arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        """A command of nova in a process of its own."""
        settings = ["--catalog", str(self.catalog), "--warehouse", str(self.warehouse)]
        return run_nova(*settings, *arguments, folder=folder or self.folder)

    def read_rows(self) -> list[str]:
        """All rows of the channel, read by another process."""
        with open_store(self) as store:
            return store.call(read_rows)

    def assert_acknowledged_once(self) -> None:
        """Each acknowledged row is there once, no other row is, and the file is a sound database."""
        rows = Counter(self.read_rows())
        assert rows == Counter(self.acknowledged), f"{len(rows)} rows, {len(self.acknowledged)} acknowledged"
        assert check_integrity(self.catalog) == "ok"


def create_deployment(folder: Path, *channels: nova.Channel) -> Deployment:
    """Create the catalog in ``state/`` and the warehouse in ``wh/``, and register the channel ``events``."""
    deployment = Deployment(folder, folder / "state" / "catalog.db", folder / "wh")
    deployment.catalog.parent.mkdir(parents=True, exist_ok=True)
    with nova.open(catalog=f"sqlite:///{deployment.catalog}", warehouse=deployment.warehouse) as store:
        store.register([EVENTS, *channels])
    return deployment


def run_nova(
    *arguments: str, folder: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """``nova ARGUMENTS`` in a folder."""
    code = "import os, sys; os.chdir(sys.argv.pop(1)); from nova_assets.cli.main import main; main()"
    return run_python(["-c", code, str(folder), *arguments], {"COLUMNS": "200", **(environment or {})}, TIMEOUT)


# Processes with an open store.


class StoreProcess:
    """A process that has opened the deployment and calls functions with its store."""

    def __init__(self, deployment: Deployment, **options: Any) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([*PRELOADED])
        self.deployment = deployment
        self._connection, other_end = context.Pipe()
        self.process = context.Process(
            target=_serve_calls,
            args=(other_end, str(deployment.catalog), str(deployment.warehouse), options),
            daemon=True,
        )
        self.process.start()
        other_end.close()
        self.receive()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call ``function(store, *arguments)`` in the process.

        Raises:
            NovaError: the function has raised it.
        """
        self.send(function, *arguments)
        return self.receive()  # type: ignore[no-any-return]

    def send(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Begin with a call whose result nobody waits for."""
        self._connection.send((function, arguments))

    def insert(self, count: int = 1) -> None:
        """Insert rows one at a time. A row counts as acknowledged as soon as its insert has returned."""
        for _ in range(count):
            row = self.deployment.next_row()
            self.call(insert_row, row)
            self.deployment.acknowledged.append(row)

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def end(self) -> None:
        """Close the store as a program does that ends."""
        with suppress(OSError):
            self._connection.send(None)
        self.process.join(TIMEOUT)
        if self.process.exitcode is None:
            self.kill()
            raise AssertionError("the process does not end")

    def receive(self) -> Any:
        """Result of the call that was sent."""
        assert self._connection.poll(TIMEOUT), "the process does not answer"
        kind, value = self._connection.recv()
        if kind == "error":
            raise error_from_dict(value)
        return value


@contextmanager
def open_store(deployment: Deployment, **options: Any) -> Iterator[StoreProcess]:
    """A process with an open store. The store is closed at the end.

    Args:
        options: settings of ``nova.open`` that differ from the defaults.

    Raises:
        NovaError: the deployment cannot be opened.
    """
    process = StoreProcess(deployment, **options)
    try:
        yield process
    finally:
        process.end()


def run_in_process(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function in a process of its own, without a store."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOADED])
    connection, other_end = context.Pipe()
    process = context.Process(target=_call_and_send, args=(other_end, function, arguments), daemon=True)
    process.start()
    other_end.close()
    assert connection.poll(TIMEOUT), "the process does not answer"
    result = connection.recv()
    process.join()
    return result  # type: ignore[no-any-return]


def _call_and_send(connection: Any, function: Callable[..., Any], arguments: Any) -> None:
    connection.send(function(*arguments))


def _serve_calls(connection: Any, catalog: str, warehouse: str, options: dict[str, Any]) -> None:
    try:
        settings = load_settings(
            catalog=catalog if "://" in catalog else f"sqlite:///{catalog}", warehouse=warehouse, **options
        )
        store = nova.open(settings=settings)
    except NovaError as error:
        connection.send(("error", error.as_dict()))
        return
    connection.send(("ok", None))
    with suppress(EOFError), store:
        while (call := connection.recv()) is not None:
            function, arguments = call
            try:
                connection.send(("ok", function(store, *arguments)))
            except NovaError as error:
                connection.send(("error", error.as_dict()))


# Functions that such processes call.


def insert_row(store: nova.Store, row: str) -> None:
    store.insert("events", [{"id": row}])


def insert_many(store: nova.Store, batch: int, count: int) -> list[str]:
    rows = [f"batch-{batch}-{n}" for n in range(count)]
    for row in rows:
        insert_row(store, row)
    return rows


def read_rows(store: nova.Store) -> list[str]:
    return store.read("events").to_arrow().column("id").to_pylist()  # type: ignore[no-any-return]


def read_head(store: nova.Store) -> int:
    return store.catalog.definitions.channel("events").head


def check_integrity(catalog: Path) -> str:
    """Answer of SQLite's own check of the file: ``ok`` for a sound database."""
    return run_in_process(_integrity_check, str(catalog))


def _integrity_check(catalog: str) -> str:
    with closing(sqlite3.connect(catalog)) as connection:
        try:
            return str(connection.execute("PRAGMA integrity_check").fetchone()[0])
        except sqlite3.DatabaseError as error:
            return str(error)


# Files and processes.


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def log_frames(log: Path, page_size: int = 4096) -> int:
    """Number of pages in a write-ahead log, by SQLite's file format."""
    return max(0, log.stat().st_size - 32) // (page_size + 24) if log.exists() else 0


def copy_file(source: Path, target: Path) -> None:
    """``cp``, which writes into an existing file."""
    subprocess.run(["cp", str(source), str(target)], check=True)


def wait_stopped(pid: int) -> None:
    """Wait until a process that got SIGSTOP has stopped."""
    wait_until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T", "it does not stop")


def wait_seconds(seconds: float) -> None:
    """Wait until a lease of real processes has run out, by the clock that they use."""
    until = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= until, "the clock stands still", seconds + 60)
