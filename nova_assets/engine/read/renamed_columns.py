"""What older blocks call the columns of a schema (R18)."""

from __future__ import annotations

from nova_assets.model.block import Block
from nova_assets.model.schema import DELETED, DataType, Schema


def names_in(block: Block, schema: Schema) -> tuple[str | None, ...]:
    """What a block calls the columns; None for those that it lacks, though it may have another of that name."""
    own = block.manifest.schema
    return tuple(
        f.name if f.name == DELETED or ((found := own.named_in(f)) is None and f.name not in own) else found
        for f in schema.fields
    )


def types_in(block: Block, names: tuple[str | None, ...]) -> tuple[DataType | None, ...]:
    """Of which types those columns are there; None where the block does not say."""
    own = block.manifest.schema
    return tuple(own.field(n).type if n is not None and n in own else None for n in names)
