"""Published versions (*editions*): the consecutive contents of a table in which a channel is published."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol, get_args

from nova_assets.model.block import DataFile
from nova_assets.model.json_form import JsonForm
from nova_assets.model.partitions import Dimension
from nova_assets.model.schema import Schema
from nova_assets.short_repr import short_repr

PublishedVersionState = Literal["opening", "shown"]


@dataclass(frozen=True, slots=True)
class PublishedContent:
    """Content of a published version: files that contain exactly the rows of a snapshot.

    Args:
        seq: sequence number of the channel.
        dimensions: partition dimensions. The files contain their columns, too.
        files: each with the partition of its rows.
        sealed: scopes of the days or hours that are complete.
        partition_seqs: for each partition with files, the newest number at which it changed.
        frozen: partitions that keep the files of the previous version, because their day or hour is not complete.
        blocks: ids of the blocks whose files the table lists. Empty if it lists converted copies.
    """

    channel: str
    seq: int
    schema: Schema
    dimensions: tuple[Dimension, ...]
    files: tuple[DataFile, ...]
    sealed: tuple[str, ...] = ()
    partition_seqs: tuple[tuple[str, int], ...] = ()
    frozen: frozenset[str] = frozenset()
    blocks: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        return sum(f.rows for f in self.files)

    @property
    def bytes(self) -> int:
        return sum(f.bytes for f in self.files)

    def fingerprint(self, *, include_seals: bool) -> str:
        """Hash of the content: equal exactly if two versions look the same to readers.

        Args:
            include_seals: whether readers see which groups are sealed.
        """
        content_json = [self.schema.as_json(), sorted((f.partition, f.path) for f in self.files)]
        content_json += [sorted(self.sealed)] if include_seals else []
        return _hash_json(content_json)

    def fingerprint_of_rows(self) -> str:
        """Hash of the rows and the seals. In contrast to ``fingerprint``, a compaction does not change it."""
        return _hash_json([self.schema.as_json(), sorted(self.partition_seqs), sorted(self.sealed)])


def _hash_json(content: list[Any]) -> str:
    return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class PublishedVersion:
    """One published version of a channel in a table, from its opening until no reader can use it any more.

    While it exists, no file of the channel that it lists is deleted (R15).

    Args:
        table: id of the table.
        number: counts from 1.
        state: ``opening`` while it is being published. Until then it is unknown whether the table shows it.
        seq: sequence number of the channel.
        fingerprint: hash of the content.
        at: time at which the content was pinned.
        shown_at: time from which the table certainly showed it.
        superseded_at: time at which the next version was shown.
        execution_id: execution that published it.
    """

    channel: str
    table: str
    number: int
    state: PublishedVersionState
    seq: int
    fingerprint: str
    at: datetime
    shown_at: datetime | None
    superseded_at: datetime | None
    execution_id: str
    rows: int = 0
    bytes: int = 0
    files: int = 0


@dataclass(frozen=True, slots=True)
class SetPublishedVersion:
    """Part of a commit: a table now shows a version. The commit is rejected unless this execution opened that
    version.
    """

    channel: str
    table: str
    number: int


@dataclass(frozen=True, slots=True)
class PublicationPreview:
    """Dry run of publishing a channel to a table.

    Args:
        number: number of the new version; None if the table already shows the newest content.
        compacts: partitions that would be compacted first, because plain files cannot represent their deltas.
    """

    table: str
    seq: int
    number: int | None
    compacts: Sequence[str] = ()
    rows: int = 0
    files: int = 0


TableFormat = Literal["parquet", "orc", "rcfile", "avro", "csv", "json"]

TABLE_FORMATS: tuple[str, ...] = get_args(TableFormat)

FILE_SUFFIXES: Mapping[str, str] = {
    "parquet": ".parquet",
    "orc": ".orc",
    "rcfile": "",
    "avro": ".avro",
    "csv": ".csv",
    "json": ".json",
}
"""Format -> suffix of the names of new files. Hive gives its own files no suffix."""

DEFAULT_FILE_BYTES = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TableFileLayout(JsonForm):
    """Layout of the files that nova converts for a published table.

    Args:
        format: file format.
        path_columns: partition columns that are in the names of folders only, and in no file.
        columns: columns of the files, in their order. Columns of the channel that are not listed follow. Empty for the
            order of the channel.
        arrow_schema: for Parquet: serialized Arrow schema, in Base64, that the files had before the table was taken
            over. Its columns keep their types. Empty for the types of the channel.
        int96: for Parquet: whether timestamps are stored in the old type INT96.
        compression: for Parquet: name of the codec.
        header: for CSV: whether the first line has the names of the columns.
        suffix: end of the file names.
    """

    __repr__ = short_repr

    format: TableFormat = "parquet"
    path_columns: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    arrow_schema: str = ""
    int96: bool = False
    compression: str = "zstd"
    header: bool = True
    suffix: str = ".parquet"

    def file_columns(self, channel_columns: Sequence[str]) -> tuple[str, ...]:
        """Columns of a file, in their order.

        Args:
            channel_columns: all columns of the channel.
        """
        stored = [c for c in channel_columns if c not in self.path_columns]
        first = [c for c in self.columns if c in stored]
        return (*first, *(c for c in stored if c not in first))

    @property
    def digest(self) -> str:
        """Hash of the layout. Files of one layout can be reused in another only if both hashes are equal."""
        text = json.dumps(self.as_json(), separators=(",", ":"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file that was converted for a published table.

    Args:
        name: name in the folder of its partition.
        bytes: size of the file.
    """

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class ExistingTableFile:
    """A data file of a folder that other tools have filled.

    Args:
        address: path or address of the file.
        bytes: size of the file.
        folder_values: partition column -> its value in the names of the folders; None for null.
    """

    address: str
    bytes: int
    folder_values: Mapping[str, str | None]


class TableStore(Protocol):
    """Objects by address. No operation renames or links objects, because object stores can do neither.

    All methods raise OSError if the store does not answer.
    """

    def read(self, address: str) -> bytes | None:
        """Content of an object; None if it does not exist."""

    def open(self, address: str) -> Any:
        """Open an object for random access. Raises FileNotFoundError."""

    def write(self, address: str, data: bytes) -> None:
        """Write an object. In an object store, readers see the old content or the new content, and nothing between."""

    def write_all(self, objects: Iterable[tuple[str, bytes]]) -> None:
        """Write several objects concurrently."""

    def delete(self, addresses: Iterable[str]) -> None:
        """Delete objects. Missing objects are ignored."""

    def list(self, address: str) -> list[str]:
        """Addresses of all objects below an address. Only writers and maintenance use it, never a read (R16)."""
