"""Blocks: immutable sets of files that change a channel (Nova 2.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypeAlias

from nova_assets.model.file_source import ExternalFolder
from nova_assets.model.json_form import NOT_IN_JSON, JsonForm, json_key, register_form
from nova_assets.model.key_layout import KeyLayout, KeyPlacement, key_placement_from_json
from nova_assets.model.merge import MergeModel
from nova_assets.model.partitions import WHOLE
from nova_assets.model.schema import Schema
from nova_assets.short_repr import short_repr

Kind = Literal["base", "delta"]
Origin = Literal["task", "insert", "compact", "restore", "drop"]

ValueRanges: TypeAlias = Mapping[str, tuple[Any, Any]]
"""Column -> smallest and greatest value, as JSON values."""


def _value_ranges_from_json(data: Mapping[str, Any]) -> ValueRanges:
    return {column: (ends[0], ends[1]) for column, ends in data.items()}


register_form(
    ValueRanges, lambda ranges: {column: list(ends) for column, ends in ranges.items()}, _value_ranges_from_json
)


@dataclass(frozen=True, slots=True)
class DataFile(JsonForm):
    """One file of a block, described exactly enough that reads need no directory listing (R16).

    Args:
        path: relative to the warehouse root, with forward slashes; the full address of a file outside the warehouse.
        rows, bytes: size of the file.
        ranges: column -> (minimum, maximum), as JSON values, for key columns, order columns and summed columns.
        key_placement: buckets or key range of the rows; None if the block has no key layout.
        partition: partition of all rows. A staged block may hold files of several partitions, a committed block does
            not.
        deletes: number of deletion rows, for a file of a staged block.
        digest: hash of all bytes, computed by the writer; empty if the writer computed none.
        footer_digest: hash of the Parquet footer. A file whose footer hash differs has been replaced.
        uncompressed_bytes: size of the rows before compression, according to the footer; 0 if unknown.
    """

    __repr__ = short_repr

    path: str
    rows: int
    bytes: int
    ranges: ValueRanges = field(default_factory=dict, hash=False)
    key_placement: KeyPlacement | None = field(default=None, metadata=json_key("place"))
    partition: str = WHOLE
    deletes: int = 0
    digest: str = ""
    footer_digest: str = ""
    uncompressed_bytes: int = field(default=0, metadata=json_key("unpacked"))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        # By hand: a view of a big channel reads a million files, and generated code takes a quarter longer.
        return cls(
            data["path"],
            data["rows"],
            data["bytes"],
            _value_ranges_from_json(data["ranges"]),
            key_placement_from_json(data.get("place")),
            data.get("partition", WHOLE),
            data.get("deletes", 0),
            data.get("digest", ""),
            data.get("footer_digest", ""),
            data.get("unpacked", 0),
        )


@dataclass(frozen=True, slots=True)
class Manifest(JsonForm):
    """Content of a staged block: its exact file list, schema and format, before it has a sequence number.

    Args:
        files: the complete list of files.
        schema: columns of the channel, without ``_deleted`` (files of a keyed delta contain that column).
        deletes: number of deletion rows.
        format: file format.
        drops_no_rows: for a base: it was compared with the snapshot that it replaces, and drops no row (R10).
        layout: distribution of keys over the files; None if unknown.
        external_folder: owner of the files if they lie outside the warehouse.
        digest: hash of the written rows, independent of order and files; None if not requested. It is stored with an
            idempotency key, not with the block.
        merge: merge model of a staged block that has another model than its channel; None for the channel's model.
    """

    __repr__ = short_repr

    files: tuple[DataFile, ...]
    schema: Schema
    deletes: int = 0
    format: str = "parquet"
    drops_no_rows: bool = field(default=False, metadata=json_key("keeps_all"))
    layout: KeyLayout | None = None
    external_folder: ExternalFolder | None = field(default=None, metadata=json_key("outside", omit_default=True))
    digest: str | None = field(default=None, compare=False, metadata=NOT_IN_JSON)
    merge: MergeModel | None = field(default=None, metadata=json_key(omit_default=True))

    @property
    def rows(self) -> int:
        return sum(f.rows for f in self.files)

    @property
    def bytes(self) -> int:
        return sum(f.bytes for f in self.files)

    def split_by_partition(self) -> dict[str, Manifest]:
        """One manifest per partition: each becomes a block at commit."""
        files_by_partition: dict[str, list[DataFile]] = {}
        for f in self.files:
            files_by_partition.setdefault(f.partition, []).append(f)
        return {
            p: replace(self, files=tuple(files), deletes=sum(f.deletes for f in files))
            for p, files in files_by_partition.items()
        }


@dataclass(frozen=True, slots=True)
class Block(JsonForm):
    """A base or a delta. The base B_hi holds all rows as of ``hi``. The delta Δ(lo→hi) turns B_lo into B_hi.

    Args:
        id: id of the block. No other block ever gets the same id.
        channel, partition: channel and partition that contain the block.
        kind: ``base`` or ``delta``.
        lo, hi: a delta leads from sequence number ``lo`` to ``hi``. For a base, both are the number of the base.
        manifest: files, schema and format of the block.
        merge: merge model under which the block was written (R18).
        origin: operation that created the block. A base from compaction never changes the result of a read (R9).
        channel_merge: the channel's merge model at that time, if the block has another model (Nova 3.1).
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
    commit_id: str = field(default="", metadata=json_key("commit"))
    channel_merge: MergeModel | None = None

    _json_properties = ("range", "rows", "bytes")

    def as_json(self) -> dict[str, Any]:
        """Block as the service sends it: the content of the manifest is among its own fields."""
        form = super(Block, self).as_json()
        content = form.pop("manifest")
        columns = content.pop("schema")
        return {"outside": None, **content, **form, "columns": columns}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Block:
        manifest = {k: data[k] for k in ("files", "deletes", "format", "keeps_all", "layout", "outside")}
        return super(Block, cls).from_json({**data, "manifest": {**manifest, "schema": data["columns"]}})

    @property
    def has_own_merge(self) -> bool:
        """Whether the block has another merge model than its channel had when it was written."""
        return self.channel_merge is not None

    @property
    def model_of_channel(self) -> MergeModel:
        """Merge model of the channel when the block was written."""
        return self.merge if self.channel_merge is None else self.channel_merge

    @property
    def range(self) -> str:
        """``B5`` or ``Δ(4→5)``, in Nova's notation."""
        return f"B{self.hi}" if self.kind == "base" else f"Δ({self.lo}→{self.hi})"

    @property
    def rows(self) -> int:
        return self.manifest.rows

    @property
    def bytes(self) -> int:
        return self.manifest.bytes


@dataclass(frozen=True, slots=True)
class StagedBlock:
    """A block that an execution has staged but not committed: recorded first, then written, then described (R3).

    Args:
        id: id of the later committed block.
        folder: folder of the files, relative to the warehouse root; used for this block only.
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
