"""Names and types under which older blocks store the columns of a schema (R18)."""

from __future__ import annotations

from nova_assets.model.block import Block
from nova_assets.model.schema import DELETED, DataType, Schema


def stored_column_names(block: Block, schema: Schema) -> tuple[str | None, ...]:
    """Stored name of each column in a block; None for columns that the block lacks, even if it has an unrelated column
    of that name. Spark finds columns of files without regard to case."""
    stored_schema = block.manifest.schema
    stored_names = {name.lower() for name in stored_schema.names}
    return tuple(
        f.name
        if f.name == DELETED
        or ((found := stored_schema.name_of_field(f)) is None and f.name.lower() not in stored_names)
        else found
        for f in schema.fields
    )


def stored_column_types(block: Block, stored_names: tuple[str | None, ...]) -> tuple[DataType | None, ...]:
    """Stored types of these columns; None if the block does not record the type."""
    stored_schema = block.manifest.schema
    return tuple(stored_schema.field(n).type if n is not None and n in stored_schema else None for n in stored_names)
