"""Editions: what a table in which a channel is published has shown, one after the other."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from nova_assets.model.block import DataFile
from nova_assets.model.partitions import Dimension
from nova_assets.model.schema import Schema

EditionState = Literal["opening", "shown"]


@dataclass(frozen=True, slots=True)
class PublishedContent:
    """What an edition shows: files that hold the rows of a snapshot and nothing else.

    Args:
        seq: the channel's number.
        dimensions: of its partitions; their columns are in the files, too.
        files: each with the partition that its rows are in.
        sealed: scopes of the days or hours that are complete.
    """

    channel: str
    seq: int
    schema: Schema
    dimensions: tuple[Dimension, ...]
    files: tuple[DataFile, ...]
    sealed: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        return sum(f.rows for f in self.files)

    @property
    def bytes(self) -> int:
        return sum(f.bytes for f in self.files)

    def fingerprint(self, *, include_seals: bool) -> str:
        """Equal when and only when two editions look the same.

        Args:
            include_seals: readers see what is sealed.
        """
        content_json = [self.schema.as_json(), sorted((f.partition, f.path) for f in self.files)]
        content_json += [sorted(self.sealed)] if include_seals else []
        return hashlib.sha256(json.dumps(content_json, separators=(",", ":")).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class PublishedVersion:
    """One edition of a channel in a table, from its being opened until nobody can read it any more. For as long as it
    is there, no file that it lists is deleted (R15).

    Args:
        table: the table's id.
        number: counts from 1.
        state: ``opening`` while it is made: whether the table shows it is not known then.
        seq: the channel's number that it shows.
        fingerprint: of its content.
        at: when its content was pinned.
        shown_at: when the table showed it, for sure.
        superseded_at: when the next one was shown.
        execution_id: by which it was made.
    """

    channel: str
    table: str
    number: int
    state: EditionState
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
class ShowPublishedVersion:
    """Part of a commit: a table shows an edition. Refused unless that is the one that the execution has opened."""

    channel: str
    table: str
    number: int


@dataclass(frozen=True, slots=True)
class Publishable:
    """What publishing a channel would do to a table: its dry run.

    Args:
        number: of the edition; None where the table shows the newest already.
        compacts: partitions that would be compacted first, since plain files cannot say what is in them.

    """

    table: str
    seq: int
    number: int | None
    compacts: Sequence[str] = ()
    rows: int = 0
    files: int = 0
