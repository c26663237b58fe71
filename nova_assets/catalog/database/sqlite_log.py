"""Log of a SQLite catalog (the file ``-wal``), and the stamps that tie the log to its file.

SQLite replays each log that it finds beside a file, even the log of another file, and destroys the file by that ("How
To Corrupt An SQLite Database File", section 1.4). So each write transaction of nova stores a stamp on the first page of
the file: the number of the transaction, and a random value that contains a digest of the value before. A log continues
a file if the stamp of the file occurs in the log, or precedes the log's first transaction. The layout of a log is
documented in "WAL-mode File Format" (https://sqlite.org/fileformat2.html#walformat).
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

_LOG_HEADER = struct.Struct(">8I")
_FRAME_HEADER = struct.Struct(">6I")
_FILE_MAGIC = b"SQLite format 3\x00"
_LOG_MAGIC = frozenset({0x377F0682, 0x377F0683})
_VALUE_OFFSET, _NUMBER_OFFSET = 60, 68
"""Offsets of ``user_version`` and ``application_id`` on the first page. SQLite leaves both numbers to applications."""

_STAMP_END = _NUMBER_OFFSET + 4
_RANDOM_BITS, _DIGEST_BITS = 19, 12
"""Parts of a value. ``user_version`` is signed, and has 32 bits."""


class Stamp(NamedTuple):
    """Stamp of a transaction on the first page. Both parts are 0 before the first stamped transaction.

    Args:
        number: number of stamped transactions until then.
    """

    value: int
    number: int

    def follows(self, earlier: Stamp) -> bool:
        """Whether this is the next stamp after another one."""
        return self.number == earlier.number + 1 and self.value % (1 << _DIGEST_BITS) == _digest(earlier.value)


def stamp_first_page(connection: sqlite3.Connection) -> None:
    """Store the stamp of a write transaction on the first page of the file.

    A pragma takes no parameters, so the numbers are part of its text.
    """
    (value,) = connection.execute("PRAGMA user_version").fetchone()
    (number,) = connection.execute("PRAGMA application_id").fetchone()
    new_value = secrets.randbits(_RANDOM_BITS) << _DIGEST_BITS | _digest(value)
    connection.execute(f"PRAGMA user_version = {new_value:d}").close()
    connection.execute(f"PRAGMA application_id = {number + 1:d}").close()


def read_stamp(descriptor: int) -> Stamp | None:
    """Stamp in an open file, without the transactions that are only in the log; None if the file is no database.

    Raises:
        OSError.
    """
    return _stamp_on_page(os.pread(descriptor, _STAMP_END, 0))


def log_continues_file(file: Path, log: Path) -> bool:
    """Whether a log belongs to a file, so that SQLite may replay the log.

    Reads the log and the first page of the file. SQLite cannot read the stamp: a file of which a checkpoint has written
    only a part seems damaged without its log. Call this only while this process has no connection to the file: closing
    the file here would drop the locks of such a connection.

    A log without the first page passes. Only transactions of other programs have none, such as an UPDATE in SQLite's
    shell. An older copy of the file's own log also passes if checkpoints since then could not copy the first page,
    because a reader still needed the rows before. Then the file holds pages that are newer than the log, and nothing in
    either tells. So copies of a catalog in use are made by ``nova backup``, not by copying the files one by one.

    Raises:
        OSError: the file or the log cannot be read.
    """
    with file.open("rb") as opened:
        file_stamp = _stamp_on_page(opened.read(_STAMP_END))
    if file_stamp is None:
        return True  # SQLite itself reports that the file is no database
    with log.open("rb") as opened:
        stamps = list(_read_stamps(opened))
    return not stamps or file_stamp in stamps or stamps[0].follows(file_stamp)


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
            log.seek(page_size, os.SEEK_CUR)
        elif (stamp := _stamp_on_page(log.read(page_size))) is not None:
            yield stamp


def _stamp_on_page(page_start: bytes) -> Stamp | None:
    """Stamp on the first page of a file; None if the file is no database."""
    if len(page_start) < _STAMP_END or not page_start.startswith(_FILE_MAGIC):
        return None
    return Stamp(_number_at(page_start, _VALUE_OFFSET), _number_at(page_start, _NUMBER_OFFSET))


def _digest(value: int) -> int:
    return zlib.crc32(value.to_bytes(4, "big")) % (1 << _DIGEST_BITS)


def _number_at(page: bytes, offset: int) -> int:
    return int.from_bytes(page[offset : offset + 4], "big")
