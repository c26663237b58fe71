"""Parquet files that are too large for memory. Spark tasks read them with Arrow, by the same rules as small files.

Spark's own reader assumes that all files have the columns of one file. It also needs each page as a whole in Java's
memory, while other writers put hundreds of megabytes of wide rows into a page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from nova_assets.engine.buckets.spark_jobs import MAX_BATCH_ROWS, frame_of_tasks
from nova_assets.engine.inputs.user_tables import (
    add_missing_columns,
    concat_file_tables,
    convert_user_table,
)
from nova_assets.engine.session.worker_errors import as_task_errors
from nova_assets.engine.storage.parquet_footers import uncompressed_bytes
from nova_assets.errors import SchemaMismatch
from nova_assets.formats.input_file import InputFile, name_file_in_nova_errors
from nova_assets.formats.parquet_and_orc import call_columnar_reader
from nova_assets.formats.parquet_input import ParquetInput
from nova_assets.formats.schema_fit import fit_to_schema, schema_of
from nova_assets.formats.value_checks import validate_table
from nova_assets.model.schema import DELETED, UNKNOWN_TYPE, Schema
from nova_assets.model.value_conversion import TYPED
from nova_assets.plan.batch_size import (
    ARROW_BATCH_BYTES,
    SPLIT_BYTES,
    RowWidth,
    row_width,
    rows_per_batch,
    widest_row_width,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class ParquetPart:
    """Row groups of one file that one task reads.

    Args:
        first_row_number: number of the part's first row in the file, from 1.
        batch_rows: number of rows to read at a time.
    """

    path: Path
    row_groups: tuple[int, ...]
    first_row_number: int
    batch_rows: int


class LargeParquetFiles:
    """Rows of Parquet files that were checked to be complete.

    Args:
        paths: paths of the files.
        schema: schema of the channel; None leaves the types unchanged.
        allow_widening: whether the channel accepts wider types than it has.
    """

    def __init__(self, paths: Sequence[Path], schema: Schema | None, allow_widening: bool) -> None:
        self.paths = tuple(paths)
        self._schema = schema
        self._allow_widening = allow_widening
        self._footers = [call_columnar_reader(InputFile(p), pq.read_metadata, "Parquet") for p in paths]

    @property
    def widest_row_width(self) -> RowWidth:
        """Width of the rows in the file with the widest rows."""
        sizes = (p.stat().st_size for p in self.paths)
        return widest_row_width(
            row_width(f.num_rows, size, uncompressed_bytes(f)) for f, size in zip(self._footers, sizes, strict=True)
        )

    def row_schema(self) -> Schema:
        """Schema of the rows, in the types that the channel accepts.

        Raises:
            SchemaMismatch: files have different types for one column, or no file gives the type of a column.
        """
        empty_tables = [self._empty_table(p, f) for p, f in zip(self.paths, self._footers, strict=True)]
        schema = schema_of(concat_file_tables(empty_tables, [str(p) for p in self.paths]))
        untyped_columns = [f.name for f in schema.fields if f.type == UNKNOWN_TYPE]
        if untyped_columns:
            raise SchemaMismatch(
                f"column {untyped_columns[0]!r} has no type, because all its values are null",
                expected="a type",
                next=f'declare the channel with schema="..., {untyped_columns[0]} TYPE", or leave the column out',
                column=untyped_columns[0],
            )
        return schema

    def split_into_parts(self) -> Iterator[ParquetPart]:
        """One part per task, each with about the same uncompressed size."""
        for path, footer in zip(self.paths, self._footers, strict=True):
            row_bytes = uncompressed_bytes(footer) // max(1, footer.num_rows)
            batch_rows, first_row_number = rows_per_batch(ARROW_BATCH_BYTES, row_bytes, MAX_BATCH_ROWS), 1
            for groups in _row_groups_per_task(footer):
                yield ParquetPart(path, groups, first_row_number, batch_rows)
                first_row_number += sum(footer.row_group(n).num_rows for n in groups)

    def to_frame(self, spark: SparkSession) -> DataFrame:
        """Rows as a frame. An error of ``read_part`` ends the evaluation and is transported to the driver
        (``worker_errors``)."""
        from nova_assets.engine.rows.spark_types import to_struct

        columns, parts = self.row_schema(), list(self.split_into_parts())
        schema, allow_widening = self._schema, self._allow_widening

        def read(n: int) -> Iterator[pa.RecordBatch]:
            with as_task_errors():
                for table in read_part(parts[n], schema, allow_widening, columns):
                    yield from table.to_batches()

        return frame_of_tasks(spark, read, len(parts), to_struct(columns))

    def _empty_table(self, path: Path, footer: pq.FileMetaData) -> pa.Table:
        """Empty table with the columns of a file."""
        with name_file_in_nova_errors(str(path)):
            with closing(ParquetInput(path, self._schema, str(path))) as opened:
                empty = opened.schema.remove_metadata().empty_table()
            table = convert_user_table(empty, self._schema, TYPED, allow_widening=self._allow_widening)
        return add_missing_columns(table, self._schema) if _has_only_deletions(footer) else table


def read_part(part: ParquetPart, schema: Schema | None, allow_widening: bool, row_schema: Schema) -> Iterator[pa.Table]:
    """Rows of a part, in batches.

    Args:
        schema, allow_widening: as for ``LargeParquetFiles``.
        row_schema: common schema of all files.

    Raises:
        SchemaMismatch: the channel cannot hold a value. The error names file, row and column.
        BadRecord: the file is damaged.
    """
    row_number = part.first_row_number
    for table in _read_batches(part, schema):
        with name_file_in_nova_errors(str(part.path)):
            validate_table(table)
            yield fit_to_schema(
                convert_user_table(table, schema, TYPED, allow_widening=allow_widening, first_row_number=row_number),
                row_schema,
            )
        row_number += table.num_rows


def _read_batches(part: ParquetPart, schema: Schema | None) -> Iterator[pa.Table]:
    file = InputFile(part.path)
    open_file = partial(ParquetInput, schema=schema, display_name=file.display_name)
    with closing(call_columnar_reader(file, open_file, "Parquet")) as opened:
        tables = opened.iter_tables(part.batch_rows, part.row_groups, part.first_row_number)
        while (table := call_columnar_reader(file, lambda _: next(tables, None), "Parquet")) is not None:
            yield table.replace_schema_metadata(None)


def _row_groups_per_task(footer: pq.FileMetaData) -> Iterator[tuple[int, ...]]:
    groups: list[int] = []
    size = 0
    for n in range(footer.num_row_groups):
        groups.append(n)
        size += footer.row_group(n).total_byte_size
        if size >= SPLIT_BYTES:
            yield tuple(groups)
            groups, size = [], 0
    if groups:
        yield tuple(groups)


def _has_only_deletions(footer: pq.FileMetaData) -> bool:
    """Whether the footer proves that all rows of a file are deletions."""
    names = [footer.schema.column(n).path for n in range(footer.num_columns)]
    if DELETED not in names or not footer.num_rows:
        return False
    statistics = [footer.row_group(n).column(names.index(DELETED)).statistics for n in range(footer.num_row_groups)]
    return all(s is not None and s.has_min_max and s.min is True and s.null_count == 0 for s in statistics)
