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
        of_key = target.model is not None and column in target.model.key
        wrong = _read_null_rows(footers, column, include_deletions=of_key, target=target)
        if wrong.num_rows and of_key:
            raise key_checks.null_key_error(target.error_label, column, wrong.num_rows, _first_row(wrong))
        if wrong.num_rows:
            raise SchemaMismatch(
                f"{target.error_label}: column {column!r} must not be null, but is null in {wrong.num_rows} rows",
                found=str(_first_row(wrong)),
                expected=str(target.schema.field(column)),
                next="fill the column, or remove these rows",
                column=column,
                rows=wrong.num_rows,
            )


def _read_null_rows(
    footers: Sequence[FileSummary], column: str, *, include_deletions: bool, target: BlockTarget
) -> pa.Table:
    """Rows in which a column is null. Only the key of a deletion has a meaning, so deletions count for key columns
    only."""
    found = []
    for footer in footers:
        if footer.null_counts[column] != 0:
            table = open_block_file(footer.path).read()
            wrong = table.column(column).is_null()
            if target.has_deleted_column and not include_deletions:
                wrong = pc.and_(wrong, pc.invert(table.column(DELETED)))
            found.append(table.filter(wrong))
    return pa.concat_tables(found) if found else pa.table({})


def _first_row(rows: pa.Table) -> key_checks.Row:
    row: key_checks.Row = rows.slice(0, 1).to_pylist()[0]
    return row
