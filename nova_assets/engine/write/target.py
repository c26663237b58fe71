"""What is to be written: a staged block with all that decides how."""

from __future__ import annotations

from dataclasses import dataclass

from nova_assets.engine.buckets import bucket_files
from nova_assets.engine.rows.canonical_keys import canonical_columns
from nova_assets.model.arrow_types import to_arrow
from nova_assets.model.block import Kind
from nova_assets.model.block_layout import Layout
from nova_assets.model.channel import Channel
from nova_assets.model.merge import MergeModel
from nova_assets.model.partitions import WHOLE, Dimension, partition_values
from nova_assets.model.schema import Schema
from nova_assets.model.sum_bounds import limited_sums


@dataclass(frozen=True, slots=True)
class Target:
    """A block to be written.

    Args:
        schema: the channel's, or that of a private port's rows.
        model: None where rows are written as they come (private ports, deltas of Custom channels).
        folder: its address; made, and this block's alone.
        channel, scope: with the dimensions by which rows are kept apart, and the partitions that they may be in; None
            where there are none.
        layout: None where rows lie as they come.
    """

    id: str
    where: str
    kind: Kind
    schema: Schema
    model: MergeModel | None
    folder: str
    channel: Channel | None = None
    scope: str = WHOLE
    layout: Layout | None = None

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        return () if self.channel is None else self.channel.partitions

    @property
    def spread(self) -> tuple[str, ...]:
        """The partition columns, where rows may be of several partitions."""
        fixed = partition_values(self.scope)
        columns = tuple(d.column for d in self.dimensions)
        return columns if any(c not in fixed for c in columns) else ()

    @property
    def keyed(self) -> bool:
        return self.model is not None and self.model.keyed

    @property
    def marked(self) -> bool:
        """Whether the files have ``_deleted``: those of keyed deltas."""
        return self.keyed and self.kind == "delta"

    @property
    def both(self) -> bool:
        """Whether a key may have a deletion and a live row: where a live row decides whole, a deletion says nothing."""
        return self.marked and self.model is not None and (self.model.kind != "upsert" or bool(self.model.order_by))

    @property
    def physical(self) -> Schema:
        return self.schema.with_deleted() if self.marked else self.schema

    @property
    def canonical(self) -> tuple[str, ...]:
        """The key columns whose values are written in canonical form."""
        return () if self.model is None else canonical_columns(self.schema, self.model.key)

    @property
    def never_null(self) -> tuple[str, ...]:
        """The columns that may not be null."""
        if self.model is None:
            return ()
        required = [f.name for f in self.schema.fields if not f.nullable]
        return tuple(dict.fromkeys((*self.model.key, *required)))

    @property
    def ranged(self) -> tuple[str, ...]:
        """The columns whose bounds the catalog keeps."""
        if self.model is None:
            return ()
        summed = limited_sums(self.model, self.schema)
        return tuple(dict.fromkeys((*self.model.key, *self.model.order_by, *summed)))

    @property
    def written(self) -> bucket_files.Target:
        """The same for those who write rows into files."""
        return bucket_files.Target(
            self.folder,
            self.id,
            to_arrow(self.physical.relaxed()),
            self.layout,
            self.both,
            self.spread,
            self.dimensions,
            self.where,
            self.ranged,
            self.never_null,
        )
