"""Check for nulls in columns that must not be null, from the footers of written files (R11)."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from nova_assets.engine.storage.integrity import open_block_file
from nova_assets.engine.storage.parquet_footers import FileSummary, total_null_count
from nova_assets.engine.write import key_checks
from nova_assets.engine.write.block_target import BlockTarget
from nova_assets.errors import SchemaMismatch
from nova_assets.formats.python_values import to_python_rows
from nova_assets.model.schema import DELETED


def check_nulls(footers: Sequence[FileSummary], target: BlockTarget) -> None:
    """Reject nulls in required columns.

    Raises:
        BadKey: a key column has nulls.
        SchemaMismatch: another required column has nulls.
    """
    for column in target.required_columns:
        if total_null_count(footers, column) == 0:
            continue
        is_key_column = target.model is not None and column in target.model.key
        null_rows = _read_null_rows(footers, column, include_deletions=is_key_column, target=target)
        if null_rows.num_rows and is_key_column:
            raise key_checks.null_key_error(target.error_label, column, null_rows.num_rows, _first_row(null_rows))
        if null_rows.num_rows:
            raise SchemaMismatch(
                f"{target.error_label}: column {column!r} must not be null, but is null in {null_rows.num_rows} rows",
                found=str(_first_row(null_rows)),
                expected=str(target.schema.field(column)),
                next="fill the column, or remove these rows",
                column=column,
                rows=null_rows.num_rows,
            )


def _read_null_rows(
    footers: Sequence[FileSummary], column: str, *, include_deletions: bool, target: BlockTarget
) -> pa.Table:
    """Rows in which a column is null. Only the key of a deletion has a meaning, so deletions count for key columns
    only."""
    tables = []
    for footer in footers:
        if footer.null_counts[column] != 0:
            table = open_block_file(footer.path).read()
            is_null = table.column(column).is_null()
            if target.has_deleted_column and not include_deletions:
                is_null = pc.and_(is_null, pc.invert(table.column(DELETED)))
            tables.append(table.filter(is_null))
    return pa.concat_tables(tables) if tables else pa.table({})


def _first_row(rows: pa.Table) -> key_checks.Row:
    return to_python_rows(rows.slice(0, 1))[0]
