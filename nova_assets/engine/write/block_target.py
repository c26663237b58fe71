"""Write target: a staged block with all parameters that determine how its rows are written."""

from __future__ import annotations

from dataclasses import dataclass

from nova_assets.engine.buckets.file_writer import FileTarget
from nova_assets.engine.rows.canonical_keys import columns_to_canonicalize
from nova_assets.model.arrow_types import to_arrow_schema
from nova_assets.model.block import Kind
from nova_assets.model.channel import Channel
from nova_assets.model.key_layout import KeyLayout
from nova_assets.model.merge import MergeModel
from nova_assets.model.partitions import WHOLE, Dimension, partition_values
from nova_assets.model.schema import Schema
from nova_assets.model.sum_bounds import overflowable_sums


@dataclass(frozen=True, slots=True)
class BlockTarget:
    """A block to write.

    Args:
        schema: schema of the channel, or of the rows of a private port.
        model: merge model; None if rows are written unchanged (private ports, deltas of Custom channels).
        folder: address of the block's folder, which exists and belongs to this block alone.
        channel: partitioned channel whose dimensions separate the rows; None if the channel is not partitioned.
        scope: partitions to which the rows must belong.
        layout: key layout; None if rows stay in input order.
        channel_model: the channel's merge model, if the block has another model.
    """

    block_id: str
    error_label: str
    kind: Kind
    schema: Schema
    model: MergeModel | None
    folder: str
    channel: Channel | None = None
    scope: str = WHOLE
    layout: KeyLayout | None = None
    channel_model: MergeModel | None = None

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        return () if self.channel is None else self.channel.partitions

    @property
    def split_columns(self) -> tuple[str, ...]:
        """Partition columns, if the rows can belong to several partitions; otherwise empty."""
        fixed_columns = partition_values(self.scope)
        columns = tuple(d.column for d in self.dimensions)
        return columns if any(c not in fixed_columns for c in columns) else ()

    @property
    def is_keyed(self) -> bool:
        return self.model is not None and bool(self.model.key)

    @property
    def may_have_deletions(self) -> bool:
        return self.model is not None and self.model.has_deletions

    @property
    def has_deleted_column(self) -> bool:
        """Whether the files have the column ``_deleted``."""
        return self.may_have_deletions and self.kind == "delta"

    @property
    def allows_delete_and_live(self) -> bool:
        """Whether a key may have both a deletion and a live row. Where the live row always replaces the old row as a
        whole, the deletion would be redundant."""
        return (
            self.has_deleted_column
            and self.model is not None
            and (self.model.kind != "upsert" or bool(self.model.order_by))
        )

    @property
    def file_schema(self) -> Schema:
        return self.schema.of_files.with_deleted() if self.has_deleted_column else self.schema.of_files

    @property
    def canonical_key_columns(self) -> tuple[str, ...]:
        """Key columns whose values are written in canonical form."""
        return () if self.model is None else columns_to_canonicalize(self.schema, self.model.key)

    @property
    def required_columns(self) -> tuple[str, ...]:
        """Columns that must not be null."""
        if self.model is None:
            return ()
        required = [f.name for f in self.schema.fields if not f.nullable]
        return tuple(dict.fromkeys((*self.model.key, *required)))

    @property
    def range_columns(self) -> tuple[str, ...]:
        """Columns whose minimum and maximum the catalog keeps."""
        if self.model is None:
            return ()
        models = [m for m in (self.model, self.channel_model) if m is not None]
        return tuple(
            dict.fromkeys(c for m in models for c in (*m.key, *m.order_by, *overflowable_sums(m, self.schema)))
        )

    @property
    def file_target(self) -> FileTarget:
        """The same target for the writers of files."""
        return FileTarget(
            self.folder,
            self.block_id,
            to_arrow_schema(self.file_schema.with_all_nullable()),
            self.layout,
            self.allows_delete_and_live,
            self.split_columns,
            self.dimensions,
            self.error_label,
            self.range_columns,
            self.required_columns,
        )
