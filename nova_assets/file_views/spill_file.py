"""File to which keyspaces are spilled: runs of entries, one after the other, and an index that names the current runs.

A run never changes, so a snapshot reads it as long as it likes. The file only grows. Once most runs are outdated,
a new file replaces it. Snapshots of older states keep the old file open.
"""

from __future__ import annotations

import os
import struct
import weakref
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nova_assets.file_views.storage import KEYSPACE_BYTES, Entries

_LENGTHS = struct.Struct(">II")
"""Bytes of a key and of its value."""

_INDEX_ENTRY = struct.Struct(f">{KEYSPACE_BYTES}sQQI")
"""Keyspace, and offset, bytes and checksum of its run."""

_INDEX_NAME = "index"


class SpillDamaged(Exception):
    """A run or an index differs from what was written."""


class SpillFile:
    """An append-only file of runs.

    Args:
        path: path of the file. It is created if it does not exist.
        end: offset of the next run. Whatever follows is overwritten.
    """

    def __init__(self, path: Path, end: int = 0) -> None:
        self.path = path
        self.end = end
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        weakref.finalize(self, os.close, self._descriptor)

    def append(self, encoded_entries: bytes) -> Run:
        """Append a run. If this fails, the file is as before."""
        offset, rest = self.end, memoryview(encoded_entries)
        while rest:
            written = os.pwrite(self._descriptor, rest, offset)
            offset, rest = offset + written, rest[written:]
        run = Run(self, self.end, len(encoded_entries), zlib.crc32(encoded_entries))
        self.end = offset
        return run

    def read(self, offset: int, size: int) -> bytes:
        parts = []
        while size and (part := os.pread(self._descriptor, size, offset)):
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return b"".join(parts)

    def sync(self) -> None:
        os.fsync(self._descriptor)


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Entries of one keyspace in a file."""

    file: SpillFile
    offset: int
    size: int
    checksum: int

    def encoded_entries(self) -> bytes:
        """Content of the run. Raises SpillDamaged."""
        encoded = self.file.read(self.offset, self.size)
        if zlib.crc32(encoded) != self.checksum:
            raise SpillDamaged(f"a run in {self.file.path} is not what was written")
        return encoded


def encode_entries(entries: Entries) -> bytes:
    return b"".join(part for k, v in entries for part in (_LENGTHS.pack(len(k), len(v)), k, v))


def decode_entries(encoded: bytes) -> Entries:
    entries, at = [], 0
    while at < len(encoded):
        key_size, value_size = _LENGTHS.unpack_from(encoded, at)
        key_end = at + _LENGTHS.size + key_size
        entries.append((encoded[at + _LENGTHS.size : key_end], encoded[key_end : key_end + value_size]))
        at = key_end + value_size
    return tuple(entries)


def write_index(folder: Path, owner: bytes, file: SpillFile, runs: Mapping[bytes, Run]) -> None:
    """Replace the index of a folder. The runs are durable before the index names them."""
    file.sync()
    header = b"\n".join((owner, file.path.name.encode(), b""))
    body = header + b"".join(_INDEX_ENTRY.pack(k, r.offset, r.size, r.checksum) for k, r in runs.items())
    new_index = folder / f"{_INDEX_NAME}.new"
    with new_index.open("wb") as out:
        out.write(zlib.crc32(body).to_bytes(4, "big") + body)
        out.flush()
        os.fsync(out.fileno())
    new_index.replace(folder / _INDEX_NAME)


def read_index(folder: Path, owner: bytes) -> tuple[SpillFile, dict[bytes, Run]] | None:
    """File and runs that the index of a folder names; None without an index, or if it belongs to another owner.

    Raises:
        SpillDamaged.
    """
    try:
        stored = (folder / _INDEX_NAME).read_bytes()
    except FileNotFoundError:
        return None
    checksum, body = stored[:4], stored[4:]
    if zlib.crc32(body).to_bytes(4, "big") != checksum:
        raise SpillDamaged(f"the index of {folder} is not what was written")
    index_owner, file_name, entries = body.split(b"\n", 2)
    if index_owner != owner:
        return None
    path = folder / file_name.decode()
    if not path.is_file():
        raise SpillDamaged(f"{path} is missing")
    fields = list(_INDEX_ENTRY.iter_unpack(entries))
    file = SpillFile(path, end=max((offset + size for _, offset, size, _ in fields), default=0))
    return file, {keyspace: Run(file, *run_fields) for keyspace, *run_fields in fields}


def delete_other_files(folder: Path, pattern: str, kept: Iterable[Path]) -> None:
    """Delete the files of a folder that match a pattern, except some."""
    for path in set(folder.glob(pattern)) - set(kept):
        path.unlink(missing_ok=True)
