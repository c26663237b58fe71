"""Logs of SQLite files: a log is accepted only where SQLite's replay gives what was committed."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from nova_assets.catalog.database.sqlite_log import log_continues_file, stamp_first_page
from nova_assets_tests.effort import examples

FIRST_PAGE = 4096


@dataclass(frozen=True)
class SavedFiles:
    """Copies of a file and its log at one moment, and the rows that were committed then."""

    file: Path
    log: Path
    rows: tuple[int, ...]


def open_database(file: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA wal_autocheckpoint=7")
    return connection


def commit(connection: sqlite3.Connection, sql: str, *values: object) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(sql, values)
    stamp_first_page(connection)
    connection.execute("COMMIT")


def save(folder: Path, connection: sqlite3.Connection, source: Path) -> SavedFiles:
    folder.mkdir()
    file, log = folder / "saved.db", folder / "saved.db-wal"
    rows = tuple(n for (n,) in connection.execute("SELECT n FROM t ORDER BY n"))
    shutil.copy(source, file)
    shutil.copy(f"{source}-wal", log)
    return SavedFiles(file, log, rows)


def record_history(folder: Path, rng: random.Random) -> list[SavedFiles]:
    """A file at several moments of a random history of transactions, checkpoints and readers."""
    source, saved = folder / "source.db", []
    with closing(open_database(source)) as writer, closing(open_database(source)) as reader:
        commit(writer, "CREATE TABLE t (n INTEGER, filling TEXT)")
        for step in range(rng.randint(8, 30)):
            action = rng.choice(["insert", "insert", "insert", "delete", "checkpoint", "restart", "read"])
            if action == "checkpoint":
                writer.execute("PRAGMA wal_checkpoint(PASSIVE)")
            elif action == "restart":
                writer.execute("PRAGMA busy_timeout=1")
                writer.execute("PRAGMA wal_checkpoint(RESTART)")
            elif action == "read" and reader.in_transaction:
                reader.execute("ROLLBACK")
            elif action == "read":  # the reader keeps a checkpoint from copying later transactions
                reader.execute("BEGIN")
                reader.execute("SELECT COUNT(*) FROM t").fetchall()
            elif action == "delete":
                commit(writer, "DELETE FROM t WHERE n % 5 = ?", rng.randrange(5))
            else:
                filling = "x" * rng.choice([10, 3000, 9000])
                commit(writer, "INSERT INTO t VALUES (?, ?)", step, filling)
            if rng.random() < 0.4:
                saved.append(save(folder / f"saved-{step}", writer, source))
        if reader.in_transaction:
            reader.execute("ROLLBACK")
    return saved


def replayed_rows(folder: Path, file: Path, log: Path) -> tuple[int, ...] | None:
    """Rows after SQLite has replayed a log over a file; None if the database is damaged."""
    folder.mkdir()
    shutil.copy(file, folder / "mixed.db")
    shutil.copy(log, folder / "mixed.db-wal")
    try:
        with closing(open_database(folder / "mixed.db")) as connection:
            if connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
                return None
            return tuple(n for (n,) in connection.execute("SELECT n FROM t ORDER BY n"))
    except sqlite3.DatabaseError:
        return None


def has_received_pages_without_stamp(file: Path, earlier: Path) -> bool:
    """Whether a checkpoint between two copies of a file has copied pages, but not the first one with the stamp.

    A checkpoint skips each page with a version that some reader must not see yet. Every transaction changes the first.
    """
    later_bytes, earlier_bytes = file.read_bytes(), earlier.read_bytes()
    return later_bytes != earlier_bytes and later_bytes[:FIRST_PAGE] == earlier_bytes[:FIRST_PAGE]


def test_a_log_is_accepted_only_if_its_replay_gives_the_committed_rows(tmp_path: Path) -> None:
    """SQLite is the judge: of each file and each log of one history, in all combinations."""
    destroyed = 0
    for seed in range(examples(4, 100)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        saved = record_history(folder, random.Random(seed))
        for n, file in enumerate(saved):
            assert log_continues_file(file.file, file.log), "a file and its own log, as a killed process leaves them"
            for m, log in enumerate(saved):
                rows = replayed_rows(folder / f"mixed-{n}-{m}", file.file, log.log)
                if m < n and has_received_pages_without_stamp(file.file, log.file):
                    continue  # nothing in the file or in the older log tells that these pages are newer than the log
                if log_continues_file(file.file, log.log):
                    assert rows == log.rows, f"seed {seed}, file {n}, log {m}"
                else:
                    destroyed += rows not in (file.rows, log.rows)
    assert destroyed, "there were combinations that SQLite replays without a word, and by that destroys the rows"


def test_the_log_of_another_database_is_refused(tmp_path: Path) -> None:
    for name in ("one", "other"):
        folder = tmp_path / name
        folder.mkdir()
        with closing(open_database(folder / "source.db")) as connection:
            commit(connection, "CREATE TABLE t (n INTEGER, filling TEXT)")
            commit(connection, "INSERT INTO t VALUES (1, 'x')")
            save(folder / "saved", connection, folder / "source.db")
    file, log = tmp_path / "one" / "saved" / "saved.db", tmp_path / "other" / "saved" / "saved.db-wal"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert not log_continues_file(file, log)


def test_a_log_without_transactions_is_accepted(tmp_path: Path) -> None:
    file, log = tmp_path / "c.db", tmp_path / "c.db-wal"
    with closing(open_database(file)) as connection:
        commit(connection, "CREATE TABLE t (n INTEGER)")
    for content in (b"", b"\0" * 32, b"x" * 100):  # SQLite ignores a log with a damaged header, too
        log.write_bytes(content)
        assert log_continues_file(file, log)
