"""Published versions (*editions*): the consecutive contents of a table in which a channel is published."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from nova_assets.model.block import DataFile
from nova_assets.model.partitions import Dimension
from nova_assets.model.schema import Schema

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
