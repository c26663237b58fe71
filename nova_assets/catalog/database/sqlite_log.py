"""Log of a SQLite catalog (the file ``-wal``), and the stamps that tie the log to its file.

SQLite replays each log that it finds beside a file, even the log of another file, and destroys the file by that ("How
To Corrupt An SQLite Database File", section 1.4). So each write transaction of nova stores two numbers on the first
page of the file: a new random stamp, and the stamp of the transaction before. A log continues a file if the stamp of
the file occurs in the log, or precedes the log's first transaction. The layout of a log is documented in "WAL-mode File
Format" (https://sqlite.org/fileformat2.html#walformat).
"""

from __future__ import annotations

import secrets
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

_LOG_HEADER = struct.Struct(">8I")
_FRAME_HEADER = struct.Struct(">6I")
_FILE_MAGIC = b"SQLite format 3\x00"
_LOG_MAGIC = frozenset({0x377F0682, 0x377F0683})
_STAMP_OFFSET, _PREVIOUS_STAMP_OFFSET = 60, 68
"""Offsets of ``user_version`` and ``application_id`` on the first page. SQLite leaves both numbers to applications."""

_STAMP_BITS = 31
"""Both numbers are signed, and have 32 bits."""


class Stamp(NamedTuple):
    """Stamp of a transaction on the first page.

    Args:
        previous: stamp of the transaction before; 0 if that transaction had none.
    """

    current: int
    previous: int


def stamp_transaction(connection: sqlite3.Connection) -> None:
    """Store the stamp of a write transaction on the first page of the file.

    A pragma takes no parameters, so the numbers are part of its text.
    """
    (previous,) = connection.execute("PRAGMA user_version").fetchone()
    stamp = secrets.randbits(_STAMP_BITS) or 1
    connection.execute(f"PRAGMA user_version = {stamp:d}").close()
    connection.execute(f"PRAGMA application_id = {previous:d}").close()


def log_continues_file(file: Path, log: Path) -> bool:
    """Whether a log belongs to a file, so that SQLite may replay the log.

    Reads the log and the first page of the file. Call this only while this process has no connection to the file:
    closing the file here would drop the locks of such a connection.

    A log without the first page passes. Only transactions of other programs have none, such as an UPDATE in SQLite's
    shell.

    Raises:
        OSError: the file or the log cannot be read.
    """
    file_stamp = _read_file_stamp(file)
    if file_stamp is None:
        return True  # SQLite itself reports that the file is no database
    with log.open("rb") as opened:
        stamps = list(_read_stamps(opened))
    return not stamps or file_stamp == stamps[0].previous or any(file_stamp == s.current for s in stamps)


def _read_file_stamp(file: Path) -> int | None:
    """Stamp in the file itself; None if the file is no database.

    SQLite cannot read the stamp: a file of which a checkpoint has written only a part seems damaged without its log.
    """
    with file.open("rb") as opened:
        page_start = opened.read(_PREVIOUS_STAMP_OFFSET)
    return _number_at(page_start, _STAMP_OFFSET) if page_start.startswith(_FILE_MAGIC) else None


def _read_stamps(log: BinaryIO) -> Iterator[Stamp]:
    """Stamps of the first page in a log, oldest first. Frames of an earlier use of the log have another salt."""
    header = log.read(_LOG_HEADER.size)
    if len(header) < _LOG_HEADER.size:
        return
    magic, _, page_size, _, *salt, _, _ = _LOG_HEADER.unpack(header)
    if magic not in _LOG_MAGIC:
        return
    while len(frame := log.read(_FRAME_HEADER.size)) == _FRAME_HEADER.size:
        page_number, _, *frame_salt, _, _ = _FRAME_HEADER.unpack(frame)
        if frame_salt != salt:
            return
        if page_number != 1:
            log.seek(page_size, 1)
            continue
        page = log.read(page_size)
        if len(page) == page_size:
            yield Stamp(_number_at(page, _STAMP_OFFSET), _number_at(page, _PREVIOUS_STAMP_OFFSET))


def _number_at(page: bytes, offset: int) -> int:
    return int.from_bytes(page[offset : offset + 4], "big")
