"""JSON shapes of blocks and commits."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from nova_assets.model.block import Block, DataFile, Kind, Manifest, Origin
from nova_assets.model.commit import Commit
from nova_assets.model.external_files import ExternalFolder
from nova_assets.model.key_layout import KeyLayout
from nova_assets.model.merge import merge_model_from_json
from nova_assets.model.schema import Schema
from nova_assets.service.shapes.shape import Column, Shape, columns_from_schema, schema_from_columns


class FileShape(Shape):
    """A file. ``path`` is relative to the warehouse, or a full address. ``ranges`` are minimum and maximum of key
    columns.
    """

    path: str
    rows: int
    bytes: int
    ranges: dict[str, list[Any]]
    place: dict[str, Any] | None = None
    partition: str = ""
    deletes: int = 0
    digest: str = ""
    footer_digest: str = ""
    unpacked: int = 0


class BlockShape(Shape):
    """A base ``B5`` or a delta ``Δ(4→5)``, with its files. ``channel_merge`` is the channel's merge model, if ``merge``
    belongs to this block alone.
    """

    id: str
    channel: str
    partition: str
    kind: Kind
    lo: int
    hi: int
    range: str
    origin: Origin
    commit: str
    rows: int
    bytes: int
    deletes: int
    format: str
    keeps_all: bool
    columns: list[Column]
    merge: dict[str, Any]
    channel_merge: dict[str, Any] | None = None
    layout: dict[str, Any] | None
    outside: dict[str, Any] | None
    files: list[FileShape]

    @staticmethod
    def from_block(block: Block) -> BlockShape:
        m = block.manifest
        return BlockShape(
            id=block.id,
            channel=block.channel,
            partition=block.partition,
            kind=block.kind,
            lo=block.lo,
            hi=block.hi,
            range=block.range,
            origin=block.origin,
            commit=block.commit_id,
            rows=block.rows,
            bytes=block.bytes,
            deletes=m.deletes,
            format=m.format,
            keeps_all=m.drops_no_rows,
            columns=columns_from_schema(m.schema) or [],
            merge=block.merge.as_json(),
            channel_merge=None if block.channel_merge is None else block.channel_merge.as_json(),
            layout=None if m.layout is None else m.layout.as_json(),
            outside=None if m.external_folder is None else m.external_folder.as_json(),
            files=[FileShape(**f.as_json()) for f in m.files],
        )

    def without_content(self) -> BlockShape:
        """The block without columns, layout and files, for callers who may not read the channel."""
        nothing: dict[str, Any] = {"columns": [], "layout": None, "outside": None, "files": []}
        return self.model_copy(update=nothing)

    def to_block(self) -> Block:
        manifest = Manifest(
            tuple(DataFile.from_json(f.model_dump()) for f in self.files),
            schema_from_columns(self.columns) or Schema(()),
            self.deletes,
            self.format,
            self.keeps_all,
            None if self.layout is None else KeyLayout.from_json(self.layout),
            None if self.outside is None else ExternalFolder.from_json(self.outside),
        )
        place_of_block = (self.id, self.channel, self.partition, self.kind, self.lo, self.hi)
        merge = merge_model_from_json(self.merge)
        channel_merge = None if self.channel_merge is None else merge_model_from_json(self.channel_merge)
        return Block(*place_of_block, manifest, merge, self.origin, self.commit, channel_merge)


class CommitShape(Shape):
    """A commit. ``numbers`` are the sequence numbers that channels took, ``heads`` their heads after the commit.

    ``repeated`` says that the idempotency key had been used before, and nothing was changed.
    """

    id: str
    execution: str
    binding: str | None
    at: datetime
    numbers: dict[str, int]
    heads: dict[str, int]
    repeated: bool
    blocks: list[BlockShape]
    details: dict[str, Any]

    @staticmethod
    def from_commit(commit: Commit) -> CommitShape:
        return CommitShape(
            id=commit.id,
            execution=commit.execution_id,
            binding=commit.binding,
            at=commit.at,
            numbers=dict(commit.numbers),
            heads=dict(commit.heads),
            repeated=commit.repeated,
            blocks=[BlockShape.from_block(b) for b in commit.blocks],
            details=dict(commit.details),
        )

    def to_commit(self) -> Commit:
        return Commit(
            self.id,
            self.execution,
            self.binding,
            self.at,
            self.numbers,
            tuple(b.to_block() for b in self.blocks),
            self.heads,
            repeated=self.repeated,
            details=self.details,
        )


class CheckedShape(Shape):
    """Result of an insert's dry run."""

    channel: str
    kind: Kind
    head: int
    columns: list[Column]
