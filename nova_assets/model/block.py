"""Blocks: immutable sets of files that change a channel (Nova 2.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from nova_assets.model.block_layout import KeyLayout, KeyPlacement, key_placement_from_json
from nova_assets.model.external_files import ExternalFolder
from nova_assets.model.merge import MergeModel
from nova_assets.model.partitions import WHOLE
from nova_assets.model.schema import Schema
from nova_assets.short_repr import short_repr

Kind = Literal["base", "delta"]
Origin = Literal["task", "insert", "compact", "restore", "drop"]


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a block, as exact as the catalog needs it to answer reads without looking (R16).

    Args:
        path: relative to the warehouse root, forward slashes; the whole address of one that is not in it.
        rows, bytes: its size.
        ranges: column -> (least, greatest) for the key and order columns, and those that are summed, as JSON values.
        key_placement: which buckets or keys its rows are of, where the block is laid out.
        partition: which all of its rows are in; a staged block may hold files of several, a committed one does not.
        deletes: rows that are deletions, where the file is of a staged block.
        digest: of all bytes, as the writer computed it; empty where none did.
        footer_digest: of the Parquet footer: a file whose footer has another digest is another file.
        uncompressed_bytes: bytes of its rows before they are compressed, as its footer says; 0 where that is not known.
    """

    __repr__ = short_repr

    path: str
    rows: int
    bytes: int
    ranges: Mapping[str, tuple[Any, Any]] = field(default_factory=dict, hash=False)
    key_placement: KeyPlacement | None = None
    partition: str = WHOLE
    deletes: int = 0
    digest: str = ""
    footer_digest: str = ""
    uncompressed_bytes: int = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "rows": self.rows,
            "bytes": self.bytes,
            "ranges": {k: list(v) for k, v in self.ranges.items()},
            "place": None if self.key_placement is None else self.key_placement.as_json(),
            "partition": self.partition,
            "deletes": self.deletes,
            "digest": self.digest,
            "footer_digest": self.footer_digest,
            "unpacked": self.uncompressed_bytes,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> DataFile:
        ranges = {k: (v[0], v[1]) for k, v in data["ranges"].items()}
        where = (key_placement_from_json(data.get("place")), data.get("partition", WHOLE), data.get("deletes", 0))
        digests = (data.get("digest", ""), data.get("footer_digest", ""))
        return DataFile(
            data["path"],
            data["rows"],
            data["bytes"],
            ranges,
            *where,
            *digests,
            uncompressed_bytes=data.get("unpacked", 0),
        )


@dataclass(frozen=True, slots=True)
class Manifest:
    """What was staged: the content of a block that has no number yet.

    Args:
        files: exactly these, and no others.
        schema: the channel's columns, without ``_deleted`` (deltas of keyed channels have it in their files).
        deletes: rows that are deletions.
        format: of the files.
        keeps_all: of a base: it was compared with the snapshot that it replaces, and drops no row of it (R10).
        layout: how rows lie in the files; None where nothing is known of that.
        external_folder: whose the files are, where they are not the warehouse's.
        digest: of the rows that were written, whatever their order and files; None where nobody asked for it. It is
            kept with an idempotency key, and not with the block.
    """

    __repr__ = short_repr

    files: tuple[DataFile, ...]
    schema: Schema
    deletes: int = 0
    format: str = "parquet"
    keeps_all: bool = False
    layout: KeyLayout | None = None
    external_folder: ExternalFolder | None = None
    digest: str | None = field(default=None, compare=False)

    @property
    def rows(self) -> int:
        return sum(f.rows for f in self.files)

    @property
    def bytes(self) -> int:
        return sum(f.bytes for f in self.files)

    def split_by_partition(self) -> dict[str, Manifest]:
        """What a commit makes a block of, each: the files of one partition."""
        files_by_partition: dict[str, list[DataFile]] = {}
        for f in self.files:
            files_by_partition.setdefault(f.partition, []).append(f)
        return {
            p: replace(self, files=tuple(files), deletes=sum(f.deletes for f in files))
            for p, files in files_by_partition.items()
        }

    def as_json(self) -> dict[str, Any]:
        return {
            "files": [f.as_json() for f in self.files],
            "schema": self.schema.as_json(),
            "deletes": self.deletes,
            "format": self.format,
            "keeps_all": self.keeps_all,
            "layout": None if self.layout is None else self.layout.as_json(),
            **({} if self.external_folder is None else {"outside": self.external_folder.as_json()}),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Manifest:
        return Manifest(
            tuple(DataFile.from_json(f) for f in data["files"]),
            Schema.from_json(data["schema"]),
            data["deletes"],
            data["format"],
            data.get("keeps_all", False),
            KeyLayout.from_json(data["layout"]) if data.get("layout") else None,
            ExternalFolder.from_json(data["outside"]) if data.get("outside") else None,
        )


@dataclass(frozen=True, slots=True)
class Block:
    """A base B_hi (everything as of ``hi``) or a delta (what turns B_lo into B_hi).

    Args:
        id: unique for ever.
        channel, partition: where it belongs.
        kind: ``base`` or ``delta``.
        lo, hi: the numbers at its ends; for a base both are its number.
        manifest: its files, schema and format.
        merge: the merge model it was written under (R18).
        origin: who made it; a base made by compaction changes no answer (R9).
    """

    __repr__ = short_repr

    id: str
    channel: str
    partition: str
    kind: Kind
    lo: int
    hi: int
    manifest: Manifest
    merge: MergeModel
    origin: Origin = "task"
    commit_id: str = ""

    @property
    def range(self) -> str:
        """``B5`` or ``Δ(4→5)``, as Nova writes it."""
        return f"B{self.hi}" if self.kind == "base" else f"Δ({self.lo}→{self.hi})"

    @property
    def rows(self) -> int:
        return self.manifest.rows

    @property
    def bytes(self) -> int:
        return self.manifest.bytes


@dataclass(frozen=True, slots=True)
class StagedBlock:
    """A block that an execution has written and not committed: recorded first, then written, then described (R3).

    Args:
        id: becomes the block's id when it is committed.
        folder: where its files are, relative to the warehouse root; nothing else ever is in it.
        manifest: None until the files are complete.
    """

    __repr__ = short_repr

    id: str
    execution_id: str
    channel: str | None
    port: str
    kind: Kind
    folder: str
    epoch: int
    partition: str = WHOLE
    manifest: Manifest | None = None
