"""Names and types under which older blocks store the columns of a schema (R18)."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from nova_assets.formats import schema_fit
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


def columns_by_stored_name(block: Block, schema: Schema) -> dict[str, str]:
    """Columns of a schema by the names under which a block stores them, without the columns that the block lacks."""
    names = zip(stored_column_names(block, schema), schema.names, strict=True)
    return {own: name for own, name in names if own is not None}


def fit_stored_rows(rows: pa.Table, column_by_stored_name: Mapping[str, str], schema: Schema) -> pa.Table:
    """Rows under the stored names of their columns, fitted to a schema (``schema_fit.fit_to_schema``)."""
    return schema_fit.fit_to_schema(rows.rename_columns([column_by_stored_name[c] for c in rows.column_names]), schema)


def stored_column_types(block: Block, stored_names: tuple[str | None, ...]) -> tuple[DataType | None, ...]:
    """Stored types of these columns; None if the block does not record the type."""
    stored_schema = block.manifest.schema
    return tuple(stored_schema.field(n).type if n is not None and n in stored_schema else None for n in stored_names)
